package operator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// RotatedKey is the new key and the step that the rotation has reached.
type RotatedKey struct {
	PublishedKey
	Step         string  `json:"step"`         // staged or activated
	SigningKeyID *string `json:"signingKeyId"` // the key that signs now, according to the files
	FormerKeyID  *string `json:"formerKeyId"`  // after activation: the key to retire; null if it is revoked

	formerRevoked bool
}

func (v *RotatedKey) afterActivation() say.Phrase {
	switch {
	case v.formerRevoked:
		return say.Sentencef(
			"Send SIGHUP to every server. The former key is revoked and is not kept: there is nothing to retire.\n",
		)
	case v.FormerKeyID == nil:
		return say.Sentencef("Send SIGHUP to every server, and then: integrity keys retire -- KEY_ID, of the former key in " +
			"integrity keys list\n")
	}
	return say.Sentencef("Send SIGHUP to every server, and then: integrity keys retire -- %s\n", *v.FormerKeyID)
}

func (a signingKeys) keysRotateCommand() *cobra.Command {
	v := a.verb(
		"keys rotate", "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "SIGNING_KEY", "TRANSPARENCY_KEY", "ISSUER",
	)
	ofLog := v.Flags().Bool("transparency-log", false, "rotate the transparency log's key")
	v.Flags().Bool("stage", false, "first step: create the new key and trust it")
	activate := v.Flags().Bool("activate", false, "second step: sign with the staged key")
	address := v.Flags().String(
		"agent", "", "with --stage: stage this key of an ssh-agent (agent:///SOCKET?key=SHA256:…) instead of a new one",
	)
	v.MarkFlagsMutuallyExclusive("stage", "activate")
	v.MarkFlagsOneRequired("stage", "activate")
	v.MarkFlagsMutuallyExclusive("agent", "activate")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		var kept *sshagent.Address
		if *address != "" {
			at, err := sshagent.Parse(*address)
			if err != nil {
				return say.Errorf("--agent: %w", err)
			}
			kept = &at
		}
		if *ofLog {
			return a.rotateLogKey(v, cfg, kept, *activate)
		}
		view := RotatedKey{Step: "staged"}
		var next say.Phrase = say.Sentencef("Send SIGHUP to every server, distribute the trusted-keys file, and then: " +
			"integrity keys rotate --activate\n")
		if *activate {
			view.Step = "activated"
		}
		if err := cfg.SigningSource().Change(func(
			f keyfiles.Files, trusted *evidence.TrustedKeys,
		) (*evidence.TrustedKeys, error) {
			if *activate {
				return a.activateKey(cfg, f, trusted, &view)
			}
			return a.stageKey(cfg, f, trusted, kept, &view)
		}); err != nil {
			return err
		}
		if *activate {
			next = view.afterActivation()
		}
		var lines text
		if view.FormerKeyID != nil {
			lines.Sayf("former key    %s\n", *view.FormerKeyID)
		}
		lines.Sayf("%-10s    %s\nfingerprint   %s\n", say.Word(view.Step), view.KeyID, view.FingerprintSHA256)
		return v.print(view, append(lines, next))
	})
}

// stageKey stages the next key, unless one is staged, and adds it to the trusted keys. The staged file is written
// before them: after a crash in between, the same step picks up that key.
func (a signingKeys) stageKey(
	c *config.Config, f keyfiles.Files, trusted *evidence.TrustedKeys, kept *sshagent.Address, v *RotatedKey,
) (*evidence.TrustedKeys, error) {
	current, err := c.SigningSource().Current()
	if err != nil {
		return nil, err
	}
	next, stage, err := nextKey(c.SigningSource(), f, kept)
	if err != nil {
		return nil, err
	}
	changed, err := trusted.Add(next.Key(), evidence.FormatTime(a.Now()))
	switch {
	case err != nil && stage != nil:
		return nil, say.Errorf("the key %s: %w", next.Key().KeyID, err)
	case err != nil:
		return nil, say.Errorf("the staged key %s: %w; remove %s and stage another", next.Key().KeyID, err, f.Next)
	case stage != nil:
		if err := stage(); err != nil {
			return nil, err
		}
	}
	v.show(changed, next, current)
	return changed, nil
}

