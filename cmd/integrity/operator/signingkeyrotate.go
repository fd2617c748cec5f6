package operator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
)

// RotatedKey is the new key and how far it has come.
type RotatedKey struct {
	PublishedKey
	Step         string  `json:"step"`         // staged or activated
	SigningKeyID *string `json:"signingKeyId"` // the key that signs now, as far as the files say
	FormerKeyID  *string `json:"formerKeyId"`  // after activation: the key to retire
}

func (a *app) keysRotateCommand() *cobra.Command {
	var asJSON, stage, activate, ofLog bool
	c := &cobra.Command{
		Use: "rotate", Short: "Bring in a new signing key, in two steps: --stage, then --activate",
		Long: "Brings in a new signing key in two steps, so that everybody trusts it before it signs.\n\n" +
			"  1. --stage     makes the key beside the signing key (….next.pem, mode 0600) and adds its public half to the trusted-keys\n" +
			"                 file. The old key goes on signing. Send SIGHUP to every server and give the file to whoever pins it.\n" +
			"  2. --activate  makes the staged key the signing key and keeps the old one as ….previous.pem. Send SIGHUP to every server;\n" +
			"                 meanwhile those that still sign with the old key and those with the new one verify each other's records.\n\n" +
			"Then retire the old key: integrity keys retire KEY_ID. Either step may be repeated after an interruption.\n\n" +
			"With --transparency-log it is the key of the transparency log (log-key.pem) that is brought in, also where there was none. It needs no\n" +
			"retiring: its predecessor stays in logKeys, so that old checkpoints verify.",
		Args: cli.Arguments(0, 0),
	}
	config.AddFlags(c, "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "TRANSPARENCY_KEY", "ISSUER")
	c.Flags().BoolVar(&ofLog, "transparency-log", false, "the key of the transparency log")
	c.Flags().BoolVar(&stage, "stage", false, "first step: make the new key and have it trusted")
	c.Flags().BoolVar(&activate, "activate", false, "second step: sign with the staged key")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.MarkFlagsMutuallyExclusive("stage", "activate")
	c.MarkFlagsOneRequired("stage", "activate")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		if ofLog {
			return a.rotateLogKey(&cfg, activate, asJSON)
		}
		v := RotatedKey{Step: "staged"}
		text := "Send SIGHUP to every server, give the trusted-keys file to whoever pins it, and then: integrity keys rotate --activate\n"
		step := a.stageKey
		if activate {
			v.Step, step = "activated", a.activateKey
			text = "Send SIGHUP to every server, and then: integrity keys retire FORMER_KEY_ID\n"
		}
		if err := cfg.SigningSource().Change(func(f keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
			return step(&cfg, f, trusted, &v)
		}); err != nil {
			return err
		}
		text = fmt.Sprintf("%-10s    %s\nfingerprint   %s\n", v.Step, v.KeyID, v.FingerprintSHA256) + text
		if v.FormerKeyID != nil {
			text = fmt.Sprintf("former key    %s\n", *v.FormerKeyID) + text
		}
		return a.Print(asJSON, v, text)
	}
	return c
}

// stageKey makes the next key, unless one is staged, and has it trusted. The private half is written first: a crash in
// between leaves a key that the same step takes up again.
func (a *app) stageKey(c *config.Config, f keyfiles.Files, trusted *evidence.TrustedKeys, v *RotatedKey) (*evidence.TrustedKeys, error) {
	current, err := c.SigningSource().Current()
	if err != nil {
		return nil, err
	}
	next, err := keyfiles.ReadSigner(f.Next)
	if err != nil {
		return nil, err
	}
	if next == nil {
		next = evidence.GenerateSigner()
		if err := f.WriteNext(next); err != nil {
			return nil, err
		}
	}
	changed, err := trusted.Add(next.Key(), evidence.FormatTime(a.Now()))
	if err != nil {
		return nil, fmt.Errorf("the staged key %s: %w; remove %s and stage another", next.Key().KeyID, err, f.Next)
	}
	v.show(changed, next, current)
	return changed, nil
}

