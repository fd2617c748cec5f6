package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh/agent"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// openSSH is OpenSSH's own agent, with keys that are in no file.
type openSSH struct {
	t      *testing.T
	socket string
	cmd    *exec.Cmd
	keys   []ed25519.PrivateKey
}

func startAgent(t *testing.T) *openSSH {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &openSSH{t: t, socket: filepath.Join(dir, "s")}
	a.start()
	t.Cleanup(a.kill)
	return a
}

// start starts the agent with the keys that it had.
func (a *openSSH) start() {
	a.t.Helper()
	a.cmd = exec.Command("ssh-agent", "-D", "-a", a.socket)
	if err := a.cmd.Start(); err != nil {
		a.t.Fatalf("OpenSSH's agent (Debian package openssh-client): %v", err)
	}
	eventually(a.t, "the agent listens", func() error {
		conn, err := net.Dial("unix", a.socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	for _, key := range a.keys {
		a.add(key)
	}
}

func (a *openSSH) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait() // it was killed
	_ = os.Remove(a.socket)
}

// ask calls the agent as ssh-add does.
func (a *openSSH) ask(do func(agent.Agent) error) {
	a.t.Helper()
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	if err := do(agent.NewClient(conn)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *openSSH) add(key ed25519.PrivateKey) {
	a.t.Helper()
	a.ask(func(to agent.Agent) error { return to.Add(agent.AddedKey{PrivateKey: key}) })
}

// generate creates a key in the agent and returns its address.
func (a *openSSH) generate() string {
	a.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	key, err := evidence.NewPublicKey(public)
	if err != nil {
		a.t.Fatal(err)
	}
	a.keys = append(a.keys, private)
	a.add(private)
	return sshagent.Address{Socket: a.socket, Fingerprint: sshagent.Fingerprint(key)}.String()
}

// contains reports whether a process has a private key in its memory: its seed, or either half of the expanded key.
func contains(t *testing.T, pid int, key ed25519.PrivateKey) bool {
	t.Helper()
	expanded := sha512.Sum512(key.Seed())
	secrets := [][]byte{key.Seed(), expanded[32:]} // the first half is clamped before it is used
	expanded[0] &= 248
	expanded[31] = expanded[31]&63 | 64
	secrets = append(secrets, expanded[:32])
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	found, read := false, 0
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if !strings.HasPrefix(fields[1], "rw") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		first, err := strconv.ParseUint(from, 16, 63)
		last, err2 := strconv.ParseUint(to, 16, 63)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		area := make([]byte, last-first)
		n, _ := memory.ReadAt(area, int64(first)) // pages may go away meanwhile
		read += n
		for _, secret := range secrets {
			found = found || bytes.Contains(area[:n], secret)
		}
		clear(area)
	}
	if read < 1<<20 {
		t.Fatalf("only %d bytes of the process's memory were read", read)
	}
	return found
}

// TestSigningAgent: keys that OpenSSH's agent keeps sign records and checkpoints. While the agent is away, locked or
// hangs, registrations are refused and reads go on; nothing acknowledged is lost. The keys are never in the memory of
// the service.
func TestSigningAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	signing, logging := a.generate(), a.generate()
	dir, metrics := dataDir(t), freeAddress(t)
	env := []string{"INTEGRITY_SIGNING_KEY=" + signing, "INTEGRITY_TRANSPARENCY_KEY=" + logging}
	var made operator.PublishedKey
	mustJSON(t, env, &made, "keys", "generate", "--data-dir", dir)
	must(t, env[:1], "keys", "rotate", "--transparency-log", "--stage", "--agent", logging, "--data-dir", dir, "--issuer", "agent.test")
	must(t, env, "keys", "rotate", "--transparency-log", "--activate", "--data-dir", dir)
	s := surroundings{env: env}.start(t, dir, "--demo", "--issuer", "agent.test", "--metrics-listen", metrics)
	access := s.demo()
	for _, name := range []string{keyfiles.SigningKeyFile, keyfiles.LogKeyFile} {
		if keyfiles.Exists(filepath.Join(dir, name)) {
			t.Errorf("%s exists", name)
		}
	}

	// Evidence looks as ever, and both keys have signed it.
	client := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	file := write(t, filepath.Join(t.TempDir(), "a.pdf"), "%PDF a")
	var record wire.Registration
	mustJSON(t, client, &record, "register", file, "--company", access.CompanyReference, "--source", "s", "--version", "1")
	receipt := filepath.Join(t.TempDir(), "a.json")
	eventually(t, "the record is in the log", func() error {
		if text := must(t, client, "evidence", record.PublicID); strings.Contains(text, `"inclusion"`) {
			write(t, receipt, text)
			return nil
		}
		return errors.New("not yet")
	})
	var findings evidence.Findings
	mustJSON(t, nil, &findings, "verify", receipt, filepath.Join(dir, keyfiles.TrustedKeysFile), file)
	if findings.Signature != evidence.Valid || findings.Inclusion != evidence.Valid || findings.Observation != evidence.Valid {
		t.Errorf("%+v", findings)
	}
	text, err := os.ReadFile(receipt)
	if err != nil || !strings.Contains(string(text), `"keyId":"`+made.KeyID+`"`) {
		t.Errorf("%s lacks %s: %v", text, made.KeyID, err)
	}

	var stop atomic.Bool
	var count atomic.Int64
	var writing sync.WaitGroup
	writers := make([]*writer, 8)
	for i := range writers {
		writers[i] = &writer{}
		writing.Go(func() {
			writers[i].run(t, "writer"+strconv.Itoa(i), s.base, access.Keys.Worker, access.CompanyReference, &stop, &count)
		})
	}
	defer writing.Wait()
	defer stop.Store(true)
	more(t, "registrations", &count, 100)
	for i, key := range a.keys {
		if contains(t, s.cmd.Process.Pid, key) {
			t.Errorf("key %d is in the service's memory", i)
		}
	}

	declaration := wire.Declaration{
		CompanyReference: access.CompanyReference, Source: "s", DocumentReference: "away", Version: 1,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
	address := s.base + "/api/v1/integrity/records"
	asks := func(method, url string, body any) int {
		t.Helper()
		status, err := call(plainHTTP(), method, url, access.Keys.Worker, body, nil)
		if err != nil {
			t.Error(err)
		}
		return status
	}
	// batch returns the statuses of the items.
	batch := func(name string) map[int]int {
		t.Helper()
		var items []wire.Declaration
		for i := range 50 {
			d := declaration
			d.DocumentReference = fmt.Sprintf("%s-%d", name, i)
			items = append(items, d)
		}
		var data struct {
			Results []struct {
				Status int `json:"status"`
			} `json:"results"`
		}
		status, err := call(
			plainHTTP(), http.MethodPost, address+"/batch", access.Keys.Worker, map[string]any{"declarations": items}, &data,
		)
		if err != nil || status != http.StatusOK {
			t.Errorf("batch: %d %v", status, err)
		}
		statuses := map[int]int{}
		for _, r := range data.Results {
			statuses[r.Status]++
		}
		return statuses
	}
	if statuses := batch("batch"); statuses[http.StatusCreated] != 50 {
		t.Errorf("batch: %v", statuses)
	}
	doctor := func() string {
		r := integrity(t, append(env, "INTEGRITY_ISSUER=agent.test"), "doctor", "--data-dir", dir)
		return r.out + r.errs
	}
	for _, away := range []struct {
		how, says  string
		lose, back func()
	}{
		{"killed", "there is no agent at", a.kill, a.start},
		{
			"locked", "does not sign with the key",
			func() { a.ask(func(to agent.Agent) error { return to.Lock([]byte("x")) }) },
			func() { a.ask(func(to agent.Agent) error { return to.Unlock([]byte("x")) }) },
		},
		{
			"emptied", "does not sign with the key",
			func() { a.ask(agent.Agent.RemoveAll) },
			func() {
				for _, key := range a.keys {
					a.add(key)
				}
			},
		},
		{
			"frozen", "does not answer within",
			func() { _ = a.cmd.Process.Signal(syscall.SIGSTOP) },
			func() { _ = a.cmd.Process.Signal(syscall.SIGCONT) },
		},
	} {
		more(t, "registrations before the agent is "+away.how, &count, 50)
		away.lose()
		declaration.DocumentReference = away.how
		got, retryAfter := refusedRegistration(t, address, access.Keys.Worker, declaration)
		if got.Status != http.StatusServiceUnavailable || got.Code != domain.TemporarilyUnavailable || !got.Retryable ||
			!strings.Contains(got.Detail, "signing key does not answer") || retryAfter == "" {
			t.Errorf("%s: %+v, Retry-After %q", away.how, got, retryAfter)
		}
		if statuses := batch(away.how); statuses[http.StatusServiceUnavailable] != 50 {
			t.Errorf("%s: batch: %v", away.how, statuses)
		}
		if status := asks(http.MethodGet, address+"/"+record.PublicID+"/evidence", nil); status != http.StatusServiceUnavailable {
			t.Errorf("%s: evidence answers %d", away.how, status)
		}
		for _, path := range []string{
			"/api/v1/integrity/records/" + record.PublicID, "/api/v1/integrity/usage", "/api/public/log/checkpoint",
			"/api/public/integrity/" + record.PublicID + "/receipt", "/api/public/integrity/" + record.PublicID, "/healthz",
		} {
			if status := asks(http.MethodGet, s.base+path, nil); status != http.StatusOK {
				t.Errorf("%s: %s answers %d", away.how, path, status)
			}
		}
		eventually(t, "/readyz says so", func() error {
			if got, err := s.failure(http.MethodGet, "/readyz"); err != nil || got.Status != http.StatusServiceUnavailable ||
				!strings.Contains(got.Detail, "signing key") {
				return fmt.Errorf("%+v %w", got, err)
			}
			return nil
		})
		if err := scrapeOf(t, metrics).Want(0, "integrity_signing_key_answers"); err != nil {
			t.Errorf("%s: %v", away.how, err)
		}
		if says := doctor(); !strings.Contains(says, away.says) || strings.Contains(says, "trusted_keys") {
			t.Errorf("%s: doctor says %s", away.how, says)
		}
		away.back()
		eventually(t, "it is ready without a restart", func() error {
			if got, err := s.failure(http.MethodGet, "/readyz"); err != nil || got.Status != http.StatusOK {
				return fmt.Errorf("%+v %w", got, err)
			}
			return nil
		})
		if err := scrapeOf(t, metrics).Want(1, "integrity_signing_key_answers"); err != nil {
			t.Errorf("%s: %v", away.how, err)
		}
	}
	more(t, "registrations at the end", &count, 50)
	eventually(t, "the log goes on", func() error {
		var log operator.LogStatusView
		mustJSON(t, env, &log, "log", "status", "--data-dir", dir)
		if log.Published < count.Load() {
			return fmt.Errorf("%d of %d are published", log.Published, count.Load())
		}
		return nil
	})
	// A start without the agent serves reads, and signs when the agent comes.
	stop.Store(true)
	writing.Wait()
	a.kill()
	s.stop()
	s = begin(t, dir, append(env, "INTEGRITY_ISSUER=agent.test")...)
	s.says("NOTHING IS SIGNED")
	eventually(t, "reads are answered", func() error {
		if status, err := call(
			plainHTTP(), http.MethodGet, s.base+"/api/v1/integrity/records/"+record.PublicID, access.Keys.Worker, nil, nil,
		); err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %w", status, err)
		}
		return nil
	})
	a.start()
	eventually(t, "it is ready", func() error {
		if got, err := s.failure(http.MethodGet, "/readyz"); err != nil || got.Status != http.StatusOK {
			return fmt.Errorf("%+v %w", got, err)
		}
		return nil
	})
	var acks []acknowledged
	for _, w := range writers {
		acks = append(acks, w.acks...)
	}
	for _, ack := range acks {
		var again wire.Registration
		status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records", access.Keys.Worker, ack.declaration, &again)
		if err != nil || status != http.StatusOK || !again.Replayed || again.PublicID != ack.publicID {
			t.Fatalf("%+v: %d %v %+v", ack, status, err, again)
		}
	}
	must(t, env, "audit", "--data-dir", dir)
}

// refusedRegistration returns the error of a registration, with the header Retry-After.
func refusedRegistration(t *testing.T, address, key string, d wire.Declaration) (wire.Failure, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, address, jsonBody(t, d))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := plainHTTP().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ Error wire.Failure }
	decode(t, response.Body, &answer)
	answer.Error.Status = response.StatusCode
	return answer.Error, response.Header.Get("Retry-After")
}