// nextKey returns the staged key. If none is staged, it creates one, or finds the key that an agent keeps, and returns
// the function that stages it.
func nextKey(
	of keyfiles.Source, f keyfiles.Files, kept *sshagent.Address,
) (next *evidence.Signer, stage func() error, err error) {
	staged, err := of.ReadSigner(f.Next)
	if err != nil {
		return nil, nil, err
	}
	if kept == nil {
		if staged != nil {
			return staged, nil, nil
		}
		next = evidence.GenerateSigner()
		return next, func() error { return f.WriteNext(next) }, nil
	}
	if next, err = of.Parse([]byte(kept.String())); err == nil {
		err = next.Check() // before anyone trusts a key that cannot sign
	}
	switch {
	case err != nil:
		return nil, nil, err
	case staged == nil:
		return next, func() error { return f.WriteNextAddress(*kept) }, nil
	case staged.Key() != next.Key():
		return nil, nil, say.Errorf("another key is staged, %s: activate it, or remove %s", staged.Key().KeyID, f.Next)
	}
	return staged, nil, nil
}

// activateKey swaps the signing key. The trusted keys do not change: the old key stays trusted and active until every
// server has read the new one and the old one is retired. A revoked key is not kept, because it can sign nothing.
func (a signingKeys) activateKey(
	c *config.Config, f keyfiles.Files, trusted *evidence.TrustedKeys, v *RotatedKey,
) (*evidence.TrustedKeys, error) {
	next, err := c.SigningSource().ReadSigner(f.Next)
	if err != nil {
		return nil, err
	}
	if next == nil {
		return nil, say.Errorf("no key is staged: create one with integrity keys rotate --stage")
	}
	if !trusted.Trusts(next.Key()) {
		return nil, say.Errorf(
			"the staged key %s is not trusted by %s: add it with integrity keys rotate --stage", next.Key().KeyID, f.Trusted,
		)
	}
	current, err := c.SigningSource().Current()
	if err != nil {
		return nil, err
	}
	switch {
	case current != nil && isRevoked(trusted, current.Key().KeyID):
		v.formerRevoked = true
	case current != nil && f.Signing != "":
		text, err := keyfiles.ReadFile(f.Signing)
		if err != nil {
			return nil, say.Errorf("keep the former key: %w", err)
		}
		if err := keyfiles.ReplaceKept(f.Previous, text, f.Signing); err != nil {
			return nil, err
		}
		v.FormerKeyID = new(current.Key().KeyID)
	}
	v.show(trusted, next, next)
	return trusted, promoteStaged(c.SigningSource(), f, "signing key", next)
}

// promoteStaged makes the staged key the current one. If a variable holds the key, it must already hold the staged one.
func promoteStaged(of keyfiles.Source, f keyfiles.Files, kind string, next *evidence.Signer) error {
	if f.Signing == "" {
		current, err := of.Current()
		if err != nil {
			return err
		}
		if !keyfiles.Named(current, next.Key().KeyID) {
			return say.Errorf(
				"the %s comes from %s: set the variable to the content of %s everywhere, restart the servers, and run this "+
					"again", kind,
				of.Variable, f.Next,
			)
		}
		return keyfiles.RemoveKey(f.Next)
	}
	if err := os.Rename(f.Next, f.Signing); err != nil {
		return say.Errorf("activate the staged key: %w", err)
	}
	return keyfiles.Sync(filepath.Dir(f.Signing))
}

func (v *RotatedKey) show(trusted *evidence.TrustedKeys, key, signing *evidence.Signer) {
	pinned, _ := trusted.Lookup(key.Key().KeyID)
	v.PublishedKey = publish(pinned)
	if signing != nil {
		v.SigningKeyID = new(signing.Key().KeyID)
	}
}

func publish(k evidence.TrustedKey) PublishedKey {
	p := PublishedKey{PublicKey: k.PublicKey, Status: k.Status}
	if k.Since != "" {
		p.Since = &k.Since
	}
	return p
}

