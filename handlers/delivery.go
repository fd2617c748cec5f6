package handlers

import (
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/projections"
	"integrityledger/projections/query"
)

type deliveryView struct {
	ID             string           `json:"id"`
	WebhookID      string           `json:"webhookId"`
	EventID        string           `json:"eventId"`
	Type           domain.EventType `json:"type"`
	Sequence       *int64           `json:"sequence"`
	CompanyID      *string          `json:"companyId"`
	Status         string           `json:"status"`
	Attempts       int              `json:"attempts"`
	CreatedAt      string           `json:"createdAt"`
	LastAttemptAt  *string          `json:"lastAttemptAt"`
	NextAttemptAt  *string          `json:"nextAttemptAt"`
	FinishedAt     *string          `json:"finishedAt"`
	ResponseStatus *int             `json:"responseStatus"`
	Reason         *string          `json:"reason"`
}

func viewDelivery(d query.Delivery) deliveryView {
	v := deliveryView{
		ID: d.ID.String(), WebhookID: d.Webhook.String(), EventID: d.Event.String(), Type: d.Type, Status: string(d.Status), Attempts: d.Attempts,
		CreatedAt: evidence.FormatTime(d.CreatedAt), LastAttemptAt: timeOrNull(d.AttemptedAt), NextAttemptAt: timeOrNull(d.NextAttemptAt),
		FinishedAt: timeOrNull(d.FinishedAt), ResponseStatus: d.ResponseStatus,
	}
	if d.Company != nil {
		company := d.Company.String()
		v.CompanyID, v.Sequence = &company, &d.Sequence
	}
	if d.Reason != "" {
		v.Reason = &d.Reason
	}
	return v
}

// listDeliveries shows the deliveries of a destination, newest first.
func (s *server) listDeliveries(r *http.Request) (response, error) {
	q := newQuery(r)
	limit := int(q.integer("limit", 1, 1000, 100, strictjson.Optional))
	var after domain.DeliveryID
	q.cursor("after", func(text string) bool {
		var err error
		after, err = domain.ParseID[domain.DeliveryID](text)
		return err == nil
	})
	text, filtered := q.text("status", strictjson.Optional)
	status := projections.DeliveryStatus(text)
	if filtered && status.Code() < 0 {
		q.problem("status", strictjson.CodeFormat, "pending, delivered, exhausted, suppressed or cancelled was expected")
	}
	if err := q.refusal(); err != nil {
		return response{}, err
	}
	list, more, err := s.Store.Deliveries(r.Context(), callOf(r).access.Organization, webhookID(r), status, after, limit)
	if err != nil {
		return response{}, err
	}
	answer := struct {
		Deliveries []deliveryView `json:"deliveries"`
		NextCursor *string        `json:"nextCursor"`
		HasMore    bool           `json:"hasMore"`
	}{make([]deliveryView, len(list)), nil, more}
	for i, d := range list {
		answer.Deliveries[i] = viewDelivery(d)
	}
	if len(list) > 0 {
		next := formatCursor(list[len(list)-1].ID.String())
		answer.NextCursor = &next
	} else if given := q.values.Get("after"); given != "" {
		answer.NextCursor = &given
	}
	return response{data: answer}, nil
}

// testWebhook queues a delivery that stands for no event; its fate is seen in the list of deliveries.
func (s *server) testWebhook(r *http.Request) (response, error) {
	if err := decode(r, func(*strictjson.Object) {}); err != nil {
		return response{}, err
	}
	now := s.Now()
	delivery, err := domain.NewID[domain.DeliveryID](now, s.Random)
	if err != nil {
		return response{}, err
	}
	event, err := domain.NewID[domain.EventID](now, s.Random)
	if err != nil {
		return response{}, err
	}
	d, err := s.Store.TestDelivery(r.Context(), callOf(r).access.Organization, webhookID(r), delivery, event, now)
	if err != nil {
		return response{}, err
	}
	return s.queued(r, viewDelivery(d)), nil
}

func (s *server) redeliver(r *http.Request) (response, error) {
	if err := decode(r, func(*strictjson.Object) {}); err != nil {
		return response{}, err
	}
	id, err := domain.ParseID[domain.DeliveryID](variable(r, "deliveryId"))
	if err != nil {
		id = domain.DeliveryID{} // names no delivery: answers as an unknown one
	}
	d, err := s.Store.Redeliver(r.Context(), callOf(r).access.Organization, id, s.Now())
	if err != nil {
		return response{}, err
	}
	return s.queued(r, viewDelivery(d)), nil
}

// queued answers 202 and wakes the worker of this process.
func (s *server) queued(r *http.Request, data any) response {
	if s.Queued != nil {
		s.Queued(callOf(r).access.Organization.Shard())
	}
	return response{status: http.StatusAccepted, data: data}
}

// replay queues what a destination has missed, or counts it.
func (s *server) replay(r *http.Request) (response, error) {
	var replay query.Replay
	err := decode(r, func(o *strictjson.Object) {
		replay.From = o.Int("fromSequence", 1, strictjson.MaxInteger, strictjson.Required)
		if to := o.NullableInt("toSequence", 1, strictjson.MaxInteger, strictjson.Optional); to != nil {
			if replay.To = *to; o.OK("fromSequence") && replay.To < replay.From {
				o.Problem("toSequence", strictjson.CodeRange, "a sequence of at least fromSequence was expected")
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
		return response{}, err
	}
	done, err := s.Store.ReplayWebhook(r.Context(), callOf(r).access.Organization, webhookID(r), replay, s.Now())
	if err != nil {
		return response{}, err
	}
	answer := struct {
		DryRun       bool   `json:"dryRun"`
		Count        int    `json:"count"`
		NextSequence *int64 `json:"nextSequence"`
	}{replay.DryRun, done.Count, done.Next}
	if replay.DryRun {
		return response{data: answer}, nil
	}
	return s.queued(r, answer), nil
}
