package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

func (a signingKeys) keysCommand() *cobra.Command {
	return cli.Group("keys", "Signing keys and the trusted-keys file",
		a.keysGenerateCommand(), a.keysListCommand(), a.keysPublishCommand(), a.keysRotateCommand(), a.keysRetireCommand(),
		a.keysRotateSecretCommand(), a.keysCompromiseCommand(), a.keysWitnessCommand(),
		a.keysAddWitnessCommand(), a.keysRemoveWitnessCommand(), a.keysAddAuthorityCommand(),
		a.keysRemoveAuthorityCommand(), a.keysDrillCommand())
}

// PublishedKey is a signing key as the trusted-keys file names it.
type PublishedKey struct {
	evidence.PublicKey
	Status evidence.KeyStatus `json:"status"`
	Since  *string            `json:"since"`
}

func (a signingKeys) keysGenerateCommand() *cobra.Command {
	v := a.verb("keys generate", "DATA_DIR", "SIGNING_KEY")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		if err := keyfiles.MakeDataDir(cfg.DataDir); err != nil {
			return err
		}
		unlock, err := keyfiles.LockKeys(keyfiles.Absolute(cfg.DataDir))
		if err != nil {
			return err
		}
		defer unlock()
		keyPath, trustedPath := cfg.InDataDir(keyfiles.SigningKeyFile), cfg.InDataDir(keyfiles.TrustedKeysFile)
		if _, err := os.Lstat(trustedPath); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = say.Errorf("%s already exists and is not overwritten", trustedPath)
			}
			return err
		}
		if sshagent.IsAddress(cfg.SigningKey) { // an agent keeps the key
			keyPath = cfg.SigningKey
		}
		signer, err := a.signerAt(cfg.SigningSource(), keyPath)
		if err != nil {
			return err
		}
		key := signer.Key()
		if err := keyfiles.WriteFirstTrusted(trustedPath, key, a.Now()); err != nil {
			return err
		}
		care := say.Word("secret; keep a copy")
		if signer.Kept() {
			care = "the agent keeps it; keep a copy where it was created"
		}
		return v.print(PublishedKey{PublicKey: key, Status: evidence.KeyActive}, say.Sentencef(
			"signing key   %s (%s)\ntrusted keys  %s (distribute it through a channel your readers trust)\n"+
				"keyId         %s\nfingerprint   %s\n",
			keyPath, care, trustedPath, key.KeyID, key.FingerprintSHA256))
	})
}

// signerAt returns the key of an agent that has this address, or the key in the file with this path, which it creates
// if it does not exist.
func (a signingKeys) signerAt(of keyfiles.Source, path string) (signer *evidence.Signer, err error) {
	if sshagent.IsAddress(path) {
		if signer, err = of.Parse([]byte(path)); err == nil {
			err = signer.Check() // before anyone trusts a key that cannot sign
		}
		return signer, err
	}
	if signer, err = of.ReadSigner(path); err != nil || signer != nil {
		return signer, err
	}
	signer = evidence.GenerateSigner()
	return signer, keyfiles.WriteSigningKey(path, signer)
}

func (a signingKeys) keysListCommand() *cobra.Command {
	v := a.verb("keys list", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "TRANSPARENCY_KEY")
	v.describeJSON("print the trusted-keys file as published")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
		if err != nil {
			return err
		}
		text := []byte(a.Say(keyLines(cfg, trusted)))
		if v.json {
			published, err := trusted.Published()
			if err != nil {
				return err
			}
			if text, err = published.Marshal(); err != nil {
				return err
			}
		}
		err = a.WriteRaw(text)
		return err
	})
}

// keyLines lists everything that the file pins: signing keys, log keys, witness keys and timestamp authorities. If the
// private keys are readable, it marks the current and the staged key.
func keyLines(c *config.Config, trusted *evidence.TrustedKeys) say.Phrase {
	var b text
	signing, _ := c.SigningSource().Current()
	staged, _ := c.SigningSource().ReadSigner(c.SigningSource().StagedPath())
	for _, k := range trusted.Keys() {
		if _, ok := trusted.Lookup(k.KeyID); !ok {
			continue
		}
		note := noteOf(
			signing, keyfiles.Named(signing, k.KeyID), staged, keyfiles.Named(staged, k.KeyID),
		)
		b.Sayf("%s  %-8s  %s%s\n", k.KeyID, k.Status, k.FingerprintSHA256, note)
	}
	ofTheLog := map[string]bool{}
	for _, k := range trusted.LogKeys() {
		ofTheLog[k.KeyID()] = true
	}
	for _, r := range trusted.Revoked() {
		if !ofTheLog[r.KeyID] {
			b.Sayf("%s  %-8s  %s  %s since %s\n", r.KeyID, say.Word("revoked"), r.FingerprintSHA256, r.Reason, r.Since)
		}
	}
	log, _ := c.LogSource().Current()
	stagedLog, _ := c.LogSource().ReadSigner(c.LogSource().StagedPath())
	for _, k := range trusted.LogKeys() {
		note := noteOf(log, ofLog(log, k), stagedLog, ofLog(stagedLog, k))
		if r, revoked := trusted.LogKeyRevocation(k); revoked {
			note = say.Sentencef("  %s since %s", r.Reason, r.Since)
		}
		b.Sayf("%s  %-8s  %s%s\n", k.KeyID(), say.Word("log"), k.VerifierKey, note)
	}
	for _, w := range trusted.WitnessKeys() {
		b.Sayf("%s  %-8s  %s\n", evidence.LogKey(w).KeyID(), say.Word("witness"), w.VerifierKey)
	}
	for _, authority := range trusted.Authorities() {
		for _, c := range viewAuthority(authority, false).Certificates {
			b.Sayf("%-43s  %-8s  %s\n", authority.Name, say.Word("time"), c.line())
		}
	}
	return b
}

