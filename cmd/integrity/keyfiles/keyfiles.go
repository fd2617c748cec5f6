// Package keyfiles reads and changes the files of the signing key, the log key and the trusted keys.
package keyfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"integrityledger/cmd/integrity/internal/system"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
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

// Source is the location of one of the service's private keys, and of the trusted-keys file that must list its public
// key. The key is PKCS#8 in PEM, or the address of a key that an ssh-agent keeps.
type Source struct {
	DataDir  string
	Name     string // name of the key's file in the data directory
	Variable string // variable that may hold the key; with the suffix _FILE, the path of a file
	Text     string // value of the variable
	File     string // file that Text was read from; empty if the variable holds the key
	Trusted  string // path of the trusted-keys file
	// Agents are the process's connections to ssh-agents. Nil: every signer has its own.
	Agents *sshagent.Agents
}

// Path returns the file of the private key, or an empty string if a variable holds the key.
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

// private reads the key again at each call, because it may have been rotated. made is the command that creates a key.
func (s Source) private(kind, made string) (*evidence.Signer, error) {
	text := []byte(s.Text)
	if path := s.Path(); path != "" {
		var err error
		if text, err = ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			return nil, say.Errorf(
				"there is no %s: set %s or %s_FILE, or create %s with: %s", kind, s.Variable, s.Variable, path, made,
			)
		}
		if err != nil {
			return nil, say.Errorf("%s: %w", kind, err)
		}
	}
	signer, err := s.Parse(text)
	if err != nil {
		return nil, say.Errorf("%s: %w", kind, err)
	}
	return signer, nil
}

// Parse reads a private key in PEM, or the address of a key in an agent. The agent is not asked if the trusted-keys
// file has the key, so the service starts without it.
func (s Source) Parse(text []byte) (*evidence.Signer, error) {
	if !sshagent.IsAddress(string(text)) {
		return evidence.ParseSignerPEM(text)
	}
	at, err := sshagent.Parse(string(text))
	if err != nil {
		return nil, err
	}
	var known []evidence.PublicKey
	if trusted, err := ReadTrusted(s.Trusted); err == nil { // otherwise the agent says which key it is
		for _, k := range trusted.Keys() {
			known = append(known, k.PublicKey)
		}
		for _, k := range trusted.LogKeys() {
			known = append(known, k.PublicKey())
		}
	}
	return s.Agents.Signer(at, known)
}