// activateKey swaps the signing key. The trusted keys stay as they are: the old key is trusted, and still active, until
// every server has taken up the new one and it is retired.
func (a *app) activateKey(c *config.Config, f keyfiles.Files, trusted *evidence.TrustedKeys, v *RotatedKey) (*evidence.TrustedKeys, error) {
	next, err := keyfiles.ReadSigner(f.Next)
	if err != nil {
		return nil, err
	}
	if next == nil {
		return nil, errors.New("no key is staged: integrity keys rotate --stage makes one")
	}
	if !trusted.Trusts(next.Key()) {
		return nil, fmt.Errorf("the staged key %s is not trusted by %s: integrity keys rotate --stage adds it", next.Key().KeyID, f.Trusted)
	}
	current, err := c.SigningSource().Current()
	if err != nil {
		return nil, err
	}
	if f.Signing == "" {
		if !keyfiles.Named(current, next.Key().KeyID) {
			return nil, fmt.Errorf("the signing key comes from %sSIGNING_KEY: set that to the content of %s everywhere, restart the servers, and run this again", config.Prefix, f.Next)
		}
		v.show(trusted, next, next)
		return trusted, keyfiles.RemoveKey(f.Next)
	}
	if current != nil {
		text, err := evidence.MarshalSignerPEM(current)
		if err != nil {
			return nil, err
		}
		if err := keyfiles.ReplaceKept(f.Previous, text, f.Signing); err != nil {
			return nil, err
		}
		former := current.Key().KeyID
		v.FormerKeyID = &former
	}
	if err := os.Rename(f.Next, f.Signing); err != nil {
		return nil, fmt.Errorf("activate the staged key: %w", err)
	}
	v.show(trusted, next, next)
	return trusted, keyfiles.Sync(filepath.Dir(f.Signing))
}

func (v *RotatedKey) show(trusted *evidence.TrustedKeys, key, signing *evidence.Signer) {
	pinned, _ := trusted.Lookup(key.Key().KeyID)
	v.PublishedKey = publish(pinned)
	if signing != nil {
		id := signing.Key().KeyID
		v.SigningKeyID = &id
	}
}

func publish(k evidence.TrustedKey) PublishedKey {
	p := PublishedKey{PublicKey: k.PublicKey, Status: k.Status}
	if k.Since != "" {
		p.Since = &k.Since
	}
	return p
}

func (a *app) keysRetireCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "retire KEY_ID", Short: "Say that a key signs no more; it stays trusted",
		Long: "Marks a key as retired in the trusted-keys file: it signs no more, and everything that it has signed stays valid. Its private\n" +
			"half is removed where a rotation has left it. The key that signs now is refused: rotate first. Write -- before a KEY_ID\n" +
			"that begins with a hyphen.",
		Args: cli.Arguments(1, 1),
	}
	config.AddFlags(c, "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		id := args[0]
		var v PublishedKey
		var left []string
		if err := cfg.SigningSource().Change(func(f keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
			current, err := cfg.SigningSource().Current()
			if err != nil {
				return nil, err
			}
			if keyfiles.Named(current, id) {
				return nil, cli.NegativeError("this key signs at the moment: bring in another one first, with integrity keys rotate")
			}
			changed, err := trusted.Retire(id, evidence.FormatTime(a.Now()))
			if err != nil {
				return nil, keyRefusal(err)
			}
			pinned, _ := changed.Lookup(id)
			v = publish(pinned)
			for _, path := range []string{f.Next, f.Previous} {
				if s, err := keyfiles.ReadSigner(path); err != nil {
					return nil, err
				} else if keyfiles.Named(s, id) {
					left = append(left, path)
				}
			}
			return changed, nil
		}); err != nil {
			return err
		}
		for _, path := range left { // only once the retirement stands in the file
			if err := keyfiles.RemoveKey(path); err != nil {
				return err
			}
		}
		return a.Print(asJSON, v, fmt.Sprintf("%s  retired since %s; what it has signed stays valid\nSend SIGHUP to every server and give the trusted-keys file to whoever pins it.\n", v.KeyID, *v.Since))
	}
	return c
}

// keyRefusal makes a negative answer of what the trusted keys refuse.
func keyRefusal(err error) error {
	if errors.Is(err, evidence.ErrUnknownKey) || errors.Is(err, evidence.ErrRevokedKey) {
		return cli.NegativeError(err.Error() + "; integrity keys list shows them")
	}
	return err
}
