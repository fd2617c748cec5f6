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

// Store answers from the primary only, because a session that has ended must not be found again.
type Store struct {
	Pool         eventstore.Database
	Installation eventstore.Installation
	Plans        domain.Plans
}

// How long a session of the console lives: without a request, and at most.
const (
	Idle     = 30 * time.Minute
	Lifetime = 12 * time.Hour
)

// Session is a member who has signed in to the console.
type Session struct {
	ID           domain.SessionID
	Organization domain.OrganizationID
	Member       domain.MemberID
	Role         domain.Role // when the session began, and still
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

	begins bool // it is not stored yet, or stored anew under another token
	ended  bool // somebody else has ended it meanwhile
}

// Begin makes the session one that its next commit stores.
func (s *Session) Begin() { s.begins = true }

// Ended reports whether the session was no longer there when its token was to be replaced.
func (s *Session) Ended() bool { return s.ended }

// Sessions stores the sessions of the console for scs, as its CtxStore. The context carries the session ([With]): the
// organization tells the shard, and what a session is about stands in columns, so that one statement finds it and
// judges its member. scs' own idea of the time is not used.
type Sessions struct {
	*Store
	Now func() time.Time
}

type sessionKey struct{}

// With carries the session that scs is about to look for, to store or to delete.
func With(ctx context.Context, shard domain.Shard, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, sessionAt{shard, s})
}

type sessionAt struct {
	shard domain.Shard
	*Session
}

var errNoSession = errors.New("a session is stored with a context that carries it")

// of reads what the context carries, and the hash of the token, which scs has made.
func (s Sessions) of(ctx context.Context, token string) (at sessionAt, sum []byte, err error) {
	at, ok := ctx.Value(sessionKey{}).(sessionAt)
	if !ok {
		return at, nil, errNoSession
	}
	sum, err = base64.RawURLEncoding.DecodeString(token)
	return at, sum, err
}

// A session holds while its member is active and has the role that the session began with, whatever else is known of
// it: asked of the primary, for each request.
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
	// A session that was ended while its request was under way is not brought back.
	touchSession = cluster.SQL(`UPDATE {console_sessions} SET data = $3, used_at = $4, expires_at = $5
		WHERE shard = $1 AND token_sha256 = $2`)
	// What a new session ends, itself apart: whichever clock has dated the others, it stays.
	endOldest = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND token_sha256 = ANY(ARRAY(
		SELECT token_sha256 FROM {console_sessions}
		WHERE shard = $1 AND member_id = $3 AND token_sha256 <> $2 ORDER BY used_at DESC, token_sha256 OFFSET $4))`)
)

// MaxPerMember is how many sessions a member has at most: the one that was used the longest ago ends when another
// begins.
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

// Find implements scs.Store, which asks with a context where it can.
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

// EndSession ends a session of a member; one that is not there any more has ended.
func (s *Store) EndSession(
	ctx context.Context, o domain.OrganizationID, member domain.MemberID, id domain.SessionID,
) error {
	return statement.Exec(ctx, s.Pool, "end a session", endSession, o.Shard(), member, id)
}

// EndSessions ends all sessions of a member.
func (s *Store) EndSessions(ctx context.Context, o domain.OrganizationID, member domain.MemberID) error {
	return statement.Exec(ctx, s.Pool, "end all sessions", projections.EndSessions, o.Shard(), member)
}

// EndSignIns ends all sessions and uses up all links. Run it on a restored database, in which sessions that have ended
// since the backup live again. The ledger itself is not affected.
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

// Links are kept for the hour in which they count against their address.
var (
	forgetSessions = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND expires_at <= $2`)
	forgetLinks    = cluster.SQL(`DELETE FROM {console_links}
		WHERE shard = $1 AND expires_at <= $2::timestamptz - interval '1 hour'`)
	forgetChallenges = cluster.SQL(`DELETE FROM {console_challenges} WHERE shard = $1 AND expires_at <= $2`)
)

// Forget deletes sessions, links and challenges whose time is over.
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
