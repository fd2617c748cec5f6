package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/analyzer"
	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/browsertest"
	"integrityledger/migrations"
)

// commandTime is how long a command may take on a busy machine with two cores.
const patient, commandTime = integritytest.Patient, 10 * time.Minute

var (
	eventually  = integritytest.Eventually
	freeAddress = integritytest.FreeAddress
	write       = integritytest.Write
)

// binaryVariable carries the path of the built program from TestMain to the tests.
const binaryVariable = "INTEGRITY_TEST_BINARY"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == analyzer.Command { // this program, started to read a PDF
		os.Exit(analyzer.Child())
	}
	if os.Getenv(killAtVariable) != "" {
		os.Exit(runUntilKilled())
	}
	code, err := func() (int, error) {
		dir, err := os.MkdirTemp("", "integrity")
		if err != nil {
			return 2, err
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			return 2, err
		}
		binary := filepath.Join(dir, "integrity")
		args := []string{"build", "-buildvcs=false", "-ldflags", linkCommit + linkedCommit, "-o", binary, "."}
		if raceDetector {
			args = slices.Insert(args, 1, "-race")
		}
		build := exec.Command("go", args...)
		if out, err := build.CombinedOutput(); err != nil {
			return 2, fmt.Errorf("build: %w: %s", err, out)
		}
		// The race detector otherwise sleeps for a second before a process exits.
		if err := errors.Join(
			os.Setenv(binaryVariable, binary), os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"),
		); err != nil {
			return 2, err
		}
		defer browsertest.Close()
		return m.Run(), nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// released builds the program as released: static, without the race detector.
var released = sync.OnceValues(func() (string, error) {
	program := os.Getenv(binaryVariable) + "-released"
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return program, nil
})

func releasedProgram(t *testing.T) string {
	t.Helper()
	program, err := released()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// cleanEnviron returns our environment without the program's variables.
func cleanEnviron(more ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, config.Prefix) {
			env = append(env, entry)
		}
	}
	env = append(env, config.Prefix+"METRICS_LISTEN=off") // tests of metrics set an address
	return append(env, more...)
}

// result is how a command ended.
type result struct {
	out, errs string
	code      int
}

// integrity runs the built program.
func integrity(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runs(t, os.Getenv(binaryVariable), env, args...)
}

// runs runs a version of the program.
func runs(t *testing.T, program string, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, program, args...)
	c.Env, c.Stdout, c.Stderr = cleanEnviron(env...), &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("integrity %v: %v", args, err)
	}
	return result{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// must runs the built program and requires exit code 0.
func must(t *testing.T, env []string, args ...string) string {
	t.Helper()
	r := integrity(t, env, args...)
	if r.code != cli.ExitOK {
		t.Fatalf("integrity %v: exit code %d\n%s%s", args, r.code, r.out, r.errs)
	}
	return r.out
}

// mustJSON is must with --json.
func mustJSON(t *testing.T, env []string, to any, args ...string) {
	t.Helper()
	out := must(t, env, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), to); err != nil {
		t.Fatalf("integrity %v: %v in %s", args, err, out)
	}
}

// dataDir returns a directory that the embedded PostgreSQL's user can reach.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "integrity")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

// models are data directories of the embedded PostgreSQL that tests copy instead of running initdb: one with an empty
// database, and one whose database has the schema but no ledger.
var models = sync.OnceValues(func() (in string, err error) {
	in = filepath.Join(filepath.Dir(os.Getenv(binaryVariable)), "models")
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	dir := filepath.Join(in, "server")
	for _, name := range []string{modelEmpty, modelMigrated} {
		server, err := postgres.Start(ctx, postgres.Config{DataDir: dir, Purpose: "test"})
		if err != nil {
			return "", err
		}
		if name == modelMigrated {
			err = migrations.Up(ctx, server.URL(postgres.Database))
		}
		if err := errors.Join(err, server.Stop(ctx)); err != nil {
			return "", err
		}
		if err := copyModel(filepath.Join(dir, "pgdata"), filepath.Join(in, name)); err != nil {
			return "", err
		}
	}
	return in, nil
})

const modelEmpty, modelMigrated = "empty", "migrated"

func copyModel(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy a data directory: %w: %s", err, out)
	}
	return nil
}

// prepare copies a model into a data directory without a database.
func prepare(t *testing.T, dir, model string) {
	t.Helper()
	in, err := models()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.MkdirAll(dir, 0o711), copyModel(filepath.Join(in, model), filepath.Join(dir, "pgdata")),
	); err != nil {
		t.Fatal(err)
	}
}

// running is a serve process.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	base   string
	screen string
	log    string // path of its log, to which every start appends; a demo has its own in its data directory
	client *http.Client
	exited chan struct{}
	later  chan string // the first lines that a demo prints after its card
}

// surroundings are the conditions of a serve process. The zero value means the test's own user and no variables of the
// program.
type surroundings struct {
	bare       bool   // the service creates its database itself, for tests of that
	program    string // run instead of the built program
	env        []string
	credential *syscall.Credential
	pod        bool         // podScript runs the program
	encrypted  *http.Client // trusts the service's certificate; nil for http
}

