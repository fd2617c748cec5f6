package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// compromisedView is the first line of the JSON output; the records follow.
type compromisedView struct {
	Type string `json:"type"` // key
	evidence.RevokedKey
	Signing bool `json:"signing"` // it is the key that signs, as far as the files say
}

func (a *app) keysCompromiseCommand() *cobra.Command {
	v := a.verb("keys compromise", "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "SIGNING_KEY")
	v.describeJSON("print JSON, one object a line")
	reason := v.Flags().String("reason", evidence.ReasonCompromised, "compromised (others may hold the private key) or revoked")
	v.check(func() error {
		if *reason != evidence.ReasonCompromised && *reason != evidence.ReasonRevoked {
			return errors.New("--reason must be compromised or revoked")
		}
		return nil
	})
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		view := compromisedView{Type: "key"}
		if err := cfg.SigningSource().Change(func(_ keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
			changed, err := trusted.Revoke(v.args[0], *reason, evidence.FormatTime(a.Now()))
			if err != nil {
				return nil, keyRefusal(err)
			}
			for _, r := range changed.Revoked() {
				if r.KeyID == v.args[0] {
					view.RevokedKey = r
				}
			}
			// A signing key that cannot be read must not keep the file from being written.
			current, _ := cfg.SigningSource().Current()
			view.Signing = keyfiles.Named(current, v.args[0])
			return changed, nil
		}); err != nil {
			return err
		}
		// The file is written. Whatever fails from here on, the key is revoked, and the same command lists again.
		return v.printCompromised(view)
	})
}

func (v *verb) printCompromised(view compromisedView) error {
	errs := v.app.Errs
	text := fmt.Sprintf("%s  %s since %s. Send SIGHUP to every server and give the trusted-keys file to whoever pins it.\n", view.KeyID, view.Reason, view.Since)
	if view.Signing {
		text += "It is the signing key: registration and evidence answer 503 until another signs (integrity keys rotate --stage, --activate).\n"
	}
	if _, err := fmt.Fprint(errs, text); err != nil {
		return err
	}
	if v.json {
		if err := cli.WriteJSON(v.app.Out, view, ""); err != nil {
			return err
		}
	}
	err := ledger.With(v.app.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
		n, err := v.printAffected(ctx, l, allShards(l), func(e *domain.Event) bool {
			switch b := e.Body.(type) {
			case *domain.RecordRegisteredBody:
				return b.KeyID == view.KeyID
			case *domain.CertificateIssuedBody:
				return b.KeyID == view.KeyID
			}
			return false
		})
		if err == nil {
			_, err = fmt.Fprintf(errs, "%d records and certificates were signed by this key\n", n)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the key is revoked, but what it has signed cannot be listed; run the command again: %w", err)
	}
	return nil
}
