package operator

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency/witness"
)

func (a signingKeys) keysWitnessCommand() *cobra.Command {
	v := a.verb("keys witness", "DATA_DIR", "WITNESS_NAME", "WITNESS_KEY")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		if cfg.WitnessName == "" {
			return say.Errorf("set %sWITNESS_NAME (--witness-name): it is part of the verifier key", config.Prefix)
		}
		source := cfg.WitnessSource()
		if err := source.EnsureWitnessKey(cfg.DataDir); err != nil {
			return err
		}
		signer, err := source.WitnessSigner(cfg.WitnessName)
		if err != nil {
			return err
		}
		return v.print(struct {
			Name        string `json:"name"`
			VerifierKey string `json:"verifierKey"`
			File        string `json:"file,omitempty"`
		}{signer.Name, signer.VerifierKey, source.Path()}, say.Sentencef("%s\n", signer.VerifierKey))
	})
}

// CosignedView is a log that integrity log cosigned prints.
type CosignedView struct {
	Origin     string          `json:"origin"`
	Size       int64           `json:"size"`
	CosignedAt *string         `json:"cosignedAt"`
	Halted     bool            `json:"halted"`
	Checkpoint string          `json:"checkpoint"`
	SplitViews []SplitViewView `json:"splitViews"`
}

// SplitViewView is the proof that a log has signed two histories.
type SplitViewView struct {
	Cosigned string   `json:"cosigned"`
	Refused  string   `json:"refused"`
	Proof    []string `json:"proof"`
	FoundAt  string   `json:"foundAt"`
}

func (a logs) logCosignedCommand() *cobra.Command {
	v := a.ledgerVerb("log cosigned")
	resume := v.Flags().Bool("resume", false, "cosign again after the database was restored")
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) error {
		if *resume {
			logs, err := witness.Resume(ctx, l.Read)
			if err != nil {
				return err
			}
			return v.print(struct {
				Resumed int64 `json:"resumed"`
			}{logs}, say.Sentencef("cosigning %d logs again, from the sizes stored in the database\n", logs))
		}
		logs, err := witness.ReadCosigned(ctx, l.Read)
		if err != nil {
			return err
		}
		found, err := witness.ReadContradictions(ctx, l.Read)
		if err != nil {
			return err
		}
		views, lines, negative := []CosignedView{}, text{}, error(nil)
		for _, c := range logs {
			view := CosignedView{c.Origin, c.Size, cli.TimeOrNull(c.At), c.Halted, c.Note, []SplitViewView{}}
			lines.Sayf("%s  %d entries", cli.Visible(c.Origin), c.Size)
			if c.At != nil {
				lines.Sayf(", cosigned %s", *view.CosignedAt)
			}
			lines.Sayf("\n")
			if c.Halted {
				lines.Sayf("  the database was restored since: nothing is cosigned until integrity log cosigned --resume\n")
				negative = cli.NegativeError("")
			}
			for _, s := range found {
				if s.Origin == c.Origin {
					view.SplitViews = append(view.SplitViews, SplitViewView{s.Cosigned, s.Refused, s.Proof, cli.TimeText(s.FoundAt)})
					lines.Sayf(
						"  SPLIT VIEW, found %s: the log has signed both\n%s%s", cli.TimeText(s.FoundAt), indented(s.Cosigned),
						indented(s.Refused),
					)
					negative = cli.NegativeError("")
				}
			}
			views = append(views, view)
		}
		if err := v.print(views, lines); err != nil {
			return err
		}
		return negative
	})
}

func indented(note string) string {
	var b strings.Builder
	for line := range strings.Lines(note) {
		b.WriteString("    " + line)
	}
	return b.String()
}
