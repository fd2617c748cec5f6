package handlers

import (
	"cmp"
	"net/http"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections"
	"integrityledger/projections/query"
)

func (s *server) viewWebhook(e query.WebhookEntry) wire.Webhook {
	v := wire.Webhook{
		ID: e.ID.String(), Types: e.Types.Types(), Status: string(e.Status), DisabledReason: (*string)(e.DisabledReason),
		FailingSince: timeOrNull(e.FailingSince), Companies: e.Companies,
		CreatedAt: evidence.FormatTime(e.CreatedAt), UpdatedAt: evidence.FormatTime(e.UpdatedAt), URL: orNull(e.URL.Body),
	}
	if e.Description != nil {
		v.Description = orNull(e.Description.Body)
	}
	if e.PreviousUntil != nil && e.PreviousUntil.After(s.Now()) {
		v.PreviousUntil = timeOrNull(e.PreviousUntil)
	}
	return v
}

// decodeWebhook is decode for the members of a destination; url reads and judges its address. A blocked one is an answer
// of its own, but only where nothing else is wrong.
func (s *server) decodeWebhook(r *http.Request, members func(o *strictjson.Object, url func() string)) error {
	var blocked error
	err := decode(r, func(o *strictjson.Object) {
		members(o, func() string {
			text := o.String("url", strictjson.Required)
			if !o.OK("url") {
				return text
			}
			if refused := s.Egress.CheckURL(text); refused != nil && refused.Code == domain.WebhookURLBlocked {
				blocked = refused
			} else if refused != nil {
				for _, f := range refused.Fields {
					o.Problem("url", f.Code, f.Message)
				}
			}
			return text
		})
	})
	return cmp.Or(err, blocked)
}

// readWebhookTypes reads a member types: absent means all.
func readWebhookTypes(o *strictjson.Object) domain.WebhookMask {
	types := readNames(o, "types", domain.WebhookTypes(), codeUnknownValue, "must be integrity.registered, integrity.superseded or integrity.revoked")
	if !o.OK("types") {
		return domain.MaskOf(domain.WebhookTypes())
	}
	if len(types) == 0 {
		o.Problem("types", strictjson.CodeLength, "must name at least one of integrity.registered, integrity.superseded and integrity.revoked")
	}
	return domain.MaskOf(types)
}

// secretKey seals secrets, or 503: without it none can be kept.
func (s *server) secretKey() (domain.SecretKey, error) {
	if s.SecretKey == nil {
		return domain.SecretKey{}, domain.Unavailable("The service has no key to keep webhook secrets with; its operator must set INTEGRITY_SECRET_KEY.")
	}
	return *s.SecretKey, nil
}

// createWebhook adds a destination; its secret is in this answer only.
func (s *server) createWebhook(r *http.Request) (any, error) {
	created, err := s.addWebhook(r)
	return response{status: http.StatusCreated, data: created}, err
}

// readDescription reads what a destination is called.
func readDescription(o *strictjson.Object) string {
	text := o.Sized("description", strictjson.Optional, 0, domain.MaxWebhookDescription)
	if text != "" && !domain.ValidName(text, domain.MaxWebhookDescription) {
		o.Problem("description", strictjson.CodeFormat, domain.WebhookDescriptionRule)
	}
	return text
}

func (s *server) addWebhook(r *http.Request) (added wire.WebhookWithSecret, err error) {
	created := domain.CreateWebhook{Origin: origin(r)}
	if err := s.decodeWebhook(r, func(o *strictjson.Object, url func() string) {
		created.URL = url()
		created.Description = readDescription(o)
		created.Types = readWebhookTypes(o)
	}); err != nil {
		return added, err
	}
	key, err := s.secretKey()
	if err != nil {
		return added, err
	}
	command, secret := domain.NewCreateWebhook(created, key, s.Now())
	if err := s.execute(r.Context(), command); err != nil {
		return added, err
	}
	return wire.WebhookWithSecret{Webhook: s.viewWebhook(query.WebhookEntry{Webhook: command.Outcome}), Secret: secret}, nil
}

func (s *server) listWebhooks(r *http.Request) (any, error) {
	list, err := s.Store.Webhooks(r.Context(), callOf(r).access.Organization)
	return wire.Webhooks{Webhooks: each(list, s.viewWebhook)}, err
}

func (s *server) webhook(r *http.Request) (any, error) {
	found, err := s.Store.Webhook(r.Context(), callOf(r).access.Organization, webhookID(r))
	return s.viewWebhook(found), err
}

func webhookID(r *http.Request) domain.WebhookID {
	return pathID(r, "webhookId", domain.ParseID[domain.WebhookID])
}

