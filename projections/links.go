package projections

import (
	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

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
