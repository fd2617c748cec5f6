package keyfiles

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// TestSignedHead: within an epoch the file never goes back or accepts a second root; it belongs to one ledger, and is
// trusted only with a signature by a trusted key.
func TestSignedHead(t *testing.T) {
	dir := t.TempDir()
	private, public, err := note.GenerateKey(rand.Reader, "ledger.example/log")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := evidence.ParseLogKey(public)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := new(evidence.TrustedKeys).AddLogKey(key)
	if err != nil {
		t.Fatal(err)
	}
	head := func(epoch, size int64, root byte) transparency.Head {
		text := fmt.Sprintf("ledger.example/log\n%d\n%s\n", size, tlog.Hash{root})
		signed, err := note.Sign(&note.Note{Text: text}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return transparency.Head{Epoch: epoch, Size: size, Root: tlog.Hash{root}, Note: string(signed)}
	}
	f := NewSignedHead(dir, "one")
	holds := func(epoch int64, want transparency.Head) {
		t.Helper()
		if got, err := f.Read(trusted, epoch); err != nil || got != want {
			t.Errorf("the file holds %+v, %v", got, err)
		}
	}
	holds(0, transparency.Head{})
	holds(1, transparency.Head{})
	keep := func(h, want transparency.Head) {
		t.Helper()
		if kept, err := f.Keep(h, trusted); err != nil || kept != want {
			t.Errorf("kept %+v, %v", kept, err)
		}
	}
	if err := f.Writable(); err != nil {
		t.Error(err)
	}
	keep(head(5, 20, 1), head(5, 20, 1))
	keep(head(5, 10, 2), head(5, 20, 1))
	keep(head(4, 30, 3), head(5, 20, 1))
	holds(5, head(5, 20, 1))
	holds(6, transparency.Head{Epoch: 5})
	if _, err := f.Keep(head(5, 20, 9), trusted); err == nil || !strings.Contains(err.Error(), "a different root") {
		t.Errorf("another root: %v", err)
	}
	keep(head(6, 3, 4), head(6, 3, 4))
	holds(6, head(6, 3, 4))
	if entries, err := filepath.Glob(filepath.Join(dir, SignedHeadFile+"*.json")); err != nil || len(entries) != 1 {
		t.Errorf("files %v, %v", entries, err)
	}
	if other, err := NewSignedHead(dir, "two").Read(trusted, 1); err != nil || other.Size != 0 {
		t.Errorf("another ledger reads %+v, %v", other, err)
	}
	if _, err := f.Read(new(evidence.TrustedKeys), 6); err == nil ||
		!strings.Contains(err.Error(), "put the newest trusted-keys file in place") {
		t.Errorf("without the key: %v", err)
	}
	if err := os.WriteFile(f.Path(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(trusted, 6); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("half a file: %v", err)
	}
	if _, err := f.Keep(head(6, 4, 5), trusted); err == nil {
		t.Error("a damaged file is replaced")
	}
	missing := NewSignedHead(filepath.Join(dir, "missing"), "one")
	if err := missing.Writable(); err == nil {
		t.Error("a missing directory can be written")
	}
	if _, err := missing.Keep(head(6, 4, 5), trusted); err == nil {
		t.Error("a head was kept in a missing directory")
	}
}
