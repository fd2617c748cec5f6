package handlers_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/developers"
)

const pythonTests = "developers/python"

var errNoPython = errors.New(
	"a python3 of at least 3.11 with httpx, cryptography, asn1crypto and jsonschema is missing (Debian: sudo apt-get " +
		"install python3-httpx python3-cryptography python3-asn1crypto python3-jsonschema)",
)

// findPython looks for an interpreter that has the packages. The system's interpreter may have them even if PATH has
// another one first.
var findPython = sync.OnceValues(func() (string, error) {
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		probe := exec.Command(
			candidate, "-c", "import sys, httpx, cryptography, asn1crypto, jsonschema; sys.exit(sys.version_info < (3, 11))",
		)
		if probe.Run() == nil {
			return candidate, nil
		}
	}
	return "", errNoPython
})

// pythonFiles are Python files for integrators, and their tests.
type pythonFiles struct{ files, tests string }

// servedPython returns the files as the service serves them.
func servedPython(t *testing.T) pythonFiles {
	t.Helper()
	served := t.TempDir()
	downloads, err := developers.Downloads()
	check(t, err)
	for _, file := range downloads {
		check(t, os.WriteFile(filepath.Join(served, file.Name), file.Body, 0o600))
	}
	tests, err := filepath.Abs(pythonTests)
	check(t, err)
	return pythonFiles{served, tests}
}

// python prepares a command that finds the served files.
func python(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	return servedPython(t).command(t, environ, args...)
}

// command prepares a command that finds the files and their tests. Without an interpreter it skips the test and says
// what is left out; it fails if CI=true.
func (p pythonFiles) command(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	interpreter, err := findPython()
	if errors.Is(err, errNoPython) && os.Getenv("CI") != "true" {
		fmt.Fprintf(os.Stderr, "%s: %v, so the Python files are NOT tested.\n", t.Name(), err)
		t.Skip(err)
	}
	check(t, err)
	schemas, err := filepath.Abs("../schemas")
	check(t, err)
	command := exec.Command(interpreter, args...)
	command.Dir = p.files
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
		"PYTHONPATH="+p.files+string(os.PathListSeparator)+p.tests, "PYTHONWARNINGS=error",
		"SCHEMAS="+schemas, "HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1")
	command.Env = append(command.Env, environ...)
	return command
}

func (p pythonFiles) unittest(t *testing.T, environ []string, modules ...string) {
	t.Helper()
	out, err := p.command(t, environ, append([]string{"-m", "unittest", "--buffer"}, modules...)...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\nOK\n")) {
		t.Errorf("%v: %v\n%s", modules, err, out)
	}
}

// The verifier reaches the verdict of every vector, and the receiver follows its rules.
func TestPythonFiles(t *testing.T) {
	t.Parallel()
	servedPython(t).unittest(t, nil, "test_verify_integrity", "test_verify_timestamps", "test_integrity_webhook")
}

// If the result cannot be written, the exit code is 2, whether the reader has gone or the disk is full.
func TestPythonVerifierCannotWrite(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	defer full.Close()
	reader, closed, err := os.Pipe()
	check(t, err)
	defer closed.Close()
	check(t, reader.Close())
	directory := t.TempDir()
	receipt, keys := filepath.Join(directory, "receipt.json"), filepath.Join(directory, "keys.json")
	check(t, os.WriteFile(receipt, []byte("{}"), 0o600))
	trusted, err := evidence.NewTrustedKeys([]evidence.TrustedKey{{PublicKey: evidence.GenerateSigner().Key()}}, nil, nil)
	check(t, err)
	text, err := trusted.Marshal()
	check(t, err)
	check(t, os.WriteFile(keys, text, 0o600))
	for name, to := range map[string]*os.File{"a full disk": full, "a closed pipe": closed} {
		for _, more := range [][]string{nil, {"--json"}, {"--help"}} {
			command := python(t, nil, append([]string{"verify_integrity.py", receipt, keys}, more...)...)
			command.Stdout = to
			if _ = command.Run(); command.ProcessState.ExitCode() != 2 {
				t.Errorf("%s %v: exit code %d", name, more, command.ProcessState.ExitCode())
			}
		}
	}
}

