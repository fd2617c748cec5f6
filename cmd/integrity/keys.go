//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"sync"
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

// loadSecretKeys reads the keys that encrypt webhook secrets. The first start with an embedded database makes their
// file. With an external database it makes none, because each of several servers would make its own: it logs a warning,
// and webhook destinations cannot be created.
func (s *service) loadSecretKeys() error {
	source := s.cfg.SecretSource()
	keys, err := source.SecretKeys()
	switch {
	case !errors.Is(err, fs.ErrNotExist) || len(s.loadedSecretKeys()) > 0: // the keys in use stay if their file is gone
	case s.database == nil:
		s.log.Warn("webhooks are off: no key for webhook secrets is configured; give every server the same key",
			"variable", source.Variable, "such_as", "openssl rand -base64 32")
		err = nil
	default:
		keys, err = s.makeSecretKey(source.Path())
	}
	if err != nil {
		return err
	}
	s.secretKeys.Store(&keys)
	return nil
}

// loadedSecretKeys returns the keys that encrypt webhook secrets. Without them secrets can be neither created nor used.
func (s *service) loadedSecretKeys() domain.SecretKeys {
	if keys := s.secretKeys.Load(); keys != nil {
		return *keys
	}
	return nil
}

// makeSecretKey writes a new key. The caller holds the data directory's lock, so two starts cannot both make one.
func (s *service) makeSecretKey(path string) (domain.SecretKeys, error) {
	key, text := domain.NewSecretKey()
	if err := keyfiles.Replace(path, []byte(text+"\n"), 0o600); err != nil {
		return nil, say.Errorf("webhook secret key: %w", err)
	}
	s.log.Info("created a key for webhook secrets; keep a copy", "file", path)
	return domain.SecretKeys{key}, nil
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
		s.log.Error(nothingSigned, "reason", why)
	}
	s.signing.forget()
	_ = s.signs(context.Background()) // logs the reason
	return nil
}

const nothingSigned = "NOTHING IS SIGNED: registration and evidence answer 503; reads still work"

// signing remembers whether the agent that keeps the signing key answers.
type signing struct {
	mutex sync.Mutex
	next  time.Time // when to ask again
	err   error     // of the last signature that was asked for
}

// askSigner is how long an answer of the agent is believed.
const askSigner = time.Second

func (s *signing) forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.next = time.Time{}
}

// signs refuses if the agent that keeps the signing key does not sign. It asks at most once a second, and logs when the
// agent is lost and when it is back. A key in this process always signs.
func (s *service) signs(context.Context) error {
	signer := s.keys.Load().Signer
	if signer == nil || !signer.Kept() {
		return nil // an untrusted key is another condition
	}
	s.signing.mutex.Lock()
	defer s.signing.mutex.Unlock()
	if time.Now().Before(s.signing.next) {
		return s.signing.err
	}
	former := s.signing.err
	s.signing.err = signer.Check()
	s.signing.next = time.Now().Add(askSigner)
	switch err := s.signing.err; {
	case err == nil && former != nil:
		s.log.Info("the agent signs again")
	case err != nil && former == nil:
		s.log.Error(nothingSigned, "reason", err)
	}
	if s.signing.err != nil {
		s.signing.err = say.Errorf("%w: %w", domain.Unavailable("The service's signing key does not answer."), s.signing.err)
	}
	return s.signing.err
}

// ensureLogKey makes the log key of an embedded ledger whose trusted-keys file lists none yet. The caller holds the
// data directory's lock, so two starts cannot both make one. A crash can leave a key file that is not trusted yet; the
// next start trusts that key.
func (s *service) ensureLogKey() error {
	if s.cfg.TransparencyKey != "" || s.cfg.TrustedKeys != "" || len(s.keys.Load().Trusted.LogKeys()) > 0 {
		return nil
	}
	path := s.cfg.InDataDir(keyfiles.LogKeyFile)
	private, err := s.cfg.LogSource().ReadSigner(path)
	if err != nil {
		return err
	}
	if private == nil {
		private = evidence.GenerateSigner()
		if err := keyfiles.WriteSigningKey(path, private); err != nil {
			return err
		}
	}
	signer, err := transparency.NewSigner(evidence.LogName(s.installed.Issuer), private)
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
	signer, err := s.cfg.LogSource().LogSigner(evidence.LogName(s.installed.Issuer), s.keys.Load().Trusted)
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