// TestKeyInMemory proves that the search of TestSigningAgent finds a key that the service holds itself.
func TestKeyInMemory(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := start(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, keyfiles.SigningKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if !contains(t, s.cmd.Process.Pid, privateKey(t, text)) {
		t.Error("the search does not find the key of the file")
	}
}

// TestAgentKeys: a key in a file is replaced by one of an agent, and that by another, with the commands for every
// rotation; the same for the log key. A witness key may be an agent's too.
func TestAgentKeys(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	first, second, logKey, witnessKey := a.generate(), a.generate(), a.generate(), a.generate()
	dir, file := keyDir(t)
	env := []string{"INTEGRITY_DATABASE_URL=" + foreignDatabase(t.Context(), t), "INTEGRITY_DATA_DIR=" + dir}
	must(t, env, "migrate", "--issuer", "agent.test")
	signingFile := filepath.Join(dir, keyfiles.SigningKeyFile)
	holds := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want+"\n" {
			t.Errorf("%s holds %q: %v", path, text, err)
		}
	}
	refused := func(says string, args ...string) {
		t.Helper()
		if r := integrity(t, env, args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, says) {
			t.Errorf("integrity %v: %d %s%s, want %q", args, r.code, r.out, r.errs, says)
		}
	}
	refused("agent:///run/signer.sock?key=SHA256:…", "keys", "rotate", "--stage", "--agent", "agent:run/x")
	refused("has no key", "keys", "rotate", "--stage", "--agent", first[:strings.Index(first, "SHA256:")]+"SHA256:"+strings.Repeat("A", 43))
	refused("agent activate", "keys", "rotate", "--activate", "--agent", first)

	former := file.KeyID
	for _, address := range []string{first, second} {
		var staged, again, activated operator.RotatedKey
		mustJSON(t, env, &staged, "keys", "rotate", "--stage", "--agent", address)
		mustJSON(t, env, &again, "keys", "rotate", "--stage", "--agent", address) // as after an interruption
		holds(filepath.Join(dir, "signing-key.next.pem"), address)
		refused("another key is staged", "keys", "rotate", "--stage", "--agent", logKey)
		if again.KeyID != staged.KeyID || *staged.SigningKeyID != former {
			t.Errorf("%+v, %+v", staged, again)
		}
		mustJSON(t, env, &activated, "keys", "rotate", "--activate")
		holds(signingFile, address)
		if activated.KeyID != staged.KeyID || *activated.FormerKeyID != former {
			t.Errorf("%+v", activated)
		}
		if out := must(t, env, "keys", "list"); !strings.Contains(out, "signs, in an agent") {
			t.Error(out)
		}
		retireKey(t, env, dir, former)
		if keyfiles.Exists(filepath.Join(dir, "signing-key.previous.pem")) {
			t.Error("the former key was kept")
		}
		former = staged.KeyID
	}
	refused("same key", "keys", "rotate", "--transparency-log", "--stage", "--agent", second)
	must(t, env, "keys", "rotate", "--transparency-log", "--stage", "--agent", logKey)
	must(t, env, "keys", "rotate", "--transparency-log", "--stage", "--agent", logKey)
	must(t, env, "keys", "rotate", "--transparency-log", "--activate")
	holds(filepath.Join(dir, keyfiles.LogKeyFile), logKey)
	out := must(t, append(env, "INTEGRITY_WITNESS_KEY="+witnessKey), "keys", "witness", "--witness-name", "w.test")
	if _, err := evidence.ParseWitnessKey(strings.TrimSpace(out)); err != nil {
		t.Error(out, err)
	}

	// Back to a file, while the agent is away: the public halves are in the trusted-keys file.
	s := surroundings{env: env}.start(t, dir)
	a.kill()
	must(t, env, "keys", "rotate", "--stage")
	must(t, env, "keys", "rotate", "--activate")
	hangUp(t, s)
	eventually(t, "it is ready", func() error {
		if got, err := s.failure(http.MethodGet, "/readyz"); err != nil || got.Status != http.StatusOK {
			return fmt.Errorf("%+v %w", got, err)
		}
		return nil
	})
	holds(filepath.Join(dir, "signing-key.previous.pem"), second)
	must(t, env, "keys", "compromise", "--", former)
	if keyfiles.Exists(filepath.Join(dir, "signing-key.previous.pem")) {
		t.Error("the address of a compromised key was kept")
	}
}

func privateKey(t *testing.T, text []byte) ed25519.PrivateKey {
	t.Helper()
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(ed25519.PrivateKey)
}

func jsonBody(t *testing.T, v any) io.Reader {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(text)
}

func decode(t *testing.T, from io.Reader, v any) {
	t.Helper()
	if err := json.NewDecoder(from).Decode(v); err != nil {
		t.Fatal(err)
	}
}