// A verifier that lacks a dependency says so in one line and exits with 2. Exit code 1 would say that the receipt is
// not valid.
func TestPythonVerifierCannotCheck(t *testing.T) {
	t.Parallel()
	lacking := t.TempDir()
	check(
		t,
		os.WriteFile(
			filepath.Join(lacking, "cryptography.py"), []byte(`raise ImportError("No module named 'cryptography'")`), 0o600,
		),
	)
	pipe := filepath.Join(lacking, "pipe")
	check(t, syscall.Mkfifo(pipe, 0o600))
	for name, c := range map[string]struct {
		args []string
		env  []string
		says string
	}{
		"a pipe for a receipt": {[]string{pipe, "verify_integrity.py"}, nil, "must be a regular file"},
		"a pipe for keys":      {[]string{"verify_integrity.py", pipe}, nil, "must be a regular file"},
		"no cryptography": {
			[]string{"receipt.json", "keys.json"}, []string{"PYTHONPATH=" + lacking}, "the package cryptography is needed",
		},
		"no receipt":           {[]string{"receipt.json", "keys.json"}, nil, "receipt.json"},
		"a directory":          {[]string{".", "keys.json"}, nil, "directory"},
		"no JSON":              {[]string{"verify_integrity.py", "verify_integrity.py"}, nil, ""},
		"an argument too many": {[]string{"a", "b", "c", "d"}, nil, "unrecognized arguments"},
	} {
		command := python(t, c.env, append([]string{"verify_integrity.py"}, c.args...)...)
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		err := command.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || stdout.Len() != 0 ||
			strings.Contains(stderr.String(), "Traceback") || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: %v, %q, %q", name, err, stdout.String(), stderr.String())
		}
		if name != "an argument too many" && strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: not one line: %q", name, stderr.String())
		}
	}
	// A program that imports the files gets the usual error, which names the package.
	check(
		t, os.WriteFile(filepath.Join(lacking, "httpx.py"), []byte(`raise ImportError("No module named 'httpx'")`), 0o600),
	)
	for module, needs := range map[string]string{"verify_integrity": "cryptography", "integrity_client": "httpx"} {
		served := python(t, nil).Dir
		path := lacking + string(os.PathListSeparator) + served
		out, err := python(t, []string{"PYTHONPATH=" + path}, "-c", "import "+module).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("ImportError: ")) || !bytes.Contains(out, []byte(needs)) {
			t.Errorf("import %s: %v %s", module, err, out)
		}
	}
}

// The verifier's output ends with the common fixed text.
func TestPythonLimits(t *testing.T) {
	for _, language := range []evidence.Language{evidence.English, evidence.Spanish} {
		script := fmt.Sprintf(
			"import json, verify_integrity as v; print(json.dumps([v._TITLES[%[1]q], *v.limits(%[1]q), "+
				"v._CERTIFICATE_TITLES[%[1]q], *v.limits(%[1]q, True)]))",
			language,
		)
		out, err := python(t, nil, "-c", script).Output()
		check(t, err)
		var said []string
		check(t, json.Unmarshal(out, &said))
		equal(t, string(language), said,
			slices.Concat([]string{evidence.LimitsTitle(language)}, evidence.Limits(language, ""),
				[]string{evidence.CertificateLimitsTitle(language)}, evidence.CertificateLimits(language, "")))
	}
}

