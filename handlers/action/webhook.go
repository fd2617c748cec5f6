package action

import (
	"context"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections"
	"integrityledger/projections/query"
)

func (s *Webhooks) viewWebhook(e query.WebhookEntry) wire.Webhook {
	v := wire.Webhook{
		ID: e.ID.String(), Types: e.Types.Types(), Status: string(e.Status), DisabledReason: (*string)(e.DisabledReason),
		FailingSince: wire.TimeOrNull(e.FailingSince), Companies: e.Companies,
		CreatedAt: evidence.FormatTime(e.CreatedAt), UpdatedAt: evidence.FormatTime(e.UpdatedAt),
		URL: wire.OrNull(e.URL.Body),
	}
	if e.Description != nil {
		v.Description = wire.OrNull(e.Description.Body)
	}
	if e.PreviousUntil != nil && e.PreviousUntil.After(s.Now()) {
		v.PreviousUntil = wire.TimeOrNull(e.PreviousUntil)
	}
	return v
}

// readWebhookURL reads the address of a destination. A blocked address has an error code of its own, which the action
// answers if nothing else is wrong: see refuseBlocked.
func (s *Webhooks) readWebhookURL(o *strictjson.Object) string {
	text := o.String("url", strictjson.Required)
	if !o.OK("url") {
		return text
	}
	if refused := s.Egress.CheckURL(text); refused != nil && refused.Code != domain.WebhookURLBlocked {
		for _, f := range refused.Fields {
			o.Problem("url", f.Code, f.Message)
		}
	}
	return text
}

// refuseBlocked refuses an address that the operator's egress policy blocks.
func (s *Webhooks) refuseBlocked(url string) error {
	if refused := s.Egress.CheckURL(url); refused != nil {
		return refused
	}
	return nil
}

// readWebhookTypes reads the member types: absent means all.
func readWebhookTypes(o *strictjson.Object) domain.WebhookMask {
	types := edge.ReadNames(
		o, "types", domain.WebhookTypes(), edge.CodeUnknownValue,
		"must be integrity.registered, integrity.superseded or integrity.revoked",
	)
	if !o.OK("types") {
		return domain.MaskOf(domain.WebhookTypes())
	}
	if len(types) == 0 {
		o.Problem(
			"types", strictjson.CodeLength,
			"must name at least one of integrity.registered, integrity.superseded and integrity.revoked",
		)
	}
	return domain.MaskOf(types)
}

// secretKey returns the key that encrypts secrets. Without one no secret can be stored, and it refuses with 503.
func (s *Webhooks) secretKey() (domain.SecretKey, error) {
	keys := s.SecretKeys()
	if len(keys) == 0 {
		return domain.SecretKey{}, domain.Unavailable(
			"The service has no key to encrypt webhook secrets; its operator must set INTEGRITY_SECRET_KEY.",
		)
	}
	return keys[0], nil
}

// readDescription reads the description of a destination.
func readDescription(o *strictjson.Object) string {
	text := o.Sized("description", strictjson.Optional, 0, domain.MaxWebhookDescription)
	if text != "" && !domain.ValidName(text, domain.MaxWebhookDescription) {
		o.Problem("description", strictjson.CodeFormat, domain.WebhookDescriptionRule)
	}
	return text
}

// ReadWebhook reads a destination to add. The action refuses a blocked address later.
func (s *Webhooks) ReadWebhook(o *strictjson.Object) domain.CreateWebhook {
	return domain.CreateWebhook{URL: s.readWebhookURL(o), Description: readDescription(o), Types: readWebhookTypes(o)}
}

// CreateWebhook adds a destination. Only this answer contains its secret.
func (s *Webhooks) CreateWebhook(
	ctx context.Context, c *edge.Call, created domain.CreateWebhook,
) (added wire.WebhookWithSecret, err error) {
	if err := s.refuseBlocked(created.URL); err != nil {
		return added, err
	}
	created.Origin = c.Origin()
	key, err := s.secretKey()
	if err != nil {
		return added, err
	}
	command, secret := domain.NewCreateWebhook(created, key, s.Now())
	if err := s.execute(ctx, command); err != nil {
		return added, err
	}
	return wire.WebhookWithSecret{
		Webhook: s.viewWebhook(query.WebhookEntry{Webhook: command.Outcome}), Secret: secret,
	}, nil
}

// ListWebhooks lists the destinations of the organization. Their number is bounded, so they fit on one page.
func (s *Webhooks) ListWebhooks(ctx context.Context, c *edge.Call, _ struct{}) (wire.Webhooks, error) {
	list, err := s.Store.Webhooks(ctx, c.Access.Organization)
	return wire.Webhooks{Webhooks: wire.Each(list, s.viewWebhook)}, err
}