// noteOf marks a key that is the current or the staged one.
func noteOf(current *evidence.Signer, signs bool, next *evidence.Signer, staged bool) say.Phrase {
	switch {
	case signs && current.Kept():
		return say.Sentencef("  signs, in an agent")
	case signs:
		return say.Sentencef("  signs")
	case staged && next.Kept():
		return say.Sentencef("  staged, in an agent")
	case staged:
		return say.Sentencef("  staged")
	}
	return text{}
}

// ofLog reports whether the signer has the private key of this log key.
func ofLog(s *evidence.Signer, k evidence.LogKey) bool {
	if s == nil {
		return false
	}
	signer, err := transparency.NewSigner(k.Name, s)
	return err == nil && signer.LogKey == k
}

// compromisedView is the first line of the JSON output; the records follow.
type compromisedView struct {
	Type string `json:"type"` // key
	evidence.RevokedKey
	Signing bool             `json:"signing"` // this is the current signing key, according to the files
	Log     *evidence.LogKey `json:"log"`     // set if this is a log key
}

// named returns the log key with this keyId or name+keyHash.
func named(trusted *evidence.TrustedKeys, name string) *evidence.LogKey {
	for _, k := range trusted.LogKeys() {
		if name == k.KeyID() || name == k.Name+"+"+k.KeyHash {
			return &k
		}
	}
	return nil
}

func (a signingKeys) keysCompromiseCommand() *cobra.Command {
	v := a.verb("keys compromise", "DATABASE_URL", "DATA_DIR", "PLANS", "TRUSTED_KEYS", "SIGNING_KEY", "TRANSPARENCY_KEY")
	v.describeJSON("print JSON, one object per line")
	reason := v.Flags().String(
		"reason", evidence.ReasonCompromised, "compromised (others may hold the private key) or revoked",
	)
	since := v.Flags().String(
		"since", "", "when the key was lost, RFC 3339 (2026-11-21T17:30:00Z); default: now",
	)
	v.must("--reason must be compromised or revoked", func() bool {
		return *reason == evidence.ReasonCompromised || *reason == evidence.ReasonRevoked
	})
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		at, err := a.readPast("--since", *since)
		if err != nil {
			return err
		}
		if *since == "" {
			at = a.Now()
		}
		view := compromisedView{Type: "key"}
		var left []string
		if err := cfg.SigningSource().Change(func(
			f keyfiles.Files, trusted *evidence.TrustedKeys,
		) (*evidence.TrustedKeys, error) {
			id, of := v.args[0], cfg.SigningSource()
			if view.Log = named(trusted, id); view.Log != nil {
				id, of = view.Log.KeyID(), cfg.LogSource()
			}
			changed, err := trusted.Revoke(id, *reason, evidence.FormatTime(at))
			if err != nil {
				return nil, keyRefusal(err)
			}
			for _, r := range changed.Revoked() {
				if r.KeyID == id {
					view.RevokedKey = r
				}
			}
			// The file must be written even if the private key cannot be read.
			current, _ := of.Current()
			view.Signing = keyfiles.Named(current, id)
			left, _ = leftBehind(cfg.SigningSource(), f, id)
			return changed, nil
		}); err != nil {
			return err
		}
		if err := removeKeys(left); err != nil {
			return err
		}
		// The file is written, so the key is revoked whatever happens next. Running the same command lists the records again.
		return v.printCompromised(view)
	})
}

func (v *verb) printCompromised(view compromisedView) error {
	errs := v.app.Errs
	var lines text
	lines.Sayf(
		"%s  %s since %s. Send SIGHUP to every server and distribute the trusted-keys file.\n", view.KeyID,
		view.Reason, view.Since,
	)
	switch {
	case view.Log != nil && view.Signing:
		lines.Sayf("This is the current log key: no checkpoint is signed until you replace it (integrity keys rotate " +
			"--transparency-log --stage, --activate).\n")
	case view.Signing:
		lines.Sayf("This is the current signing key: registration and evidence answer 503 until you replace it (integrity " +
			"keys rotate --stage, --activate).\n")
	}
	if _, err := fmt.Fprint(errs, v.app.Say(lines)); err != nil {
		return err
	}
	if v.json {
		if err := cli.WriteJSON(v.app.Out, view, ""); err != nil {
			return err
		}
	}
	if view.Log != nil {
		v.app.tell("Its checkpoints are no longer trusted, except those that a pinned authority stamped, or enough pinned " +
			"witnesses cosigned, before that time.")
		return nil
	}
	err := ledger.With(v.app.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
		n, err := v.printAffected(ctx, l, allShards(l), func(e *domain.Event) bool {
			if b := domain.Registration(e.Body); b != nil {
				return b.KeyID == view.KeyID
			}
			switch b := e.Body.(type) {
			case *domain.RecordAliasedBody:
				return b.KeyID == view.KeyID || b.Statement.KeyID == view.KeyID
			case *domain.CertificateIssuedBody:
				return b.KeyID == view.KeyID
			}
			return false
		})
		if err == nil {
			v.app.tell("%d records and certificates were signed by this key", n)
		}
		return err
	})
	if err != nil {
		return say.Errorf("the key is revoked, but the records it signed could not be listed; run the command again: %w", err)
	}
	return nil
}
