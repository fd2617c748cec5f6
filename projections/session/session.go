// Package session stores the data for signing in to the console: sessions, sign-in links, used challenges and the
// counters of passkeys. None of it is in the log: no event stores or ends a session, and a restore ends all of them
// ([EndSignIns]). Memberships and passkeys are read from the projections. The package knows neither cookies nor pages.
// Every statement names the shard.
package session

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
)

// Store reads only from the primary, because an ended session must not be found again.
type Store struct {
	Pool         eventstore.Database
	Installation eventstore.Installation
	Plans        domain.Plans
}

// Lifetimes of a console session: without a request, and in total.
const (
	Idle     = 30 * time.Minute
	Lifetime = 12 * time.Hour
)

// Session is a member who has signed in to the console.
type Session struct {
	ID           domain.SessionID
	Organization domain.OrganizationID
	Member       domain.MemberID
	Role         domain.Role // unchanged since the session began
	UserAgent    string
	CreatedAt    time.Time
	ProvedAt     time.Time // the last proof of identity
	UsedAt       time.Time

	// Values read with the session.
	Plan             string
	Internal         bool
	PerMinute        int   // the organization's limit
	Sequence         int64 // the organization's
	OrganizationName string
	Email            string // empty once erased

	begins bool // to be stored, possibly again under another token
	ended  bool // another request has ended it meanwhile
}

// Begin makes the next commit store the session.
func (s *Session) Begin() { s.begins = true }

// Ended reports whether the session had already ended when its token was to be replaced.
func (s *Session) Ended() bool { return s.ended }

// Sessions is an scs CtxStore for console sessions. The context carries the session ([With]): its organization
// determines the shard. A session's data is in columns, so that one statement finds the session and checks its member.
// The expiry passed by scs is not used.
type Sessions struct {
	*Store
	Now func() time.Time
}

type sessionKey struct{}

// With returns a context that carries the session that scs will find, store or delete.
func With(ctx context.Context, shard domain.Shard, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, sessionAt{shard, s})
}

type sessionAt struct {
	shard domain.Shard
	*Session
}

var errNoSession = errors.New("a session is stored with a context that carries it")

// of returns the session in the context and the hash of the token, which scs has generated.
func (s Sessions) of(ctx context.Context, token string) (at sessionAt, sum []byte, err error) {
	at, ok := ctx.Value(sessionKey{}).(sessionAt)
	if !ok {
		return at, nil, errNoSession
	}
	sum, err = base64.RawURLEncoding.DecodeString(token)
	return at, sum, err
}

// A session is valid while its member is active and has the role that the session began with. This is read from the
// primary for each request.
var findSession = cluster.SQL(`SELECT s.session_id, s.organization_id, s.member_id, s.role, s.user_agent,
		s.created_at, s.proved_at, s.used_at,
		o.plan, o.internal, o.per_minute, o.sequence, coalesce(n.body, ''), coalesce(e.body, ''), s.data
	FROM {console_sessions} s
	JOIN LATERAL (SELECT role, status, email_id FROM {members}
		WHERE shard = $1 AND organization_id = s.organization_id AND member_id = s.member_id OFFSET 0) m
		ON m.status = 'active' AND m.role = s.role
	JOIN LATERAL (SELECT plan, internal, per_minute, sequence, name_id FROM {organization_state}
		WHERE shard = $1 AND organization_id = s.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = s.organization_id AND id = o.name_id OFFSET 0) n ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = s.organization_id AND id = m.email_id OFFSET 0) e ON true
	WHERE s.shard = $1 AND s.token_sha256 = $2 AND s.expires_at > $3`)

// FindCtx implements scs.CtxStore.
func (s Sessions) FindCtx(ctx context.Context, token string) (data []byte, found bool, err error) {
	at, sum, err := s.of(ctx, token)
	if err != nil || !s.Installation.Has(at.shard) {
		return nil, false, err
	}
	return statement.First(ctx, s.Pool, "find a session", func(row pgx.CollectableRow) (data []byte, err error) {
		var own *int32
		err = row.Scan(&at.ID, &at.Organization, &at.Member, &at.Role, &at.UserAgent,
			&at.CreatedAt, &at.ProvedAt, &at.UsedAt,
			&at.Plan, &at.Internal, &own, &at.Sequence, &at.OrganizationName, &at.Email, &data)
		at.PerMinute = s.Plans.PerMinute(at.Plan, own)
		return data, err
	}, findSession, at.shard, sum, s.Now())
}

