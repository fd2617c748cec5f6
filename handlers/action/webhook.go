package action

import (
	"net/http"
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
		CreatedAt: evidence.FormatTime(e.CreatedAt), UpdatedAt: evidence.FormatTime(e.UpdatedAt), URL: wire.OrNull(e.URL.Body),
	}
	if e.Description != nil {
		v.Description = wire.OrNull(e.Description.Body)
	}
	if e.PreviousUntil != nil && e.PreviousUntil.After(s.Now()) {
		v.PreviousUntil = wire.TimeOrNull(e.PreviousUntil)
	}
	return v
}

// readWebhookURL reads the address of a destination. A blocked address is an answer of its own, given only if nothing else
// is wrong: see refuseBlocked.
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
	types := edge.ReadNames(o, "types", domain.WebhookTypes(), edge.CodeUnknownValue, "must be integrity.registered, integrity.superseded or integrity.revoked")
	if !o.OK("types") {
		return domain.MaskOf(domain.WebhookTypes())
	}
	if len(types) == 0 {
		o.Problem("types", strictjson.CodeLength, "must name at least one of integrity.registered, integrity.superseded and integrity.revoked")
	}
	return domain.MaskOf(types)
}

// secretKey seals secrets, or 503: without it none can be kept.
func (s *Webhooks) secretKey() (domain.SecretKey, error) {
	if s.SecretKey == nil {
		return domain.SecretKey{}, domain.Unavailable("The service has no key to keep webhook secrets with; its operator must set INTEGRITY_SECRET_KEY.")
	}
	return *s.SecretKey, nil
}

// CreateWebhook adds a destination; its secret is in this answer only.
func (s *Webhooks) CreateWebhook(r *http.Request) (any, error) {
	created, err := edge.Taken(r, s.ReadWebhook, s.AddWebhook)
	return edge.Response{Status: http.StatusCreated, Data: created}, err
}

// readDescription reads what a destination is called.
func readDescription(o *strictjson.Object) string {
	text := o.Sized("description", strictjson.Optional, 0, domain.MaxWebhookDescription)
	if text != "" && !domain.ValidName(text, domain.MaxWebhookDescription) {
		o.Problem("description", strictjson.CodeFormat, domain.WebhookDescriptionRule)
	}
	return text
}

func (s *Webhooks) ReadWebhook(o *strictjson.Object) domain.CreateWebhook {
	return domain.CreateWebhook{URL: s.readWebhookURL(o), Description: readDescription(o), Types: readWebhookTypes(o)}
}

func (s *Webhooks) AddWebhook(r *http.Request, created domain.CreateWebhook) (added wire.WebhookWithSecret, err error) {
	if err := s.refuseBlocked(created.URL); err != nil {
		return added, err
	}
	created.Origin = edge.Origin(r)
	key, err := s.secretKey()
	if err != nil {
		return added, err
	}
	command, secret := domain.NewCreateWebhook(created, key, s.Now())
	if err := s.Execute(r.Context(), command); err != nil {
		return added, err
	}
	return wire.WebhookWithSecret{Webhook: s.viewWebhook(query.WebhookEntry{Webhook: command.Outcome}), Secret: secret}, nil
}

func (s *Webhooks) ListWebhooks(r *http.Request) (any, error) {
	list, err := s.Store.Webhooks(r.Context(), edge.CallOf(r).Access.Organization)
	return wire.Webhooks{Webhooks: wire.Each(list, s.viewWebhook)}, err
}

func (s *Webhooks) Webhook(r *http.Request) (any, error) {
	found, err := s.Store.Webhook(r.Context(), edge.CallOf(r).Access.Organization, WebhookID(r))
	return s.viewWebhook(found), err
}

func readWebhookID(o *strictjson.Object) domain.WebhookID {
	return edge.ReadID(o, "webhookId", domain.ParseID[domain.WebhookID])
}

func WebhookID(r *http.Request) domain.WebhookID {
	return edge.PathID(r, "webhookId", domain.ParseID[domain.WebhookID])
}

