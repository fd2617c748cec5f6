package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
)

// readSecretKey is the key of the variable, else that of the data directory, which the first start of an embedded ledger
// makes. With an external database nothing is made, for several servers would each make their own: webhook destinations
// then cannot be created, and the log says so. Nil means that.
func (s *service) readSecretKey() (*domain.SecretKey, error) {
	text, path := s.cfg.SecretKey, s.cfg.InDataDir(keyfiles.SecretKeyFile)
	if text == "" {
		raw, err := os.ReadFile(path)
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
