package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// reconciled is a local copy of a company's feed. The copy and its cursor are one
// thing: a page is there with its cursor or not at all.
type reconciled interface {
	// position is where the copy has come to, and the epoch that it knows; epoch 0: none yet.
	position() (cursor, epoch int64)
	// store takes a page in. Events that are there already stay as they are.
	store(ctx context.Context, page feedPage) (added int, err error)
	Close() error
}

// feedPage is one answer of the change feed.
type feedPage struct {
	events []json.RawMessage // as the service gives them
	parsed []feedEvent
	after  int64 // the cursor that was asked with
	cursor int64
	epoch  int64
	more   bool
}

// copyHead says whose feed a copy holds.
type copyHead struct {
	Service string `json:"service"`
	Company string `json:"companyReference"`
}

// check refuses to mix two feeds in one copy.
func (h copyHead) check(asked copyHead) error {
	if h != asked {
		return fmt.Errorf("this file holds the feed of company %s of %s: give another file for another feed", h.Company, h.Service)
	}
	return nil
}

const (
	feedWait    = 25 // seconds
	mostBackoff = time.Minute
)

func (a *app) reconcileCommand() *cobra.Command {
	var flags clientFlags
	var company string
	var follow, fromStart bool
	c := &cobra.Command{
		Use: "reconcile FILE", Short: "Keep a local copy of a company's changes",
		Long: "Brings FILE up to date with the change feed of a company: each event once, in order, with the cursor stored in the same\n" +
			"transaction. It may be interrupted at any time and goes on where it was. FILE is a SQLite database (table events, view\n" +
			"versions with the state of every version), or JSON lines where its name ends in .jsonl.\n\n" +
			"With --follow it goes on waiting for changes, and through outages of the service, until it is interrupted.\n\n" +
			"When the service was restored from a backup, it stops (exit code 1): the copy may hold events that the service has lost.\n" +
			"--from-start then reads the whole feed again; events that the service does not have any more keep confirmed = 0.",
		Args: arguments(1, 1),
	}
	flags.add(c)
	c.Flags().StringVar(&company, "company", "", "reference of the company")
	c.Flags().BoolVar(&follow, "follow", false, "go on waiting for changes")
	c.Flags().BoolVar(&fromStart, "from-start", false, "read the whole feed again, after the service was restored (SQLite only)")
	require(c, "company")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		client, err := a.client(flags)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		head := copyHead{client.base, company}
		var to reconciled
		if filepath.Ext(args[0]) == ".jsonl" {
			if fromStart {
				return errors.New("--from-start is for SQLite: give a new .jsonl file instead")
			}
			to, err = openLines(args[0], head)
		} else {
			to, err = openSQLite(ctx, args[0], head, fromStart)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		defer func() { err = errors.Join(err, to.Close()) }()
		added, err := a.reconcile(ctx, client, company, to, follow)
		if err != nil {
			return err
		}
		cursor, epoch := to.position()
		summary := struct {
			File   string `json:"file"`
			Events int    `json:"events"`
			Cursor int64  `json:"cursor"`
			Epoch  int64  `json:"epoch"`
		}{args[0], added, cursor, epoch}
		return a.print(flags.json, summary, fmt.Sprintf("%d new events; the copy stands at sequence %d\n", added, cursor))
	}
	return c
}

// reconcile follows the feed until its end, or until ctx ends. What was stored is
// stored: an error afterwards loses nothing.
func (a *app) reconcile(ctx context.Context, client *client, company string, to reconciled, follow bool) (added int, err error) {
	backoff := time.Second
	for {
		cursor, epoch := to.position()
		page, err := client.changes(ctx, company, cursor, follow)
		switch {
		case ctx.Err() != nil && follow:
			return added, nil
		case err != nil && follow && passing(err):
			_, _ = fmt.Fprintf(a.errs, "integrity: %v; trying again in %s\n", err, backoff)
			select {
			case <-ctx.Done():
				return added, nil
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, mostBackoff)
			continue
		case err != nil:
			return added, refusal(err)
		}
		backoff = time.Second
		if epoch != 0 && page.epoch != epoch {
			return added, negative{fmt.Sprintf("the service was restored from a backup (epoch %d became %d): this copy may hold events that the service has lost; read the feed again with --from-start", epoch, page.epoch)}
		}
		if page.more && page.cursor <= cursor {
			return added, errors.New("the service's cursor does not move: the answer cannot be right")
		}
		n, err := to.store(context.WithoutCancel(ctx), page)
		if err != nil {
			return added, err
		}
		if added += n; !page.more && !follow {
			return added, nil
		}
	}
}

// passing is true of failures that waiting may mend.
func passing(err error) bool {
	var api *apiError
	return !errors.As(err, &api) || api.Status >= http.StatusInternalServerError || api.Status == http.StatusTooManyRequests
}

// changes reads a page; wait holds an empty one open.
func (c *client) changes(ctx context.Context, company string, after int64, wait bool) (feedPage, error) {
	query := url.Values{"companyReference": {company}, "after": {strconv.FormatInt(after, 10)}, "limit": {"1000"}}
	if wait {
		query.Set("wait", strconv.Itoa(feedWait))
	}
	body, _, err := c.do(ctx, http.MethodGet, "/api/v1/integrity/changes?"+query.Encode(), nil)
	if err != nil {
		return feedPage{}, err
	}
	var envelope struct {
		Data *struct {
			Events     []json.RawMessage `json:"events"`
			NextCursor int64             `json:"nextCursor"`
			HasMore    bool              `json:"hasMore"`
		} `json:"data"`
		Meta struct {
			Epoch int64 `json:"epoch"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil || envelope.Data == nil {
		return feedPage{}, errors.New("the answer is of another form than this program knows")
	}
	page := feedPage{
		events: envelope.Data.Events, parsed: make([]feedEvent, len(envelope.Data.Events)), after: after,
		cursor: envelope.Data.NextCursor, epoch: envelope.Meta.Epoch, more: envelope.Data.HasMore,
	}
	for i, raw := range page.events {
		if err := json.Unmarshal(raw, &page.parsed[i]); err != nil || page.parsed[i].ID == "" {
			return feedPage{}, errors.New("an event is of another form than this program knows")
		}
	}
	return page, nil
}
