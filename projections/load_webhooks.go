package projections

import (
	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

const WebhookColumns = `w.webhook_id, w.organization_id, w.url_id, u.salt, coalesce(u.body, ''), w.description_id, d.salt, d.body,
		w.types, w.status, w.disabled_reason, w.secret, w.previous_secret, w.previous_until, w.created_at, w.updated_at`

const WebhookTexts = `
	JOIN LATERAL (SELECT salt, body FROM texts
		WHERE shard = $1 AND organization_id = w.organization_id AND id = w.url_id OFFSET 0) u ON true
	LEFT JOIN LATERAL (SELECT salt, coalesce(body, '') AS body FROM texts
		WHERE shard = $1 AND organization_id = w.organization_id AND id = w.description_id OFFSET 0) d ON true`

const loadWebhooks = `SELECT ` + WebhookColumns + `
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT webhook_id, organization_id, url_id, description_id, types, status, disabled_reason, secret, previous_secret,
			previous_until, created_at, updated_at FROM webhooks
		WHERE shard = $1 AND organization_id = n.id AND status <> 'deleted' OFFSET 0) w ON true` + WebhookTexts

const loadWebhookAccess = `SELECT a.company_id, a.webhook_id
	FROM unnest($2::uuid[]) AS n(id)
	JOIN LATERAL (SELECT company_id, webhook_id FROM company_webhooks
		WHERE shard = $1 AND company_id = n.id AND enabled OFFSET 0) a ON true`

func queueWebhookNeeds(b *pgx.Batch, shard domain.Shard, needs domain.Needs, s *domain.State) {
	lookUp(b, shard, loadWebhooks, needs.Webhooks, func(rows pgx.Rows) error {
		w, err := ScanWebhook(rows)
		s.AddWebhook(w)
		return err
	})
	lookUp(b, shard, loadWebhookAccess, needs.CompanyWebhooks, func(rows pgx.Rows) error {
		var company domain.CompanyID
		var webhook domain.WebhookID
		err := rows.Scan(&company, &webhook)
		s.AddWebhookAccess(company, webhook)
		return err
	})
}

// ScanWebhook reads WebhookColumns, then more targets.
func ScanWebhook(row pgx.CollectableRow, more ...any) (domain.Webhook, error) {
	var w domain.Webhook
	var urlSalt, descriptionSalt []byte
	var description *domain.TextID
	var words *string
	err := row.Scan(append([]any{
		&w.ID, &w.Organization, &w.URL.ID, &urlSalt, &w.URL.Body, &description, &descriptionSalt, &words,
		&w.Types, &w.Status, &w.DisabledReason, &w.Secret, &w.PreviousSecret, &w.PreviousUntil, &w.CreatedAt, &w.UpdatedAt,
	}, more...)...)
	if err != nil {
		return w, err
	}
	copy(w.URL.Salt[:], urlSalt)
	if description != nil && words != nil {
		w.Description = &domain.Text{ID: *description, Body: *words}
		copy(w.Description.Salt[:], descriptionSalt)
	}
	return w, nil
}
