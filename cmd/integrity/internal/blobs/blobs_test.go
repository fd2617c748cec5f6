package blobs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/integritytest"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
)

// TestContents: the default store keeps bytes in a directory that only its owner can read, and erases them.
func TestContents(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "data")
	url, err := DirectoryURL(filepath.Join(dataDir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	var synced []string
	c := &Store{URL: url, Sync: func(path string) error {
		// a file gets its final name only once it is on disk
		name, _, _ := strings.Cut(strings.TrimPrefix(path, dataDir), ".")
		synced = append(synced, name)
		return keyfiles.Sync(path)
	}}
	o, v := domain.OrganizationID{1}, domain.ArtifactVersionID{2}
	if err := c.Remove(t.Context(), o, v); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
	if err := c.Keep(t.Context(), o, v, strings.NewReader("bytes"), 5); err != nil {
		t.Fatal(err)
	}
	of := "/blobs/" + o.String()
	if want := []string{of + "/" + v.String(), of, "/blobs", ""}; !slices.Equal(synced, want) {
		t.Errorf("on the disk are %q, want %q", synced, want)
	}
	info, err := os.Stat(filepath.Join(dataDir, "blobs", o.String(), v.String()))
	if err != nil || info.Size() != 5 {
		t.Errorf("%v %v", info, err)
	}
	if dir, err := os.Stat(filepath.Join(dataDir, "blobs")); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", dir, err)
	}
	// A process that dies while writing leaves a partial file. Simulate it with a reader that looks when half is written.
	half := ""
	dying := domain.ArtifactVersionID{3}
	watch := watcher{strings.NewReader(strings.Repeat("x", 1<<20)), func() {
		left, err := filepath.Glob(filepath.Join(dataDir, "blobs", o.String(), dying.String()+"*"))
		if err == nil && len(left) == 1 {
			half = left[0]
		}
	}}
	if err := c.Keep(t.Context(), o, dying, watch, 1<<20); err != nil || half == "" {
		t.Fatalf("while bytes are written: %q %v", half, err)
	}
	integritytest.Write(t, half, "half")
	if err := c.Remove(t.Context(), o, dying); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(dataDir, "blobs", o.String()))
	if err != nil || len(left) != 1 || left[0].Name() != v.String() {
		t.Errorf("after one was removed: %v %v", left, err)
	}
	synced = nil
	if err := c.Remove(t.Context(), o, v); err != nil {
		t.Error(err)
	}
	if want := []string{of}; !slices.Equal(synced, want) {
		t.Errorf("after removal %q were brought to the disk, want %q", synced, want)
	}
	if _, err := os.Stat(filepath.Join(dataDir, "blobs", o.String(), v.String())); !os.IsNotExist(err) {
		t.Errorf("after removal: %v", err)
	}
	c = &Store{URL: url, Sync: func(path string) error { return &fs.PathError{Op: "sync", Path: path, Err: syscall.EIO} }}
	var refusal *domain.Error
	if err := c.Keep(t.Context(), o, v, strings.NewReader("bytes"), 5); !errors.As(err, &refusal) ||
		refusal.Code != domain.TemporarilyUnavailable {
		t.Errorf("bytes that the disk did not take: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dataDir, "blobs", o.String())); err != nil || len(left) != 0 {
		t.Errorf("after a write that failed: %v %v", left, err)
	}
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	c = &Store{URL: url, Sync: keyfiles.Sync}
	if err := c.store(given, contentName(o, v), strings.NewReader("bytes"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("bytes whose request has ended: %v", err)
	}
	if err := c.store(t.Context(), contentName(o, v), strings.NewReader("byte"), 5); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("bytes that end early: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dataDir, "blobs", o.String())); err != nil || len(left) != 0 {
		t.Errorf("after those: %v %v", left, err)
	}
	for text, good := range map[string]bool{
		"file:///x": true, "s3://bucket?region=eu": true, "file://": false, "s3://": false, "gs://x": false, "x": false,
	} {
		if (CheckURL(text) == nil) != good {
			t.Errorf("%s: %v", text, CheckURL(text))
		}
	}
}

// watcher calls look whenever it is read.
type watcher struct {
	io.ReaderAt
	look func()
}

func (w watcher) ReadAt(p []byte, at int64) (int, error) {
	w.look()
	return w.ReaderAt.ReadAt(p, at)
}
