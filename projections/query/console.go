package query

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// How long a session of the console lives: without a request, and at most.
const (
	SessionIdle = 30 * time.Minute
	SessionMost = 12 * time.Hour
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

	// What was read with it.
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

// Sessions stores the sessions of the console for scs, as its CtxStore. The context carries the session
// ([WithSession]): the organization tells the shard, and what a session is about stands in columns, so that one
// statement finds it and judges its member. scs' own idea of the time is not used.
type Sessions struct {
	*Store
	Now func() time.Time
}

type sessionKey struct{}

// WithSession carries the session that scs is about to look for, to store or to delete.
func WithSession(ctx context.Context, shard domain.Shard, s *Session) context.Context {
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
var findSession = cluster.SQL(`SELECT s.session_id, s.organization_id, s.member_id, s.role, s.user_agent, s.created_at, s.proved_at, s.used_at,
		o.plan, o.internal, o.per_minute, o.sequence, coalesce(n.body, ''), coalesce(e.body, ''), s.data
	FROM {console_sessions} s
	JOIN LATERAL (SELECT role, status, email_id FROM {members}
		WHERE shard = $1 AND organization_id = s.organization_id AND member_id = s.member_id OFFSET 0) m ON m.status = 'active' AND m.role = s.role
	JOIN LATERAL (SELECT plan, internal, per_minute, sequence, name_id FROM {organization_state}
		WHERE shard = $1 AND organization_id = s.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = s.organization_id AND id = o.name_id OFFSET 0) n ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = s.organization_id AND id = m.email_id OFFSET 0) e ON true
	WHERE s.shard = $1 AND s.token_sha256 = $2 AND s.expires_at > $3`)

// FindCtx implements scs.CtxStore.
func (s Sessions) FindCtx(ctx context.Context, token string) (data []byte, found bool, err error) {
	at, sum, err := s.of(ctx, token)
	if err != nil || !s.known(at.shard) {
		return nil, false, err
	}
	return statement.First(ctx, s.Pool, "find a session", func(row pgx.CollectableRow) (data []byte, err error) {
		var own *int32
		err = row.Scan(&at.ID, &at.Organization, &at.Member, &at.Role, &at.UserAgent, &at.CreatedAt, &at.ProvedAt, &at.UsedAt,
			&at.Plan, &at.Internal, &own, &at.Sequence, &at.OrganizationName, &at.Email, &data)
		at.PerMinute = s.Plans.PerMinute(at.Plan, own)
		return data, err
	}, findSession, at.shard, sum, s.Now())
}

var (
	insertSession = cluster.SQL(`INSERT INTO {console_sessions} (shard, token_sha256, session_id, organization_id, member_id, role, user_agent, data,
			created_at, proved_at, used_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`)
	// A session that was ended while its request was under way is not brought back.
	touchSession = cluster.SQL(`UPDATE {console_sessions} SET data = $3, used_at = $4, expires_at = $5 WHERE shard = $1 AND token_sha256 = $2`)
	// What a new session ends, itself apart: whichever clock has dated the others, it stays.
	endOldest = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND token_sha256 = ANY(ARRAY(SELECT token_sha256 FROM {console_sessions}
		WHERE shard = $1 AND member_id = $3 AND token_sha256 <> $2 ORDER BY used_at DESC, token_sha256 OFFSET $4))`)
)

// MaxSessions is how many sessions a member has at most: the one that was used the longest ago ends when another
// begins.
const MaxSessions = 20

// CommitCtx implements scs.CtxStore.
func (s Sessions) CommitCtx(ctx context.Context, token string, data []byte, _ time.Time) error {
	at, sum, err := s.of(ctx, token)
	if err != nil {
		return err
	}
	at.UsedAt = s.Now()
	expires := at.UsedAt.Add(SessionIdle)
	if most := at.CreatedAt.Add(SessionMost); most.Before(expires) {
		expires = most
	}
	if at.begins {
		err = statement.Exec(ctx, s.Pool, "store a session", insertSession, at.shard, sum, at.ID, at.Organization, at.Member, at.Role, at.UserAgent, data,
			at.CreatedAt, at.ProvedAt, at.UsedAt, expires)
		if at.begins = err != nil; at.begins {
			return err
		}
		return statement.Exec(ctx, s.Pool, "end the oldest sessions", endOldest, at.shard, sum, at.Member, MaxSessions-1)
	}
	return statement.Exec(ctx, s.Pool, "note the use of a session", touchSession, at.shard, sum, data, at.UsedAt, expires)
}

var deleteSession = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND token_sha256 = $2 RETURNING true`)

// DeleteCtx implements scs.CtxStore.
func (s Sessions) DeleteCtx(ctx context.Context, token string) error {
	at, sum, err := s.of(ctx, token)
	if err != nil || !s.known(at.shard) {
		return err
	}
	_, there, err := statement.First(context.WithoutCancel(ctx), s.Pool, "end a session", pgx.RowTo[bool], deleteSession, at.shard, sum)
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
func (s *Store) SessionsOf(ctx context.Context, o domain.OrganizationID, member domain.MemberID, now time.Time) ([]Session, error) {
	return statement.All(ctx, s.Pool, "list sessions", func(row pgx.CollectableRow) (at Session, err error) {
		err = row.Scan(&at.ID, &at.Organization, &at.Member, &at.Role, &at.UserAgent, &at.CreatedAt, &at.ProvedAt, &at.UsedAt)
		return at, err
	}, listSessions, o.Shard(), member, now)
}

var endSession = cluster.SQL(`DELETE FROM {console_sessions} WHERE shard = $1 AND member_id = $2 AND session_id = $3`)

// EndSession ends a session of a member; one that is not there any more has ended.
func (s *Store) EndSession(ctx context.Context, o domain.OrganizationID, member domain.MemberID, id domain.SessionID) error {
	return statement.Exec(ctx, s.Pool, "end a session", endSession, o.Shard(), member, id)
}

// EndSessions ends all sessions of a member.
func (s *Store) EndSessions(ctx context.Context, o domain.OrganizationID, member domain.MemberID) error {
	return statement.Exec(ctx, s.Pool, "end all sessions", projections.EndSessions, o.Shard(), member)
}

// Membership is one that a person may sign in to: active, in an organization.
type Membership struct {
	Organization     domain.OrganizationID
	Member           domain.MemberID
	Role             domain.Role
	OrganizationName string // empty once erased
	Email            string // likewise
}

const (
	membershipColumns = `SELECT m.organization_id, m.member_id, m.role, coalesce(n.body, ''), coalesce(e.body, '')
	FROM {members} m
	JOIN LATERAL (SELECT name_id FROM {organization_state} WHERE shard = $1 AND organization_id = m.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = m.organization_id AND id = o.name_id OFFSET 0) n ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = m.organization_id AND id = m.email_id OFFSET 0) e ON true
	WHERE m.shard = $1 AND m.status = 'active' AND `
)

var (
	findMemberships = cluster.SQL(membershipColumns + `m.email_sha256 = $2 ORDER BY m.organization_id`)
	findMembership  = cluster.SQL(membershipColumns + `m.organization_id = $2 AND m.member_id = $3`)
)

// askMemberships is how long a shard may take to tell the memberships of an address: a person waits.
const askMemberships = 3 * time.Second

// Memberships lists the memberships of an address in all organizations. An address is in no shard, so all are asked.
// If some do not answer, the memberships that the others hold are returned beside the error: the person can sign in
// to those.
func (s *Store) Memberships(ctx context.Context, emailSHA256 [32]byte) (all []Membership, err error) {
	err = s.eachShard(ctx, func(ctx context.Context, shard domain.Shard) error {
		ctx, cancel := context.WithTimeout(ctx, askMemberships)
		defer cancel()
		scan := pgx.RowToStructByPos[Membership]
		list, err := statement.All(ctx, s.Pool, "find memberships", scan, findMemberships, shard, emailSHA256[:])
		all = append(all, list...)
		return err
	})
	return all, err
}

// Membership finds one that is active.
func (s *Store) Membership(ctx context.Context, o domain.OrganizationID, member domain.MemberID) (Membership, error) {
	if !s.known(o.Shard()) {
		return Membership{}, domain.ErrSessionEnded
	}
	return statement.One(ctx, s.Pool, "find a membership", error(domain.ErrSessionEnded), pgx.RowToStructByPos[Membership], findMembership, o.Shard(), o, member)
}

// ShardOf is the shard of what has a hash and no organization: a challenge, or the links for an address without a
// membership, which are counted together so.
func (s *Store) ShardOf(sha256 [32]byte) domain.Shard {
	return domain.Shard(int(binary.BigEndian.Uint16(sha256[:])) % s.Installation.Shards)
}

// SignInLifetime is how long a link that signs a person in may be used.
const SignInLifetime = 15 * time.Minute

// How many links an address is sent in an hour: on requests of any browser, and once these are used up, of browsers
// that have signed in with it before. So a stranger who types the address again and again keeps nobody out.
const (
	LinksPerHour      = 5
	KnownLinksPerHour = 10
)

// SignInLink is a link that signs a person in once. It is for the memberships of an address, or for the one of Member.
type SignInLink struct {
	ID            domain.SignInID
	SecretSHA256  [32]byte
	EmailSHA256   *[32]byte
	BrowserSHA256 *[32]byte // of the browser that has asked; nil: any
	KnownBrowser  bool      // it has signed in with the address before; not stored
	Organization  domain.OrganizationID
	Member        domain.MemberID
	ExpiresAt     time.Time
	UsedAt        *time.Time
}

// An operator's link names neither address nor browser, so it counts against nobody's hour. A link with which a person
// who has signed in proves who they are counts against that member's: nobody else uses it up by typing the address.
const (
	insertLink = `INSERT INTO {console_links} (shard, link_id, secret_sha256, email_sha256, browser_sha256, organization_id, member_id, created_at, expires_at)
	SELECT s.shard, $2, $3, $4, $5, $6, $7, $8, $9 FROM {shard_heads} s WHERE s.shard = $1
		AND (SELECT count(*) FROM {console_links} l WHERE l.shard = $1 AND l.created_at > $10 AND `
)

var (
	insertSignInLink = cluster.SQL(insertLink + `l.email_sha256 = $4) < $11
	RETURNING true`)
	insertProofLink = cluster.SQL(insertLink + `l.email_sha256 IS NULL AND l.member_id = $7 AND l.browser_sha256 IS NOT NULL) < $11
	RETURNING true`)
)

// AddSignInLink stores a link from now on; added is false for an address, or a member who proves who they are, that has
// had LinksPerHour in the last hour, or KnownLinksPerHour where a known browser asks.
func (s *Store) AddSignInLink(ctx context.Context, l SignInLink, now time.Time) (added bool, err error) {
	var organization, member *[16]byte
	insert, most := insertSignInLink, LinksPerHour
	if l.KnownBrowser {
		most = KnownLinksPerHour
	}
	if !l.Member.IsZero() {
		organization, member = (*[16]byte)(&l.Organization), (*[16]byte)(&l.Member)
		if l.BrowserSHA256 != nil {
			insert = insertProofLink
		}
	}
	_, added, err = statement.First(ctx, s.Pool, "store a link", pgx.RowTo[bool], insert, l.ID.Shard(), l.ID, l.SecretSHA256[:],
		bytesOrNull(l.EmailSHA256), bytesOrNull(l.BrowserSHA256), organization, member, now, now.Add(SignInLifetime), now.Add(-time.Hour), most)
	return added, err
}

// AddOperatorLink stores the link of a command that the ledger has executed; any browser may use it.
func (s *Store) AddOperatorLink(ctx context.Context, made domain.OperatorLink, now time.Time) error {
	if made.Member.IsZero() {
		return errors.New("a sign-in link of the operator's is stored after its event")
	}
	_, err := s.AddSignInLink(ctx, SignInLink{ID: made.ID, SecretSHA256: made.SecretSHA256, Organization: made.Organization, Member: made.Member}, now)
	return err
}

func bytesOrNull(sum *[32]byte) []byte {
	if sum == nil {
		return nil
	}
	return sum[:]
}

var findSignInLink = cluster.SQL(`SELECT link_id, secret_sha256, email_sha256, browser_sha256, organization_id, member_id, expires_at, used_at
	FROM {console_links} WHERE shard = $1 AND link_id = $2 AND secret_sha256 = $3`)

// SignInLink finds a link by its id and secret, used and expired ones included; found is false for any other.
func (s *Store) SignInLink(ctx context.Context, id domain.SignInID, secretSHA256 [32]byte) (l SignInLink, found bool, err error) {
	if !s.known(id.Shard()) {
		return l, false, nil
	}
	return statement.First(ctx, s.Pool, "find a link", func(row pgx.CollectableRow) (l SignInLink, err error) {
		var organization, member *[16]byte
		err = row.Scan(&l.ID, &l.SecretSHA256, &l.EmailSHA256, &l.BrowserSHA256, &organization, &member, &l.ExpiresAt, &l.UsedAt)
		if organization != nil && member != nil {
			l.Organization, l.Member = *organization, *member
		}
		return l, err
	}, findSignInLink, id.Shard(), id, secretSHA256[:])
}

var useSignInLink = cluster.SQL(`UPDATE {console_links} SET used_at = $4
	WHERE shard = $1 AND link_id = $2 AND secret_sha256 = $3 AND used_at IS NULL AND expires_at > $4 RETURNING true`)

// UseSignInLink uses a link up; of any number of requests at once, one is answered with true.
func (s *Store) UseSignInLink(ctx context.Context, l SignInLink, now time.Time) (used bool, err error) {
	_, used, err = statement.First(ctx, s.Pool, "use a link", pgx.RowTo[bool], useSignInLink, l.ID.Shard(), l.ID, l.SecretSHA256[:], now)
	return used, err
}

// Used challenges are kept until they expire, so that they cannot be replayed.
var useChallenge = cluster.SQL(`INSERT INTO {console_challenges} (shard, id_sha256, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING true`)

// UseChallenge uses a challenge up; of any number of requests at once, one is answered with true. The hash tells the
// shard.
func (s *Store) UseChallenge(ctx context.Context, sha256 [32]byte, expiresAt time.Time) (used bool, err error) {
	_, used, err = statement.First(ctx, s.Pool, "use a challenge", pgx.RowTo[bool], useChallenge, s.ShardOf(sha256), sha256[:], expiresAt)
	return used, err
}

// NamedPasskey is a passkey as its owner sees it; the name is empty once erased.
type NamedPasskey struct {
	domain.Passkey
	Name       string
	SignCount  int64
	LastUsedAt *time.Time
}

var findPasskeys = cluster.SQL(`SELECT ` + projections.PasskeyColumns + `, coalesce(t.body, ''), coalesce(u.sign_count, 0), u.last_used_at
	FROM {passkeys} p
	LEFT JOIN LATERAL (SELECT body FROM {texts} WHERE shard = $1 AND organization_id = p.organization_id AND id = p.name_id OFFSET 0) t ON true
	LEFT JOIN LATERAL (SELECT sign_count, last_used_at FROM {passkey_uses} WHERE shard = $1 AND passkey_id = p.passkey_id OFFSET 0) u ON true
	WHERE p.shard = $1 AND p.organization_id = $2 AND p.member_id = $3 AND p.removed_at IS NULL ORDER BY p.passkey_id`)

// Passkeys lists those of a member, oldest first.
func (s *Store) Passkeys(ctx context.Context, o domain.OrganizationID, member domain.MemberID) ([]NamedPasskey, error) {
	if !s.known(o.Shard()) {
		return nil, nil
	}
	return statement.All(ctx, s.Pool, "list passkeys", pgx.RowToStructByPos[NamedPasskey], findPasskeys, o.Shard(), o, member)
}

// The counter of an authenticator that counts only grows: an answer that does not raise it comes from a copy, or is an
// old one. Authenticators that do not count say 0 each time.
var usePasskey = cluster.SQL(`INSERT INTO {passkey_uses} AS u (shard, passkey_id, sign_count, last_used_at)
	VALUES ($1, $2, $3, $4)
	ON CONFLICT (shard, passkey_id) DO UPDATE SET sign_count = excluded.sign_count, last_used_at = excluded.last_used_at
		WHERE excluded.sign_count > u.sign_count OR excluded.sign_count = 0 AND u.sign_count = 0
	RETURNING true`)

// UsePasskey notes a use; counted is false where the authenticator's counter has not grown.
func (s *Store) UsePasskey(ctx context.Context, p domain.Passkey, signCount int64, now time.Time) (counted bool, err error) {
	_, counted, err = statement.First(ctx, s.Pool, "note the use of a passkey", pgx.RowTo[bool], usePasskey, p.Organization.Shard(), p.ID, signCount, now)
	return counted, err
}

// EndSignIns ends all sessions, and uses up all links: for a restored database, in which those that have ended since
// live again. What is to be restored of the ledger is not among them.
func EndSignIns(ctx context.Context, pool *pgxpool.Pool) error {
	for _, query := range []string{cluster.SQL("DELETE FROM {console_sessions}"), cluster.SQL("DELETE FROM {console_links}"), cluster.SQL("DELETE FROM {console_challenges}")} {
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

// ForgetSessions deletes sessions, links and challenges whose time is over.
func (s *Store) ForgetSessions(ctx context.Context, now time.Time) error {
	return s.eachShard(ctx, func(ctx context.Context, shard domain.Shard) error {
		for _, query := range []string{forgetSessions, forgetLinks, forgetChallenges} {
			if err := statement.Exec(ctx, s.Pool, "forget sessions", query, shard, now); err != nil {
				return err
			}
		}
		return nil
	})
}
