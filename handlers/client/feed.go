package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/wire"
)

// Bounds of a page of the feed (contract section 3).
const (
	maxEvents = 1000
	maxWait   = 25 * time.Second
)

// Event is a change, with the bytes that the service sent.
type Event struct {
	wire.FeedEvent
	Raw json.RawMessage
}

// Page is an answer of the change feed.
type Page struct {
	Events  []Event
	After   int64 // the cursor of the request
	Cursor  int64 // the cursor of the next request
	Epoch   int64 // raised when the service was restored from a backup
	HasMore bool

	// Of a page over all companies only: the organization's last sequence when the page was read, and the companies that
	// the key was granted by events of the page. Pages that were read before a grant lack the events of its company.
	Head    int64
	Granted []wire.GrantedCompany
}

// Changes reads up to 1,000 changes of a company, or of all companies of the key if company is empty, after a sequence.
// If the page is empty, the service waits for a change up to wait, in whole seconds and at most 25.
func (c *Client) Changes(ctx context.Context, company string, after int64, wait time.Duration) (Page, error) {
	a := ask{method: http.MethodGet, path: "/api/v1/integrity/changes", newest: true, query: url.Values{
		"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(maxEvents)},
	}}
	if company != "" {
		a.query.Set("companyReference", company)
	}
	if wait > 0 {
		a.query.Set("wait", strconv.Itoa(int(wait/time.Second)))
	}
	var answer wire.Feed[json.RawMessage]
	meta, err := c.read(ctx, a, &answer)
	if err != nil {
		return Page{}, err
	}
	if answer.Events == nil {
		return Page{}, say.Errorf("the answer has no list of events")
	}
	page := Page{
		Events: make([]Event, len(answer.Events)), After: after, Cursor: answer.NextCursor, HasMore: answer.HasMore,
	}
	switch {
	case company != "": // a service that knows companies only one by one refuses a request without one
	case answer.Head == nil:
		return Page{}, say.Errorf("the answer does not name the head of the feed")
	default:
		page.Head, page.Granted = *answer.Head, answer.Granted
	}
	if meta.Epoch != nil {
		page.Epoch = *meta.Epoch
	}
	if page.Epoch == 0 {
		return Page{}, say.Errorf("the answer names no epoch of the feed")
	}
	for i, raw := range answer.Events {
		e := Event{Raw: raw}
		if err := json.Unmarshal(raw, &e.FeedEvent); err != nil || e.ID == "" {
			return Page{}, say.Errorf("an event has a form that this program does not know")
		}
		page.Events[i] = e
		c.session.saw(e.Sequence)
	}
	if (page.HasMore || len(page.Events) > 0) && page.Cursor <= after || page.Cursor < after {
		return Page{}, say.Errorf("the cursor of the answer does not move")
	}
	return page, nil
}

// RestoredError means that the service was restored from a backup after the consumer's last page: the consumer may have
// events that the service has lost. Read the feed again from 0 and deduplicate by id.
type RestoredError struct{ Known, Now int64 }

func (e *RestoredError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *RestoredError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

func (e *RestoredError) sentence() say.Sentence {
	return say.Sentencef(
		"the service was restored from a backup (epoch %d became %d): it may have lost events that were read before", e.Known,
		e.Now,
	)
}

// Follower reads a company's feed page by page, or the feed over all companies of the key if Company is empty. Before
// Take gets a page that names newly granted companies, it gets their earlier events, in pages that do not move the
// cursor.
type Follower struct {
	Client  *Client
	Company string
	Cursor  int64 // of the last page that was taken; 0 for the beginning
	Epoch   int64 // of the last page that was taken; 0 before the first
	// Live keeps waiting for further changes at the end of the feed, and retries after outages.
	Live bool
	// Take stores the events together with the page's Cursor and Epoch, and drops events whose id is already stored. It is
	// also called for pages without events.
	Take func(Page) error
	// Failed is called for failures after which Run retries, with the wait. It may be nil.
	Failed func(err error, again time.Duration)

	sleep func(ctx context.Context, d time.Duration) error // nil means wait.For
}

// Run takes pages until the end of the feed, or if Live until ctx ends; it then returns the error of ctx. Pages that
// were taken remain taken.
func (f Follower) Run(ctx context.Context) error {
	patience := time.Duration(0)
	if f.Live {
		patience = maxWait
	}
	backoff := Backoff{}
	known := int64(-1) // every page since the first event was read with the grants up to this sequence
	for {
		page, err := f.Client.Changes(ctx, f.Company, f.Cursor, patience)
		if err == nil && known < 0 {
			known = 0
			if f.Cursor == 0 {
				known = page.Head
			}
		}
		for _, company := range page.Granted {
			if company.Sequence > known && err == nil && (f.Epoch == 0 || page.Epoch == f.Epoch) {
				err = f.takeEarlier(ctx, company.CompanyReference, page)
			}
		}
		failed, untaken := errors.AsType[takeError](err)
		switch {
		case untaken:
			return failed.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && f.Live && !Refused(err):
			f.pause(ctx, backoff.Next(err), err)
			continue
		case err != nil:
			return err
		case f.Epoch != 0 && page.Epoch != f.Epoch:
			return &RestoredError{f.Epoch, page.Epoch}
		}
		backoff = Backoff{}
		if err := f.Take(page); err != nil {
			return err
		}
		f.Cursor, f.Epoch = page.Cursor, page.Epoch
		if !page.HasMore && !f.Live {
			return nil
		}
	}
}

// pause waits after a failure, or until ctx ends.
func (f Follower) pause(ctx context.Context, again time.Duration, failure error) {
	if f.Failed != nil {
		f.Failed(failure, again)
	}
	sleep := f.sleep
	if sleep == nil {
		sleep = wait.For
	}
	_ = sleep(ctx, again) // the caller checks ctx
}

// takeError is an error of Take.
type takeError struct{ error }

// takeEarlier takes the events of a company up to the cursor with which page was asked for. It waits where the service
// asks for a wait, also if the follower is not Live: the cursor does not move before all of them are taken, so another
// run would begin again.
func (f Follower) takeEarlier(ctx context.Context, company string, page Page) error {
	backoff := Backoff{}
	for cursor, more := int64(0), true; more && cursor < page.After; {
		earlier, err := f.Client.Changes(ctx, company, cursor, 0)
		refused, ok := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ok && refused.Code == domain.CompanyNotAuthorized:
			return nil // withdrawn since; a page will name another grant
		case err != nil && !Refused(err) && (ok || f.Live):
			f.pause(ctx, backoff.Next(err), err)
			continue
		case err != nil:
			return err
		case earlier.Epoch != page.Epoch:
			return &RestoredError{page.Epoch, earlier.Epoch}
		}
		backoff, cursor, more = Backoff{}, earlier.Cursor, earlier.HasMore
		earlier.Events = slices.DeleteFunc(earlier.Events, func(e Event) bool { return e.Sequence > page.After })
		earlier.After, earlier.Cursor, earlier.HasMore = page.After, page.After, true
		if err := f.Take(earlier); err != nil {
			return takeError{err}
		}
	}
	return nil
}
