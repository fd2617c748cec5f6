package handlers_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const webBuild = "web/build"

// packages are those of the browser.
var packages = nodeRoom(webBuild, "hash.worker.js")

var errNoNPM = errors.New("npm is missing (Debian: sudo apt-get install npm)")

// installed are the directories that nodeRoom has made in this run.
var installed struct {
	sync.Mutex
	directories []string
}

// nodeRoom installs what a directory names, at the versions of its lock file, once a run, beside copies of the named
// files. The function answers where, to a test that says what for. Without npm nothing is there: it says what is left
// out, and fails where CI=true.
func nodeRoom(source string, files ...string) func(t *testing.T, purpose string) (directory string, ok bool) {
	install := sync.OnceValues(func() (string, error) { return installPackages(source, files) })
	return func(t *testing.T, purpose string) (string, bool) {
		t.Helper()
		directory, err := install()
		return directory, found(t, purpose, err)
	}
}

func npmProgram() (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errNoNPM
	}
	return npm, nil
}

// found tells whether npm, and Node.js with it, is there, as nodeRoom does.
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

func installPackages(source string, files []string) (string, error) {
	npm, err := npmProgram()
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "integrity-npm-")
	if err != nil {
		return "", err
	}
	installed.Lock()
	installed.directories = append(installed.directories, directory)
	installed.Unlock()
	for _, name := range append([]string{"package.json", "package-lock.json"}, files...) {
		text, err := os.ReadFile(filepath.Join(source, name))
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
}

// removePackages takes away what was installed.
func removePackages() {
	installed.Lock()
	defer installed.Unlock()
	for _, directory := range installed.directories {
		_ = os.RemoveAll(directory)
	}
}

// The worker that is served is what its source and the pinned packages make, and carries their licence.
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
