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

// readWebhookURL reads the address of a destination. A blocked address is an answer of its own, given only if nothing
// else is wrong: see refuseBlocked.
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

// refuseBlocked refuses an address that nothing may be sent to.
func (s *Webhooks) refuseBlocked(url string) error {
	if refused := s.Egress.CheckURL(url); refused != nil {
		return refused
	}
	return nil
}

// readWebhookTypes reads a member types: absent means all.
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

// secretKey seals secrets, or 503: without it none can be kept.
func (s *Webhooks) secretKey() (domain.SecretKey, error) {
	if s.SecretKey == nil {
		return domain.SecretKey{}, domain.Unavailable(
			"The service has no key to keep webhook secrets with; its operator must set INTEGRITY_SECRET_KEY.",
		)
	}
	return *s.SecretKey, nil
}

// readDescription reads what a destination is called.
func readDescription(o *strictjson.Object) string {
	text := o.Sized("description", strictjson.Optional, 0, domain.MaxWebhookDescription)
	if text != "" && !domain.ValidName(text, domain.MaxWebhookDescription) {
		o.Problem("description", strictjson.CodeFormat, domain.WebhookDescriptionRule)
	}
	return text
}

// ReadWebhook reads a destination that is to be added. An address that is blocked is refused later, by the action.
func (s *Webhooks) ReadWebhook(o *strictjson.Object) domain.CreateWebhook {
	return domain.CreateWebhook{URL: s.readWebhookURL(o), Description: readDescription(o), Types: readWebhookTypes(o)}
}

// CreateWebhook adds a destination; its secret is in this answer only.
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

// ListWebhooks shows the destinations of the organization. Their number is bounded, so they are on one page.
func (s *Webhooks) ListWebhooks(ctx context.Context, c *edge.Call, _ struct{}) (wire.Webhooks, error) {
	list, err := s.Store.Webhooks(ctx, c.Access.Organization)
	return wire.Webhooks{Webhooks: wire.Each(list, s.viewWebhook)}, err
}

// Webhook shows a destination, never with its secret.
func (s *Webhooks) Webhook(ctx context.Context, c *edge.Call, id domain.WebhookID) (wire.Webhook, error) {
	found, err := s.Store.Webhook(ctx, c.Access.Organization, id)
	return s.viewWebhook(found), err
}

// ReadWebhookID reads the destination that a path names.
func ReadWebhookID(o *strictjson.Object) domain.WebhookID {
	return edge.ReadID(o, "webhookId", domain.ParseID[domain.WebhookID])
}

// ReadWebhookChange reads the destination of the path, and what is to change of it. What is absent stays; a
// description of null is removed.
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

// UpdateWebhook changes the members that are there. Enabling a destination that was disabled is how its owner says that
// it works again.
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

// DeleteWebhook ends a destination for good. What still waits for it is cancelled.
func (s *Webhooks) DeleteWebhook(
	ctx context.Context, c *edge.Call, id domain.WebhookID,
) (wire.DeletedWebhook, error) {
	command := &domain.DeleteWebhook{Origin: c.Origin(), Webhook: id}
	return done(ctx, s.Service, command, func() wire.DeletedWebhook {
		return wire.DeletedWebhook{ID: command.Webhook.String(), Deleted: true}
	})
}

// ReadSecretRotation reads for how long the former secret goes on signing.
func ReadSecretRotation(o *strictjson.Object) domain.RotateSecret {
	rotation := domain.RotateSecret{Webhook: ReadWebhookID(o), Overlap: domain.DefaultSecretOverlap}
	if o.Has("overlapSeconds") {
		const most = int64(domain.MaxSecretOverlap / time.Second)
		rotation.Overlap = time.Duration(o.Int("overlapSeconds", 0, most, strictjson.Required)) * time.Second
	}
	return rotation
}

// RotateSecret answers the new secret once; both sign until the overlap ends.
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
		// The rotation is committed and its secret shown nowhere else.
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

// DeliveriesQuestion asks for deliveries of a destination.
type DeliveriesQuestion struct {
	edge.Paging[domain.DeliveryID]
	Webhook domain.WebhookID
	Status  projections.DeliveryStatus // empty: any
}

// ReadDeliveries reads which page of the deliveries of the destination of the path, and of which status; without one,
// of any.
func ReadDeliveries(o *strictjson.Object) DeliveriesQuestion {
	known := func(text string) bool { return projections.DeliveryStatus(text).Code() >= 0 }
	return DeliveriesQuestion{
		edge.ReadPaging(o, domain.ParseID[domain.DeliveryID]), ReadWebhookID(o),
		projections.DeliveryStatus(o.Match("status", strictjson.Optional, known,
			"must be pending, delivered, exhausted, suppressed or cancelled")),
	}
}

// ListDeliveries shows the deliveries of a destination, newest first.
func (s *Webhooks) ListDeliveries(
	ctx context.Context, c *edge.Call, asked DeliveriesQuestion,
) (wire.Deliveries, error) {
	organization := c.Access.Organization
	list, more, err := s.Store.Deliveries(ctx, organization, asked.Webhook, asked.Status, asked.After, asked.Limit)
	next := edge.NextPage(asked.Paging, list, more, func(d query.Delivery) string { return d.ID.String() })
	return wire.Deliveries{Deliveries: wire.Each(list, viewDelivery), Next: next}, err
}

// TestWebhook queues a delivery that stands for no event; its fate is seen in the list of deliveries.
func (s *Webhooks) TestWebhook(ctx context.Context, c *edge.Call, id domain.WebhookID) (wire.Delivery, error) {
	now := s.Now()
	delivery, event := domain.NewID[domain.DeliveryID](now), domain.NewID[domain.EventID](now)
	d, err := s.Store.TestDelivery(ctx, c.Access.Organization, id, delivery, event, now)
	s.wake(c, err)
	return viewDelivery(d), err
}

// ReadDeliveryID reads the delivery that a path names.
func ReadDeliveryID(o *strictjson.Object) domain.DeliveryID {
	return edge.ReadID(o, "deliveryId", domain.ParseID[domain.DeliveryID])
}

// Redeliver queues a delivery anew, whatever has become of it.
func (s *Webhooks) Redeliver(ctx context.Context, c *edge.Call, id domain.DeliveryID) (wire.Delivery, error) {
	d, err := s.Store.Redeliver(ctx, c.Access.Organization, id, s.Now())
	s.wake(c, err)
	return viewDelivery(d), err
}

// wake wakes the worker of this process, unless nothing was queued for an error.
func (s *Webhooks) wake(c *edge.Call, err error) {
	if err == nil && s.Queued != nil {
		s.Queued(c.Access.Organization.Shard())
	}
}

// Replay asks for what a destination has missed.
type Replay struct {
	query.Replay
	webhook domain.WebhookID
}

// ReadReplay reads a range of the feed, which dryRun has counted only. Without an end it goes on to the newest event,
// without a company it is of all.
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

// Replay queues what a destination has missed, or counts it.
func (s *Webhooks) Replay(ctx context.Context, c *edge.Call, asked Replay) (wire.Replay, error) {
	done, err := s.Store.ReplayWebhook(ctx, c.Access.Organization, asked.webhook, asked.Replay, s.Now())
	if !asked.DryRun {
		s.wake(c, err)
	}
	return wire.Replay{DryRun: asked.DryRun, Count: done.Count, NextSequence: done.Next}, err
}
