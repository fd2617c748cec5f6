package operator

import (
	"bufio"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/bundle"
	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
)

// EventView is an event as it stands in the log.
type EventView struct {
	Shard        domain.Shard `json:"shard"`
	Position     int64        `json:"position"`
	Organization string       `json:"organization"`
	bundle.Event
}

func (a *app) replayCommand() *cobra.Command {
	v := a.ledgerVerb("replay")
	v.describeJSON("the output is always JSON")
	v.Flags().Lookup("json").DefValue = "true"
	only, shards := v.shards()
	after := v.Flags().Int64("after", 0, "begin after this position of the shard, or this sequence of the organization")
	v.check(func() error {
		if *after < 0 || v.Flags().Changed("after") && !v.Flags().Changed("shard") && only.IsZero() {
			return errors.New("--after must be a number of at least 0, with --shard or --organization")
		}
		return nil
	})
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) (err error) {
		position := *after
		if !only.IsZero() {
			position = 0
			if _, err := l.Store.Organization(ctx, *only); err != nil {
				return err
			}
		}
		of, err := shards(l)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(a.Out)
		defer flush(out, &err)
		return eachEvent(ctx, l, of, position, func(e *domain.Event) error {
			if only.IsZero() || e.Organization == *only && e.Sequence > *after {
				return cli.WriteJSON(out, EventView{e.Shard, e.Position, e.Organization.String(), bundle.View(e)}, "")
			}
			return nil
		})
	})
}
