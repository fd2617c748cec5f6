package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"integrityledger/eventstore/wait"
	"integrityledger/handlers/wire"
)

// Bounds of a page of the feed (contract section 3).
const (
	maxEvents = 1000
	maxWait   = 25 * time.Second
)

// Event is a change, with the bytes that the service gave.
type Event struct {
	wire.FeedEvent
	Raw json.RawMessage
}

// Page is one answer of the change feed.
type Page struct {
	Events  []Event
	After   int64 // the cursor that was asked with
	Cursor  int64 // where to go on: of the last event, or After
	Epoch   int64 // raised when the service was restored from a backup
	HasMore bool
}

// Changes reads up to 1,000 changes of a company after a sequence. With wait, in whole seconds up to 25, an empty page
// is held open until something happens.
func (c *Client) Changes(ctx context.Context, company string, after int64, wait time.Duration) (Page, error) {
	a := ask{method: http.MethodGet, path: "/api/v1/integrity/changes", newest: true, query: url.Values{
		"companyReference": {company}, "after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(maxEvents)},
	}}
	if wait > 0 {
		a.query.Set("wait", strconv.Itoa(int(wait/time.Second)))
	}
	var answer wire.Feed[json.RawMessage]
	meta, err := c.read(ctx, a, &answer)
	if err != nil {
		return Page{}, err
	}
	if answer.Events == nil {
		return Page{}, errors.New("the answer holds no list of events")
	}
	page := Page{
		Events: make([]Event, len(answer.Events)), After: after, Cursor: answer.NextCursor, HasMore: answer.HasMore,
	}
	if meta.Epoch != nil {
		page.Epoch = *meta.Epoch
	}
	if page.Epoch == 0 {
		return Page{}, errors.New("the answer names no epoch of the feed")
	}
	for i, raw := range answer.Events {
		e := Event{Raw: raw}
		if err := json.Unmarshal(raw, &e.FeedEvent); err != nil || e.ID == "" {
			return Page{}, errors.New("an event is of another form than this program knows")
		}
		page.Events[i] = e
		c.session.saw(e.Sequence)
	}
	if (page.HasMore || len(page.Events) > 0) && page.Cursor <= after || page.Cursor < after {
		return Page{}, errors.New("the service's cursor does not move: the answer cannot be right")
	}
	return page, nil
}

// RestoredError means that the service was restored from a backup since the consumer's last page: the consumer may hold
// events that the service has lost. Read the feed again from 0 and deduplicate by id.
type RestoredError struct{ Known, Now int64 }

func (e *RestoredError) Error() string {
	return fmt.Sprintf(
		"the service was restored from a backup (epoch %d became %d): events that were read may be lost there", e.Known,
		e.Now,
	)
}

// Follower reads a company's feed page by page.
type Follower struct {
	Client  *Client
	Company string
	Cursor  int64 // where to begin
	Epoch   int64 // of the last page that was taken; 0: none
	// Live waits at the end for further changes, and gets through outages.
	Live bool
	// Take stores the events together with the page's Cursor and Epoch, and drops events whose id it has already. Pages
	// without events come too.
	Take func(Page) error
	// Failed hears of failures that waiting may mend, and of the wait. It may be nil.
	Failed func(err error, again time.Duration)

	sleep func(ctx context.Context, d time.Duration) error // nil: wait.For
}

// Run hands out pages until the feed's end, or where Live until ctx ends, whose error it then returns. What was taken
// stays taken, whatever follows.
func (f Follower) Run(ctx context.Context) error {
	patience := time.Duration(0)
	if f.Live {
		patience = maxWait
	}
	pause := f.sleep
	if pause == nil {
		pause = wait.For
	}
	backoff := Backoff{}
	for {
		page, err := f.Client.Changes(ctx, f.Company, f.Cursor, patience)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && f.Live && !Refused(err):
			again := backoff.Next(err)
			if f.Failed != nil {
				f.Failed(err, again)
			}
			_ = pause(ctx, again) // ctx is looked at above
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
