package keyfiles

import (
	"errors"
	"io/fs"
	"path/filepath"

	"integrityledger/domain/evidence"
)

// EnsureWitnessKey creates the witness key in the data directory, unless it exists or the settings name another place.
// If two processes do so at once, one creates the key and both use it.
func (s Source) EnsureWitnessKey(dataDir string) error {
	path := s.Path()
	if path != filepath.Join(dataDir, WitnessKeyFile) || Exists(path) {
		return nil
	}
	if err := MakeDataDir(dataDir); err != nil {
		return err
	}
	if err := WriteSigningKey(path, evidence.GenerateSigner()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// WitnessFingerprint returns the fingerprint of the key that cosigns other logs, whatever its name. It returns an empty
// string if there is no such key.
func (s Source) WitnessFingerprint() (string, error) {
	if path := s.Path(); path != "" && !Exists(path) {
		return "", nil
	}
	signer, err := s.private("witness key", "integrity keys witness")
	if err != nil {
		return "", err
	}
	return signer.Key().FingerprintSHA256, nil
}
