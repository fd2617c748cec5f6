package projections

import (
	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const LinkColumns = `l.link_id, l.organization_id, l.member_id, l.secret_sha256, l.scopes, l.created_at, l.expires_at,
		l.subject, l.consented, l.linked_at, l.withdrawn_at`

const loadLinks = `SELECT ` + LinkColumns + `
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT link_id, organization_id, member_id, secret_sha256, scopes, created_at, expires_at,
			subject, consented, linked_at, withdrawn_at FROM oauth_links
		WHERE shard = $1 AND link_id = n.id OFFSET 0) l ON true`

// queueLinkNeeds queues what commands on links to OAuth subjects need.
func queueLinkNeeds(b *pgx.Batch, shard domain.Shard, needs domain.Needs, s *domain.State) {
	lookUp(b, shard, loadLinks, needs.Links, func(rows pgx.Rows) error {
		l, err := ScanLink(rows)
		s.AddLink(l)
		return err
	})
}

// ScanLink reads LinkColumns, then more targets.
func ScanLink(row pgx.CollectableRow, more ...any) (domain.OAuthLink, error) {
	var l domain.OAuthLink
	var secret, subject []byte
	err := row.Scan(append([]any{
		&l.ID, &l.Organization, &l.Member, &secret, &l.Scopes, &l.CreatedAt, &l.ExpiresAt,
		&subject, &l.Consented, &l.LinkedAt, &l.WithdrawnAt,
	}, more...)...)
	copy(l.SecretSHA256[:], secret)
	if subject != nil {
		l.Subject = new(domain.OAuthSubject)
		copy(l.Subject[:], subject)
	}
	return l, err
}

const insertLink = `INSERT INTO oauth_links (shard, link_id, organization_id, member_id, secret_sha256, scopes, created_at, expires_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`

const redeemLink = `UPDATE oauth_links SET subject = $3, consented = $4, linked_at = $5 WHERE shard = $1 AND link_id = $2`

const withdrawConsent = `UPDATE oauth_links SET withdrawn_at = $3 WHERE shard = $1 AND link_id = $2`

// queueLinks writes the changes of links, a statement per event in the order of the log: they are rare.
func (f *fold) queueLinks(b *pgx.Batch, shard domain.Shard) {
	for _, e := range f.links {
		switch body := e.Body.(type) {
		case *domain.LinkStartedBody:
			b.Queue(insertLink, shard, body.LinkID, e.Organization, body.MemberID, body.SecretSHA256, body.Scopes,
				e.OccurredAt, body.ExpiresAt)
		case *domain.LinkedBody:
			b.Queue(redeemLink, shard, body.LinkID, body.Subject, body.Scopes, e.OccurredAt)
		case *domain.ConsentWithdrawnBody:
			b.Queue(withdrawConsent, shard, body.LinkID, e.OccurredAt)
		}
	}
}