var (
	insertSession = cluster.SQL(`INSERT INTO {console_sessions}
			(shard, token_sha256, session_id, organization_id, member_id, role, user_agent, data,
			created_at, proved_at, used_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`)
	// A session that ended during its request is not restored.
	touchSession = cluster.SQL(`UPDATE {console_sessions} SET data = $3, used_at = $4, expires_at = $5
		WHERE shard = $1 AND token_sha256 = $2`)
	// A new session ends the oldest ones, never itself, whatever the clocks of the others were.
	endOldest = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND token_sha256 = ANY(ARRAY(
		SELECT token_sha256 FROM {console_sessions}
		WHERE shard = $1 AND member_id = $3 AND token_sha256 <> $2 ORDER BY used_at DESC, token_sha256 OFFSET $4))`)
)

// MaxPerMember is the maximum number of sessions of a member. Beginning another one ends the least recently used.
const MaxPerMember = 20

// CommitCtx implements scs.CtxStore.
func (s Sessions) CommitCtx(ctx context.Context, token string, data []byte, _ time.Time) error {
	at, sum, err := s.of(ctx, token)
	if err != nil {
		return err
	}
	at.UsedAt = s.Now()
	expires := at.UsedAt.Add(Idle)
	if most := at.CreatedAt.Add(Lifetime); most.Before(expires) {
		expires = most
	}
	if at.begins {
		err = statement.Exec(ctx, s.Pool, "store a session", insertSession, at.shard, sum,
			at.ID, at.Organization, at.Member, at.Role, at.UserAgent, data,
			at.CreatedAt, at.ProvedAt, at.UsedAt, expires)
		if at.begins = err != nil; at.begins {
			return err
		}
		return statement.Exec(ctx, s.Pool, "end the oldest sessions",
			endOldest, at.shard, sum, at.Member, MaxPerMember-1)
	}
	return statement.Exec(ctx, s.Pool, "note the use of a session", touchSession, at.shard, sum, data, at.UsedAt, expires)
}

var deleteSession = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND token_sha256 = $2 RETURNING true`)

// DeleteCtx implements scs.CtxStore.
func (s Sessions) DeleteCtx(ctx context.Context, token string) error {
	at, sum, err := s.of(ctx, token)
	if err != nil || !s.Installation.Has(at.shard) {
		return err
	}
	_, there, err := statement.First(context.WithoutCancel(ctx), s.Pool, "end a session", pgx.RowTo[bool],
		deleteSession, at.shard, sum)
	at.ended = err == nil && !there
	return err
}

// Find implements scs.Store. scs calls FindCtx instead.
func (s Sessions) Find(token string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), token)
}

// Commit implements scs.Store.
func (s Sessions) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

// Delete implements scs.Store.
func (s Sessions) Delete(token string) error { return s.DeleteCtx(context.Background(), token) }

var listSessions = cluster.SQL(`SELECT session_id, organization_id, member_id, role, user_agent, created_at, proved_at, used_at
	FROM {console_sessions} WHERE shard = $1 AND member_id = $2 AND expires_at > $3 ORDER BY session_id`)

// SessionsOf lists the sessions of a member, oldest first.
func (s *Store) SessionsOf(
	ctx context.Context, o domain.OrganizationID, member domain.MemberID, now time.Time,
) ([]Session, error) {
	return statement.All(ctx, s.Pool, "list sessions", func(row pgx.CollectableRow) (at Session, err error) {
		err = row.Scan(&at.ID, &at.Organization, &at.Member, &at.Role, &at.UserAgent,
			&at.CreatedAt, &at.ProvedAt, &at.UsedAt)
		return at, err
	}, listSessions, o.Shard(), member, now)
}

var endSession = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND member_id = $2 AND session_id = $3`)

// EndSession ends a session of a member. It does nothing if the session has already ended.
func (s *Store) EndSession(
	ctx context.Context, o domain.OrganizationID, member domain.MemberID, id domain.SessionID,
) error {
	return statement.Exec(ctx, s.Pool, "end a session", endSession, o.Shard(), member, id)
}

// EndSessions ends all sessions of a member.
func (s *Store) EndSessions(ctx context.Context, o domain.OrganizationID, member domain.MemberID) error {
	return statement.Exec(ctx, s.Pool, "end all sessions", projections.EndSessions, o.Shard(), member)
}

// EndSignIns ends all sessions and uses up all links. Run it on a restored database, in which sessions that ended after
// the backup would be valid again. The ledger itself is not affected.
func EndSignIns(ctx context.Context, pool *pgxpool.Pool) error {
	for _, query := range []string{
		cluster.SQL("DELETE FROM {console_sessions}"),
		cluster.SQL("DELETE FROM {console_links}"),
		cluster.SQL("DELETE FROM {console_challenges}"),
	} {
		if err := statement.Exec(ctx, pool, "end all sessions", query); err != nil {
			return err
		}
	}
	return nil
}

// Links are kept for the hour in which they count towards the limit of their address.
var (
	forgetSessions = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND expires_at <= $2`)
	forgetLinks    = cluster.SQL(`DELETE FROM {console_links}
		WHERE shard = $1 AND expires_at <= $2::timestamptz - interval '1 hour'`)
	forgetChallenges = cluster.SQL(`DELETE FROM {console_challenges} WHERE shard = $1 AND expires_at <= $2`)
)

// Forget deletes expired sessions, links and challenges.
func (s *Store) Forget(ctx context.Context, now time.Time) error {
	return s.Installation.EachShard(ctx, s.Pool, func(ctx context.Context, shard domain.Shard) error {
		for _, query := range []string{forgetSessions, forgetLinks, forgetChallenges} {
			if err := statement.Exec(ctx, s.Pool, "forget sessions", query, shard, now); err != nil {
				return err
			}
		}
		return nil
	})
}
