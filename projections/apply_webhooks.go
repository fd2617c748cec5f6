package projections

import (
	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const insertWebhook = `INSERT INTO webhooks (shard, webhook_id, organization_id, url_id, description_id, types, status, secret, created_at, updated_at)
	VALUES ($1, $2, $3, $4, $5, $6, 'active', $7, $8, $8)`

const updateWebhook = `UPDATE webhooks SET url_id = $3, description_id = $4, types = $5, status = $6, disabled_reason = NULL, updated_at = $7
	WHERE shard = $1 AND webhook_id = $2`

const rotateWebhookSecret = `UPDATE webhooks SET previous_secret = secret, secret = $3, previous_until = $4, updated_at = $5
	WHERE shard = $1 AND webhook_id = $2`

const disableWebhook = `UPDATE webhooks SET status = 'disabled', disabled_reason = $3, updated_at = $4
	WHERE shard = $1 AND webhook_id = $2`

const deleteWebhook = `UPDATE webhooks SET status = 'deleted', updated_at = $3 WHERE shard = $1 AND webhook_id = $2`

const deleteWebhookAccess = `WITH taken AS (
		UPDATE company_webhooks SET enabled = false, updated_at = $3 WHERE shard = $1 AND webhook_id = $2 AND enabled RETURNING company_id
	)
	UPDATE companies c SET webhooks = c.webhooks - 1 FROM taken WHERE c.shard = $1 AND c.company_id = taken.company_id`

const upsertWebhookAccess = `INSERT INTO company_webhooks (shard, company_id, webhook_id, enabled, updated_at)
	VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (shard, company_id, webhook_id) DO UPDATE SET enabled = excluded.enabled, updated_at = excluded.updated_at`

const countWebhooks = `UPDATE companies SET webhooks = (SELECT count(*) FROM company_webhooks WHERE shard = $1 AND company_id = $2 AND enabled)
	WHERE shard = $1 AND company_id = $2`

// queueWebhooks writes the changes of destinations, a statement per event in the order of the log: they are rare.
func (f *fold) queueWebhooks(b *pgx.Batch, shard domain.Shard) {
	for _, e := range f.webhooks {
		switch body := e.Body.(type) {
		case *domain.WebhookCreatedBody:
			b.Queue(insertWebhook, shard, body.WebhookID, e.Organization, body.URL.ID, textID(body.Description),
				domain.MaskOf(body.Types), body.Secret, e.OccurredAt)
		case *domain.WebhookUpdatedBody:
			b.Queue(updateWebhook, shard, body.WebhookID, body.URL.ID, textID(body.Description), domain.MaskOf(body.Types),
				body.Status, e.OccurredAt)
		case *domain.WebhookSecretRotatedBody:
			b.Queue(rotateWebhookSecret, shard, body.WebhookID, body.Secret, body.PreviousUntil, e.OccurredAt)
		case *domain.WebhookDisabledBody:
			b.Queue(disableWebhook, shard, body.WebhookID, body.Reason, e.OccurredAt)
		case *domain.WebhookDeletedBody:
			b.Queue(deleteWebhook, shard, body.WebhookID, e.OccurredAt)
			b.Queue(deleteWebhookAccess, shard, body.WebhookID, e.OccurredAt)
		case *domain.WebhookAccessBody:
			b.Queue(upsertWebhookAccess, shard, e.Company, body.WebhookID, body.Enabled, e.OccurredAt)
			b.Queue(countWebhooks, shard, e.Company)
		}
	}
}

func textID(ref *domain.TextRef) *domain.TextID {
	if ref == nil {
		return nil
	}
	return &ref.ID
}
