// Package keyfiles reads and changes the files of the signing key, the log key and the trusted keys.
package keyfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"integrityledger/domain/evidence"
)

func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

const (
	SigningKeyFile  = "signing-key.pem"
	LogKeyFile      = "log-key.pem"
	TrustedKeysFile = "trusted-keys.json"
	SecretKeyFile   = "secret-key"
)

// Source says where one private key of the service is, and the trusted-keys file that must name its public half.
type Source struct {
	DataDir  string
	Name     string // of the key's file in the data directory
	Variable string // that may hold the key itself; with _FILE at its end, the path of another file
	Text     string // the variable's value
	File     string // that Text was read from; empty where the variable holds the key itself
	Trusted  string // path of the trusted-keys file
}

// Path is the file that the private key is read from; empty where a variable holds the key itself.
func (s Source) Path() string {
	switch {
	case s.File != "":
		return s.File
	case s.Text != "":
		return ""
	default:
		return filepath.Join(s.DataDir, s.Name)
	}
}

// private reads the key, anew each time: it may have been rotated. made says which command makes one.
func (s Source) private(kind, made string) (*evidence.Signer, error) {
	text := []byte(s.Text)
	if path := s.Path(); path != "" {
		var err error
		if text, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no %s: set %s or %s_FILE, or make %s with: %s", kind, s.Variable, s.Variable, path, made)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	signer, err := evidence.ParseSignerPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return signer, nil
}

// Read reads the signing key and the trusted-keys file. The signer is nil where that file does not trust it: the
// service then signs nothing, and why says so.
func (s Source) Read() (signer *evidence.Signer, trusted *evidence.TrustedKeys, why string, err error) {
	if signer, err = s.private("signing key", "integrity keys generate --data-dir "+s.DataDir); err != nil {
		return nil, nil, "", err
	}
	trusted, err = ReadTrusted(s.Trusted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, "", fmt.Errorf("%w: restore the file, or make one for the signing key in the data directory with: integrity keys generate --data-dir %s", err, s.DataDir)
	}
	if err != nil {
		return nil, nil, "", err
	}
	if !trusted.Trusts(signer.Key()) {
		return nil, trusted, fmt.Sprintf("the signing key %s is not trusted by %s", signer.Key().KeyID, s.Trusted), nil
	}
	return signer, trusted, "", nil
}

func ReadTrusted(path string) (*evidence.TrustedKeys, error) {
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

// Ensure makes both key files at the first start of an embedded ledger, when nothing at all says which keys to use.
// Of a pair of which only one is there nothing is made: a lost trusted-keys file may have held revoked keys, and an
// operator decides about those. The caller holds the data directory's lock, so two starts cannot both make keys.
func Ensure(dataDir string, now time.Time) (made bool, err error) {
	for _, name := range []string{SigningKeyFile, TrustedKeysFile} {
		if _, err := os.Lstat(filepath.Join(dataDir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	signer := evidence.GenerateSigner()
	if err := WriteSigningKey(filepath.Join(dataDir, SigningKeyFile), signer); err != nil {
		return false, err
	}
	return true, WriteFirstTrusted(filepath.Join(dataDir, TrustedKeysFile), signer.Key(), now)
}

func WriteSigningKey(path string, signer *evidence.Signer) error {
	text, err := evidence.MarshalSignerPEM(signer)
	if err != nil {
		return err
	}
	return WriteNew(path, text, 0o600)
}

// WriteFirstTrusted makes a trusted-keys file that trusts one key.
func WriteFirstTrusted(path string, key evidence.PublicKey, now time.Time) error {
	trusted, err := new(evidence.TrustedKeys).Add(key, evidence.FormatTime(now))
	if err != nil {
		return err
	}
	text, err := trusted.Marshal()
	if err != nil {
		return err
	}
	return WriteNew(path, text, 0o644)
}

// WriteNew makes a file that appears complete or not at all, is on the disk when it returns, and never replaces one.
func WriteNew(path string, text []byte, mode fs.FileMode) error {
	temporary, err := WriteTemporary(path, text, mode)
	return appear(path, temporary, err, os.Link)
}

// Replace is WriteNew for a file that may be there.
func Replace(path string, text []byte, mode fs.FileMode) error {
	temporary, err := WriteTemporary(path, text, mode)
	return appear(path, temporary, err, os.Rename)
}

// appear puts a temporary file, which is used up, at its path, unless it could not be written. It is on the disk once
// this returns.
func appear(path, temporary string, err error, name func(from, to string) error) error {
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	if err := name(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Sync(filepath.Dir(path))
}

func WriteTemporary(path string, text []byte, mode fs.FileMode) (name string, err error) {
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

// Sync brings a file or a directory to the disk.
func Sync(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDataDir gives a new data directory the mode that the embedded PostgreSQL needs: as root its server runs as another
// user, who must be able to pass through.
func MakeDataDir(path string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}
