package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// signedInbox is a receiver that checks the signature of every delivery.
type signedInbox struct {
	mu      sync.Mutex
	secrets []string // each must have signed
	seen    map[string]bool
	wrong   error
}

func (i *signedInbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e struct{ ID string }
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &e) != nil {
		return // the sender was stopped within the request
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[e.ID] = true
	header := r.Header.Get("Service-Signature")
	at, _, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	for _, secret := range i.secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(append([]byte(at+"."), body...))
		if !strings.Contains(header, "v1="+hex.EncodeToString(mac.Sum(nil))) {
			i.wrong = errors.Join(i.wrong, fmt.Errorf("%s is signed wrongly: %s", e.ID, header))
		}
	}
}

// secretServers are two processes on one database, each with its own file of secret keys.
type secretServers struct {
	*testing.T
	url       string
	env       []string // of operators' commands, which change the first file
	admin     string   // an API key
	company   string   // its company's id
	files     [2]string
	processes [2]*running
}

func startSecretServers(t *testing.T, key string) *secretServers {
	t.Helper()
	url := pgtest.New(t)
	w := &secretServers{T: t, url: url}
	for i := range w.files {
		dir := dataDir(t)
		if i == 0 {
			must(t, nil, "keys", "generate", "--data-dir", dir)
		} else if err := os.CopyFS(dir, os.DirFS(w.processes[0].dir)); err != nil { // the same signing key
			t.Fatal(err)
		}
		w.files[i] = filepath.Join(dir, "secrets")
		write(t, w.files[i], key)
		env := []string{"INTEGRITY_DATABASE_URL=" + url, "INTEGRITY_SECRET_KEY_FILE=" + w.files[i]}
		w.processes[i] = surroundings{env: append(env, "INTEGRITY_WEBHOOK_ALLOW_INSECURE=true")}.start(
			t, dir, "--issuer", "ledger-of-the-test", "--shards", "2",
		)
		if i == 0 {
			w.env = append(env, "INTEGRITY_DATA_DIR="+dir)
		}
	}
	var organization operator.OrganizationView
	mustJSON(t, w.env, &organization, "organization", "create", "X", "--plan", "internal", "--per-minute", "1000000000")
	in := []string{"--organization", organization.ID}
	must(t, w.env, append([]string{"member", "add", "--email", "a@example.org", "--role", "owner"}, in...)...)
	var company operator.CompanyView
	mustJSON(t, w.env, &company, append([]string{"company", "create", "c"}, in...)...)
	var granted operator.KeyView
	mustJSON(t, w.env, &granted, append([]string{
		"apikey", "create", "--member", "a@example.org", "--scopes", "integrity:read,integrity:write,integrity:admin",
	}, in...)...)
	must(t, w.env, "apikey", "grant", granted.ID, "--company", "c")
	w.admin, w.company = granted.Key, company.ID
	return w
}

// create makes a destination through the first process. It receives nothing yet.
func (w *secretServers) create(url string) wire.WebhookWithSecret {
	w.Helper()
	var made wire.WebhookWithSecret
	path := w.processes[0].base + "/api/v1/integrity/webhooks"
	status, err := call(plainHTTP(), http.MethodPost, path, w.admin, map[string]string{"url": url}, &made)
	if err != nil || status != http.StatusCreated {
		w.Fatalf("create a destination: %d %v", status, err)
	}
	return made
}

// authorize lets a destination receive from now on. Every delivery must be signed with the secrets.
func (w *secretServers) authorize(id string, box *signedInbox, secrets ...string) {
	w.Helper()
	box.secrets = secrets
	path := w.processes[0].base + "/api/v1/integrity/companies/" + w.company + "/webhooks"
	status, err := call(plainHTTP(), http.MethodPost, path, w.admin, map[string]any{"webhookId": id, "enabled": true}, nil)
	if err != nil || status != http.StatusOK {
		w.Fatalf("authorize a destination: %d %v", status, err)
	}
}

