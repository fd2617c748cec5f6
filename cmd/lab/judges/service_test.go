package judges

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	integrity "integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// program is the path of the product's program, built once. Its directory is empty until a test needs it.
var (
	programDir string
	program    = sync.OnceValues(func() (path string, err error) {
		if programDir, err = os.MkdirTemp("", "judges"); err != nil {
			return "", err
		}
		path = filepath.Join(programDir, "integrity")
		build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", path, "integrityledger/cmd/integrity")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build: %w: %s", err, out)
		}
		return path, nil
	})
)

type tests struct{ *testing.M }

func (m tests) Run() int {
	defer func() { os.RemoveAll(programDir) }()
	return m.M.Run()
}

func TestMain(m *testing.M) { pgtest.Main(tests{m}) }

// service is the running program, with the organization of its demo.
type service struct {
	demo.Access
	base, dir, log string
	process        *os.Process
	worker, admin  *integrity.Client
}

// serve starts the program on a separate database, with additional variables, and returns when it is ready.
func serve(t *testing.T, environ ...string) *service {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	address := integritytest.FreeAddress(t)
	// The path must be short for a socket, and accessible to PostgreSQL's own user.
	dir, err := os.MkdirTemp("", "judge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &service{base: "http://" + address, dir: dir, log: filepath.Join(dir, "serve.log")}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, secretKey := domain.NewSecretKey()
	environ = append([]string{
		"INTEGRITY_METRICS_LISTEN=off", "INTEGRITY_ISSUER=judges", "INTEGRITY_DATABASE_URL=" + pgtest.New(t),
		"INTEGRITY_SECRET_KEY=" + secretKey,
	}, environ...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, config.Prefix) {
			environ = append(environ, entry)
		}
	}
	keys := exec.Command(path, "keys", "generate", "--data-dir", dir)
	keys.Env = environ
	if out, err := keys.CombinedOutput(); err != nil {
		t.Fatalf("keys generate: %v: %s", err, out)
	}
	c := exec.Command(path, "serve", "--demo", "--data-dir", dir, "--listen", address)
	c.Env = environ
	screen, err := os.Create(filepath.Join(dir, "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	c.Stdout, c.Stderr = screen, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = c.Process
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // the result is in ProcessState
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
		if !c.ProcessState.Success() {
			t.Errorf("serve: %s: %s", c.ProcessState, s.logged(t))
		}
	})
	integritytest.Eventually(t, "the demo is ready", func() error {
		select {
		case <-ended:
			t.Fatalf("serve ended: %s", s.logged(t))
		default:
		}
		// The demo has created all its data when it prints how to go on.
		if text, err := os.ReadFile(screen.Name()); err != nil || !strings.Contains(string(text), "Stop ") {
			return fmt.Errorf("it has not said so: %w", err)
		}
		text, err := os.ReadFile(filepath.Join(dir, demo.File))
		return errors.Join(err, json.Unmarshal(text, &s.Access))
	})
	for _, c := range []struct {
		to  **integrity.Client
		key string
	}{{&s.worker, s.Keys.Worker}, {&s.admin, s.Keys.Admin}} {
		client, err := integrity.New(integrity.Config{BaseURL: s.base, APIKey: c.key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		*c.to = client
	}
	return s
}

func (s *service) logged(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (s *service) declaration(document string) wire.Declaration {
	return wire.Declaration{
		CompanyReference: s.CompanyReference, Source: "source-of-the-test", DocumentReference: document, Version: 1,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
}

// ask sends a request without a body and returns the answer's status.
func (s *service) ask(t *testing.T, client *http.Client, method, path, key string, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
