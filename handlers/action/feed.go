package action

import (
	"context"
	"net/http"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// Bounds of a page of the feed (contract section 3).
const (
	MaxFeedLimit = 1000
	FeedLimit    = 100
)

// Epoch is the ledger's: a restore may have raised it since the process started.
func (s *Feed) Epoch() int64 {
	if s.Ledger == nil {
		return s.Installation.Epoch
	}
	return max(s.Installation.Epoch, s.Ledger.Guard.Epoch())
}

// Changes answers a page of the change feed; where it is empty, the caller may wait for the next event.
func (s *Feed) Changes(r *http.Request) (any, error) {
	q := edge.NewQuery(r)
	company := domain.ReadReference(q, "companyReference")
	after := edge.Integer(q, "after", 0, strictjson.MaxInteger, 0)
	epoch := edge.Integer(q, "epoch", 0, strictjson.MaxInteger, query.AnyEpoch)
	limit := int(edge.Integer(q, "limit", 1, MaxFeedLimit, FeedLimit))
	wait := time.Duration(edge.Integer(q, "wait", 0, 25, 0)) * time.Second
	if err := edge.Invalid(q.Problems()); err != nil {
		return nil, err
	}
	page, known, err := s.ChangesAfter(r.Context(), edge.CallOf(r).Access, company, epoch, after, limit)
	if err == nil && len(page.Events) == 0 && wait > 0 {
		page, err = s.await(r, company, known, after, limit, wait)
	}
	return edge.Response{Data: page, Epoch: &known}, err
}

// ChangesAfter reads a page of the feed without waiting, and the epoch that it is of.
func (s *Feed) ChangesAfter(ctx context.Context, access domain.Access, company string, epoch, after int64, limit int) (wire.Feed[wire.FeedEvent], int64, error) {
	page, err := s.Store.Changes(ctx, access, company, epoch, after, limit)
	return viewFeed(company, after, page.Events, page.More), page.Epoch, err
}

func viewFeed(company string, after int64, events []query.FeedEvent, more bool) wire.Feed[wire.FeedEvent] {
	answer := wire.Feed[wire.FeedEvent]{NextCursor: after, HasMore: more}
	answer.Events = wire.Each(events, func(e query.FeedEvent) wire.FeedEvent { return FeedEvent(e, company) })
	if n := len(events); n > 0 {
		answer.NextCursor = events[n-1].Sequence
	}
	return answer
}

// FeedEvent is an event as the feed and the stream of the same events show it.
func FeedEvent(e query.FeedEvent, company string) wire.FeedEvent {
	return wire.FeedEvent{
		ID: e.ID.String(), Sequence: e.Sequence, Type: e.Type, OccurredAt: evidence.FormatTime(e.OccurredAt),
		PublicID: e.PublicID.String(), VersionReference: viewVersion(e, company), RecordStatus: e.Status,
	}
}

func viewVersion(e query.FeedEvent, company string) wire.VersionReference {
	return wire.VersionReference{CompanyReference: company, Source: e.Source, DocumentReference: e.DocumentReference, Version: e.Version}
}

// await looks again whenever something of the company was committed, until an event is there or the wait is over.
// Between two looks no connection is held; every look reads the grant anew, and the key is checked again before events
// are sent. A caller that waits wants what is new, so an older state of a replica will not do.
func (s *Feed) await(r *http.Request, reference string, epoch, after int64, limit int, wait time.Duration) (wire.Feed[wire.FeedEvent], error) {
	c := edge.CallOf(r)
	access := c.Access
	access.ReadAfter = nil
	empty := viewFeed(reference, after, nil, false)
	leave, ok := s.waiters.enter(c.Access)
	if !ok {
		return empty, nil
	}
	defer leave()
	company, err := s.Store.FeedCompany(r.Context(), c.Access, reference)
	if err != nil {
		return empty, err
	}
	woken, forget := s.Notifier.Wait(c.Access.Organization.Shard(), company)
	defer forget()
	waiting, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		// Also at once: something may have come between the first look and the announcement.
		page, _, err := s.ChangesAfter(r.Context(), access, reference, epoch, after, limit)
		switch {
		case err != nil:
			return empty, err
		case len(page.Events) > 0:
			return page, s.JudgeAgain(r)
		}
		select {
		case <-waiting.Done():
			return empty, nil
		case <-s.Closing:
			return empty, nil
		case <-woken:
		}
	}
}

// How many may wait at once (contract section 3).
const (
	maxWaitsKey          = 5
	maxWaitsOrganization = 50
	maxWaitsProcess      = 2000
)

// waiters counts the requests that wait: of a key, of an organization, and (under itself) of the process. It is safe for
// concurrent use.
type waiters struct {
	mu     sync.Mutex
	places map[any]int
}

func newWaiters() *waiters { return &waiters{places: map[any]int{}} }

// enter takes a place, unless all are taken; leave gives it back.
func (w *waiters) enter(a domain.Access) (leave func(), ok bool) {
	most := map[any]int{w: maxWaitsProcess, a.Key: maxWaitsKey, a.Organization: maxWaitsOrganization}
	w.mu.Lock()
	defer w.mu.Unlock()
	for place, n := range most {
		if w.places[place] >= n {
			return nil, false
		}
	}
	for place := range most {
		w.places[place]++
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for place := range most {
			if w.places[place]--; w.places[place] == 0 {
				delete(w.places, place)
			}
		}
	}, true
}
