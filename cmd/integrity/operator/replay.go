package operator

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/eventstore/history"
)

// EventView is an event as it stands in the log. Data is the stored canonical text itself.
type EventView struct {
	Shard        domain.Shard     `json:"shard"`
	Position     int64            `json:"position"`
	Organization string           `json:"organization"`
	Sequence     int64            `json:"sequence"`
	ID           string           `json:"id"`
	V            int16            `json:"v"`
	Type         domain.EventType `json:"type"`
	Company      *string          `json:"company"`
	Subject      string           `json:"subject"`
	OccurredAt   string           `json:"occurredAt"`
	Actor        string           `json:"actor"`
	RequestID    string           `json:"requestId"`
	Data         json.RawMessage  `json:"data"`
	Nonce        string           `json:"nonce"`
	Hash         string           `json:"hash"`
}

func viewEvent(e *domain.Event) EventView {
	v := EventView{
		Shard: e.Shard, Position: e.Position, Organization: e.Organization.String(), Sequence: e.Sequence, ID: e.ID.String(), V: e.V,
		Type: e.Type, Subject: e.Subject, OccurredAt: cli.TimeText(e.OccurredAt), Actor: e.Actor, RequestID: e.RequestID, Data: e.Data,
		Nonce: base64.RawURLEncoding.EncodeToString(e.Nonce[:]), Hash: hex.EncodeToString(e.Hash[:]),
	}
	if company := e.Company.String(); company != "" {
		v.Company = &company
	}
	return v
}

func (a *app) replayCommand() *cobra.Command {
	var organization organizationFlag
	var shard, after int64
	c := &cobra.Command{
		Use: "replay", Short: "Print the history, one event a line",
		Long: "Prints the log from the database, as JSON, one event a line, in the order in which it was committed: of every shard in\n" +
			"turn, of one shard, or of one organization. It holds references and hashes of documents.",
		Args: cli.Arguments(0, 0),
	}
	ledger.AddFlags(c)
	c.Flags().StringVar(&organization.text, "organization", "", "only this organization (org_…)")
	c.Flags().Int64Var(&shard, "shard", 0, "only this shard")
	c.Flags().Int64Var(&after, "after", 0, "begin after this position of the shard, or this sequence of the organization")
	c.Flags().Bool("json", true, "the output is always JSON")
	c.MarkFlagsMutuallyExclusive("organization", "shard")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var only domain.OrganizationID
		if organization.text != "" {
			var err error
			if only, err = organization.id(); err != nil {
				return err
			}
		}
		one := c.Flags().Changed("shard")
		if after < 0 || c.Flags().Changed("after") && !one && only.IsZero() {
			return errors.New("--after must be a number of at least 0, with --shard or --organization")
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			first, last := int64(0), int64(l.Installation.Shards)-1
			switch {
			case !only.IsZero():
				if _, err := l.Store.Organization(ctx, only); err != nil {
					return err
				}
				first, last = int64(only.Shard()), int64(only.Shard())
			case one:
				if shard < 0 || shard > last {
					return fmt.Errorf("--shard must be a number from 0 to %d", last)
				}
				first, last = shard, shard
			}
			for s := first; s <= last; s++ {
				if err := a.replayShard(ctx, l, domain.Shard(s), only, after); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

// replayShard prints one log, or what of it belongs to one organization after a sequence.
func (a *app) replayShard(ctx context.Context, l *ledger.Opened, shard domain.Shard, only domain.OrganizationID, after int64) error {
	position := after
	if !only.IsZero() {
		position = 0
	}
	tail := history.NewTail(l.Read, shard, position)
	out := bufio.NewWriter(a.Out)
	for {
		events, err := tail.Next(ctx, 1000)
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if len(events) == 0 {
			return out.Flush()
		}
		for i := range events {
			if e := &events[i]; only.IsZero() || e.Organization == only && e.Sequence > after {
				if err := cli.WriteJSON(out, viewEvent(e), ""); err != nil {
					return err
				}
			}
		}
	}
}
