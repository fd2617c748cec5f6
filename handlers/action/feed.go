package action

import (
	"cmp"
	"context"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// Bounds of a page of the feed (contract section 3).
const (
	maxFeedLimit = 1000
	feedLimit    = 100
	// fruitlessPause is how long a waiting reader of all companies sleeps after it has read again without a result.
	fruitlessPause = time.Second
)

// Epoch returns the ledger's epoch: a restore may have raised it since the process started.
func (s *Feed) Epoch() int64 {
	if s.ledger == nil {
		return s.Installation.Epoch
	}
	return max(s.Installation.Epoch, s.ledger.Guard.Epoch())
}

// FeedQuestion asks for a page of the feed of a company, or of all companies of the key.
type FeedQuestion struct {
	company      string // empty for all
	after, epoch int64
	limit        int
	wait         time.Duration // the longest wait for the next event
}

// ReadFeed reads a question that does not wait. Without a cursor the feed starts at its first event; without an epoch
// any epoch is accepted.
func ReadFeed(o *strictjson.Object) FeedQuestion {
	return FeedQuestion{
		company: edge.OptionalReference(o, "companyReference"), after: edge.Integer(o, "after", 0, strictjson.MaxInteger, 0),
		epoch: edge.Integer(o, "epoch", 0, strictjson.MaxInteger, query.AnyEpoch),
		limit: int(edge.Integer(o, "limit", 1, maxFeedLimit, feedLimit)),
	}
}

// ReadLongPoll is ReadFeed for a caller that may wait.
func ReadLongPoll(o *strictjson.Object) FeedQuestion {
	asked := ReadFeed(o)
	asked.wait = readWait(o)
	return asked
}

// readWait reads how many seconds the caller may wait.
func readWait(o *strictjson.Object) time.Duration {
	return time.Duration(edge.Integer(o, "wait", 0, 25, 0)) * time.Second
}

// FeedPage is a page of the feed, with the epoch of its cursors.
type FeedPage struct {
	wire.Feed[wire.FeedEvent]
	Epoch int64
}

// Changes answers a page of the change feed. If the page is empty, the caller may wait for the next event.
func (s *Feed) Changes(ctx context.Context, c *edge.Call, asked FeedQuestion) (FeedPage, error) {
	page, err := s.changesAfter(ctx, c.Access, asked)
	if err == nil && page.empty() && asked.wait > 0 {
		asked.epoch = page.Epoch
		page, err = s.await(ctx, c.Access, asked, page)
	}
	return page, err
}

// empty reports whether a page tells its reader nothing.
func (p FeedPage) empty() bool { return len(p.Events)+len(p.Granted) == 0 && !p.HasMore }

// changesAfter reads a page of the feed and its epoch without waiting.
func (s *Feed) changesAfter(ctx context.Context, access domain.Access, asked FeedQuestion) (FeedPage, error) {
	page, err := s.Store.Changes(ctx, access, asked.company, asked.epoch, asked.after, asked.limit)
	answer := FeedPage{wire.Feed[wire.FeedEvent]{NextCursor: page.Cursor, HasMore: page.More}, page.Epoch}
	answer.Events = wire.Each(page.Events, func(e query.FeedEvent) wire.FeedEvent {
		return FeedEvent(e, cmp.Or(asked.company, e.CompanyReference))
	})
	if asked.company == "" {
		answer.Head = &page.Head
		answer.Granted = wire.Each(page.Granted, func(g query.GrantedAt) wire.GrantedCompany {
			return wire.GrantedCompany{CompanyReference: g.Reference, Sequence: g.Sequence}
		})
	}
	return answer, err
}

// FeedEvent returns an event in the form of the feed and of its stream.
func FeedEvent(e query.FeedEvent, company string) wire.FeedEvent {
	return wire.FeedEvent{
		ID: e.ID.String(), Sequence: e.Sequence, Type: e.Type, OccurredAt: evidence.FormatTime(e.OccurredAt),
		PublicID: e.PublicID.String(), SHA256: e.SHA256.String(), VersionReference: viewVersion(e, company),
		RecordStatus: e.Status,
	}
}

func viewVersion(e query.FeedEvent, company string) wire.VersionReference {
	return wire.VersionReference{
		CompanyReference: company, Source: e.Source, DocumentReference: e.DocumentReference, Version: e.Version,
	}
}

// await reads the feed again after every commit in the company, until there is an event or the wait is over. It holds
// no connection while it waits. Every read checks the grant again, and the key is checked again before events are sent.
// A waiting caller wants new events, so an older state of a replica will not do. Every read begins after the caller's
// cursor: of a company that was granted during the wait, the caller reads the events up to there itself. empty is the
// page that was read first.
func (s *Feed) await(ctx context.Context, access domain.Access, asked FeedQuestion, empty FeedPage) (FeedPage, error) {
	leave, ok := s.waiters.enter(access)
	if !ok {
		return empty, nil
	}
	defer leave()
	company, err := s.Store.FeedCompany(ctx, access, asked.company)
	if err != nil {
		return empty, err
	}
	woken, forget := s.Notifier.Wait(access.Organization, company)
	defer forget()
	access.ReadAfter = nil
	waiting, cancel := context.WithTimeout(ctx, asked.wait)
	defer cancel()
	for {
		// Read at once: an event may have been committed between the first read and Wait.
		page, err := s.changesAfter(ctx, access, asked)
		switch {
		case err != nil:
			return empty, err
		case !page.empty():
			return page, s.JudgeAgain(ctx)
		}
		empty = page
		select {
		case <-waiting.Done():
			return empty, nil
		case <-s.Closing:
			return empty, nil
		case <-woken:
		}
		// Most events of an organization may belong to companies that this key may not use.
		if asked.company == "" && wait.For(waiting, fruitlessPause) != nil {
			return empty, nil
		}
	}
}

// Numbers of requests that may wait at the same time (contract section 3).
const (
	maxWaitsKey          = 5
	maxWaitsOrganization = 50
	maxWaitsProcess      = 2000
)

// waiters counts the waiting requests of each key, of each organization and, under the waiters itself, of the process.
// It is safe for concurrent use.
type waiters struct {
	mu     sync.Mutex
	places map[any]int
}

func newWaiters() *waiters { return &waiters{places: map[any]int{}} }

// enter takes a place unless all are taken; leave returns it.
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
