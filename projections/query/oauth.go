package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/statement"
)

// Links lists an organization's links, newest first: all of them, or a member's.
func (s *Store) Links(ctx context.Context, organization domain.OrganizationID, member domain.MemberID, limit, offset int) (links []domain.OAuthLink, total int64, err error) {
	const query = `SELECT ` + projections.LinkColumns + `, count(*) OVER () FROM oauth_links l
		WHERE l.shard = $1 AND l.organization_id = $2 AND ($3::uuid IS NULL OR l.member_id = $3)
		ORDER BY l.link_id DESC LIMIT $4 OFFSET $5`
	var only *domain.MemberID
	if !member.IsZero() {
		only = &member
	}
	type row struct {
		domain.OAuthLink
		Total int64
	}
	rows, err := statement.All(ctx, s.Pool, "list links", pgx.RowToStructByPos[row], query, organization.Shard(), organization, only, limit, offset)
	if len(rows) > 0 {
		total = rows[0].Total
	}
	return statement.Column(rows, func(r row) domain.OAuthLink { return r.OAuthLink }), total, err
}

// Link finds a link, or refuses with NOT_FOUND.
func (s *Store) Link(ctx context.Context, id domain.LinkID) (domain.OAuthLink, error) {
	l, err := s.link(ctx, id)
	return l.OAuthLink, err
}

// heldLink is a link and whether the membership behind it has ended.
type heldLink struct {
	domain.OAuthLink
	Ended bool
}

func (s *Store) link(ctx context.Context, id domain.LinkID) (heldLink, error) {
	const query = `SELECT ` + projections.LinkColumns + `, m.status = 'ended' FROM oauth_links l
		JOIN members m ON m.shard = $1 AND m.organization_id = l.organization_id AND m.member_id = l.member_id
		WHERE l.shard = $1 AND l.link_id = $2`
	if !s.known(id.Shard()) {
		return heldLink{}, UnknownLink()
	}
	return statement.One(ctx, s.Pool, "find link", UnknownLink(), pgx.RowToStructByPos[heldLink], query, id.Shard(), id)
}

// UnknownLink is the one answer to every code without a link.
func UnknownLink() *domain.Error {
	return domain.Refuse(domain.NotFound, "There is no such link; ask for another.")
}

// claimMargin is how much the clocks of two server processes may differ.
const claimMargin = time.Minute

// ClaimOAuthSubject notes, before a link is redeemed, that its subject is found there. A subject that another link has,
// or may still get, is refused: so it never belongs to two members at once, in whatever shards they are. After a crash
// the claimed link is not redeemed: it still can be until it expires; then the claim is void and is replaced.
func (s *Store) ClaimOAuthSubject(ctx context.Context, identity domain.OAuthSubject, link domain.OAuthLink, now time.Time) error {
	const claim = `INSERT INTO oauth_subjects (subject, organization_id, link_id, claimed_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (subject) DO UPDATE SET organization_id = excluded.organization_id, link_id = excluded.link_id, claimed_at = excluded.claimed_at
		WHERE oauth_subjects.link_id = $5
		RETURNING true`
	for {
		holder, err := s.claimed(ctx, identity)
		if err != nil || holder == link.ID {
			return err
		}
		if !holder.IsZero() {
			if err := s.checkReleased(ctx, identity, holder, now); err != nil {
				return err
			}
		}
		_, taken, err := statement.First(ctx, s.Pool, "claim an identity", pgx.RowTo[bool], claim,
			identity[:], link.Organization, link.ID, now, holder)
		if err != nil || taken {
			return err
		}
		// Another request claimed it in between: look again.
	}
}

// claimed is the link that has claimed a subject; zero for none.
func (s *Store) claimed(ctx context.Context, identity domain.OAuthSubject) (domain.LinkID, error) {
	const query = `SELECT link_id FROM oauth_subjects WHERE subject = $1`
	id, _, err := statement.First(ctx, s.Pool, "find the link of an identity", pgx.RowTo[domain.LinkID], query, identity[:])
	return id, err
}

// checkReleased refuses a subject that the link which claimed it has, or may still get.
func (s *Store) checkReleased(ctx context.Context, identity domain.OAuthSubject, holder domain.LinkID, now time.Time) error {
	l, err := s.link(ctx, holder)
	switch {
	case err != nil:
		return fmt.Errorf("find the link that has claimed an identity: %w", err)
	case l.WithdrawnAt != nil || l.Ended || l.Subject != nil && *l.Subject != identity:
		return nil
	case l.Subject != nil:
		return domain.Refuse(domain.InvalidState, "This identity is linked to a member already; withdraw that consent first.")
	case now.Before(l.ExpiresAt.Add(claimMargin)):
		return domain.Refuse(domain.InvalidState, "This identity is being linked by another link; repeat with that one, or wait until it has expired.")
	}
	return nil
}
