package handlers_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

const webBuild = "web/build"

// nodePackages installs what web/build names, at the versions of its lock file,
// once a run, and returns where.
var nodePackages = sync.OnceValues(func() (string, error) {
	npm, err := npmProgram()
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "integrity-npm-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", "hash.worker.js"} {
		text, err := os.ReadFile(filepath.Join(webBuild, name))
		if err != nil {
			return directory, err
		}
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o600); err != nil {
			return directory, err
		}
	}
	install := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	install.Dir = directory
	if out, err := install.CombinedOutput(); err != nil {
		return directory, fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return directory, nil
})

var errNoNPM = errors.New("npm is missing (Debian: sudo apt-get install npm)")

func npmProgram() (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errNoNPM
	}
	return npm, nil
}

// packages is nodePackages for a test. Without npm there are none: it says what
// is left out, and fails where CI=true.
func packages(t *testing.T, purpose string) (directory string, ok bool) {
	t.Helper()
	installed.Store(true)
	directory, err := nodePackages()
	return directory, found(t, purpose, err)
}

// found tells whether npm, and Node.js with it, is there, as packages does.
func found(t *testing.T, purpose string, err error) bool {
	t.Helper()
	if errors.Is(err, errNoNPM) && os.Getenv("CI") != "true" {
		fmt.Fprintf(os.Stderr, "%s: %v, so %s is NOT checked.\n", t.Name(), err, purpose)
		return false
	}
	check(t, err)
	return true
}

// needsNPM skips a test where npm is missing and may be.
func needsNPM(t *testing.T, purpose string) (npm string) {
	t.Helper()
	npm, err := npmProgram()
	if !found(t, purpose, err) {
		t.Skip(errNoNPM)
	}
	return npm
}

var installed atomic.Bool // nodePackages was asked

// removePackages takes away what nodePackages installed.
func removePackages() {
	if !installed.Load() {
		return
	}
	if directory, _ := nodePackages(); directory != "" {
		_ = os.RemoveAll(directory)
	}
}

// The worker that is served is what its source and the pinned packages make, and
// carries their licence.
func TestWorkerBundle(t *testing.T) {
	directory, ok := packages(t, "the committed worker")
	if !ok {
		t.Skip(errNoNPM)
	}
	bundle := exec.Command("npm", "run", "--silent", "bundle")
	bundle.Dir = directory
	made, err := bundle.Output()
	check(t, err)
	committed, err := os.ReadFile("web/assets/hash.worker.js")
	check(t, err)
	if !bytes.Equal(made, committed) {
		t.Errorf("web/assets/hash.worker.js is not what web/build makes: run npm ci --ignore-scripts there, then npm run --silent bundle > ../assets/hash.worker.js")
	}
	theirs, err := os.ReadFile(filepath.Join(directory, "node_modules/hash-wasm/LICENSE"))
	check(t, err)
	ours, err := os.ReadFile(filepath.Join(webBuild, "LICENSE.hash-wasm"))
	check(t, err)
	if !bytes.Equal(theirs, ours) {
		t.Error("web/build/LICENSE.hash-wasm is not the licence of the package")
	}
	if !bytes.Contains(committed, []byte("Permission is hereby granted, free of charge")) {
		t.Error("the worker does not carry the licence")
	}
}
