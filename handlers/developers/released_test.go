package developers_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"integrityledger/handlers/developers"
)

// released has a directory for each version that integrators may have. TestReleasedClients of package handlers runs
// them.
const released = "testdata/released"

// A released file is never changed or removed; a version only adds files. Versions between 0.2.0, which the
// specification names, and the newest were never served to integrators and are not kept.
func TestReleasedFilesStay(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(released, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		sums[name] = sum
	}
	err = fs.WalkDir(os.DirFS(released), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == "SHA256SUMS" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(released, path))
		if sum := sha256.Sum256(text); err == nil && sums[path] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is not as it was released", path)
		}
		delete(sums, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range sums {
		t.Errorf("%s was released, and is gone", name)
	}
}

var update = flag.Bool("update", false, "keep this version in testdata/released")

// The files served under this version are the released ones. A change to a client needs a new Version, its lines in
// CHANGELOG.md, and go generate ./handlers/developers. A released version is never written again.
func TestVersionIsReleased(t *testing.T) {
	list, err := developers.Downloads()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, file := range list {
		if file.Kind == "wheel" || file.Kind == "npm" {
			files[file.Name] = file.Body
		}
	}
	directory := filepath.Join(released, developers.Version)
	if _, err := os.Stat(directory); *update && errors.Is(err, fs.ErrNotExist) {
		for name, from := range map[string]string{
			"service.test.js": "testdata/service.test.js", "test_integrity_client.py": "python/test_integrity_client.py",
		} {
			if files[name], err = os.ReadFile(from); err != nil {
				t.Fatal(err)
			}
		}
		keep(t, directory, files)
		return
	}
	for name, body := range files {
		if kept, err := os.ReadFile(filepath.Join(directory, name)); err != nil || !bytes.Equal(kept, body) {
			t.Errorf(
				"%s is not as it was released (%v): raise Version, say in CHANGELOG.md what changed, and go generate "+
					"./handlers/developers",
				name, err,
			)
		}
	}
}

// keep writes the files of a version and their sums.
func keep(t *testing.T, directory string, files map[string][]byte) {
	t.Helper()
	sums, err := os.OpenFile(filepath.Join(released, "SHA256SUMS"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		err = os.Mkdir(directory, 0o750)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, name), files[name], 0o600)
		}
		if err == nil {
			_, err = fmt.Fprintf(sums, "%x  %s/%s\n", sha256.Sum256(files[name]), developers.Version, name)
		}
	}
	if err = errors.Join(err, sums.Close()); err != nil {
		t.Fatal(err)
	}
}
