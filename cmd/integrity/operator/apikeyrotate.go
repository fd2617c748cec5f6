package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/projections/query"
)

// RotationView is the successor, as key create shows a key, with what became of the former one.
type RotationView struct {
	KeyView
	FormerKey KeyView  `json:"formerKey"`
	GrantedTo []string `json:"grantedTo"` // companies whose grants were copied
}

func (a *app) keyRotateCommand() *cobra.Command {
	var asJSON, copyGrants bool
	var expires, overlap string
	c := &cobra.Command{
		Use: "rotate KEY_ID", Short: "Make the successor of an API key; its text is shown this once",
		Long: "Makes a new key, of another id and text, with the same member, scopes and limits. The former key goes on working for the\n" +
			"overlap, never longer than it would have, and --overlap 0h ends it at once. The successor reaches no company until one\n" +
			"is granted to it; --copy-grants gives it those of the former key.",
		Args: cli.Arguments(1, 1),
	}
	ledger.AddFlags(c)
	c.Flags().StringVar(&overlap, "overlap", "24h", "how long the former key goes on working, in days or hours, from 0h to 30d")
	c.Flags().StringVar(&expires, "expires", "365d", "lifetime of the successor in days or hours, from 1h to 730d")
	c.Flags().BoolVar(&copyGrants, "copy-grants", false, "grant the successor every company of the former key")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := readKeyID(args[0])
		if err != nil {
			return err
		}
		lifetime, err := readLifetime(expires)
		if err != nil {
			return err
		}
		still, err := readSpan(overlap)
		if err != nil || still > domain.MaxKeyOverlap {
			return fmt.Errorf("--overlap must be a span from 0h to 30d, such as 24h or 7d")
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			known, err := l.Store.Key(ctx, id)
			if err != nil {
				return err
			}
			rotate, text := domain.NewRotateKey(domain.RotateKey{
				Origin: ledger.Origin(a.App, known.Organization), Key: id, Lifetime: lifetime, Overlap: still, CopyGrants: copyGrants,
			}, a.Now())
			if err := l.Do(ctx, rotate); err != nil {
				return err
			}
			return a.printRotation(rotate.Outcome, known.LastUsedAt, text, asJSON, copyGrants)
		})
	}
	return c
}

func (a *app) printRotation(r domain.KeyRotation, lastUsed *time.Time, text string, asJSON, copied bool) error {
	v := RotationView{
		KeyView: a.viewNewKey(r.Key, text), FormerKey: a.viewKey(query.UsedKey{APIKey: r.Former, LastUsedAt: lastUsed}),
		GrantedTo: make([]string, len(r.Granted)),
	}
	for i, company := range r.Granted {
		v.GrantedTo[i] = company.String()
	}
	grants := fmt.Sprintf("%d grants were copied\n", len(r.Granted))
	if !copied {
		grants = "no grant was copied: integrity key grant " + v.ID + " --company REFERENCE\n"
	}
	return a.Print(asJSON, v, v.line()+"former key: "+v.FormerKey.line()+grants+text+"\n")
}
