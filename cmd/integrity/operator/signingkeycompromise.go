package operator

import (
	"context"
	"fmt"
	"slices"

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
	var asJSON bool
	var reason string
	c := &cobra.Command{
		Use: "compromise KEY_ID", Short: "Trust nothing that a key has signed any more, and print what that concerns",
		Long: "Adds a key to the revoked keys of the trusted-keys file: from the servers' next SIGHUP nothing that it has signed verifies,\n" +
			"whatever its time, and a comparison answers SIGNATURE_INVALID. Nothing undoes that, and old receipts are not signed again.\n" +
			"Then every record and certificate that the key has signed is printed, from the log; with --json, one object a line, the first of which is\n" +
			"the key. Repeated, the command prints them again. The service signs nothing as long as the key that signs is a revoked one:\n" +
			"bring in another with integrity keys rotate --stage and --activate. Write -- before a KEY_ID that begins with a hyphen.",
		Args: cli.Arguments(1, 1),
	}
	config.AddFlags(c, "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "SIGNING_KEY")
	c.Flags().StringVar(&reason, "reason", evidence.ReasonCompromised, "compromised (others may hold the private key) or revoked")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains([]string{evidence.ReasonCompromised, evidence.ReasonRevoked}, reason) {
			return fmt.Errorf("--reason must be compromised or revoked")
		}
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		v := compromisedView{Type: "key"}
		if err := cfg.SigningSource().Change(func(_ keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
			changed, err := trusted.Revoke(args[0], reason, evidence.FormatTime(a.Now()))
			if err != nil {
				return nil, keyRefusal(err)
			}
			for _, r := range changed.Revoked() {
				if r.KeyID == args[0] {
					v.RevokedKey = r
				}
			}
			// A signing key that cannot be read must not keep the file from being written.
			current, _ := cfg.SigningSource().Current()
			v.Signing = keyfiles.Named(current, args[0])
			return changed, nil
		}); err != nil {
			return err
		}
		// The file is written. Whatever fails from here on, the key is revoked, and the same command lists again.
		return a.printCompromised(c, v, asJSON)
	}
	return c
}

func (a *app) printCompromised(c *cobra.Command, v compromisedView, asJSON bool) error {
	text := fmt.Sprintf("%s  %s since %s. Send SIGHUP to every server and give the trusted-keys file to whoever pins it.\n", v.KeyID, v.Reason, v.Since)
	if v.Signing {
		text += "It is the signing key: registration and evidence answer 503 until another signs (integrity keys rotate --stage, --activate).\n"
	}
	if _, err := fmt.Fprint(a.Errs, text); err != nil {
		return err
	}
	if asJSON {
		if err := cli.WriteJSON(a.Out, v, ""); err != nil {
			return err
		}
	}
	err := ledger.With(a.App, c, func(ctx context.Context, l *ledger.Opened) error {
		last := domain.Shard(l.Installation.Shards - 1)
		n, err := a.printAffected(ctx, l, 0, last, asJSON, func(e *domain.Event) bool {
			switch b := e.Body.(type) {
			case *domain.RecordRegisteredBody:
				return b.KeyID == v.KeyID
			case *domain.CertificateIssuedBody:
				return b.KeyID == v.KeyID
			}
			return false
		})
		if err == nil {
			_, err = fmt.Fprintf(a.Errs, "%d records and certificates were signed by this key\n", n)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the key is revoked, but what it has signed cannot be listed; run the command again: %w", err)
	}
	return nil
}
