package operator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// rotatedLogKey is the new key of the log and how far it has come.
type rotatedLogKey struct {
	evidence.LogKey
	Step string `json:"step"` // staged or activated
}

// rotateLogKey takes a step of bringing in another key of the log. Its name is that of the keys before it, or follows from the issuer.
func (a *app) rotateLogKey(cfg *config.Config, activate, asJSON bool) error {
	of := cfg.LogSource()
	v := rotatedLogKey{Step: "staged"}
	if err := of.Change(func(f keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		name, err := logName(cfg, trusted)
		if err != nil {
			return nil, err
		}
		if activate && !keyfiles.Exists(f.Next) {
			return nil, errors.New("no key is staged: integrity keys rotate --transparency-log --stage makes one")
		}
		next, err := nextKey(f)
		if err != nil {
			return nil, err
		}
		signer, err := transparency.NewSigner(name, next)
		if err != nil {
			return nil, err
		}
		v.LogKey = signer.LogKey
		if !activate {
			return trusted.AddLogKey(signer.LogKey)
		}
		v.Step = "activated"
		return trusted, activateLogKey(of, f, trusted, signer, next)
	}); err != nil {
		return err
	}
	next := "Send SIGHUP to every server, give the trusted-keys file to whoever pins it, and then: integrity keys rotate --transparency-log --activate\n"
	if activate {
		next = "Copy the key file to every server and send SIGHUP to each.\n"
	}
	return a.Print(asJSON, v, fmt.Sprintf("%-10s    %s\n", v.Step, v.VerifierKey)+next)
}

// activateLogKey makes the staged key the log's. The private half of the one before is gone then: it has nothing more to sign.
func activateLogKey(of keyfiles.Source, f keyfiles.Files, trusted *evidence.TrustedKeys, next *transparency.Signer, private *evidence.Signer) error {
	if !trusted.TrustsLogKey(next.LogKey) {
		return fmt.Errorf("the staged key %s is not among the logKeys of %s: integrity keys rotate --transparency-log --stage adds it", next.KeyHash, f.Trusted)
	}
	if f.Signing == "" {
		current, err := of.Current()
		if err != nil {
			return err
		}
		if !keyfiles.Named(current, private.Key().KeyID) {
			return fmt.Errorf("the log key comes from %s: set that to the content of %s everywhere, restart the servers, and run this again", of.Variable, f.Next)
		}
		return keyfiles.RemoveKey(f.Next)
	}
	if err := os.Rename(f.Next, f.Signing); err != nil {
		return fmt.Errorf("activate the staged key: %w", err)
	}
	return keyfiles.Sync(filepath.Dir(f.Signing))
}

// logName is that of the last of the log's keys, or else what the issuer gives.
func logName(c *config.Config, trusted *evidence.TrustedKeys) (string, error) {
	if keys := trusted.LogKeys(); len(keys) > 0 {
		return keys[len(keys)-1].Name, nil
	}
	if c.Issuer == "" {
		return "", fmt.Errorf("%sISSUER (--issuer) is needed for the first key of the log: its name follows from the ledger's issuer, which integrity migrate prints", config.Prefix)
	}
	return transparency.LogName(c.Issuer), nil
}
