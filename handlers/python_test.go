package handlers_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/developers"
)

const pythonTests = "developers/python"

var errNoPython = errors.New("a python3 of at least 3.11 with httpx, cryptography and jsonschema is missing (Debian: sudo apt-get install python3-httpx python3-cryptography python3-jsonschema)")

// findPython looks for an interpreter that has the packages: that of the system
// may, where another one comes first in PATH.
var findPython = sync.OnceValues(func() (string, error) {
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		probe := exec.Command(candidate, "-c", "import sys, httpx, cryptography, jsonschema; sys.exit(sys.version_info < (3, 11))")
		if probe.Run() == nil {
			return candidate, nil
		}
	}
	return "", errNoPython
})

// python prepares a command that finds the files as the service serves them.
// Without an interpreter it skips the test, saying what is left out, and fails where CI=true.
func python(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	interpreter, err := findPython()
	if errors.Is(err, errNoPython) && os.Getenv("CI") != "true" {
		fmt.Fprintf(os.Stderr, "%s: %v, so the Python files are NOT tested.\n", t.Name(), err)
		t.Skip(err)
	}
	check(t, err)
	served := t.TempDir()
	downloads, err := developers.New()
	check(t, err)
	for _, file := range downloads.List() {
		check(t, os.WriteFile(filepath.Join(served, file.Name), file.Body, 0o600))
	}
	tests, err := filepath.Abs(pythonTests)
	check(t, err)
	schemas, err := filepath.Abs("../schemas")
	check(t, err)
	command := exec.Command(interpreter, args...)
	command.Dir = served
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+served+string(os.PathListSeparator)+tests, "PYTHONWARNINGS=error",
		"SCHEMAS="+schemas, "HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1")
	command.Env = append(command.Env, environ...)
	return command
}

func unittest(t *testing.T, environ []string, modules ...string) {
	t.Helper()
	out, err := python(t, environ, append([]string{"-m", "unittest", "--buffer"}, modules...)...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\nOK\n")) {
		t.Errorf("%v: %v\n%s", modules, err, out)
	}
}

// The verifier finds in every vector what it must, and the receiver keeps its rules.
func TestPythonFiles(t *testing.T) {
	unittest(t, nil, "test_verify_integrity", "test_integrity_webhook")
}

// The verifier ends with the text that stands everywhere.
func TestPythonLimits(t *testing.T) {
	for _, language := range []evidence.Language{evidence.English, evidence.Spanish} {
		script := fmt.Sprintf("import json, verify_integrity as v; print(json.dumps([v._TITLES[%[1]q], *v.limits(%[1]q)]))", language)
		out, err := python(t, nil, "-c", script).Output()
		check(t, err)
		var said []string
		check(t, json.Unmarshal(out, &said))
		equal(t, string(language), said, append([]string{evidence.LimitsTitle(language)}, evidence.Limits(language, "")...))
	}
}

// The types of the Python files are right, where there is somebody to say so.
func TestPythonTypes(t *testing.T) {
	mypy, err := exec.LookPath("mypy")
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: mypy is missing (Debian: sudo apt-get install mypy), so the types of the Python files are NOT checked.\n", t.Name())
		t.Skip(err)
	}
	command := python(t, nil)
	files, err := filepath.Glob(filepath.Join(command.Dir, "*.py"))
	check(t, err)
	types := exec.Command(mypy, append([]string{"--strict", "--python-executable", command.Path, "--cache-dir", t.TempDir()}, files...)...)
	types.Env = command.Env
	if out, err := types.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The client sets a company up, reserves, registers and saves evidence, which the
// verifier accepts; and it keeps its promises when others misbehave.
func TestPythonClient(t *testing.T) {
	s := open(t, options{})
	secure := httptest.NewTLSServer(s.http.Config.Handler)
	t.Cleanup(secure.Close)
	worker, text := s.Key(t, s.org, domain.IntegrityRead, domain.IntegrityWrite)
	webhook, _ := s.webhook("https://receiver.example/")
	directory := t.TempDir()
	authority, trusted := filepath.Join(directory, "authority.pem"), filepath.Join(directory, "trusted-keys.json")
	check(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	keys, err := s.Trusted.Marshal()
	check(t, err)
	check(t, os.WriteFile(trusted, keys, 0o600))
	unittest(t, []string{
		"SERVICE=" + secure.URL, "PLAIN=" + s.http.URL, "AUTHORITY=" + authority, "TRUSTED=" + trusted,
		"ADMIN=" + s.org.Secret, "WORKER=" + text, "WORKER_ID=" + worker.ID.String(), "WEBHOOK_ID=" + webhook,
	}, "test_integrity_client")
	if log := s.log.String(); strings.Contains(log, text) || strings.Contains(log, "secret-content") {
		t.Error("the service's log holds the key or the content")
	}
	s.Audit(t)
}
