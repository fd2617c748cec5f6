package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// inbox is a receiver that counts how often it has seen each event.
type inbox struct {
	mu   sync.Mutex
	seen map[string]int
	all  int
}

func (i *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e struct{ ID string }
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &e) != nil {
		return // the sender was killed within the request
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[e.ID]++
	i.all++
}

func (i *inbox) counts() (different, all int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.seen), i.all
}

// webhookTo creates a destination and authorizes it for the demo's company.
func webhookTo(t *testing.T, s *running, access demo.Access, url string) (id string) {
	t.Helper()
	client := plainHTTP()
	var made struct{ ID string }
	if status, err := call(
		client, http.MethodPost, s.base+"/api/v1/integrity/webhooks", access.Keys.Admin, map[string]string{"url": url},
		&made,
	); err != nil || status != http.StatusCreated {
		t.Fatalf("create a destination: %d %v", status, err)
	}
	var companies struct {
		Companies []struct{ ID, Reference string }
	}
	if status, err := call(
		client, http.MethodGet, s.base+"/api/v1/integrity/companies?all=true", access.Keys.Admin, nil, &companies,
	); err != nil || status != http.StatusOK {
		t.Fatalf("list companies: %d %v", status, err)
	}
	path := s.base + "/api/v1/integrity/companies/" + companies.Companies[0].ID + "/webhooks"
	if status, err := call(
		client, http.MethodPost, path, access.Keys.Admin, map[string]any{"webhookId": made.ID, "enabled": true}, nil,
	); err != nil || status != http.StatusOK {
		t.Fatalf("authorize a destination: %d %v", status, err)
	}
	return made.ID
}

// TestKillWhileDelivering kills the service in the middle of 5,000 deliveries: every event of the feed arrives at least
// once, and nothing else does.
func TestKillWhileDelivering(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	const events = 5000
	box := &inbox{seen: map[string]int{}}
	receiver := httptest.NewServer(box)
	defer receiver.Close()
	args := []string{"--demo", "--webhook-allow-insecure", "--listen", freeAddress(t)}
	s := start(t, dataDir(t), args...)
	access := s.demo()
	if info, err := os.Stat(filepath.Join(s.dir, keyfiles.SecretKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: want mode 0600: %v, %v", keyfiles.SecretKeyFile, info, err)
	}
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	before := feedIDs(t, env, access.CompanyReference) // the demo's example
	webhookTo(t, s, access, receiver.URL)
	client := plainHTTP()
	for n := range events / 500 {
		declarations := make([]wire.Declaration, 500)
		for i := range declarations {
			declarations[i] = wire.Declaration{
				CompanyReference: access.CompanyReference, Source: "test", DocumentReference: fmt.Sprintf("d-%d-%d", n, i),
				Version: 1,
				SHA256:  strings.Repeat("b", 64), MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
			}
		}
		if status, err := call(
			client, http.MethodPost, s.base+"/api/v1/integrity/records/batch", access.Keys.Worker,
			map[string]any{"declarations": declarations}, nil,
		); err != nil || status != http.StatusOK {
			t.Fatalf("register: %d %v", status, err)
		}
		if n == 2 || n == 6 {
			if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-s.exited
			different, _ := box.counts()
			t.Logf("killed after %d of %d deliveries", different, (n+1)*500)
			s = start(t, s.dir, args...)
		}
	}
	eventually(t, "every event has arrived", func() error {
		if different, _ := box.counts(); different < events {
			return fmt.Errorf("%d of %d", different, events)
		}
		return nil
	})
	different, all := box.counts()
	t.Logf("%d events in %d deliveries", different, all)
	box.mu.Lock()
	defer box.mu.Unlock()
	for _, id := range feedIDs(t, env, access.CompanyReference)[len(before):] {
		if box.seen[id] == 0 {
			t.Errorf("%s never arrived", id)
		}
		delete(box.seen, id)
	}
	if len(box.seen) != 0 {
		t.Errorf("%d events arrived that the feed does not have", len(box.seen))
	}
}

// TestSecretKeyErrors: errors name a malformed key's setting, and never quote the key.
func TestSecretKeyErrors(t *testing.T) {
	t.Parallel()
	r := integrity(
		t, []string{config.Prefix + "SECRET_KEY=short"}, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t),
	)
	if r.code != cli.ExitFailed || !strings.Contains(r.errs, "SECRET_KEY") || strings.Contains(r.errs, "short") {
		t.Errorf("%+v", r)
	}
}