// The wheel installs into a virtual environment with its modules and commands. Its dependencies must already be
// installed: no package index is asked.
func TestPythonWheel(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a virtual environment")
	}
	t.Parallel()
	directory := t.TempDir()
	served := open(t, options{}).http.URL + "/developers/integrity_client-" + developers.Version + "-py3-none-any.whl"
	environ := []string{"PYTHONPATH=", "PYTHONWARNINGS=", "HTTP_PROXY="}
	run := func(program string, args ...string) string {
		t.Helper()
		command := python(t, environ)
		if program != "" {
			command.Path, command.Args = program, []string{program}
		}
		command.Args, command.Dir = append(command.Args, args...), directory
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
		return string(out)
	}
	run("", "-m", "venv", "--system-site-packages", "venv")
	venv := filepath.Join(directory, "venv", "bin")
	run(filepath.Join(venv, "python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-index", served)
	said := run(filepath.Join(venv, "python"), "-c",
		`import importlib.metadata as m, integrity_client as c, integrity_webhook, verify_integrity
print(m.version("integrity-client"), c.__version__, all("/venv/" in module.__file__ for module in (c, integrity_webhook, verify_integrity)))`)
	equal(t, "the installed wheel", said, developers.Version+" "+developers.Version+" True\n")
	for _, command := range []string{"verify-integrity", "integrity-webhook"} {
		if said := run(filepath.Join(venv, command), "--help"); !strings.Contains(said, "usage: "+command) {
			t.Errorf("%s --help: %s", command, said)
		}
	}
}

// The type annotations of the Python files are correct, if a type checker is installed.
func TestPythonTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("runs mypy")
	}
	mypy, err := exec.LookPath("mypy")
	if err != nil {
		fmt.Fprintf(
			os.Stderr,
			"%s: mypy is missing (Debian: sudo apt-get install mypy), so the types of the Python files are NOT checked.\n",
			t.Name(),
		)
		t.Skip(err)
	}
	command := python(t, nil)
	files, err := filepath.Glob(filepath.Join(command.Dir, "*.py"))
	check(t, err)
	types := exec.Command(mypy,
		append([]string{"--strict", "--python-executable", command.Path, "--cache-dir", t.TempDir()}, files...)...)
	types.Env = command.Env
	if out, err := types.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The client sets up a company, reserves, registers and stores evidence, which the verifier accepts. It also behaves as
// documented if other parties do not.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	pythonClientStory(t, servedPython(t)).logged(`"client":"integrity-python/` + developers.Version + `"`)
}

func pythonClientStory(t *testing.T, files pythonFiles) *service {
	t.Helper()
	return pythonClientStoryAt(t, files, open(t, options{}), nil)
}

// pythonClientStoryAt runs pythonClientStory with a service behind a proxy, which may be nil.
func pythonClientStoryAt(t *testing.T, files pythonFiles, s *service, proxy http.Handler) *service {
	t.Helper()
	if proxy == nil {
		proxy = s.http.Config.Handler
	}
	secure := httptest.NewTLSServer(proxy)
	t.Cleanup(secure.Close)
	worker, text := s.Key(t, s.org, domain.IntegrityRead, domain.IntegrityWrite)
	webhook, _ := s.webhook("https://receiver.example/")
	directory := t.TempDir()
	authority, trusted := filepath.Join(directory, "authority.pem"), filepath.Join(directory, "trusted-keys.json")
	check(
		t,
		os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600),
	)
	keys, err := s.Trusted.Marshal()
	check(t, err)
	check(t, os.WriteFile(trusted, keys, 0o600))
	files.unittest(t, []string{
		"SERVICE=" + secure.URL, "PLAIN=" + s.http.URL, "AUTHORITY=" + authority, "TRUSTED=" + trusted,
		"ADMIN=" + s.org.Secret, "WORKER=" + text, "ADMIN_ID=" + s.org.Key.ID.String(), "WORKER_ID=" + worker.ID.String(),
		"WEBHOOK_ID=" + webhook,
	}, "test_integrity_client")
	if log := s.log.String(); strings.Contains(log, text) || strings.Contains(log, "secret-content") {
		t.Error("the service's log holds the key or the content")
	}
	s.Audit(t)
	return s
}