// Webhook shows a destination without its secret.
func (s *Webhooks) Webhook(ctx context.Context, c *edge.Call, id domain.WebhookID) (wire.Webhook, error) {
	found, err := s.Store.Webhook(ctx, c.Access.Organization, id)
	return s.viewWebhook(found), err
}

// ReadWebhookID reads the destination in the path.
func ReadWebhookID(o *strictjson.Object) domain.WebhookID {
	return edge.ReadID(o, "webhookId", domain.ParseID[domain.WebhookID])
}

// ReadWebhookChange reads the destination in the path and its changes. Absent members do not change; a null description
// is removed.
func (s *Webhooks) ReadWebhookChange(o *strictjson.Object) (change domain.UpdateWebhook) {
	change.Webhook = ReadWebhookID(o)
	if o.Has("url") {
		change.URL = new(s.readWebhookURL(o))
	}
	if o.Has("description") {
		change.Description = new("")
		if o.NullableString("description", strictjson.Optional) != nil {
			*change.Description = readDescription(o)
		}
	}
	if o.Has("types") {
		change.Types = new(readWebhookTypes(o))
	}
	if o.Has("enabled") {
		change.Status = new(domain.WebhookDisabled)
		if o.Bool("enabled", strictjson.Required) {
			*change.Status = domain.WebhookActive
		}
	}
	return change
}

// UpdateWebhook changes the given members. By enabling a disabled destination, its owner says that it works again.
func (s *Webhooks) UpdateWebhook(
	ctx context.Context, c *edge.Call, change domain.UpdateWebhook,
) (changed wire.Webhook, err error) {
	if change.URL != nil {
		if err := s.refuseBlocked(*change.URL); err != nil {
			return changed, err
		}
	}
	command := &change
	command.Origin = c.Origin()
	err = s.execute(ctx, command)
	if err == nil && command.Status != nil && *command.Status == domain.WebhookActive {
		err = s.Store.Forgive(ctx, command.Organization, command.Webhook)
	}
	if err != nil {
		return changed, err
	}
	return s.Webhook(ctx, c, command.Webhook)
}

// DeleteWebhook deletes a destination for good and cancels its pending deliveries.
func (s *Webhooks) DeleteWebhook(
	ctx context.Context, c *edge.Call, id domain.WebhookID,
) (wire.DeletedWebhook, error) {
	command := &domain.DeleteWebhook{Origin: c.Origin(), Webhook: id}
	return done(ctx, s.Service, command, func() wire.DeletedWebhook {
		return wire.DeletedWebhook{ID: command.Webhook.String(), Deleted: true}
	})
}

// ReadSecretRotation reads how long the former secret keeps signing.
func ReadSecretRotation(o *strictjson.Object) domain.RotateSecret {
	rotation := domain.RotateSecret{Webhook: ReadWebhookID(o), Overlap: domain.DefaultSecretOverlap}
	if o.Has("overlapSeconds") {
		const most = int64(domain.MaxSecretOverlap / time.Second)
		rotation.Overlap = time.Duration(o.Int("overlapSeconds", 0, most, strictjson.Required)) * time.Second
	}
	return rotation
}

// RotateSecret creates a new secret and shows it once; both secrets sign until the overlap ends.
func (s *Webhooks) RotateSecret(
	ctx context.Context, c *edge.Call, rotation domain.RotateSecret,
) (rotated wire.WebhookWithSecret, err error) {
	key, err := s.secretKey()
	if err != nil {
		return rotated, err
	}
	rotation.Origin = c.Origin()
	command, secret := domain.NewRotateSecret(rotation, key)
	if err := s.execute(ctx, command); err != nil {
		return rotated, err
	}
	e, err := s.Store.Webhook(ctx, command.Organization, command.Webhook)
	if err != nil {
		// The rotation is committed, and only this answer shows its secret.
		e = query.WebhookEntry{Webhook: command.Outcome}
	}
	return wire.WebhookWithSecret{Webhook: s.viewWebhook(e), Secret: secret}, nil
}

func viewDelivery(d query.Delivery) wire.Delivery {
	v := wire.Delivery{
		ID: d.ID.String(), WebhookID: d.Webhook.String(), EventID: d.Event.String(), Type: d.Type, Status: string(d.Status),
		Attempts:  d.Attempts,
		CreatedAt: evidence.FormatTime(d.CreatedAt), LastAttemptAt: wire.TimeOrNull(d.AttemptedAt),
		NextAttemptAt: wire.TimeOrNull(d.NextAttemptAt),
		FinishedAt:    wire.TimeOrNull(d.FinishedAt), ResponseStatus: d.ResponseStatus, Reason: wire.OrNull(d.Reason),
		CompanyID: wire.ViewOrNull(d.Company, domain.CompanyID.String),
	}
	if d.Company != nil {
		v.Sequence = &d.Sequence
	}
	return v
}

