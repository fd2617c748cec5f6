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

// packages are the packages of the browser scripts.
var packages = nodeRoom(webBuild, "hash.worker.js", "asn1.js")

var errNoNPM = errors.New("npm is missing (Debian: sudo apt-get install npm)")

// installed has the directories that nodeRoom has made in this run.
var installed struct {
	sync.Mutex
	directories []string
}

// nodeRoom installs the packages of a directory at the versions of its lock file, once per run, next to copies of the
// named files. The returned function gives a test the directory. Without npm it says what is left out, and fails if
// CI=true.
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

// found reports, like nodeRoom, whether npm and Node.js are installed.
func found(t *testing.T, purpose string, err error) bool {
	t.Helper()
	if errors.Is(err, errNoNPM) && os.Getenv("CI") != "true" {
		fmt.Fprintf(os.Stderr, "%s: %v, so %s is NOT checked.\n", t.Name(), err, purpose)
		return false
	}
	check(t, err)
	return true
}

// needsNPM skips a test if npm is missing and may be missing.
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

// removePackages removes the installed packages.
func removePackages() {
	installed.Lock()
	defer installed.Unlock()
	for _, directory := range installed.directories {
		_ = os.RemoveAll(directory)
	}
}

// The bundled scripts are the result of their sources and the pinned packages, and contain the packages' licences.
func TestBundles(t *testing.T) {
	t.Parallel()
	directory, ok := packages(t, "the committed bundles")
	if !ok {
		t.Skip(errNoNPM)
	}
	bundle := exec.Command("npm", "run", "--silent", "bundle", "--", "--outdir=made")
	bundle.Dir = directory
	if out, err := bundle.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	words := func(text []byte) []byte { return bytes.Join(bytes.Fields(text), []byte(" ")) }
	for name, licences := range map[string]map[string]string{ // the committed licence of each package
		"hash.worker.js": {"hash-wasm": "LICENSE.hash-wasm"},
		"asn1.js":        {"asn1js": "LICENSE.asn1js", "@peculiar/utils": "LICENSE.peculiar-utils"},
	} {
		committed := contents(t, "web/assets/"+name)
		if made := contents(t, filepath.Join(directory, "made", name)); !bytes.Equal(made, committed) {
			t.Errorf("web/assets/%s is not what web/build makes: run npm ci --ignore-scripts there, then npm run bundle", name)
		}
		for of, licence := range licences {
			theirs := contents(t, filepath.Join(directory, "node_modules", of, "LICENSE"))
			if !bytes.Equal(theirs, contents(t, filepath.Join(webBuild, licence))) {
				t.Errorf("web/build/%s is not the licence of the package", licence)
			}
			terms, _, _ := bytes.Cut(theirs, []byte("Embedded C implementations")) // of which none is bundled
			if !bytes.Contains(words(committed), words(terms)) {
				t.Errorf("web/assets/%s does not carry the licence of %s", name, of)
			}
		}
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return text
}
