package main

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
)

// keyFiles are the files that a change of the signing keys touches. Their order makes every crash harmless: a key is
// trusted before it signs, so a server that reads the files at any moment finds a signing key that is trusted.
type keyFiles struct {
	signing  string // empty where the key comes from a variable, which no command can change
	next     string // staged: trusted, and not signing yet
	previous string // signed until the last activation; kept until it is retired
	trusted  string
}

func (c *Config) keyFiles() (keyFiles, error) {
	f := keyFiles{signing: c.signingKeyPath(), next: c.stagedKeyPath()}
	f.previous = strings.TrimSuffix(f.next, ".next.pem") + ".previous.pem"
	// The file itself is replaced, not a link that leads to it.
	var err error
	if f.trusted, err = filepath.EvalSymlinks(c.trustedKeysPath()); err != nil {
		return f, fmt.Errorf("trusted keys: %w", err)
	}
	return f, nil
}

// stagedKeyPath is where the next key waits: beside the one that signs.
func (c *Config) stagedKeyPath() string {
	at := c.signingKeyPath()
	if at == "" {
		at = c.inDataDir(c.keyName())
	}
	return strings.TrimSuffix(at, ".pem") + ".next.pem"
}

const keysLock = "keys.lock"

// lockKeys keeps other commands away from the key files until unlock. The lock ends with the process, the file stays.
func lockKeys(directories ...string) (unlock func(), err error) {
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

// changeKeys runs do with the key files locked and the trusted keys read, and writes the set that do returns, if it is
// another one.
func (a *app) changeKeys(c *Config, do func(keyFiles, *evidence.TrustedKeys) (*evidence.TrustedKeys, error)) error {
	f, err := c.keyFiles()
	if err != nil {
		return err
	}
	unlock, err := lockKeys(absolute(filepath.Dir(f.next)), absolute(filepath.Dir(f.trusted)))
	if err != nil {
		return err
	}
	defer unlock()
	trusted, err := readTrustedKeys(f.trusted)
	if err != nil {
		return err
	}
	changed, err := do(f, trusted)
	if err != nil || changed == nil || changed == trusted {
		return err
	}
	return writeTrusted(f.trusted, changed)
}

func writeTrusted(path string, keys *evidence.TrustedKeys) error {
	text, err := keys.Marshal()
	if err != nil {
		return err
	}
	return replaceKept(path, text, path)
}

// replaceKept is replaceFile with the mode and owner of the file like, so that who could read goes on reading.
func replaceKept(path string, text []byte, like string) error {
	temporary, err := temporaryLike(path, text, like)
	if err != nil {
		return err
	}
	return appear(path, temporary, os.Rename)
}

func temporaryLike(path string, text []byte, like string) (string, error) {
	info, err := os.Stat(like)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	temporary, err := writeTemporary(path, text, info.Mode().Perm())
	if err != nil {
		return "", err
	}
	if err := keepOwner(temporary, info); err != nil {
		os.Remove(temporary)
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return temporary, nil
}

// keepOwner matters where root changes the files of a service that runs as another user.
func keepOwner(path string, like fs.FileInfo) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	want, ok := like.Sys().(*syscall.Stat_t)
	has, ok2 := now.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || want.Uid == has.Uid && want.Gid == has.Gid {
		return nil
	}
	return os.Chown(path, int(want.Uid), int(want.Gid))
}

// readSigner reads a private key file; nil where there is none.
func readSigner(path string) (*evidence.Signer, error) {
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

// currentSigner is the key that signs as far as this command can know; nil where it cannot.
func (c *Config) currentSigner() (*evidence.Signer, error) {
	if path := c.signingKeyPath(); path != "" {
		return readSigner(path)
	}
	return evidence.ParseSignerPEM([]byte(c.SigningKey))
}

// named reports whether the signer is the key of that keyId.
func named(s *evidence.Signer, keyID string) bool { return s != nil && s.Key().KeyID == keyID }

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
