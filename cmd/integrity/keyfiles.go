package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"integrityledger/domain/evidence"
	"integrityledger/handlers"
)

const (
	signingKeyFile  = "signing-key.pem"
	trustedKeysFile = "trusted-keys.json"
)

func (c *Config) trustedKeysPath() string {
	if c.TrustedKeys != "" {
		return c.TrustedKeys
	}
	return c.inDataDir(trustedKeysFile)
}

// signingKeyPath is the file that the signing key is read from; empty where a variable holds the key itself.
func (c *Config) signingKeyPath() string {
	switch {
	case c.signingKeyFile != "":
		return c.signingKeyFile
	case c.SigningKey != "":
		return ""
	default:
		return c.inDataDir(c.keyName())
	}
}

// readKeys reads the signing key and the trusted-keys file. A signing key that the file does not trust is left out:
// the service then signs nothing, and why says so.
func (c *Config) readKeys() (keys handlers.Keys, why string, err error) {
	text := []byte(c.SigningKey)
	if path := c.signingKeyPath(); path != "" { // anew each time: it may have been rotated
		if text, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			return keys, "", fmt.Errorf("there is no signing key: set %sSIGNING_KEY or %sSIGNING_KEY_FILE, or make %s with: integrity keys generate --data-dir %s", variablePrefix, variablePrefix, path, c.DataDir)
		}
		if err != nil {
			return keys, "", fmt.Errorf("signing key: %w", err)
		}
	}
	signer, err := evidence.ParseSignerPEM(text)
	if err != nil {
		return keys, "", fmt.Errorf("signing key: %w", err)
	}
	keys.Trusted, err = readTrustedKeys(c.trustedKeysPath())
	if errors.Is(err, fs.ErrNotExist) {
		return keys, "", fmt.Errorf("%w: restore the file, or make one for the signing key in the data directory with: integrity keys generate --data-dir %s", err, c.DataDir)
	}
	if err != nil {
		return keys, "", err
	}
	if !keys.Trusted.Trusts(signer.Key()) {
		return keys, fmt.Sprintf("the signing key %s is not trusted by %s", signer.Key().KeyID, c.trustedKeysPath()), nil
	}
	keys.Signer = signer
	return keys, "", nil
}

func readTrustedKeys(path string) (*evidence.TrustedKeys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("trusted keys: %w", err)
	}
	keys, err := evidence.ParseTrustedKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// ensureKeys makes both key files at the first start of an embedded ledger, when nothing at all says which keys to use.
// Of a pair of which only one is there nothing is made: a lost trusted-keys file may have held revoked keys, and an
// operator decides about those. The caller holds the data directory's lock, so two starts cannot both make keys.
func (a *app) ensureKeys(c *Config) (made bool, err error) {
	if c.SigningKey != "" || c.TrustedKeys != "" {
		return false, nil
	}
	for _, name := range []string{signingKeyFile, trustedKeysFile} {
		if _, err := os.Lstat(c.inDataDir(name)); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	signer, err := evidence.GenerateSigner(a.random)
	if err != nil {
		return false, err
	}
	if err := writeSigningKey(c.inDataDir(signingKeyFile), signer); err != nil {
		return false, err
	}
	return true, a.writeTrustedKeys(c.inDataDir(trustedKeysFile), signer.Key())
}

func writeSigningKey(path string, signer *evidence.Signer) error {
	text, err := evidence.MarshalSignerPEM(signer)
	if err != nil {
		return err
	}
	return writeNew(path, text, 0o600)
}

func (a *app) writeTrustedKeys(path string, key evidence.PublicKey) error {
	trusted, err := evidence.NewTrustedKeys([]evidence.TrustedKey{
		{PublicKey: key, Status: evidence.KeyActive, Since: evidence.FormatTime(a.now())},
	}, nil, nil)
	if err != nil {
		return err
	}
	text, err := trusted.Marshal()
	if err != nil {
		return err
	}
	return writeNew(path, text, 0o644)
}

// writeNew makes a file that appears complete or not at all, is on the disk when it returns, and never replaces one.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	temporary, err := writeTemporary(path, text, mode)
	if err != nil {
		return err
	}
	return appear(path, temporary, os.Link)
}

// replaceFile is writeNew for a file that may be there.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	temporary, err := writeTemporary(path, text, mode)
	if err != nil {
		return err
	}
	return appear(path, temporary, os.Rename)
}

// appear puts a temporary file, which is used up, at its path. It is on the disk once this returns.
func appear(path, temporary string, name func(from, to string) error) error {
	defer os.Remove(temporary)
	if err := name(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncPath(filepath.Dir(path))
}

func writeTemporary(path string, text []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
			os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(mode); err != nil {
		return "", err
	}
	if _, err = f.Write(text); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}

// syncPath brings a file or a directory to the disk.
func syncPath(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