// updateWebhook changes the members that are there. Enabling a destination that was disabled is how its owner says that
// it works again.
func (s *server) updateWebhook(r *http.Request) (any, error) {
	command := &domain.UpdateWebhook{Origin: origin(r), Webhook: webhookID(r)}
	err := s.decodeWebhook(r, func(o *strictjson.Object, url func() string) {
		if o.Has("url") {
			command.URL = new(url())
		}
		if o.Has("description") {
			command.Description = new("")
			if o.NullableString("description", strictjson.Optional) != nil {
				*command.Description = readDescription(o)
			}
		}
		if o.Has("types") {
			command.Types = new(readWebhookTypes(o))
		}
		if o.Has("enabled") {
			command.Status = new(domain.WebhookDisabled)
			if o.Bool("enabled", strictjson.Required) {
				*command.Status = domain.WebhookActive
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if err := s.execute(r.Context(), command); err != nil {
		return nil, err
	}
	if command.Status != nil && *command.Status == domain.WebhookActive {
		if err := s.Store.Forgive(r.Context(), command.Organization, command.Webhook); err != nil {
			return nil, err
		}
	}
	return s.webhook(r)
}

func (s *server) deleteWebhook(r *http.Request) (any, error) {
	command := &domain.DeleteWebhook{Origin: origin(r), Webhook: webhookID(r)}
	return s.done(r.Context(), command, func() any { return wire.DeletedWebhook{ID: command.Webhook.String(), Deleted: true} })
}

// rotateSecret answers the new secret once; both sign until the overlap ends.
func (s *server) rotateSecret(r *http.Request) (any, error) { return s.rotated(r) }

func (s *server) rotated(r *http.Request) (rotated wire.WebhookWithSecret, err error) {
	overlap := domain.DefaultSecretOverlap
	if err := decode(r, func(o *strictjson.Object) {
		if o.Has("overlapSeconds") {
			overlap = time.Duration(o.Int("overlapSeconds", 0, int64(domain.MaxSecretOverlap/time.Second), strictjson.Required)) * time.Second
		}
	}); err != nil {
		return rotated, err
	}
	key, err := s.secretKey()
	if err != nil {
		return rotated, err
	}
	command, secret := domain.NewRotateSecret(domain.RotateSecret{Origin: origin(r), Webhook: webhookID(r), Overlap: overlap}, key)
	if err := s.execute(r.Context(), command); err != nil {
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
		CreatedAt: evidence.FormatTime(d.CreatedAt), LastAttemptAt: timeOrNull(d.AttemptedAt), NextAttemptAt: timeOrNull(d.NextAttemptAt),
		FinishedAt: timeOrNull(d.FinishedAt), ResponseStatus: d.ResponseStatus, Reason: orNull(d.Reason),
		CompanyID: viewOrNull(d.Company, domain.CompanyID.String),
	}
	if d.Company != nil {
		v.Sequence = &d.Sequence
	}
	return v
}

// listDeliveries shows the deliveries of a destination, newest first.
func (s *server) listDeliveries(r *http.Request) (any, error) {
	q := newQuery(r)
	limit, after := readLimit(q), cursorID(q, domain.ParseID[domain.DeliveryID])
	status := q.Match("status", strictjson.Optional, func(text string) bool { return projections.DeliveryStatus(text).Code() >= 0 },
		"must be pending, delivered, exhausted, suppressed or cancelled")
	if err := invalid(q.Problems()); err != nil {
		return nil, err
	}
	list, more, err := s.Store.Deliveries(r.Context(), callOf(r).access.Organization, webhookID(r), projections.DeliveryStatus(status), after, limit)
	next := nextPage(q, list, more, func(d query.Delivery) string { return d.ID.String() })
	return wire.Deliveries{Deliveries: each(list, viewDelivery), Next: next}, err
}

// testWebhook queues a delivery that stands for no event; its fate is seen in the list of deliveries.
func (s *server) testWebhook(r *http.Request) (any, error) {
	if err := decode(r, func(*strictjson.Object) {}); err != nil {
		return nil, err
	}
	now := s.Now()
	d, err := s.Store.TestDelivery(r.Context(), callOf(r).access.Organization, webhookID(r), domain.NewID[domain.DeliveryID](now), domain.NewID[domain.EventID](now), now)
	return s.queued(r, viewDelivery(d), err)
}

func (s *server) redeliver(r *http.Request) (any, error) {
	if err := decode(r, func(*strictjson.Object) {}); err != nil {
		return nil, err
	}
	id := pathID(r, "deliveryId", domain.ParseID[domain.DeliveryID])
	d, err := s.Store.Redeliver(r.Context(), callOf(r).access.Organization, id, s.Now())
	return s.queued(r, viewDelivery(d), err)
}

// queued answers 202 and wakes the worker of this process, unless there is an error.
func (s *server) queued(r *http.Request, data any, err error) (any, error) {
	if err == nil && s.Queued != nil {
		s.Queued(callOf(r).access.Organization.Shard())
	}
	return response{status: http.StatusAccepted, data: data}, err
}

// replay queues what a destination has missed, or counts it.
func (s *server) replay(r *http.Request) (any, error) {
	answer, err := s.replayed(r)
	if answer.DryRun {
		return answer, err
	}
	return s.queued(r, answer, err)
}

func (s *server) replayed(r *http.Request) (answer wire.Replay, err error) {
	var replay query.Replay
	err = decode(r, func(o *strictjson.Object) {
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
	})
	if err != nil {
		return answer, err
	}
	done, err := s.Store.ReplayWebhook(r.Context(), callOf(r).access.Organization, webhookID(r), replay, s.Now())
	return wire.Replay{DryRun: replay.DryRun, Count: done.Count, NextSequence: done.Next}, err
}
