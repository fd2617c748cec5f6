package clientcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/handlers/client"
)

// reconciled is a local copy of a company's feed. The copy and its cursor are one
// thing: a page is there with its cursor or not at all.
type reconciled interface {
	// position is where the copy has come to, and the epoch that it knows; epoch 0: none yet.
	position() (cursor, epoch int64)
	// store takes a page in. Events that are there already stay as they are.
	store(ctx context.Context, page client.Page) (added int, err error)
	Close() error
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

func (a *app) reconcileCommand() *cobra.Command {
	var flags Flags
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
		Args: cli.Arguments(1, 1),
	}
	flags.Add(c)
	c.Flags().StringVar(&company, "company", "", "reference of the company")
	c.Flags().BoolVar(&follow, "follow", false, "go on waiting for changes")
	c.Flags().BoolVar(&fromStart, "from-start", false, "read the whole feed again, after the service was restored (SQLite only)")
	cli.Require(c, "company")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		head := copyHead{service.BaseURL(), company}
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
		added, err := a.reconcile(ctx, service, company, to, follow)
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
		return a.Print(flags.JSON, summary, fmt.Sprintf("%d new events; the copy stands at sequence %d\n", added, cursor))
	}
	return c
}

// reconcile follows the feed until its end, or until ctx ends. What was stored is
// stored: an error afterwards loses nothing.
func (a *app) reconcile(ctx context.Context, service *client.Client, company string, to reconciled, follow bool) (added int, err error) {
	cursor, epoch := to.position()
	err = client.Follower{
		Client: service, Company: company, Cursor: cursor, Epoch: epoch, Live: follow,
		Take: func(page client.Page) error {
			n, err := to.store(context.WithoutCancel(ctx), page)
			added += n
			return err
		},
		Failed: func(err error, again time.Duration) {
			_, _ = fmt.Fprintf(a.Errs, "integrity: %v; trying again in %s\n", err, again.Round(time.Second))
		},
	}.Run(ctx)
	var restored *client.RestoredError
	switch {
	case follow && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return added, nil
	case errors.As(err, &restored):
		return added, cli.NegativeError(restored.Error() + ": this copy may hold such events; read the feed again with --from-start")
	}
	return added, refusal(err)
}