// Read reads the signing key and the trusted-keys file. If that file does not trust the key, the signer is nil, the
// service signs nothing, and why gives the reason.
func (s Source) Read() (signer *evidence.Signer, trusted *evidence.TrustedKeys, why, err error) {
	made := "integrity keys generate --data-dir " + s.DataDir
	if Exists(s.Trusted) { // keys generate makes only the first key
		made = "integrity keys rotate --stage, then --activate"
	}
	if signer, err = s.private("signing key", made); err != nil {
		return nil, nil, nil, err
	}
	trusted, err = ReadTrusted(s.Trusted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, say.Errorf(
			"%w: restore the file, or create one for the signing key in the data directory with: integrity keys generate "+
				"--data-dir %s",
			err, s.DataDir,
		)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if !trusted.Trusts(signer.Key()) {
		return nil, trusted, say.Errorf("the signing key %s is not trusted by %s", signer.Key().KeyID, s.Trusted), nil
	}
	return signer, trusted, nil, nil
}

func ReadTrusted(path string) (*evidence.TrustedKeys, error) {
	text, err := ReadFile(path)
	if err != nil {
		return nil, say.Errorf("trusted keys: %w", err)
	}
	keys, err := evidence.ParseTrustedKeys(text)
	if err != nil {
		return nil, say.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// Ensure creates both key files at the first start of an embedded ledger, if no setting says which keys to use. If only
// one of the files exists, it creates nothing: a lost trusted-keys file may have listed revoked keys, so an operator
// must decide. The caller holds the data directory's lock, so two starts cannot both create keys.
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

// WriteFirstTrusted creates a trusted-keys file that trusts one key.
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

// WriteNew creates a file atomically and durably. It fails if the file exists.
func WriteNew(path string, text []byte, mode fs.FileMode) error {
	return write(path, text, mode, "", os.Link)
}

// Replace is WriteNew for a file that may already exist.
func Replace(path string, text []byte, mode fs.FileMode) error {
	return write(path, text, mode, "", os.Rename)
}

// ReplaceKept is Replace with the mode and owner of the file like, so that its readers can still read it.
func ReplaceKept(path string, text []byte, like string) error {
	return write(path, text, 0, like, os.Rename)
}

// write creates a file durably and moves it to its path with appear. If like is not empty, the file gets the mode and
// owner of like.
func write(path string, text []byte, mode fs.FileMode, like string, appear func(from, to string) error) error {
	var owner fs.FileInfo
	if like != "" {
		var err error
		if owner, err = os.Stat(like); err != nil {
			return say.Errorf("write %s: %w", path, err)
		}
		mode = owner.Mode().Perm()
	}
	temporary, err := WriteTemporary(path, text, mode)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	// This matters if root changes the files of a service that runs as another user.
	if owner != nil {
		err = system.GiveTo(temporary, owner)
	}
	if err == nil {
		err = appear(temporary, path)
	}
	if err != nil {
		return say.Errorf("write %s: %w", path, err)
	}
	return Sync(filepath.Dir(path))
}

func WriteTemporary(path string, text []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", say.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			err = say.Errorf("write %s: %w", path, err)
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

// Sync flushes a file or directory to disk.
func Sync(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return say.Errorf("sync %s: %w", path, err)
	}
	info, err := d.Stat()
	if err == nil && info.IsDir() {
		err = system.SyncDirectory(d)
	} else if err == nil {
		err = d.Sync()
	}
	return errors.Join(err, d.Close())
}

// MakeDataDir creates a data directory with the mode that the embedded PostgreSQL needs. If run as root, the server
// runs as another user, who must be able to traverse the directory.
func MakeDataDir(path string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return say.Errorf("data directory: %w", err)
	}
	return nil
}

// Files are the files that a change of keys touches. They are changed in an order that makes every crash harmless: a
// key is trusted before it signs, so a server that reads the files at any moment finds a trusted signing key.
type Files struct {
	Signing  string // empty if the key comes from a variable, which no command can change
	Next     string // the staged key: trusted, but not signing yet
	Previous string // the key before the last activation; kept until it is retired
	Trusted  string
}

func (s Source) files() (Files, error) {
	f := Files{Signing: s.Path(), Next: s.StagedPath()}
	f.Previous = strings.TrimSuffix(f.Next, ".next.pem") + ".previous.pem"
	// Replace the file itself, not a symbolic link to it.
	var err error
	if f.Trusted, err = filepath.EvalSymlinks(s.Trusted); err != nil {
		return f, say.Errorf("trusted keys: %w", err)
	}
	return f, nil
}

// StagedPath returns the file of the staged key, beside the current key's.
func (s Source) StagedPath() string {
	at := s.Path()
	if at == "" {
		at = filepath.Join(s.DataDir, s.Name)
	}
	return strings.TrimSuffix(at, ".pem") + ".next.pem"
}

const keysLock = "keys.lock"

// LockKeys locks the key files against other commands until unlock. The lock ends with the process; the lock file
// remains.
func LockKeys(directories ...string) (unlock func(), err error) {
	slices.Sort(directories) // a fixed order, so that two commands never deadlock
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
			return nil, say.Errorf("lock the key files: %w", err)
		}
		held = append(held, f)
	}
	return unlock, nil
}

const lockPause = 10 * time.Millisecond

// lockFile locks a file, which it creates, and waits up to most for the lock, or forever if most is 0. Closing the file
// releases the lock.
func lockFile(path string, most time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|system.NoFollow, 0o644)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(most); ; time.Sleep(lockPause) { //nolint:forbidigo // the loop has its own limit
		if err = system.Lock(f, most == 0); !errors.Is(err, system.ErrLocked) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, say.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// Change locks the key files, reads the trusted keys and calls do. It writes the set that do returns, unless it is the
// same one.
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
		return say.Errorf(
			"%s has members that this program would lose (%s): change it with the version that wrote them", f.Trusted,
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

// ReadSigner reads a file with a private key, or with the address of one. It returns nil if the file does not exist.
func (s Source) ReadSigner(path string) (*evidence.Signer, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a missing file is not an error
	}
	text, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, say.Errorf("private key: %w", err)
	}
	signer, err := s.Parse(text)
	if err != nil {
		return nil, say.Errorf("%s: %w", path, err)
	}
	return signer, nil
}

