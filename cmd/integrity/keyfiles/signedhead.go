package keyfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// SignedHeadFile begins the name of the file in the data directory that keeps the largest head of the transparency log
// that was signed here. The rest is the ledger's id: a directory may serve one ledger after another, or two at a time.
const SignedHeadFile = "signed-head-"

// SignedHead is that file. Several processes may share it. It never goes back within an epoch.
type SignedHead struct {
	path string
	of   string // id of the ledger
}

// NewSignedHead names the file of a ledger, by the ledger's id.
func NewSignedHead(dataDir, ledger string) SignedHead {
	return SignedHead{filepath.Join(dataDir, SignedHeadFile+ledger+".json"), ledger}
}

// Path returns the path of the file.
func (f SignedHead) Path() string { return f.path }

// keptHead is what the file holds.
type keptHead struct {
	Ledger     string `json:"ledger"`
	Epoch      int64  `json:"epoch"`
	LogKey     string `json:"logKey"` // name+hash of the key that signed
	Checkpoint string `json:"checkpoint"`
}

// Read returns the zero head if the file does not exist. A checkpoint counts only if a key of the log in the trusted
// keys has signed it, revoked since or not. One of an epoch before that is left unread: it is older than the last
// restore.
func (f SignedHead) Read(trusted *evidence.TrustedKeys, epoch int64) (h transparency.Head, err error) {
	kept, err := f.read()
	if err != nil || kept.Checkpoint == "" || kept.Epoch < epoch {
		return transparency.Head{Epoch: kept.Epoch}, err
	}
	opened, err := evidence.OpenCheckpoint(kept.Checkpoint, trusted)
	if errors.Is(err, evidence.ErrRevokedLogKey) {
		err = nil
	}
	if err != nil {
		return h,
			fmt.Errorf("%s: no trusted key of the log (%s) has signed it: put the newest trusted-keys file in place: %w",
				f.path, kept.LogKey, err)
	}
	return transparency.Head{Epoch: kept.Epoch, Size: opened.Size, Root: opened.Root, Note: kept.Checkpoint}, nil
}

func (f SignedHead) read() (kept keptHead, err error) {
	text, err := ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return kept, nil
	}
	if err != nil {
		return kept, fmt.Errorf("signed head of the log: %w", err)
	}
	if err := json.Unmarshal(text, &kept); err != nil || kept.Ledger != f.of || kept.Epoch < 1 || kept.Checkpoint == "" {
		return kept, fmt.Errorf("%s is damaged: compare the log (integrity log status) with the newest checkpoint "+
			"of a monitor or a witness, and then remove the file", f.path)
	}
	return kept, nil
}

// Writable says why a head could not be kept, before one is signed.
func (f SignedHead) Writable() error {
	probe, err := WriteTemporary(f.path, nil, 0o600)
	if err != nil {
		return err
	}
	return os.Remove(probe)
}

// keepWait is how long a process that is frozen while it keeps a head may hold up another one.
const keepWait = 5 * time.Second

// Keep puts a head on the disk, unless the file holds a later one, and returns what the file holds then, as Read does.
// Two roots of one size are an error.
func (f SignedHead) Keep(h transparency.Head, trusted *evidence.TrustedKeys) (transparency.Head, error) {
	lock, err := lockFile(f.path+".lock", keepWait)
	if err != nil {
		return h, err
	}
	defer lock.Close()
	kept, err := f.read()
	if err != nil {
		return h, err
	}
	if kept.Checkpoint != "" {
		before, err := evidence.OpenCheckpoint(kept.Checkpoint, nil)
		switch {
		case !errors.Is(err, evidence.ErrUnknownLogKey): // it is malformed
			return h, fmt.Errorf("%s: %w", f.path, err)
		case kept.Epoch > h.Epoch || kept.Epoch == h.Epoch && before.Size > h.Size:
			return f.Read(trusted, kept.Epoch)
		case kept.Epoch == h.Epoch && before.Size == h.Size && before.Root != h.Root:
			return h, fmt.Errorf("%s holds another root for the tree of %d leaves", f.path, h.Size)
		}
	}
	text, err := json.MarshalIndent(keptHead{f.of, h.Epoch, h.SignedBy(), h.Note}, "", "  ")
	if err != nil {
		return h, err
	}
	return h, Replace(f.path, append(text, '\n'), 0o600)
}
