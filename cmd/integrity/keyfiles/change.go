package keyfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// Files are those that a change of the signing keys touches. Their order makes every crash harmless: a key is
// trusted before it signs, so a server that reads the files at any moment finds a signing key that is trusted.
type Files struct {
	Signing  string // empty where the key comes from a variable, which no command can change
	Next     string // staged: trusted, and not signing yet
	Previous string // signed until the last activation; kept until it is retired
	Trusted  string
}

func (s Source) files() (Files, error) {
	f := Files{Signing: s.Path(), Next: s.StagedPath()}
	f.Previous = strings.TrimSuffix(f.Next, ".next.pem") + ".previous.pem"
	// The file itself is replaced, not a link that leads to it.
	var err error
	if f.Trusted, err = filepath.EvalSymlinks(s.Trusted); err != nil {
		return f, fmt.Errorf("trusted keys: %w", err)
	}
	return f, nil
}

// StagedPath is where the next key waits: beside the one that signs.
func (s Source) StagedPath() string {
	at := s.Path()
	if at == "" {
		at = filepath.Join(s.DataDir, s.Name)
	}
	return strings.TrimSuffix(at, ".pem") + ".next.pem"
}

const keysLock = "keys.lock"

// LockKeys keeps other commands away from the key files until unlock. The lock ends with the process, the file stays.
func LockKeys(directories ...string) (unlock func(), err error) {
	slices.Sort(directories) // two commands with the same directories never wait for each other in a circle
	var held []*os.File
	unlock = func() {
		for _, f := range held {
			_ = f.Close() // nothing was written
		}
	}
	for _, directory := range slices.Compact(directories) {
		f, err := os.OpenFile(filepath.Join(directory, keysLock), os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("lock the key files: %w", err)
		}
		held = append(held, f)
		for {
			if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if err != nil {
			unlock()
			return nil, fmt.Errorf("lock the key files: %w", err)
		}
	}
	return unlock, nil
}

// Change runs do with the key files locked and the trusted keys read, and writes the set that do returns, if it is
// another one.
func (s Source) Change(do func(Files, *evidence.TrustedKeys) (*evidence.TrustedKeys, error)) error {
	f, err := s.files()
	if err != nil {
		return err
	}
	unlock, err := LockKeys(Absolute(filepath.Dir(f.Next)), Absolute(filepath.Dir(f.Trusted)))
	if err != nil {
		return err
	}
	defer unlock()
	trusted, err := ReadTrusted(f.Trusted)
	if err != nil {
		return err
	}
	changed, err := do(f, trusted)
	if err != nil || changed == nil || changed == trusted {
		return err
	}
	return WriteTrusted(f.Trusted, changed)
}

func WriteTrusted(path string, keys *evidence.TrustedKeys) error {
	text, err := keys.Marshal()
	if err != nil {
		return err
	}
	return ReplaceKept(path, text, path)
}

// ReplaceKept is Replace with the mode and owner of the file like, so that who could read goes on reading.
func ReplaceKept(path string, text []byte, like string) error {
	temporary, err := temporaryLike(path, text, like)
	return appear(path, temporary, err, os.Rename)
}

func temporaryLike(path string, text []byte, like string) (string, error) {
	info, err := os.Stat(like)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	temporary, err := WriteTemporary(path, text, info.Mode().Perm())
	if err != nil {
		return "", err
	}
	// It matters where root changes the files of a service that runs as another user.
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(temporary, int(owner.Uid), int(owner.Gid)); err != nil {
			os.Remove(temporary)
			return "", fmt.Errorf("write %s: %w", path, err)
		}
	}
	return temporary, nil
}

// ReadSigner reads a private key file; nil where it is missing.
func ReadSigner(path string) (*evidence.Signer, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file is an answer, not a failure
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	signer, err := evidence.ParseSignerPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return signer, nil
}

// Current is the key that signs as far as this command can know; nil where it cannot.
func (s Source) Current() (*evidence.Signer, error) {
	if path := s.Path(); path != "" {
		return ReadSigner(path)
	}
	return evidence.ParseSignerPEM([]byte(s.Text))
}

// Named reports whether the signer is the key of that keyId.
func Named(s *evidence.Signer, keyID string) bool { return s != nil && s.Key().KeyID == keyID }

func Absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// LogSigner is the log's key, which the trusted keys must name.
func (s Source) LogSigner(name string, trusted *evidence.TrustedKeys) (*transparency.Signer, error) {
	private, err := s.private("log key", "integrity keys rotate --transparency-log --stage, and --activate")
	if err != nil {
		return nil, err
	}
	signer, err := transparency.NewSigner(name, private)
	if err != nil {
		return nil, err
	}
	if !trusted.TrustsLogKey(signer.LogKey) {
		return nil, fmt.Errorf("the log key %s+%s is not among the logKeys of %s", signer.Name, signer.KeyHash, s.Trusted)
	}
	return signer, nil
}

func (f Files) WriteNext(next *evidence.Signer) error {
	text, err := evidence.MarshalSignerPEM(next)
	if err != nil {
		return err
	}
	if f.Signing == "" || !Exists(f.Signing) {
		return WriteNew(f.Next, text, 0o600)
	}
	temporary, err := temporaryLike(f.Next, text, f.Signing)
	return appear(f.Next, temporary, err, os.Link)
}

func RemoveKey(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove a private key that signs no more: %w", err)
	}
	return Sync(filepath.Dir(path))
}
