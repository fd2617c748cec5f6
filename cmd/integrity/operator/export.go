package operator

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/transparency"
)

// ExportView is the JSON output of integrity export.
type ExportView struct {
	Organization  domain.OrganizationID `json:"organization"`
	Directory     string                `json:"directory"`
	Events        int64                 `json:"events"`
	Added         int64                 `json:"added"` // by this run
	HistorySHA256 string                `json:"historySha256"`
	Texts         bool                  `json:"texts"`
}

func (a *app) exportCommand() *cobra.Command {
	v := a.verb("export", "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "WORM")
	organization := v.organization("the organization (org_…)", false)
	out := v.Flags().StringP("out", "o", "", "directory of the bundle, created if it does not exist")
	withoutTexts := v.Flags().Bool("without-texts", false, "leave out erasable texts")
	ofBundle := []string{"organization", "out", "without-texts"}
	for _, flag := range ofBundle {
		v.MarkFlagsMutuallyExclusive("worm", flag)
	}
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		if bundled := slices.ContainsFunc(ofBundle, v.Flags().Changed); !bundled && cfg.Worm != "" {
			return a.exportWorm(v, cfg)
		}
		if organization.IsZero() || *out == "" {
			return say.Errorf("give --organization and --out for a bundle, or --worm for the transparency log")
		}
		if *out == "-" {
			return say.Errorf("--out must be a directory: a bundle has several files and cannot go to standard output")
		}
		// Read the keys before opening the ledger, because opening creates a missing ledger.
		if _, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath()); err != nil {
			return err
		}
		keys, err := keyfiles.ReadFile(cfg.TrustedKeysPath())
		if err != nil {
			return say.Errorf("trusted keys: %w", err)
		}
		return ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
			if _, err := l.Store.Organization(ctx, *organization); err != nil {
				return err
			}
			checkpoint, err := (&transparency.Reader{Pool: l.Read}).Checkpoint(ctx)
			if err != nil && !errors.Is(err, transparency.ErrNoCheckpoint) {
				return err
			}
			w, err := bundle.Create(*out, bundle.Config{
				Organization: *organization, Issuer: l.Installation.Issuer, Texts: !*withoutTexts, TrustedKeys: keys,
				Checkpoint: checkpoint, Now: evidence.FormatTime(a.Now()),
				Replace: func(path string, text []byte) error { return keyfiles.Replace(path, text, 0o600) },
			})
			if err != nil {
				return err
			}
			view, err := a.export(ctx, l, *organization, w)
			if _, damaged := errors.AsType[bundle.DamagedError](err); damaged || errors.Is(err, bundle.ErrNotExtended) {
				return cli.Negative(err)
			}
			if err != nil {
				return err
			}
			view.Directory, view.Texts = *out, !*withoutTexts
			return v.print(
				view,
				say.Sentencef(
					"%d events of %s, %d of them new, in %s\nhistory digest %s\n", view.Events, *organization, view.Added, *out,
					view.HistorySHA256,
				),
			)
		})
	})
}

// export adds the missing events to a bundle. It reads the bundle's last event again: the history must continue from
// there.
func (a *app) export(
	ctx context.Context, l *ledger.Opened, id domain.OrganizationID, w *bundle.Writer,
) (ExportView, error) {
	last, hash := w.Last()
	log := history.Reader{Pool: l.Read, Shard: id.Shard(), Organization: id, After: max(0, last-1)}
	total, err := log.Length(ctx)
	if err != nil {
		return ExportView{}, err
	}
	if last > 0 && total == 0 {
		return ExportView{}, bundle.ErrNotExtended
	}
	bar := a.eventsBar("events", max(total, 1))
	begun := last == 0
	_, err = log.Walk(ctx, func(events []audit.Event) error {
		bar.Add(int64(len(events)))
		if !begun {
			if events[0].Sequence != last || events[0].Hash != hash {
				return bundle.ErrNotExtended
			}
			begun, events = true, events[1:]
		}
		return w.Append(events)
	})
	bar.Close()
	if err != nil {
		return ExportView{}, err
	}
	m, err := w.Close()
	return ExportView{Organization: id, Events: m.Events, Added: m.Events - last, HistorySHA256: m.HistorySHA256}, err
}