// reload gives a process the operators' file, as the manual says.
func (w *secretServers) reload(process int) {
	w.Helper()
	text, err := os.ReadFile(w.files[0])
	if err != nil {
		w.Fatal(err)
	}
	if process > 0 {
		write(w.T, w.files[process], string(text))
	}
	s := w.processes[process]
	before := strings.Count(readLog(w.T, s), "key files reloaded")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		w.Fatal(err)
	}
	eventually(w.T, "the keys are reloaded", func() error {
		if strings.Count(readLog(w.T, s), "key files reloaded") == before {
			return errors.New("not yet")
		}
		return nil
	})
}

func (w *secretServers) rotate(step ...string) result {
	w.Helper()
	return integrity(w.T, w.env, append([]string{"keys", "rotate-secret"}, step...)...)
}

// ids returns the ids of the keys in the operators' file.
func (w *secretServers) ids() []string {
	w.Helper()
	text, err := os.ReadFile(w.files[0])
	if err != nil {
		w.Fatal(err)
	}
	keys, err := domain.ParseSecretKeys(string(text))
	if err != nil {
		w.Fatal(err)
	}
	return keys.IDs()
}

// reencrypted runs the third step until nothing needs another key: a process may not have shown its new keys yet.
func (w *secretServers) reencrypted() {
	w.Helper()
	eventually(w.T, "no other key is needed", func() error {
		if r := w.rotate("--reencrypt"); r.code != cli.ExitOK {
			return errors.New(r.out + r.errs)
		}
		return nil
	})
	if r := w.rotate("--check"); r.code != cli.ExitOK || !strings.Contains(r.out, "No other key is needed") {
		w.Errorf("check: %+v", r)
	}
}

// TestSecretKeyRotation follows the manual's page under load, with two processes that change one after the other. The
// command is killed in the middle. Every delivery is signed with the destination's secrets all the time.
func TestSecretKeyRotation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes two processes through a whole rotation under load")
	}
	_, text := domain.NewSecretKey()
	w := startSecretServers(t, text)
	former := w.ids()[0]
	box := &signedInbox{seen: map[string]bool{}}
	receiver := httptest.NewServer(box)
	defer receiver.Close()
	made := w.create(receiver.URL)
	var rotated wire.WebhookWithSecret
	if status, err := call(plainHTTP(), http.MethodPost,
		w.processes[1].base+"/api/v1/integrity/webhooks/"+made.ID+"/secret/rotate", w.admin, map[string]any{}, &rotated,
	); err != nil || status != http.StatusOK {
		t.Fatalf("rotate a destination's secret: %d %v", status, err)
	}
	w.authorize(made.ID, box, made.Secret, rotated.Secret) // both sign for a day
	const others = 48
	for range others {
		w.create(receiver.URL)
	}
	clients := &persistent{key: w.admin, stop: make(chan struct{})}
	var running sync.WaitGroup
	for i, s := range w.processes {
		p := &persistent{base: s.base, client: s.client, key: w.admin, stop: clients.stop}
		running.Go(func() { p.run(t, fmt.Sprint("document-", i)) })
	}
	hurry := sync.OnceFunc(func() { close(clients.stop) })
	defer running.Wait()
	defer hurry()

	if r := w.rotate("--stage"); r.code != cli.ExitOK || !strings.Contains(r.out, "--activate") {
		t.Fatalf("stage: %+v", r)
	}
	staged := w.ids()[1]
	if r := w.rotate("--stage"); r.code != cli.ExitNegative || len(w.ids()) != 2 {
		t.Errorf("stage again: %+v", r)
	}
	if r := w.rotate("--check"); r.code != cli.ExitOK || !strings.Contains(r.out, former+"  encrypts  50 secrets") {
		t.Errorf("check before the key is active: %+v", r)
	}
	w.reload(0)
	// The other process does not know the key yet, so it must not encrypt.
	var errs lockedBuffer
	activate := exec.Command(os.Getenv(binaryVariable), "keys", "rotate-secret", "--activate", staged)
	activate.Env, activate.Stderr = cleanEnviron(w.env...), &errs
	if err := activate.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command waits", errs.says("waiting for these processes to know the key "+staged))
	if w.ids()[0] != former {
		t.Error("the key is active before every process knows it")
	}
	w.reload(1)
	if err := activate.Wait(); err != nil || w.ids()[0] != staged {
		t.Fatalf("activate: %v %v %s", err, w.ids(), errs.String())
	}
	w.reload(0)
	// Under the new key, while the other process still encrypts with the former one.
	later := &signedInbox{seen: map[string]bool{}}
	laterReceiver := httptest.NewServer(later)
	defer laterReceiver.Close()
	second := w.create(laterReceiver.URL)
	w.authorize(second.ID, later, second.Secret)
	if r := w.rotate("--check"); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "50 secrets are encrypted with the key "+former) {
		t.Errorf("check before the secrets are encrypted again: %+v", r)
	}
	if r := w.rotate("--retire"); r.code != cli.ExitNegative || len(w.ids()) != 2 {
		t.Errorf("retire too early: %+v", r)
	}
	w.killReencrypt()
	w.reload(1)
	w.reencrypted()

	// Back to the former key, and forth again.
	for _, id := range []string{former, staged} {
		if r := w.rotate("--activate", id); r.code != cli.ExitOK || w.ids()[0] != id {
			t.Fatalf("activate %s: %+v", id, r)
		}
		w.reload(0)
		w.reload(1)
		w.reencrypted()
	}
	if r := w.rotate("--retire"); r.code != cli.ExitOK || len(w.ids()) != 1 {
		t.Fatalf("retire: %+v", r)
	}
	w.reload(1)
	w.reload(0)
	hurry()
	running.Wait()
	if len(later.seen) == 0 || later.wrong != nil {
		t.Errorf("the later destination: %d events, %v", len(later.seen), later.wrong)
	}
	w.allArrived(box)
}

