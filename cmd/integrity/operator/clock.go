package operator

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
)

type ClockResetView struct {
	Shard         int      `json:"shard"`
	From          string   `json:"from"`
	To            string   `json:"to"`
	Organizations []string `json:"organizations"`
}

func (a *app) clockCommand() *cobra.Command {
	v := a.ledgerVerb("clock reset")
	return cli.Group("clock", "Correct a ledger that a wrong clock has dated in the future",
		v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
			resets := []ClockResetView{}
			var lines text
			requestID := a.RequestID()
			for _, shard := range allShards(l) {
				reset, err := l.ResetClock(ctx, shard, requestID)
				if errors.Is(err, eventstore.ErrClockRight) {
					continue
				}
				if err != nil {
					return errors.Join(say.Errorf("shard %d was not changed: %w", shard, err), v.print(resets, lines))
				}
				view := ClockResetView{
					Shard: int(shard), From: cli.TimeText(reset.From), To: cli.TimeText(reset.To),
					Organizations: texts(reset.Organizations),
				}
				resets = append(resets, view)
				lines.Sayf(
					"shard %d: from %s back to %s, in %d organizations\n", shard, view.From, view.To, len(view.Organizations),
				)
			}
			if len(resets) == 0 {
				return errors.Join(
					v.print(resets, say.Sentencef("no shard is dated ahead of the clocks by more than the tolerance\n")),
					cli.NegativeError(""),
				)
			}
			return v.print(resets, lines)
		}))
}