// lookupCommands looks up a record by each of its names, and prints the month's usage.
func lookupCommands(t *testing.T, s *running, access demo.Access, record wire.Record) {
	t.Helper()
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	byVersion := []string{
		"--company", record.CompanyReference, "--source", record.Source, "--document", record.DocumentReference, "--version",
	}
	for _, args := range [][]string{{record.PublicID}, {record.VerificationURL}, append(byVersion, "1")} {
		var found wire.Record
		if mustJSON(t, env, &found, append([]string{"lookup"}, args...)...); found.ID != record.ID ||
			found.Status != domain.StatusRevoked {
			t.Errorf("lookup %v: %+v", args, found)
		}
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitNegative, "RECORD_NOT_FOUND", append(byVersion, "9")},
		{cli.ExitNegative, "RECORD_NOT_FOUND", []string{strings.Repeat("a", 26)}},
		{cli.ExitFailed, "name the record by PUBLIC_ID, or", nil},
		{cli.ExitFailed, "name the record by PUBLIC_ID, or", append([]string{record.PublicID}, append(byVersion, "1")...)},
		{cli.ExitFailed, "the key is for", []string{"https://elsewhere.example.org/integrity/" + record.PublicID}},
		{cli.ExitFailed, "--version must be", append(byVersion, "0")},
	} {
		if r := integrity(t, env, append([]string{"lookup"}, c.args...)...); r.code != c.code ||
			!strings.Contains(r.errs, c.says) || r.out != "" {
			t.Errorf("lookup %v: %+v", c.args, r)
		}
	}
	var usage wire.Allowance
	if mustJSON(t, env, &usage, "usage"); usage.Organization.Used != 3 {
		t.Errorf("usage: %+v", usage)
	}
	if out := must(t, env, "usage"); !strings.Contains(out, "versions  3 used") ||
		!strings.Contains(out, "company   "+record.CompanyReference+"  2\n") {
		t.Errorf("usage: %s", out)
	}
}

// webhookCommands creates a destination with the command and sends it the events that it missed.
func webhookCommands(t *testing.T, s *running, access demo.Access) {
	t.Helper()
	as := func(key string) []string {
		return []string{config.VariableAPIKey + "=" + key, config.VariableBaseURL + "=" + s.base}
	}
	admin := as(access.Keys.Admin)
	box := &inbox{seen: map[string]int{}}
	receiver := httptest.NewServer(box)
	defer receiver.Close()
	arrived := func(events, deliveries int) {
		t.Helper()
		eventually(t, "the deliveries arrive", func() error {
			if different, all := box.counts(); different != events || all != deliveries {
				return fmt.Errorf("%d events in %d deliveries", different, all)
			}
			return nil
		})
	}
	create := []string{"webhook", "create", receiver.URL, "--types", "integrity.revoked", "--company"}

	// Nothing is created if a company cannot be authorized.
	if r := integrity(t, admin, append(create, "go-company,nobody")...); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, `no company "nobody"`) {
		t.Errorf("an unknown company: %+v", r)
	}
	if r := integrity(t, as(access.Keys.Worker),
		append(create[:len(create)-1:len(create)-1], "--json")...); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "MISSING_SCOPE") {
		t.Errorf("a worker's key: %+v", r)
	}
	var made wire.WebhookWithSecret
	mustJSON(t, admin, &made, append(create, "go-company", "--description", "from a command line")...)
	if !strings.HasPrefix(made.Secret, "whsec_") || made.Companies != 1 || made.Description == nil ||
		len(made.Types) != 1 {
		t.Errorf("made: %+v", made.Webhook)
	}
	for _, flags := range [][]string{nil, {"--json"}} {
		if out := must(t, admin, append([]string{"webhook", "list"}, flags...)...); strings.Count(out, "whk_") != 1 ||
			!strings.Contains(out, made.ID) || strings.Contains(out, made.Secret) {
			t.Errorf("list: %s", out)
		}
	}

	var test wire.Delivery
	mustJSON(t, admin, &test, "webhook", "test", made.ID)
	arrived(1, 1)
	// The event from before the destination was created: counted, and sent only once.
	replay := []string{"webhook", "replay", made.ID, "--from", "1"}
	if out := must(t, admin, replay...); !strings.HasPrefix(out, "1 deliveries would be queued; to queue them") {
		t.Errorf("counted: %s", out)
	}
	var replayed wire.Replay
	mustJSON(t, admin, &replayed, append(replay, "--confirm")...)
	if replayed.Count != 1 || replayed.DryRun {
		t.Errorf("replayed: %+v", replayed)
	}
	arrived(2, 2)
	var list wire.Deliveries
	eventually(t, "both deliveries are known to have arrived", func() error {
		if mustJSON(t, admin, &list, "webhook", "deliveries", made.ID, "--status", "delivered"); len(list.Deliveries) != 2 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	if out := must(t, admin, append(replay, "--confirm")...); out != "0 deliveries were queued\n" {
		t.Errorf("again: %s", out)
	}
	if out := must(t, admin, "webhook", "deliveries", made.ID, "--limit", "1"); strings.Count(out, "\n") != 1 ||
		!strings.Contains(out, "  delivered  1 attempts, ") {
		t.Errorf("one delivery: %s", out)
	}
	must(t, admin, "webhook", "redeliver", list.Deliveries[0].ID)
	arrived(2, 3)

	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitFailed, "webhookId must be an id", []string{"test", made.Secret}},
		{cli.ExitFailed, "deliveryId must be an id", []string{"redeliver", made.ID}},
		{cli.ExitFailed, "--from must be", []string{"replay", made.ID, "--from", "2", "--to", "1"}},
		{cli.ExitNegative, "/companyReference", []string{"replay", made.ID, "--from", "1", "--company", "nobody"}},
		{cli.ExitNegative, "NOT_FOUND", []string{"deliveries", "whk_" + test.ID[len("dlv_"):]}},
		{cli.ExitNegative, "/url", []string{"create", "ftp://receiver.example"}},
	} {
		if r := integrity(t, admin, append([]string{"webhook"}, c.args...)...); r.code != c.code ||
			!strings.Contains(r.errs, c.says) || r.out != "" || strings.Contains(r.errs, made.Secret) {
			t.Errorf("webhook %v: %+v", c.args, r)
		}
	}
}
