package operator

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/bundle"
	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
)

// ExportView is what integrity export prints with --json.
type ExportView struct {
	Organization  domain.OrganizationID `json:"organization"`
	Directory     string                `json:"directory"`
	Events        int64                 `json:"events"`
	Added         int64                 `json:"added"` // by this call
	HistorySHA256 string                `json:"historySha256"`
	Texts         bool                  `json:"texts"`
}

func (a *app) exportCommand() *cobra.Command {
	var organization organizationFlag
	var out string
	var withoutTexts, asJSON bool
	c := &cobra.Command{
		Use: "export", Short: "Write an organization's whole history as a bundle for auditors",
		Long: "Writes all events of an organization, the texts that they name, the trusted-keys file and the transparency log's newest\n" +
			"checkpoint into a directory, with a manifest of SHA-256 digests. integrity audit proves it without database and network. An export that was broken off goes on where it was;\n" +
			"one into a complete bundle adds what has happened since, and changes no byte of the events that are there.\n\n" +
			"A bundle is private to the organization: it holds references, hashes, addresses of members, titles, statements and reasons,\n" +
			"sealed webhook secrets and hashes of API keys. Texts that are erased later stay in the bundles that have them: destroy those,\n" +
			"or export with --without-texts, of which an audit says that the texts, and the signatures of certificates, were not checked.",
		Args: cli.Arguments(0, 0),
	}
	config.AddFlags(c, "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS")
	c.Flags().StringVar(&organization.text, "organization", "", "the organization (org_…)")
	c.Flags().StringVarP(&out, "out", "o", "", "directory of the bundle, made where it is missing")
	c.Flags().BoolVar(&withoutTexts, "without-texts", false, "leave erasable texts out")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Require(c, "organization", "out")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		id, err := organization.id()
		if err != nil {
			return err
		}
		if _, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath()); err != nil {
			return err
		}
		keys, err := os.ReadFile(cfg.TrustedKeysPath())
		if err != nil {
			return fmt.Errorf("trusted keys: %w", err)
		}
		return ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
			if _, err := l.Store.Organization(ctx, id); err != nil {
				return err
			}
			checkpoint, err := (&transparency.Reader{Pool: l.Read}).Checkpoint(ctx)
			if err != nil && !errors.Is(err, transparency.ErrNoCheckpoint) {
				return err
			}
			w, err := bundle.Create(out, bundle.Config{
				Organization: id, Issuer: l.Installation.Issuer, Texts: !withoutTexts, TrustedKeys: keys, Checkpoint: checkpoint, Now: evidence.FormatTime(a.Now()),
				Replace: func(path string, text []byte) error { return keyfiles.Replace(path, text, 0o600) },
			})
			if err != nil {
				return err
			}
			v, err := a.export(ctx, l, id, w)
			if err != nil {
				var damaged bundle.DamagedError
				if errors.As(err, &damaged) || errors.Is(err, bundle.ErrNotExtended) {
					return cli.NegativeError(err.Error())
				}
				return err
			}
			v.Directory, v.Texts = out, !withoutTexts
			return a.Print(asJSON, v, fmt.Sprintf("%d events of %s, %d of them new, in %s\nhistory %s\n", v.Events, id, v.Added, out, v.HistorySHA256))
		})
	}
	return c
}

// export adds to a bundle what it lacks. Its last event is read again: history must go on from there.
func (a *app) export(ctx context.Context, l *ledger.Opened, id domain.OrganizationID, w *bundle.Writer) (ExportView, error) {
	last, hash := w.Last()
	log := history.Reader{Pool: l.Read, Shard: id.Shard(), Organization: id, After: max(0, last-1)}
	total, err := log.Length(ctx)
	if err != nil {
		return ExportView{}, err
	}
	if last > 0 && total == 0 {
		return ExportView{}, bundle.ErrNotExtended
	}
	bar := a.eventsBar("events")
	bar.ChangeMax64(max(total, 1))
	begun := last == 0
	_, err = log.Walk(ctx, func(events []audit.Event) error {
		_ = bar.Add(len(events)) // it only draws
		if !begun {
			if events[0].Sequence != last || events[0].Hash != hash {
				return bundle.ErrNotExtended
			}
			begun, events = true, events[1:]
		}
		return w.Append(events)
	})
	_ = bar.Close()
	if err != nil {
		return ExportView{}, err
	}
	m, err := w.Close()
	return ExportView{Organization: id, Events: m.Events, Added: m.Events - last, HistorySHA256: m.HistorySHA256}, err
}