// killReencrypt kills the third step in the middle: it waits for one of the destinations, which a session holds.
func (w *secretServers) killReencrypt() {
	w.Helper()
	conn, err := pgx.Connect(w.Context(), w.url)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(w.Context()))
	tx, err := conn.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	const hold = "SELECT FROM webhooks ORDER BY webhook_id OFFSET 25 LIMIT 1 FOR UPDATE"
	if _, err := tx.Exec(w.Context(), hold); err != nil {
		w.Fatal(err)
	}
	c := exec.Command(os.Getenv(binaryVariable), "keys", "rotate-secret", "--reencrypt")
	c.Env = cleanEnviron(w.env...)
	if err := c.Start(); err != nil {
		w.Fatal(err)
	}
	blocked := fmt.Sprintf("SELECT count(*)::int FROM pg_stat_activity WHERE %d = ANY(pg_blocking_pids(pid))",
		conn.PgConn().PID())
	eventually(w.T, "the command waits for the destination", func() error {
		if n, err := pgtest.Ask[int](w.url, blocked); err != nil || n == 0 {
			return fmt.Errorf("%d wait: %w", n, err)
		}
		return nil
	})
	if err := c.Process.Kill(); err != nil {
		w.Error(err)
	}
	_ = c.Wait() // it was killed
	if err := tx.Rollback(w.Context()); err != nil {
		w.Fatal(err)
	}
	const done = "SELECT count(*)::int FROM events WHERE type = 'webhook.secret_reencrypted'"
	if n, err := pgtest.Ask[int](w.url, done); err != nil || n < 1 || n > 40 {
		w.Errorf("%d destinations are done, %v", n, err)
	}
}

// allArrived compares the feed with what has arrived, and the log with its projections.
func (w *secretServers) allArrived(box *signedInbox) {
	w.Helper()
	registered, err := pgtest.Ask[int](w.url, "SELECT count(*)::int FROM feed")
	if err != nil {
		w.Fatal(err)
	}
	eventually(w.T, "every event has arrived", func() error {
		box.mu.Lock()
		defer box.mu.Unlock()
		if len(box.seen) < registered {
			return fmt.Errorf("%d of %d", len(box.seen), registered)
		}
		return nil
	})
	if box.wrong != nil {
		w.Error(box.wrong)
	}
	for _, s := range w.processes {
		s.stop()
		if log := readLog(w.T, s); strings.Contains(log, "cannot be signed") {
			w.Errorf("a process lacked a key: %s", log)
		}
	}
	w.Logf("%d events", registered)
	must(w.T, w.env, "audit")
	must(w.T, w.env, "rebuild", "--check")
}