func (s *Webhooks) ReadWebhookChange(o *strictjson.Object) (change domain.UpdateWebhook) {
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

// UpdateWebhook changes the members that are there.
func (s *Webhooks) UpdateWebhook(r *http.Request) (any, error) {
	return edge.Taken(r, s.ReadWebhookChange, s.ChangeWebhook)
}

// ChangeWebhook changes the destination of the path. Enabling a destination that was disabled is how its owner says that
// it works again.
func (s *Webhooks) ChangeWebhook(r *http.Request, change domain.UpdateWebhook) (any, error) {
	if change.URL != nil {
		if err := s.refuseBlocked(*change.URL); err != nil {
			return nil, err
		}
	}
	command := &change
	command.Origin, command.Webhook = edge.Origin(r), WebhookID(r)
	err := s.Execute(r.Context(), command)
	if err == nil && command.Status != nil && *command.Status == domain.WebhookActive {
		err = s.Store.Forgive(r.Context(), command.Organization, command.Webhook)
	}
	if err != nil {
		return nil, err
	}
	return s.Webhook(r)
}

func (s *Webhooks) DeleteWebhook(r *http.Request) (any, error) {
	command := &domain.DeleteWebhook{Origin: edge.Origin(r), Webhook: WebhookID(r)}
	return s.Done(r.Context(), command, func() any { return wire.DeletedWebhook{ID: command.Webhook.String(), Deleted: true} })
}

// ReadSecretOverlap reads for how long the former secret goes on signing.
func ReadSecretOverlap(o *strictjson.Object) time.Duration {
	if !o.Has("overlapSeconds") {
		return domain.DefaultSecretOverlap
	}
	return time.Duration(o.Int("overlapSeconds", 0, int64(domain.MaxSecretOverlap/time.Second), strictjson.Required)) * time.Second
}

// RotateSecret answers the new secret once; both sign until the overlap ends.
func (s *Webhooks) RotateSecret(r *http.Request) (any, error) {
	overlap := domain.DefaultSecretOverlap
	if err := edge.Decode(r, func(o *strictjson.Object) { overlap = ReadSecretOverlap(o) }); err != nil {
		return nil, err
	}
	return s.Rotated(r, overlap)
}

func (s *Webhooks) Rotated(r *http.Request, overlap time.Duration) (rotated wire.WebhookWithSecret, err error) {
	key, err := s.secretKey()
	if err != nil {
		return rotated, err
	}
	command, secret := domain.NewRotateSecret(domain.RotateSecret{Origin: edge.Origin(r), Webhook: WebhookID(r), Overlap: overlap}, key)
	if err := s.Execute(r.Context(), command); err != nil {
		return rotated, err
	}
	e, err := s.Store.Webhook(r.Context(), command.Organization, command.Webhook)
	if err != nil {
		// The rotation is committed and its secret shown nowhere else.
		e = query.WebhookEntry{Webhook: command.Outcome}
	}
	return wire.WebhookWithSecret{Webhook: s.viewWebhook(e), Secret: secret}, nil
}

func viewDelivery(d query.Delivery) wire.Delivery {
	v := wire.Delivery{
		ID: d.ID.String(), WebhookID: d.Webhook.String(), EventID: d.Event.String(), Type: d.Type, Status: string(d.Status), Attempts: d.Attempts,
		CreatedAt: evidence.FormatTime(d.CreatedAt), LastAttemptAt: wire.TimeOrNull(d.AttemptedAt), NextAttemptAt: wire.TimeOrNull(d.NextAttemptAt),
		FinishedAt: wire.TimeOrNull(d.FinishedAt), ResponseStatus: d.ResponseStatus, Reason: wire.OrNull(d.Reason),
		CompanyID: wire.ViewOrNull(d.Company, domain.CompanyID.String),
	}
	if d.Company != nil {
		v.Sequence = &d.Sequence
	}
	return v
}

// ListDeliveries shows the deliveries of a destination, newest first.
func (s *Webhooks) ListDeliveries(r *http.Request) (any, error) {
	q := edge.NewQuery(r)
	asked := edge.ReadPaging(q, domain.ParseID[domain.DeliveryID])
	status := q.Match("status", strictjson.Optional, func(text string) bool { return projections.DeliveryStatus(text).Code() >= 0 },
		"must be pending, delivered, exhausted, suppressed or cancelled")
	if err := edge.Invalid(q.Problems()); err != nil {
		return nil, err
	}
	list, more, err := s.Store.Deliveries(r.Context(), edge.CallOf(r).Access.Organization, WebhookID(r), projections.DeliveryStatus(status), asked.After, asked.Limit)
	next := edge.NextPage(asked, list, more, func(d query.Delivery) string { return d.ID.String() })
	return wire.Deliveries{Deliveries: wire.Each(list, viewDelivery), Next: next}, err
}

// TestWebhook queues a delivery that stands for no event; its fate is seen in the list of deliveries.
func (s *Webhooks) TestWebhook(r *http.Request) (any, error) {
	return edge.Taken(r, edge.ReadNothing, s.SendTest)
}

func (s *Webhooks) SendTest(r *http.Request, _ struct{}) (any, error) {
	now := s.Now()
	d, err := s.Store.TestDelivery(r.Context(), edge.CallOf(r).Access.Organization, WebhookID(r), domain.NewID[domain.DeliveryID](now), domain.NewID[domain.EventID](now), now)
	return s.Accepted(r, viewDelivery(d), err)
}

func (s *Webhooks) Redeliver(r *http.Request) (any, error) {
	return edge.Taken(r, edge.ReadNothing, s.SendAgain)
}

func (s *Webhooks) SendAgain(r *http.Request, _ struct{}) (any, error) {
	id := edge.PathID(r, "deliveryId", domain.ParseID[domain.DeliveryID])
	d, err := s.Store.Redeliver(r.Context(), edge.CallOf(r).Access.Organization, id, s.Now())
	return s.Accepted(r, viewDelivery(d), err)
}

// Accepted answers 202 and wakes the worker of this process, unless there is an error.
func (s *Webhooks) Accepted(r *http.Request, data any, err error) (any, error) {
	if err == nil && s.Queued != nil {
		s.Queued(edge.CallOf(r).Access.Organization.Shard())
	}
	return edge.Response{Status: http.StatusAccepted, Data: data}, err
}

// Replay queues what a destination has missed, or counts it.
func (s *Webhooks) Replay(r *http.Request) (any, error) {
	answer, err := edge.Taken(r, ReadReplay, s.Replayed)
	if answer.DryRun {
		return answer, err
	}
	return s.Accepted(r, answer, err)
}

func ReadReplay(o *strictjson.Object) (replay query.Replay) {
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

func (s *Webhooks) Replayed(r *http.Request, replay query.Replay) (wire.Replay, error) {
	done, err := s.Store.ReplayWebhook(r.Context(), edge.CallOf(r).Access.Organization, WebhookID(r), replay, s.Now())
	return wire.Replay{DryRun: replay.DryRun, Count: done.Count, NextSequence: done.Next}, err
}
