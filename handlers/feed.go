package handlers

import (
	"net/http"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/projections"
)

type feedEventView struct {
	ID                string           `json:"id"`
	Sequence          int64            `json:"sequence"`
	Type              domain.EventType `json:"type"`
	OccurredAt        string           `json:"occurredAt"`
	PublicID          string           `json:"publicId"`
	CompanyReference  string           `json:"companyReference"`
	Source            string           `json:"source"`
	DocumentReference string           `json:"documentReference"`
	Version           int32            `json:"version"`
	RecordStatus      domain.Status    `json:"recordStatus"`
}

// changes answers a page of the change feed; where it is empty, the caller may
// wait for the next event.
func (s *server) changes(r *http.Request) (response, error) {
	q := newQuery(r)
	company := q.reference("companyReference")
	after := q.integer("after", 0, strictjson.MaxInteger, 0, strictjson.Optional)
	limit := int(q.integer("limit", 1, 1000, 100, strictjson.Optional))
	wait := time.Duration(q.integer("wait", 0, 25, 0, strictjson.Optional)) * time.Second
	if err := q.refusal(); err != nil {
		return response{}, err
	}
	events, more, err := s.Store.Changes(r.Context(), callOf(r).access, company, after, limit)
	if err == nil && len(events) == 0 && wait > 0 {
		events, more, err = s.await(r, company, after, limit, wait)
	}
	if err != nil {
		return response{}, err
	}
	answer := struct {
		Events     []feedEventView `json:"events"`
		NextCursor int64           `json:"nextCursor"`
		HasMore    bool            `json:"hasMore"`
	}{make([]feedEventView, len(events)), after, more}
	for i, e := range events {
		answer.Events[i] = feedEventView{
			ID: e.ID.String(), Sequence: e.Sequence, Type: e.Type, OccurredAt: evidence.FormatTime(e.OccurredAt),
			PublicID: e.PublicID.String(), CompanyReference: company, Source: e.Source, DocumentReference: e.DocumentReference,
			Version: e.Version, RecordStatus: e.Status,
		}
		answer.NextCursor = e.Sequence
	}
	return response{data: answer, epoch: &s.Installation.Epoch}, nil
}

// pollEvery is how often a waiting reader looks.
const pollEvery = 250 * time.Millisecond

// await looks again until an event is there or the wait is over. Between two
// looks no connection is held; every look reads the grant anew, and the key is
// checked again before events are sent.
func (s *server) await(r *http.Request, company string, after int64, limit int, wait time.Duration) ([]projections.FeedEvent, bool, error) {
	c := callOf(r)
	leave, ok := s.waiters.enter(c.access)
	if !ok {
		return nil, false, nil
	}
	defer leave()
	over := time.NewTimer(wait)
	defer over.Stop()
	look := time.NewTicker(pollEvery)
	defer look.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil, false, nil
		case <-s.Closing:
			return nil, false, nil
		case <-over.C:
			return nil, false, nil
		case <-look.C:
		}
		events, more, err := s.Store.Changes(r.Context(), c.access, company, after, limit)
		if err != nil || len(events) > 0 {
			if err == nil {
				err = s.stillAllowed(r)
			}
			if err != nil {
				return nil, false, err
			}
			return events, more, nil
		}
	}
}

// stillAllowed looks at the key of a request that has waited.
func (s *server) stillAllowed(r *http.Request) error {
	c := callOf(r)
	access, err := s.Store.Reauthenticate(r.Context(), c.access.Key, c.secret, s.clientAddress(r), s.Now())
	if err != nil {
		return err
	}
	return access.Authorize(domain.IntegrityRead)
}

// How many may wait at once (contract section 3).
const (
	maxWaitsKey          = 5
	maxWaitsOrganization = 50
	maxWaitsProcess      = 2000
)

// waiters counts those who wait. It is safe for concurrent use.
type waiters struct {
	mu            sync.Mutex
	total         int
	keys          map[domain.KeyID]int
	organizations map[domain.OrganizationID]int
}

func newWaiters() *waiters {
	return &waiters{keys: map[domain.KeyID]int{}, organizations: map[domain.OrganizationID]int{}}
}

// enter takes a place, unless all are taken; leave gives it back.
func (w *waiters) enter(a domain.Access) (leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= maxWaitsProcess || w.keys[a.Key] >= maxWaitsKey || w.organizations[a.Organization] >= maxWaitsOrganization {
		return nil, false
	}
	w.total++
	w.keys[a.Key]++
	w.organizations[a.Organization]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.total--
		if w.keys[a.Key]--; w.keys[a.Key] == 0 {
			delete(w.keys, a.Key)
		}
		if w.organizations[a.Organization]--; w.organizations[a.Organization] == 0 {
			delete(w.organizations, a.Organization)
		}
	}, true
}
