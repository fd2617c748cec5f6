package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/projections"
	"integrityledger/projections/query"
)

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
	limit, after := q.limit(), cursorID(q, "after", domain.ParseID[domain.DeliveryID])
	text, filtered := q.text("status", strictjson.Optional)
	status := projections.DeliveryStatus(text)
	if filtered && status.Code() < 0 {
		q.problem("status", strictjson.CodeFormat, "must be pending, delivered, exhausted, suppressed or cancelled")
	}
	if err := q.refusal(); err != nil {
		return nil, err
	}
	list, more, err := s.Store.Deliveries(r.Context(), callOf(r).access.Organization, webhookID(r), status, after, limit)
	next := nextCursor(q, list, func(d query.Delivery) string { return d.ID.String() })
	return wire.Deliveries{Deliveries: each(list, viewDelivery), NextCursor: next, HasMore: more}, err
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
	var replay query.Replay
	err := decode(r, func(o *strictjson.Object) {
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
		return nil, err
	}
	done, err := s.Store.ReplayWebhook(r.Context(), callOf(r).access.Organization, webhookID(r), replay, s.Now())
	answer := wire.Replay{DryRun: replay.DryRun, Count: done.Count, NextSequence: done.Next}
	if replay.DryRun {
		return answer, err
	}
	return s.queued(r, answer, err)
}