// start runs serve and returns when it answers.
func start(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	return surroundings{}.start(t, dir, args...)
}

func (in surroundings) start(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	logPath := filepath.Join(filepath.Dir(dir), "serve.log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	external := slices.ContainsFunc(in.env, func(entry string) bool { return strings.Contains(entry, "DATABASE_URL") })
	client := in.encrypted
	if client == nil {
		client = plainHTTP()
	}
	if _, err := os.Stat(filepath.Join(dir, "pgdata")); err != nil && !in.bare && !external && in.credential == nil {
		prepare(t, dir, modelMigrated)
	}
	args = append([]string{"serve", "--data-dir", dir, "--log-level", "debug"}, args...)
	if !strings.Contains(strings.Join(args, " "), "--listen") {
		args = append(args, "--listen", freeAddress(t))
	}
	program := in.program
	if program == "" {
		program = os.Getenv(binaryVariable)
	}
	command := append([]string{program}, args...)
	if in.pod {
		private := []string{"unshare", "--mount", "--propagation", "private", "bash", "-euc", podScript, dir}
		command = append(private, command...)
	}
	s := &running{
		t: t, dir: dir, log: logPath, client: client, exited: make(chan struct{}), later: make(chan string, 16),
		cmd: exec.Command(command[0], command[1:]...),
	}
	for i, arg := range args {
		if arg == "--listen" {
			if s.base = "http://" + args[i+1]; in.encrypted != nil {
				s.base = "https://" + args[i+1]
			}
		}
	}
	s.cmd.Env, s.cmd.Stderr = cleanEnviron(in.env...), logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: in.credential}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var screen bytes.Buffer
	shown := make(chan struct{})
	asDemo := slices.Contains(args, "--demo")
	if asDemo {
		s.log = filepath.Join(dir, demo.LogFile)
	}
	go func() {
		defer close(s.exited)
		demo := asDemo
		if !demo {
			close(shown)
		}
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if demo && shown != nil {
				screen.WriteString(lines.Text() + "\n")
				if strings.HasPrefix(lines.Text(), "Stop ") {
					close(shown)
					demo = false
				}
				continue
			}
			select {
			case s.later <- lines.Text():
			default:
			}
		}
		_ = s.cmd.Wait() // the result is in ProcessState
	}()
	t.Cleanup(func() { s.stop() })
	select {
	case <-shown:
	case <-s.exited:
		t.Fatalf("serve ended: %s", tail(logPath))
	case <-time.After(patient):
		t.Fatalf("serve shows nothing: %s", tail(logPath))
	}
	eventually(t, "serve is ready", func() error {
		response, err := client.Get(s.base + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz answers %d", response.StatusCode)
		}
		return nil
	})
	s.screen = screen.String()
	return s
}

// stop stops the process as an operator does. It does nothing if the process has ended.
func (s *running) stop() {
	s.t.Helper()
	select {
	case <-s.exited:
		return
	default:
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.exited:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			s.t.Errorf("serve ended with %d: %s", code, tail(s.log))
		}
	case <-time.After(patient):
		_ = s.cmd.Process.Kill()
		s.t.Errorf("serve did not stop: %s", tail(s.log))
	}
}

func (s *running) demo() demo.Access {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, demo.File))
	if err != nil {
		s.t.Fatal(err)
	}
	var access demo.Access
	if err := json.Unmarshal(text, &access); err != nil {
		s.t.Fatal(err)
	}
	return access
}

// postgresPID returns the process ID of the embedded PostgreSQL.
func (s *running) postgresPID() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "pgdata", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}

func plainHTTP() *http.Client {
	return &http.Client{Timeout: patient, Transport: &http.Transport{DisableKeepAlives: true}}
}

// call calls the API and decodes the envelope's data. It returns the status, or 0 without an answer.
func call(client *http.Client, method, url, key string, body, data any) (int, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, url, reader)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if data == nil || response.StatusCode >= 300 {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.Unmarshal(text, &struct{ Data any }{data})
}

func tail(path string) string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// wantClean fails if a file contains one of the secrets, or any SHA-256.
func wantClean(t *testing.T, path string, secrets ...string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) == 0 {
		t.Fatalf("%s is empty: there is nothing to look at", path)
	}
	for _, secret := range secrets {
		if secret == "" {
			t.Error("an empty text was to be looked for")
		} else if i := bytes.Index(text, []byte(secret)); i >= 0 {
			t.Errorf("%s holds %q: %s", filepath.Base(path), secret, text[max(0, i-200):min(len(text), i+200)])
		}
	}
	if hash := regexp.MustCompile(`[0-9A-Fa-f]{64}`).Find(text); hash != nil {
		t.Errorf("%s holds the hash %s", filepath.Base(path), hash)
	}
	if key := regexp.MustCompile(`ik_[0-9a-z]{26}`).Find(text); key != nil {
		t.Errorf("%s holds the key %s", filepath.Base(path), key)
	}
}

func dial(t *testing.T, s *running) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
