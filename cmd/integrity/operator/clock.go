package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/eventstore"
)

func (a *app) clockCommand() *cobra.Command {
	return cli.Group("clock", "Take a ledger back that a wrong clock has dated in the future", a.clockResetCommand())
}

type ClockResetView struct {
	Shard         int      `json:"shard"`
	From          string   `json:"from"`
	To            string   `json:"to"`
	Organizations []string `json:"organizations"`
}

func (a *app) clockResetCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "reset", Short: "Let the shards that are dated ahead of the clocks go back to them",
		Long: "An event's date binds every later event of its shard. Where a wrong clock has dated one in the future, nothing is\n" +
			"committed in that shard until then, or until this command: with the clocks of this machine and of the database in\n" +
			"agreement, it writes an event clock.reset for each organization that has a later event, all of a shard in one\n" +
			"transaction, and later events are dated by the clocks again. It changes nothing that was recorded: the dates of\n" +
			"those events stay, and the month that they were charged to. Run integrity doctor first, and correct every clock.\n" +
			"Other shards are left alone; where none is ahead by more than the tolerance, the exit code is 1.",
		Args: cli.Arguments(0, 0),
	}
	ledger.AddFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			resets := []ClockResetView{}
			var text strings.Builder
			requestID := a.RequestID()
			for shard := range domain.Shard(l.Installation.Shards) {
				reset, err := l.ResetClock(ctx, shard, requestID)
				if errors.Is(err, eventstore.ErrClockRight) {
					continue
				}
				if err != nil {
					return errors.Join(fmt.Errorf("shard %d is left as it was: %w", shard, err), a.Print(asJSON, resets, text.String()))
				}
				view := ClockResetView{Shard: int(shard), From: cli.TimeText(reset.From), To: cli.TimeText(reset.To), Organizations: []string{}}
				for _, o := range reset.Organizations {
					view.Organizations = append(view.Organizations, o.String())
				}
				resets = append(resets, view)
				fmt.Fprintf(&text, "shard %d: from %s back to %s, in %d organizations\n", shard, view.From, view.To, len(view.Organizations))
			}
			if len(resets) == 0 {
				return errors.Join(a.Print(asJSON, resets, "no shard is dated ahead of the clocks by more than the tolerance\n"), cli.NegativeError(""))
			}
			return a.Print(asJSON, resets, text.String())
		})
	}
	return c
}
