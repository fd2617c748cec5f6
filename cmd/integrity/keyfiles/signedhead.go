package keyfiles

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

// SignedHeadFile is the prefix of the file in the data directory that stores the largest transparency log head signed
// here. The rest of the name is the ledger's ID, because a directory may serve several ledgers, one after the other or
// at once.
const SignedHeadFile = "signed-head-"

// SignedHead is the file with the largest signed log head. Several processes may share it. Within an epoch the head
// never goes back.
type SignedHead struct {
	path string
	of   string // the ledger's ID
}

// NewSignedHead returns the file for the ledger with this ID.
func NewSignedHead(dataDir, ledger string) SignedHead {
	return SignedHead{filepath.Join(dataDir, SignedHeadFile+ledger+".json"), ledger}
}

// Path returns the path of the file.
func (f SignedHead) Path() string { return f.path }

// keptHead is the content of the file.
type keptHead struct {
	Ledger     string `json:"ledger"`
	Epoch      int64  `json:"epoch"`
	LogKey     string `json:"logKey"` // name+hash of the signing key
	Checkpoint string `json:"checkpoint"`
}

// Read returns the stored head, or the zero head if the file does not exist. The checkpoint must be signed by a log key
// in the trusted keys, even if that key has since been revoked. A head of an earlier epoch is ignored, because it is
// older than the last restore.
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
			say.Errorf("%s: not signed by a trusted log key (%s): put the newest trusted-keys file in place: %w",
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
		return kept, say.Errorf("signed log head: %w", err)
	}
	if err := json.Unmarshal(text, &kept); err != nil || kept.Ledger != f.of || kept.Epoch < 1 || kept.Checkpoint == "" {
		return kept, say.Errorf("%s is damaged: compare the log (integrity log status) with the newest checkpoint "+
			"of a monitor or a witness, then remove the file", f.path)
	}
	return kept, nil
}

// Writable returns an error if a head could not be stored. It is checked before a head is signed.
func (f SignedHead) Writable() error {
	probe, err := WriteTemporary(f.path, nil, 0o600)
	if err != nil {
		return err
	}
	return os.Remove(probe)
}

// keepWait is how long to wait for another process that is frozen while it stores a head.
const keepWait = 5 * time.Second

// Keep stores a head durably, unless the file has a later one. It returns the stored head, as Read does. Two different
// roots for the same size are an error.
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
			return h, say.Errorf("%s: %w", f.path, err)
		case kept.Epoch > h.Epoch || kept.Epoch == h.Epoch && before.Size > h.Size:
			return f.Read(trusted, kept.Epoch)
		case kept.Epoch == h.Epoch && before.Size == h.Size && before.Root != h.Root:
			return h, say.Errorf("%s has a different root for the tree of %d leaves", f.path, h.Size)
		}
	}
	text, err := json.MarshalIndent(keptHead{f.of, h.Epoch, h.SignedBy(), h.Note}, "", "  ")
	if err != nil {
		return h, err
	}
	return h, Replace(f.path, append(text, '\n'), 0o600)
}
