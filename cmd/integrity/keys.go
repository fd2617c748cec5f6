package main

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/action"
)

// readSecretKey returns the key that encrypts webhook secrets: the variable's, else the data directory's. The first
// start with an embedded database makes that file. With an external database it makes none, because each of several
// servers would make its own: it returns nil and logs a warning, and webhook destinations cannot be created.
func (s *service) readSecretKey() (*domain.SecretKey, error) {
	text, path := s.cfg.SecretKey, s.cfg.InDataDir(keyfiles.SecretKeyFile)
	if text == "" {
		raw, err := keyfiles.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && s.database == nil:
			s.log.Warn("webhooks are off: no key for webhook secrets is configured; give every server the same key",
				"variable", config.Prefix+"SECRET_KEY", "such_as", "openssl rand -base64 32")
			return nil, nil //nolint:nilnil // running without a key is allowed
		case errors.Is(err, fs.ErrNotExist):
			return s.makeSecretKey(path)
		case err != nil:
			return nil, say.Errorf("webhook secret key: %w", err)
		}
		text = strings.TrimSpace(string(raw))
	}
	key, err := domain.ParseSecretKey(text)
	if err != nil {
		return nil, say.Errorf("webhook secret key (%sSECRET_KEY or %s): %w", config.Prefix, path, err)
	}
	return &key, nil
}

// makeSecretKey writes a new key. The caller holds the data directory's lock, so two starts cannot both make one.
func (s *service) makeSecretKey(path string) (*domain.SecretKey, error) {
	key, text := domain.NewSecretKey()
	if err := keyfiles.Replace(path, []byte(text+"\n"), 0o600); err != nil {
		return nil, say.Errorf("webhook secret key: %w", err)
	}
	s.log.Info("created a key for webhook secrets; keep a copy", "file", path)
	return &key, nil
}

// loadKeys replaces all keys at once. An untrusted signing key signs nothing.
func (s *service) loadKeys() error {
	signer, trusted, why, err := s.cfg.SigningSource().Read()
	if err != nil {
		return err
	}
	if signer != nil {
		signer = signer.Observed(s.metrics.Signing)
	}
	s.keys.Store(&action.Keys{Signer: signer, Trusted: trusted})
	if why != nil {
		s.log.Error("NOTHING IS SIGNED: registration and evidence answer 503; reads still work", "reason", why)
	}
	return nil
}

// ensureLogKey makes the log key of an embedded ledger whose trusted-keys file lists none yet. The caller holds the
// data directory's lock, so two starts cannot both make one. A crash can leave a key file that is not trusted yet; the
// next start trusts that key.
func (s *service) ensureLogKey() error {
	if s.cfg.TransparencyKey != "" || s.cfg.TrustedKeys != "" || len(s.keys.Load().Trusted.LogKeys()) > 0 {
		return nil
	}
	path := s.cfg.InDataDir(keyfiles.LogKeyFile)
	private, err := keyfiles.ReadSigner(path)
	if err != nil {
		return err
	}
	if private == nil {
		private = evidence.GenerateSigner()
		if err := keyfiles.WriteSigningKey(path, private); err != nil {
			return err
		}
	}
	signer, err := transparency.NewSigner(transparency.LogName(s.installed.Issuer), private)
	if err != nil {
		return err
	}
	if err := s.cfg.SigningSource().Change(func(
		_ keyfiles.Files, trusted *evidence.TrustedKeys,
	) (*evidence.TrustedKeys, error) {
		return trusted.AddLogKey(signer.LogKey)
	}); err != nil {
		return err
	}
	s.log.Info(
		"created a log key and added it to the trusted keys; keep a copy", "file", path, "name",
		signer.Name,
	)
	return s.loadKeys()
}

// loadLogKey reads the log key. Without a trusted log key this process logs a warning and leaves the tree to other
// processes; nothing else depends on it. A revoked key signs nothing.
func (s *service) loadLogKey() {
	if !s.cfg.Transparency {
		return
	}
	signer, err := s.cfg.LogSource().LogSigner(transparency.LogName(s.installed.Issuer), s.keys.Load().Trusted)
	s.tree.signer.Store(signer)
	switch {
	case errors.Is(err, evidence.ErrRevokedKey):
		s.log.Error(
			"NO CHECKPOINT IS SIGNED: rotate the log key, then send SIGHUP; registrations still work", "reason", err,
		)
	case err != nil:
		s.log.Warn("this process leaves the transparency log to others", "reason", err)
	}
}

// loadCertificate reads the TLS certificate and key if the service terminates TLS itself. Connections that are already
// open keep their certificate. On error the previous certificate stays in use. An expired certificate never replaces a
// loaded one; at startup it is used, and logged as an error.
func (s *service) loadCertificate() error {
	if !s.cfg.Encrypted() {
		return nil
	}
	pair, err := s.cfg.LoadCertificate()
	if err != nil {
		return err
	}
	if end := pair.Leaf.NotAfter; s.Now().After(end) {
		err = say.Errorf("%sTLS_CERT: the certificate expired at %s: replace the file and send SIGHUP",
			config.Prefix, cli.TimeText(end))
		if s.shown.Load() != nil {
			return err
		}
		s.log.Error("clients will refuse the connection", "error", err)
	}
	s.shown.Store(pair)
	return nil
}

// certificateEnd returns when the certificate in use expires, or the zero time without a certificate.
func (s *service) certificateEnd() time.Time {
	if pair := s.shown.Load(); pair != nil {
		return pair.Leaf.NotAfter
	}
	return time.Time{}
}