// DeliveriesQuestion asks for the deliveries of a destination.
type DeliveriesQuestion struct {
	edge.Paging[domain.DeliveryID]
	Webhook domain.WebhookID
	Status  projections.DeliveryStatus // empty: any
}

// ReadDeliveries reads which page of the deliveries of the destination in the path is wanted, and of which status;
// absent means any.
func ReadDeliveries(o *strictjson.Object) DeliveriesQuestion {
	known := func(text string) bool { return projections.DeliveryStatus(text).Code() >= 0 }
	return DeliveriesQuestion{
		edge.ReadPaging(o, domain.ParseID[domain.DeliveryID]), ReadWebhookID(o),
		projections.DeliveryStatus(o.Match("status", strictjson.Optional, known,
			"must be pending, delivered, exhausted, suppressed or cancelled")),
	}
}

// ListDeliveries lists the deliveries of a destination, newest first.
func (s *Webhooks) ListDeliveries(
	ctx context.Context, c *edge.Call, asked DeliveriesQuestion,
) (wire.Deliveries, error) {
	organization := c.Access.Organization
	list, more, err := s.Store.Deliveries(ctx, organization, asked.Webhook, asked.Status, asked.After, asked.Limit)
	next := edge.NextPage(asked.Paging, list, more, func(d query.Delivery) string { return d.ID.String() })
	return wire.Deliveries{Deliveries: wire.Each(list, viewDelivery), Next: next}, err
}

// Delivery finds a delivery with the body that the service sent and the answer of the receiver.
func (s *Webhooks) Delivery(
	ctx context.Context, c *edge.Call, webhook domain.WebhookID, id domain.DeliveryID,
) (wire.Delivery, query.SentDelivery, error) {
	sent, err := s.Store.SentDelivery(ctx, c.Access.Organization, webhook, id)
	return viewDelivery(sent.Delivery), sent, err
}

// TestWebhook queues a test delivery, which belongs to no event. The list of deliveries shows its outcome.
func (s *Webhooks) TestWebhook(ctx context.Context, c *edge.Call, id domain.WebhookID) (wire.Delivery, error) {
	now := s.Now()
	delivery, event := domain.NewID[domain.DeliveryID](now), domain.NewID[domain.EventID](now)
	d, err := s.Store.TestDelivery(ctx, c.Access.Organization, id, delivery, event, now)
	s.wake(c, err)
	return viewDelivery(d), err
}

// ReadDeliveryID reads the delivery in the path.
func ReadDeliveryID(o *strictjson.Object) domain.DeliveryID {
	return edge.ReadID(o, "deliveryId", domain.ParseID[domain.DeliveryID])
}

// Redeliver queues a delivery again, whatever its status.
func (s *Webhooks) Redeliver(ctx context.Context, c *edge.Call, id domain.DeliveryID) (wire.Delivery, error) {
	d, err := s.Store.Redeliver(ctx, c.Access.Organization, id, s.Now())
	s.wake(c, err)
	return viewDelivery(d), err
}

// wake wakes this process's worker unless an error kept the delivery from being queued.
func (s *Webhooks) wake(c *edge.Call, err error) {
	if err == nil && s.Queued != nil {
		s.Queued(c.Access.Organization.Shard())
	}
}

// Replay asks to queue past events for a destination.
type Replay struct {
	query.Replay
	webhook domain.WebhookID
}

// ReadReplay reads a range of the feed. dryRun only counts its events. Without toSequence the range ends at the newest
// event; without companyReference it covers all companies.
func ReadReplay(o *strictjson.Object) (replay Replay) {
	replay.webhook = ReadWebhookID(o)
	replay.From = o.Int("fromSequence", 1, strictjson.MaxInteger, strictjson.Required)
	if to := o.NullableInt("toSequence", 1, strictjson.MaxInteger, strictjson.Optional); to != nil {
		if replay.To = *to; o.OK("fromSequence") && replay.To < replay.From {
			o.Problem("toSequence", strictjson.CodeRange, "must be at least fromSequence")
		}
	}
	if company := o.NullableString("companyReference", strictjson.Optional); company != nil {
		if replay.Company = company; !domain.ValidReference(*company) {
			o.Problem("companyReference", strictjson.CodeFormat, domain.ReferenceRule)
		}
	}
	replay.DryRun = o.Bool("dryRun", strictjson.Required)
	return replay
}

// Replay queues the events of a range for a destination, or counts them.
func (s *Webhooks) Replay(ctx context.Context, c *edge.Call, asked Replay) (wire.Replay, error) {
	done, err := s.Store.ReplayWebhook(ctx, c.Access.Organization, asked.webhook, asked.Replay, s.Now())
	if !asked.DryRun {
		s.wake(c, err)
	}
	return wire.Replay{DryRun: asked.DryRun, Count: done.Count, NextSequence: done.Next}, err
}
