package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/action"
)

// readSecretKey is the key of the variable, else that of the data directory, which the first start of an embedded
// ledger makes. With an external database nothing is made, for several servers would each make their own: webhook
// destinations then cannot be created, and the log says so. Nil means that.
func (s *service) readSecretKey() (*domain.SecretKey, error) {
	text, path := s.cfg.SecretKey, s.cfg.InDataDir(keyfiles.SecretKeyFile)
	if text == "" {
		raw, err := keyfiles.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && s.database == nil:
			s.log.Warn("there is no key for webhook secrets, so webhooks are off; give every server the same one",
				"variable", config.Prefix+"SECRET_KEY", "such_as", "openssl rand -base64 32")
			return nil, nil //nolint:nilnil // no key is a configuration, not a fault
		case errors.Is(err, fs.ErrNotExist):
			return s.makeSecretKey(path)
		case err != nil:
			return nil, fmt.Errorf("webhook secret key: %w", err)
		}
		text = strings.TrimSpace(string(raw))
	}
	key, err := domain.ParseSecretKey(text)
	if err != nil {
		return nil, fmt.Errorf("webhook secret key (%sSECRET_KEY or %s): %w", config.Prefix, path, err)
	}
	return &key, nil
}

// makeSecretKey writes a fresh key. The caller holds the data directory's lock, so two starts cannot both make one.
func (s *service) makeSecretKey(path string) (*domain.SecretKey, error) {
	key, text := domain.NewSecretKey()
	if err := keyfiles.Replace(path, []byte(text+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("webhook secret key: %w", err)
	}
	s.log.Info("made a key for webhook secrets; keep a copy", "file", path)
	return &key, nil
}

// loadKeys replaces the keys as a whole. A signing key that is not trusted signs nothing from then on.
func (s *service) loadKeys() error {
	signer, trusted, why, err := s.cfg.SigningSource().Read()
	if err != nil {
		return err
	}
	if signer != nil {
		signer = signer.Observed(s.metrics.Signing)
	}
	s.keys.Store(&action.Keys{Signer: signer, Trusted: trusted})
	if why != "" {
		s.log.Error("NOTHING IS SIGNED: registration and evidence answer 503, reads go on", "reason", why)
	}
	return nil
}

// ensureLogKey makes the log's key for an embedded ledger whose trusted keys name none yet. The caller holds the data
// directory's lock, so two starts cannot both make one. What a crash leaves, a key that is not trusted, is taken up
// again.
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
		"made a key for the transparency log, and added it to the trusted keys; keep a copy", "file", path, "name",
		signer.Name,
	)
	return s.loadKeys()
}

// loadLogKey reads the log's key. Without one that the trusted keys name, this process leaves the tree to others, and
// says so; nothing else depends on it. A revoked one signs nothing.
func (s *service) loadLogKey() {
	if !s.cfg.Transparency {
		return
	}
	signer, err := s.cfg.LogSource().LogSigner(transparency.LogName(s.installed.Issuer), s.keys.Load().Trusted)
	s.tree.signer.Store(signer)
	switch {
	case errors.Is(err, evidence.ErrRevokedKey):
		s.log.Error(
			"NO CHECKPOINT IS SIGNED: rotate the key of the transparency log, and SIGHUP; registrations go on", "reason", err,
		)
	case err != nil:
		s.log.Warn("this process does not work on the transparency log", "reason", err)
	}
}

// loadCertificate reads the files of what the service shows of itself, where it ends TLS on its own. It is replaced as
// a whole, so connections that are open keep the one they began with; after an error the one read before stays in use.
// An expired certificate never replaces another one, and a service that starts with one says so.
func (s *service) loadCertificate() error {
	if !s.cfg.Encrypted() {
		return nil
	}
	pair, err := s.cfg.LoadCertificate()
	if err != nil {
		return err
	}
	if end := pair.Leaf.NotAfter; s.Now().After(end) {
		err = fmt.Errorf("%sTLS_CERT: the certificate expired at %s: replace the file and send SIGHUP",
			config.Prefix, cli.TimeText(end))
		if s.shown.Load() != nil {
			return err
		}
		s.log.Error("clients will refuse the connection", "error", err)
	}
	s.shown.Store(pair)
	return nil
}

// certificateEnd is when the certificate that is shown ends; zero without one.
func (s *service) certificateEnd() time.Time {
	if pair := s.shown.Load(); pair != nil {
		return pair.Leaf.NotAfter
	}
	return time.Time{}
}
