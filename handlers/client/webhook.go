package client

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

const webhooksPath = "/api/v1/integrity/webhooks"

// CreateWebhook creates another destination with each call. Only this answer contains its secret. The destination
// receives nothing until [Client.GrantWebhook] authorizes it for a company. All methods about destinations need
// integrity:admin.
func (c *Client) CreateWebhook(ctx context.Context, w wire.WebhookRequest) (wire.WebhookWithSecret, error) {
	answer, err := post[wire.WebhookWithSecret](ctx, c, webhooksPath, w)
	return about(answer, err, answer.ID != "" && answer.Secret != "")
}

// Webhooks lists all destinations, oldest first.
func (c *Client) Webhooks(ctx context.Context) (wire.Webhooks, error) {
	return get[wire.Webhooks](ctx, c, webhooksPath, nil)
}

// Webhook finds a destination by its id.
func (c *Client) Webhook(ctx context.Context, webhookID string) (wire.Webhook, error) {
	answer, err := read[wire.Webhook](ctx, c, askWebhook(http.MethodGet, webhookID, ""))
	return about(answer, err, answer.ID == webhookID)
}

// UpdateWebhook changes a destination. Enabling a disabled destination says that it works again.
func (c *Client) UpdateWebhook(ctx context.Context, webhookID string, change wire.WebhookChange) (wire.Webhook, error) {
	a := askWebhook(http.MethodPatch, webhookID, "")
	a.document = change
	answer, err := read[wire.Webhook](ctx, c, a)
	return about(answer, err, answer.ID == webhookID)
}

// DeleteWebhook deletes a destination with its authorizations and cancels its queued deliveries.
func (c *Client) DeleteWebhook(ctx context.Context, webhookID string) (wire.DeletedWebhook, error) {
	answer, err := read[wire.DeletedWebhook](ctx, c, askWebhook(http.MethodDelete, webhookID, ""))
	return about(answer, err, answer.ID == webhookID)
}

// RotateWebhookSecret creates a new secret for a destination. Only this answer contains it. Both secrets sign until the
// overlap ends.
func (c *Client) RotateWebhookSecret(
	ctx context.Context, webhookID string, r wire.RotateRequest,
) (wire.WebhookWithSecret, error) {
	a := askWebhook(http.MethodPost, webhookID, "/secret/rotate")
	a.document = r
	answer, err := read[wire.WebhookWithSecret](ctx, c, a)
	return about(answer, err, answer.ID == webhookID && answer.Secret != "")
}

// TestWebhook queues a test delivery, which belongs to no record. [Client.Deliveries] shows its outcome.
func (c *Client) TestWebhook(ctx context.Context, webhookID string) (wire.Delivery, error) {
	a := askWebhook(http.MethodPost, webhookID, "/test")
	a.document = struct{}{}
	answer, err := read[wire.Delivery](ctx, c, a)
	return about(answer, err, answer.WebhookID == webhookID)
}

// Deliveries reads a page of a destination's deliveries, newest first. An empty status means any. after is the
// NextCursor of the previous page, or empty.
func (c *Client) Deliveries(ctx context.Context, webhookID, status, after string) (wire.Deliveries, error) {
	a := askWebhook(http.MethodGet, webhookID, "/deliveries")
	a.query = page(after, "status", status)
	return read[wire.Deliveries](ctx, c, a)
}

// Redeliver restarts the attempts of a delivery at once.
func (c *Client) Redeliver(ctx context.Context, deliveryID string) (wire.Delivery, error) {
	answer, err := read[wire.Delivery](ctx, c, ask{
		method: http.MethodPost, path: webhooksPath + "/deliveries/" + deliveryID + "/redeliver", document: struct{}{},
		wrong: checkID("deliveryId", deliveryID, domain.ParseID[domain.DeliveryID]),
	})
	return about(answer, err, answer.ID == deliveryID)
}

// ReplayWebhook queues past events for a destination, up to 10,000 deliveries, or with DryRun counts them. Repeating a
// replay queues nothing twice. If NextSequence is set, continue from there.
func (c *Client) ReplayWebhook(ctx context.Context, webhookID string, r wire.ReplayRequest) (wire.Replay, error) {
	a := askWebhook(http.MethodPost, webhookID, "/replay")
	a.document = r
	answer, err := read[wire.Replay](ctx, c, a)
	return about(answer, err, answer.DryRun == r.DryRun)
}

func askWebhook(method, webhookID, after string) ask {
	return ask{
		method: method, path: webhooksPath + "/" + webhookID + after,
		wrong: checkID("webhookId", webhookID, domain.ParseID[domain.WebhookID]),
	}
}
