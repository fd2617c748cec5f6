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
	"integrityledger/handlers/wire"
)

// inbox is a receiver that remembers which events it has seen, and how often.
type inbox struct {
	mu   sync.Mutex
	seen map[string]int
	all  int
}

func (i *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e struct{ ID string }
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &e) != nil {
		return // the sender was killed in the middle
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

// webhookTo makes a destination and authorizes it for the demo's company.
func webhookTo(t *testing.T, s *running, access demo.Access, url string) (id string) {
	t.Helper()
	client := plainHTTP()
	var made struct{ ID string }
	if status, err := call(client, http.MethodPost, s.base+"/api/v1/integrity/webhooks", access.Keys.Admin, map[string]string{"url": url}, &made); err != nil || status != http.StatusCreated {
		t.Fatalf("create a destination: %d %v", status, err)
	}
	var companies struct {
		Companies []struct{ ID, Reference string }
	}
	if status, err := call(client, http.MethodGet, s.base+"/api/v1/integrity/companies?all=true", access.Keys.Admin, nil, &companies); err != nil || status != http.StatusOK {
		t.Fatalf("list companies: %d %v", status, err)
	}
	path := s.base + "/api/v1/integrity/companies/" + companies.Companies[0].ID + "/webhooks"
	if status, err := call(client, http.MethodPost, path, access.Keys.Admin, map[string]any{"webhookId": made.ID, "enabled": true}, nil); err != nil || status != http.StatusOK {
		t.Fatalf("authorize a destination: %d %v", status, err)
	}
	return made.ID
}

// TestKillWhileDelivering kills the service in the middle of 5,000 deliveries:
// every event of the feed arrives at least once, and nothing else does.
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
	before := feedIDs(t, env, access.CompanyReference) // the example of the demo
	webhookTo(t, s, access, receiver.URL)
	client := plainHTTP()
	for n := range events / 500 {
		declarations := make([]wire.Declaration, 500)
		for i := range declarations {
			declarations[i] = wire.Declaration{
				CompanyReference: access.CompanyReference, Source: "test", DocumentReference: fmt.Sprintf("d-%d-%d", n, i), Version: 1,
				SHA256: strings.Repeat("b", 64), MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
			}
		}
		if status, err := call(client, http.MethodPost, s.base+"/api/v1/integrity/records/batch", access.Keys.Worker, map[string]any{"declarations": declarations}, nil); err != nil || status != http.StatusOK {
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

// TestSecretKeyErrors: a malformed key is named, and not repeated.
func TestSecretKeyErrors(t *testing.T) {
	t.Parallel()
	r := integrity(t, []string{config.Prefix + "SECRET_KEY=short"}, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t))
	if r.code != cli.ExitFailed || !strings.Contains(r.errs, "SECRET_KEY") || strings.Contains(r.errs, "short") {
		t.Errorf("%+v", r)
	}
}
