// Package keyfiles reads and changes the files of the signing key, the log key and the trusted keys.
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
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
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
	WitnessKeyFile  = "witness-key.pem"
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
		if text, err = ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf(
				"there is no %s: set %s or %s_FILE, or make %s with: %s", kind, s.Variable, s.Variable, path, made,
			)
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
		return nil, nil, "", fmt.Errorf(
			"%w: restore the file, or make one for the signing key in the data directory with: integrity keys generate "+
				"--data-dir %s",
			err, s.DataDir,
		)
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
	text, err := ReadFile(path)
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
	return write(path, text, mode, "", os.Link)
}

// Replace is WriteNew for a file that may be there.
func Replace(path string, text []byte, mode fs.FileMode) error {
	return write(path, text, mode, "", os.Rename)
}

// ReplaceKept is Replace with the mode and owner of the file like, so that who could read goes on reading.
func ReplaceKept(path string, text []byte, like string) error {
	return write(path, text, 0, like, os.Rename)
}

// write puts a file at its path, complete and on the disk, by appear; with the mode and owner of the file like, if any.
func write(path string, text []byte, mode fs.FileMode, like string, appear func(from, to string) error) error {
	var owner *syscall.Stat_t
	if like != "" {
		info, err := os.Stat(like)
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		mode = info.Mode().Perm()
		owner, _ = info.Sys().(*syscall.Stat_t)
	}
	temporary, err := WriteTemporary(path, text, mode)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	// It matters where root changes the files of a service that runs as another user.
	if owner != nil {
		err = os.Chown(temporary, int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = appear(temporary, path)
	}
	if err != nil {
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

// MakeDataDir gives a new data directory the mode that the embedded PostgreSQL needs: as root its server runs as
// another user, who must be able to pass through.
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
		f, err := lockFile(filepath.Join(directory, keysLock), 0)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("lock the key files: %w", err)
		}
		held = append(held, f)
	}
	return unlock, nil
}

const lockPause = 10 * time.Millisecond

// lockFile waits for the lock of a file, which it makes, for up to a time; 0: for ever. Closing the file gives the lock
// back.
func lockFile(path string, most time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if most > 0 {
		how |= syscall.LOCK_NB
	}
	for end := time.Now().Add(most); ; time.Sleep(lockPause) { //nolint:forbidigo // has an end of its own
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) && (!errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end)) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
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
	if lost := trusted.Ignored(); lost != nil {
		return fmt.Errorf(
			"%s has members that this program would lose (%s): change it with the program that wrote them", f.Trusted,
			shortened(strings.Join(lost, ", ")),
		)
	}
	return WriteTrusted(f.Trusted, changed)
}

func shortened(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func WriteTrusted(path string, keys *evidence.TrustedKeys) error {
	text, err := keys.Marshal()
	if err != nil {
		return err
	}
	return ReplaceKept(path, text, path)
}

// ReadSigner reads a private key file; nil where it is missing.
func ReadSigner(path string) (*evidence.Signer, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file is an answer, not a failure
	}
	text, err := ReadFile(path)
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

// LogSigner is the log's key, which the trusted keys must name. The error wraps evidence.ErrRevokedKey for one that was
// revoked.
func (s Source) LogSigner(name string, trusted *evidence.TrustedKeys) (*transparency.Signer, error) {
	private, err := s.private("log key", "integrity keys rotate --transparency-log --stage, and --activate")
	if err != nil {
		return nil, err
	}
	signer, err := transparency.NewSigner(name, private)
	if err != nil {
		return nil, err
	}
	if r, revoked := trusted.LogKeyRevocation(signer.LogKey); revoked {
		return nil, fmt.Errorf(
			"log key %s+%s: %w (%s since %s)", signer.Name, signer.KeyHash, evidence.ErrRevokedKey, r.Reason, r.Since,
		)
	}
	if !trusted.TrustsLogKey(signer.LogKey) {
		return nil, fmt.Errorf("the log key %s+%s is not among the logKeys of %s", signer.Name, signer.KeyHash, s.Trusted)
	}
	for _, k := range trusted.LogKeys() {
		if _, revoked := trusted.LogKeyRevocation(k); revoked {
			signer.Revoked = append(signer.Revoked, k.Name+"+"+k.KeyHash)
		}
	}
	return signer, nil
}

// WitnessSigner is the key with which this installation cosigns other logs.
func (s Source) WitnessSigner(name string) (*witness.Signer, error) {
	private, err := s.private("witness key", "integrity keys witness")
	if err != nil {
		return nil, err
	}
	return witness.NewSigner(name, private)
}

func (f Files) WriteNext(next *evidence.Signer) error {
	text, err := evidence.MarshalSignerPEM(next)
	if err != nil {
		return err
	}
	like := f.Signing
	if like != "" && !Exists(like) {
		like = ""
	}
	return write(f.Next, text, 0o600, like, os.Link)
}

func RemoveKey(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove a private key that signs no more: %w", err)
	}
	return Sync(filepath.Dir(path))
}
