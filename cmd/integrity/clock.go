package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"integrityledger/domain"
	"integrityledger/eventstore"
)

// A state as of a time is signed once the time is a minute past: half of that is for a group on its way, half for two
// processes of which one is ahead and one behind by the tolerance.
const (
	minClockTolerance = time.Second
	maxClockTolerance = 15 * time.Second
)

// clock is what a ledger dates by.
func (a *app) clock(cfg Config) *eventstore.Clock {
	return eventstore.NewClock(eventstore.ClockConfig{Now: a.now, Monotonic: sinceBoot(), Tolerance: cfg.ClockTolerance})
}

// sinceBoot is the time since the machine was started, which no one can set and which goes on while the machine is
// suspended. Nil where the kernel does not tell it.
func sinceBoot() func() time.Duration {
	read := func() (time.Duration, error) {
		var at unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at)
		return time.Duration(at.Nano()), err
	}
	if _, err := read(); err != nil {
		return nil
	}
	return func() time.Duration {
		at, _ := read() // it has answered before
		return at
	}
}

func (a *app) clockCommand() *cobra.Command {
	return group("clock", "Take a ledger back that a wrong clock has dated in the future", a.clockResetCommand())
}

type clockResetView struct {
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
		Args: arguments(0, 0),
	}
	addDatabaseFlags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withLedger(c, func(ctx context.Context, l *ledgerFor) error {
			resets := []clockResetView{}
			var text strings.Builder
			requestID := a.requestID()
			for shard := range domain.Shard(l.installation.Shards) {
				reset, err := l.ResetClock(ctx, shard, requestID, a.random)
				if errors.Is(err, eventstore.ErrClockRight) {
					continue
				}
				if err != nil {
					return errors.Join(fmt.Errorf("shard %d is left as it was: %w", shard, err), a.print(asJSON, resets, text.String()))
				}
				view := clockResetView{Shard: int(shard), From: timeText(reset.From), To: timeText(reset.To), Organizations: []string{}}
				for _, o := range reset.Organizations {
					view.Organizations = append(view.Organizations, o.String())
				}
				resets = append(resets, view)
				fmt.Fprintf(&text, "shard %d: from %s back to %s, in %d organizations\n", shard, view.From, view.To, len(view.Organizations))
			}
			if len(resets) == 0 {
				return errors.Join(a.print(asJSON, resets, "no shard is dated ahead of the clocks by more than the tolerance\n"), negative{})
			}
			return a.print(asJSON, resets, text.String())
		})
	}
	return c
}