func (a signingKeys) keysRetireCommand() *cobra.Command {
	v := a.verb("keys retire", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		id := v.args[0]
		var view PublishedKey
		var left []string
		if err := cfg.SigningSource().Change(func(
			f keyfiles.Files, trusted *evidence.TrustedKeys,
		) (*evidence.TrustedKeys, error) {
			current, err := cfg.SigningSource().Current()
			if err != nil {
				return nil, err
			}
			if keyfiles.Named(current, id) {
				return nil, cli.Negativef(
					"this is the current signing key: replace it first, with integrity keys rotate",
				)
			}
			changed, err := trusted.Retire(id, evidence.FormatTime(a.Now()))
			if err != nil {
				return nil, keyRefusal(err)
			}
			pinned, _ := changed.Lookup(id)
			view = publish(pinned)
			left, err = leftBehind(cfg.SigningSource(), f, id)
			return changed, err
		}); err != nil {
			return err
		}
		if err := removeKeys(left); err != nil { // only after the retirement has been written
			return err
		}
		return v.print(
			view,
			say.Sentencef(
				"%s  retired since %s; its signatures stay valid\nSend SIGHUP to every server and distribute the trusted-keys "+
					"file.\n",
				view.KeyID, *view.Since,
			),
		)
	})
}

// leftBehind lists the files beside the signing key that hold the private half of a key, or its address.
func leftBehind(of keyfiles.Source, f keyfiles.Files, id string) (paths []string, err error) {
	for _, path := range []string{f.Next, f.Previous} {
		s, err := of.ReadSigner(path)
		if err != nil {
			return nil, err
		}
		if keyfiles.Named(s, id) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func removeKeys(paths []string) error {
	for _, path := range paths {
		if err := keyfiles.RemoveKey(path); err != nil {
			return err
		}
	}
	return nil
}

func isRevoked(trusted *evidence.TrustedKeys, id string) bool {
	return slices.ContainsFunc(trusted.Revoked(), func(r evidence.RevokedKey) bool { return r.KeyID == id })
}

// keyRefusal turns an error of the trusted keys into a negative answer.
func keyRefusal(err error) error {
	if errors.Is(err, evidence.ErrUnknownKey) || errors.Is(err, evidence.ErrRevokedKey) ||
		errors.Is(err, evidence.ErrUnknownAuthority) {
		return cli.Negativef("%w; integrity keys list shows them", err)
	}
	return err
}

// rotatedLogKey is the new log key and the step that the rotation has reached.
type rotatedLogKey struct {
	evidence.LogKey
	Step string `json:"step"` // staged or activated
}

// rotateLogKey runs a step of a log key rotation.
func (a signingKeys) rotateLogKey(
	v *verb, cfg *config.Config, kept *sshagent.Address, activate bool,
) (err error) {
	view := rotatedLogKey{Step: "staged"}
	next := say.Sentencef("Send SIGHUP to every server, distribute the trusted-keys file, and then: integrity keys " +
		"rotate --transparency-log --activate\n")
	if activate {
		view.Step, next = "activated", say.Sentencef("Copy the key file to every server and send SIGHUP to each.\n")
		view.LogKey, err = activateLogKey(cfg.LogSource())
	} else {
		view.LogKey, err = a.recordedLogKey(v, cfg, kept)
	}
	if err != nil {
		return err
	}
	return v.print(view, text{say.Sentencef("%-10s    %s\n", say.Word(view.Step), view.VerifierKey), next})
}

// activateLogKey makes the staged key the log key. The previous key is deleted, because it has nothing left to sign.
func activateLogKey(of keyfiles.Source) (key evidence.LogKey, err error) {
	err = of.Change(func(f keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		next, err := of.ReadSigner(f.Next)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return nil, say.Errorf("no key is staged: create one with integrity keys rotate --transparency-log --stage")
		}
		keys := trusted.LogKeys()
		i := slices.IndexFunc(keys, func(k evidence.LogKey) bool { return ofLog(next, k) && trusted.TrustsLogKey(k) })
		if i < 0 {
			return nil, say.Errorf(
				"the staged key of %s is not in the logKeys of %s: add it with integrity keys rotate --transparency-log --stage",
				f.Next, f.Trusted,
			)
		}
		key = keys[i]
		return trusted, promoteStaged(of, f, "log key", next)
	})
	return key, err
}

// logName names the log before there is a ledger: after its last key, or the issuer in the settings.
func logName(c *config.Config) (string, error) {
	trusted, err := keyfiles.ReadTrusted(c.TrustedKeysPath())
	if err != nil {
		return "", err
	}
	if keys := trusted.LogKeys(); len(keys) > 0 {
		return keys[len(keys)-1].Name, nil
	}
	if c.Issuer == "" {
		return "", say.Errorf(
			"set %sISSUER (--issuer) for the first log key, which is named after the issuer, or name the database of the "+
				"ledger with %sDATABASE_URL",
			config.Prefix, config.Prefix,
		)
	}
	return evidence.LogName(c.Issuer), nil
}
