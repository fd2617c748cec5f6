package handlers_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/internal/clienttest"
)

// phpCommand prepares a test script of the PHP client, which it gets as the service serves it. Without PHP it skips the
// test and names the untested client; with CI=true the test fails.
func phpCommand(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	if out, err := exec.Command("php", "-r", "exit(extension_loaded('curl') ? 0 : 1);").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("php with the extension curl: %v: %s", err, out)
		}
		fmt.Fprintf(os.Stderr, "%s: php with the extension curl is missing (Debian: sudo apt-get install php-cli php-curl), "+
			"so the PHP client is NOT tested.\n", t.Name())
		t.Skip(err)
	}
	script, err := filepath.Abs(filepath.Join(clientTests, script))
	check(t, err)
	client := filepath.Join(servedPython(t).files, "integrity.php")
	strict := []string{"-d", "error_reporting=-1", "-d", "display_errors=stderr"}
	command := exec.Command("php", slices.Concat(strict, []string{script, client}, args)...)
	command.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1")
	return command
}

// The client reserves, registers, looks up and compares a version, stores evidence that verifies, and checks webhooks.
func TestPHPClient(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	secure := httptest.NewTLSServer(s.http.Config.Handler)
	t.Cleanup(secure.Close)
	directory := t.TempDir()
	authority := filepath.Join(directory, "authority.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	check(t, os.WriteFile(authority, certificate, 0o600))
	webhooks, err := filepath.Abs("../schemas/webhook-vectors.json")
	check(t, err)
	kept := map[string]string{
		"EVIDENCE": filepath.Join(directory, "evidence"), "RECEIPT": filepath.Join(directory, "receipt"),
		"MANY": filepath.Join(directory, "many"),
	}
	included := s.registered("included", 1, "in the log")
	s.integrate()
	command := phpCommand(t, "service.php")
	command.Env = append(command.Env, "SERVICE="+secure.URL, "PLAIN="+s.http.URL, "AUTHORITY="+authority,
		"KEY="+s.org.Secret, "COMPANY=company-1", "WEBHOOKS="+webhooks, "TMPDIR="+directory,
		"INCLUDED="+included)
	for name, path := range kept {
		command.Env = append(command.Env, name+"="+path)
	}
	if out, err := command.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, path := range kept {
		text, err := os.ReadFile(path)
		check(t, err)
		f := evidence.Verify(text, s.Trusted, evidence.Options{Now: s.Now()})
		if f.Signature != evidence.Valid || len(f.Reasons) > 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	s.logged(`"client":"integrity-php/`)
}

// phpCall is an operation of the client against a peer.
type phpCall struct {
	Origin    string `json:"origin"`
	Timeout   int    `json:"timeout"` // seconds
	Operation string `json:"operation"`
	name      string
}

// phpAnswer is what the client made of an answer.
type phpAnswer struct {
	Kind, Message             string
	Retryable, OutcomeUnknown bool
	RetryAfter                int64 // seconds
}

// ask makes the calls, in a few processes at once.
func ask(t *testing.T, calls []phpCall) (answers []phpAnswer) {
	t.Helper()
	parts := slices.Collect(slices.Chunk(calls, len(calls)/8+1))
	results := make([][]phpAnswer, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		file := filepath.Join(t.TempDir(), "calls.json")
		text, err := json.Marshal(part)
		check(t, err)
		check(t, os.WriteFile(file, text, 0o600))
		command := phpCommand(t, "answers.php", file)
		all.Go(func() {
			out, err := command.Output()
			if err == nil {
				err = json.Unmarshal(out, &results[i])
			}
			if err != nil || len(results[i]) != len(part) {
				t.Errorf("%d of %d answers: %v %s", len(results[i]), len(part), err, out)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return slices.Concat(results...)
}

// The client distinguishes refused, unknown and worth repeating, as every client does (schemas/outcome-vectors.json).
func TestPHPOutcomes(t *testing.T) {
	t.Parallel()
	vectors, err := clienttest.OutcomeVectors()
	check(t, err)
	calls := make([]phpCall, len(vectors))
	for i, v := range vectors {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			v.Serve(w)
		}))
		t.Cleanup(server.Close)
		calls[i] = phpCall{server.URL, 60, "write", v.Name}
		if v.Break == clienttest.NoConnection {
			calls[i].Origin = "http://127.0.0.1:1" // no server listens on this port
		}
	}
	for i, answer := range ask(t, calls) {
		v := vectors[i]
		wait := time.Duration(min(answer.RetryAfter, int64(math.MaxInt64/time.Second))) * time.Second
		refused := answer.Kind == `Integrity\Refused` && !answer.Retryable
		if refused != v.Want.Refused || answer.OutcomeUnknown != v.Want.OutcomeUnknown || answer.Kind == "success" ||
			!v.Waits(wait) {
			t.Errorf("%s: %+v", v.Name, answer)
		}
	}
}
