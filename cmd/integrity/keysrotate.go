package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"integrityledger/domain/evidence"
)

// rotatedKey is the new key and how far it has come.
type rotatedKey struct {
	publishedKey
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
		Args: arguments(0, 0),
	}
	addSettings(c, "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "LOG_KEY", "ISSUER")
	c.Flags().BoolVar(&ofLog, "transparency-log", false, "the key of the transparency log")
	c.Flags().BoolVar(&stage, "stage", false, "first step: make the new key and have it trusted")
	c.Flags().BoolVar(&activate, "activate", false, "second step: sign with the staged key")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.MarkFlagsMutuallyExclusive("stage", "activate")
	c.MarkFlagsOneRequired("stage", "activate")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig(c)
		if err != nil {
			return err
		}
		if ofLog {
			return a.rotateLogKey(&cfg, activate, asJSON)
		}
		v := rotatedKey{Step: "staged"}
		text := "Send SIGHUP to every server, give the trusted-keys file to whoever pins it, and then: integrity keys rotate --activate\n"
		step := a.stageKey
		if activate {
			v.Step, step = "activated", a.activateKey
			text = "Send SIGHUP to every server, and then: integrity keys retire FORMER_KEY_ID\n"
		}
		if err := a.changeKeys(&cfg, func(f keyFiles, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
			return step(&cfg, f, trusted, &v)
		}); err != nil {
			return err
		}
		text = fmt.Sprintf("%-10s    %s\nfingerprint   %s\n", v.Step, v.KeyID, v.FingerprintSHA256) + text
		if v.FormerKeyID != nil {
			text = fmt.Sprintf("former key    %s\n", *v.FormerKeyID) + text
		}
		return a.print(asJSON, v, text)
	}
	return c
}

// stageKey makes the next key where there is none yet and has it trusted. The private half is written first: a crash in
// between leaves a key that the same step takes up again.
func (a *app) stageKey(c *Config, f keyFiles, trusted *evidence.TrustedKeys, v *rotatedKey) (*evidence.TrustedKeys, error) {
	current, err := c.currentSigner()
	if err != nil {
		return nil, err
	}
	next, err := readSigner(f.next)
	if err != nil {
		return nil, err
	}
	if next == nil {
		if next, err = evidence.GenerateSigner(a.random); err != nil {
			return nil, err
		}
		if err := f.writeNext(next); err != nil {
			return nil, err
		}
	}
	changed, err := trusted.Add(next.Key(), evidence.FormatTime(a.now()))
	if err != nil {
		return nil, fmt.Errorf("the staged key %s: %w; remove %s and stage another", next.Key().KeyID, err, f.next)
	}
	v.show(changed, next, current)
	return changed, nil
}

func (f keyFiles) writeNext(next *evidence.Signer) error {
	text, err := evidence.MarshalSignerPEM(next)
	if err != nil {
		return err
	}
	if f.signing == "" || !exists(f.signing) {
		return writeNew(f.next, text, 0o600)
	}
	temporary, err := temporaryLike(f.next, text, f.signing)
	if err != nil {
		return err
	}
	return appear(f.next, temporary, os.Link)
}

// activateKey swaps the signing key. The trusted keys stay as they are: the old key is trusted, and still active, until
// every server has taken up the new one and it is retired.
func (a *app) activateKey(c *Config, f keyFiles, trusted *evidence.TrustedKeys, v *rotatedKey) (*evidence.TrustedKeys, error) {
	next, err := readSigner(f.next)
	if err != nil {
		return nil, err
	}
	if next == nil {
		return nil, errors.New("no key is staged: integrity keys rotate --stage makes one")
	}
	if !trusted.Trusts(next.Key()) {
		return nil, fmt.Errorf("the staged key %s is not trusted by %s: integrity keys rotate --stage adds it", next.Key().KeyID, f.trusted)
	}
	current, err := c.currentSigner()
	if err != nil {
		return nil, err
	}
	if f.signing == "" {
		if !named(current, next.Key().KeyID) {
			return nil, fmt.Errorf("the signing key comes from %sSIGNING_KEY: set that to the content of %s everywhere, restart the servers, and run this again", variablePrefix, f.next)
		}
		v.show(trusted, next, next)
		return trusted, removeKey(f.next)
	}
	if current != nil {
		text, err := evidence.MarshalSignerPEM(current)
		if err != nil {
			return nil, err
		}
		if err := replaceKept(f.previous, text, f.signing); err != nil {
			return nil, err
		}
		former := current.Key().KeyID
		v.FormerKeyID = &former
	}
	if err := os.Rename(f.next, f.signing); err != nil {
		return nil, fmt.Errorf("activate the staged key: %w", err)
	}
	v.show(trusted, next, next)
	return trusted, syncPath(filepath.Dir(f.signing))
}

func (v *rotatedKey) show(trusted *evidence.TrustedKeys, key, signing *evidence.Signer) {
	pinned, _ := trusted.Lookup(key.Key().KeyID)
	v.publishedKey = publish(pinned)
	if signing != nil {
		id := signing.Key().KeyID
		v.SigningKeyID = &id
	}
}

func publish(k evidence.TrustedKey) publishedKey {
	p := publishedKey{PublicKey: k.PublicKey, Status: k.Status}
	if k.Since != "" {
		p.Since = &k.Since
	}
	return p
}

func removeKey(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove a private key that signs no more: %w", err)
	}
	return syncPath(filepath.Dir(path))
}

func (a *app) keysRetireCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "retire KEY_ID", Short: "Say that a key signs no more; it stays trusted",
		Long: "Marks a key as retired in the trusted-keys file: it signs no more, and everything that it has signed stays valid. Its private\n" +
			"half is removed where a rotation has left it. The key that signs now is refused: rotate first. Write -- before a KEY_ID\n" +
			"that begins with a hyphen.",
		Args: arguments(1, 1),
	}
	addSettings(c, "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := a.loadConfig(c)
		if err != nil {
			return err
		}
		id := args[0]
		var v publishedKey
		var left []string
		if err := a.changeKeys(&cfg, func(f keyFiles, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
			current, err := cfg.currentSigner()
			if err != nil {
				return nil, err
			}
			if named(current, id) {
				return nil, negative{"this key signs at the moment: bring in another one first, with integrity keys rotate"}
			}
			changed, err := trusted.Retire(id, evidence.FormatTime(a.now()))
			if err != nil {
				return nil, keyRefusal(err)
			}
			pinned, _ := changed.Lookup(id)
			v = publish(pinned)
			for _, path := range []string{f.next, f.previous} {
				if s, err := readSigner(path); err != nil {
					return nil, err
				} else if named(s, id) {
					left = append(left, path)
				}
			}
			return changed, nil
		}); err != nil {
			return err
		}
		for _, path := range left { // only once the retirement stands in the file
			if err := removeKey(path); err != nil {
				return err
			}
		}
		return a.print(asJSON, v, fmt.Sprintf("%s  retired since %s; what it has signed stays valid\nSend SIGHUP to every server and give the trusted-keys file to whoever pins it.\n", v.KeyID, *v.Since))
	}
	return c
}

// keyRefusal makes a negative answer of what the trusted keys refuse.
func keyRefusal(err error) error {
	if errors.Is(err, evidence.ErrUnknownKey) || errors.Is(err, evidence.ErrRevokedKey) {
		return negative{err.Error() + "; integrity keys list shows them"}
	}
	return err
}
