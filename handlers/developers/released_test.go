package developers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// released has a directory for each version that integrators may have. TestReleasedClients of package handlers runs them.
const released = "testdata/released"

// A released file is never changed and never goes: a version adds files. Whoever changes one has to change its sum as well.
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