// Current returns the current signing key as far as this command can know it, or nil.
func (s Source) Current() (*evidence.Signer, error) {
	if path := s.Path(); path != "" {
		return s.ReadSigner(path)
	}
	return s.Parse([]byte(s.Text))
}

// CopyTo writes what the source holds to a new file: the private key, or the address of a key in an agent. It reports
// whether there was something to copy.
func (s Source) CopyTo(path string) (copied bool, err error) {
	text := []byte(s.Text)
	if from := s.Path(); from != "" {
		if text, err = ReadFile(from); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	if err == nil {
		err = WriteNew(path, text, 0o600)
	}
	if err != nil {
		return false, say.Errorf("copy a private key: %w", err)
	}
	return true, nil
}

// Named reports whether the signer's key has this keyId.
func Named(s *evidence.Signer, keyID string) bool { return s != nil && s.Key().KeyID == keyID }

func Absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// LogSigner returns the log's signer. The trusted keys must list its key. For a revoked key the error wraps
// evidence.ErrRevokedKey.
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
		return nil, say.Errorf(
			"log key %s+%s: %w (%s since %s)", signer.Name, signer.KeyHash, evidence.ErrRevokedKey, r.Reason, r.Since,
		)
	}
	if !trusted.TrustsLogKey(signer.LogKey) {
		return nil, say.Errorf("the log key %s+%s is not in the logKeys of %s", signer.Name, signer.KeyHash, s.Trusted)
	}
	for _, k := range trusted.LogKeys() {
		if _, revoked := trusted.LogKeyRevocation(k); revoked {
			signer.Revoked = append(signer.Revoked, k.Name+"+"+k.KeyHash)
		}
	}
	return signer, nil
}

// SecretKeys reads the keys that encrypt webhook secrets. The error wraps fs.ErrNotExist if there is no file.
func (s Source) SecretKeys() (domain.SecretKeys, error) {
	text, from := s.Text, s.Variable
	if path := s.Path(); path != "" {
		raw, err := ReadFile(path)
		if err != nil {
			return nil, say.Errorf("webhook secret key: %w", err)
		}
		text, from = string(raw), path
	}
	keys, err := domain.ParseSecretKeys(text)
	if err != nil {
		return nil, say.Errorf("webhook secret key (%s): %w", from, err)
	}
	return keys, nil
}

// WriteSecretKeys replaces the file of the keys that encrypt webhook secrets. The caller holds LockKeys.
func (s Source) WriteSecretKeys(keys domain.SecretKeys) error {
	path, err := filepath.EvalSymlinks(s.Path())
	if err != nil {
		return say.Errorf("webhook secret key: %w", err)
	}
	return ReplaceKept(path, []byte(keys.Text()), path)
}

// WitnessSigner returns the signer that cosigns other logs.
func (s Source) WitnessSigner(name string) (*witness.Signer, error) {
	private, err := s.private("witness key", "integrity keys witness")
	if err != nil {
		return nil, err
	}
	return witness.NewSigner(name, private)
}

// WriteNext stages a new private key.
func (f Files) WriteNext(next *evidence.Signer) error {
	text, err := evidence.MarshalSignerPEM(next)
	if err != nil {
		return err
	}
	return f.writeNext(text)
}

// WriteNextAddress stages a key that an agent keeps.
func (f Files) WriteNextAddress(next sshagent.Address) error {
	return f.writeNext([]byte(next.String() + "\n"))
}

func (f Files) writeNext(text []byte) error {
	like := f.Signing
	if like != "" && !Exists(like) {
		like = ""
	}
	return write(f.Next, text, 0o600, like, os.Link)
}

func RemoveKey(path string) error {
	if err := os.Remove(path); err != nil {
		return say.Errorf("remove a private key that is no longer used: %w", err)
	}
	return Sync(filepath.Dir(path))
}
