package session

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Membership is an active membership in an organization, which a person may sign in to.
type Membership struct {
	Organization     domain.OrganizationID
	Member           domain.MemberID
	Role             domain.Role
	OrganizationName string // empty once erased
	Email            string // empty once erased
}

const (
	membershipColumns = `SELECT m.organization_id, m.member_id, m.role, coalesce(n.body, ''), coalesce(e.body, '')
	FROM {members} m
	JOIN LATERAL (SELECT name_id FROM {organization_state}
		WHERE shard = $1 AND organization_id = m.organization_id OFFSET 0) o ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = m.organization_id AND id = o.name_id OFFSET 0) n ON true
	LEFT JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = m.organization_id AND id = m.email_id OFFSET 0) e ON true
	WHERE m.shard = $1 AND m.status = 'active' AND `
)

var (
	findMemberships = cluster.SQL(membershipColumns + `m.email_sha256 = $2 ORDER BY m.organization_id`)
	findMembership  = cluster.SQL(membershipColumns + `m.organization_id = $2 AND m.member_id = $3`)
)

// askMemberships limits how long a shard may take to return the memberships of an address, because a person waits.
const askMemberships = 3 * time.Second

// Memberships lists the memberships of an address in all organizations. An address does not determine a shard, so all
// shards are queried. If some do not answer, it returns the others' memberships with the error, so that the person can
// sign in to those.
func (s *Store) Memberships(ctx context.Context, emailSHA256 [32]byte) (all []Membership, err error) {
	err = s.Installation.EachShard(ctx, s.Pool, func(ctx context.Context, shard domain.Shard) error {
		ctx, cancel := context.WithTimeout(ctx, askMemberships)
		defer cancel()
		scan := pgx.RowToStructByPos[Membership]
		list, err := statement.All(ctx, s.Pool, "find memberships", scan, findMemberships, shard, emailSHA256[:])
		all = append(all, list...)
		return err
	})
	return all, err
}

// Membership finds an active membership.
func (s *Store) Membership(ctx context.Context, o domain.OrganizationID, member domain.MemberID) (Membership, error) {
	if !s.Installation.Has(o.Shard()) {
		return Membership{}, domain.ErrSessionEnded
	}
	return statement.One(ctx, s.Pool, "find a membership", error(domain.ErrSessionEnded), pgx.RowToStructByPos[Membership],
		findMembership, o.Shard(), o, member)
}

// ShardOf returns the shard of a hash without an organization: of a challenge, or of the links for an address without a
// membership, which are therefore counted together.
func (s *Store) ShardOf(sha256 [32]byte) domain.Shard {
	return domain.Shard(int(binary.BigEndian.Uint16(sha256[:])) % s.Installation.Shards)
}

// LinkLifetime is the lifetime of a sign-in link.
const LinkLifetime = 15 * time.Minute

// Limits of links sent to an address in an hour: at the request of any browser, and beyond that only of browsers that
// have signed in with the address before. A stranger who types the address repeatedly therefore locks no member out.
const (
	LinksPerHour      = 5
	KnownLinksPerHour = 10
)

// SignInLink is a link that signs a person in once: to any membership of an address, or only to Member's.
type SignInLink struct {
	ID            domain.SignInID
	SecretSHA256  [32]byte
	EmailSHA256   *[32]byte
	BrowserSHA256 *[32]byte // of the requesting browser; nil: any
	KnownBrowser  bool      // the browser has signed in with the address before; not stored
	Organization  domain.OrganizationID
	Member        domain.MemberID
	ExpiresAt     time.Time
	UsedAt        *time.Time
}

// An operator's link has neither address nor browser, so it counts towards no limit. A link with which a signed-in
// person proves their identity counts towards that member's limit, which strangers cannot use up by typing the address.
const (
	insertLink = `INSERT INTO {console_links} (shard, link_id, secret_sha256, email_sha256, browser_sha256,
		organization_id, member_id, created_at, expires_at)
	SELECT s.shard, $2, $3, $4, $5, $6, $7, $8, $9 FROM {shard_heads} s WHERE s.shard = $1
		AND (SELECT count(*) FROM {console_links} l WHERE l.shard = $1 AND l.created_at > $10 AND `
)

var (
	insertSignInLink = cluster.SQL(insertLink + `l.email_sha256 = $4) < $11
	RETURNING true`)
	insertProofLink = cluster.SQL(insertLink + `l.email_sha256 IS NULL AND l.member_id = $7
			AND l.browser_sha256 IS NOT NULL) < $11
	RETURNING true`)
)

// AddSignInLink stores a link, valid from now. added is false if the address, or the member who proves their identity,
// has had LinksPerHour links in the last hour, or KnownLinksPerHour for a known browser.
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
	_, added, err = statement.First(ctx, s.Pool, "store a link", pgx.RowTo[bool],
		insert, l.ID.Shard(), l.ID, l.SecretSHA256[:], bytesOrNull(l.EmailSHA256), bytesOrNull(l.BrowserSHA256),
		organization, member, now, now.Add(LinkLifetime), now.Add(-time.Hour), most)
	return added, err
}

// AddOperatorLink stores the link of a command that the ledger has executed. Any browser may use it.
func (s *Store) AddOperatorLink(ctx context.Context, made domain.OperatorLink, now time.Time) error {
	if made.Member.IsZero() {
		return errors.New("store an operator's sign-in link only after its event")
	}
	_, err := s.AddSignInLink(ctx, SignInLink{
		ID: made.ID, SecretSHA256: made.SecretSHA256, Organization: made.Organization, Member: made.Member,
	}, now)
	return err
}

func bytesOrNull(sum *[32]byte) []byte {
	if sum == nil {
		return nil
	}
	return sum[:]
}

var findSignInLink = cluster.SQL(`SELECT link_id, secret_sha256, email_sha256, browser_sha256,
		organization_id, member_id, expires_at, used_at
	FROM {console_links} WHERE shard = $1 AND link_id = $2 AND secret_sha256 = $3`)

// SignInLink finds a link by its id and secret, even if it is used or expired. found is false for any other.
func (s *Store) SignInLink(
	ctx context.Context, id domain.SignInID, secretSHA256 [32]byte,
) (l SignInLink, found bool, err error) {
	if !s.Installation.Has(id.Shard()) {
		return l, false, nil
	}
	return statement.First(ctx, s.Pool, "find a link", func(row pgx.CollectableRow) (l SignInLink, err error) {
		var organization, member *[16]byte
		err = row.Scan(&l.ID, &l.SecretSHA256, &l.EmailSHA256, &l.BrowserSHA256,
			&organization, &member, &l.ExpiresAt, &l.UsedAt)
		if organization != nil && member != nil {
			l.Organization, l.Member = *organization, *member
		}
		return l, err
	}, findSignInLink, id.Shard(), id, secretSHA256[:])
}

var useSignInLink = cluster.SQL(`UPDATE {console_links} SET used_at = $4
	WHERE shard = $1 AND link_id = $2 AND secret_sha256 = $3 AND used_at IS NULL AND expires_at > $4 RETURNING true`)

// UseSignInLink uses up a link. Of any number of concurrent requests, only one gets true.
func (s *Store) UseSignInLink(ctx context.Context, l SignInLink, now time.Time) (used bool, err error) {
	_, used, err = statement.First(ctx, s.Pool, "use a link", pgx.RowTo[bool],
		useSignInLink, l.ID.Shard(), l.ID, l.SecretSHA256[:], now)
	return used, err
}
