package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/handlers/wire"
)

// acknowledged is a declaration that the service has accepted.
type acknowledged struct {
	declaration wire.Declaration
	publicID    string
	at          time.Time
}

// writer registers one version after the other. Like every client, it must repeat a declaration until it is
// acknowledged.
type writer struct {
	client   *http.Client // nil: its own
	acks     []acknowledged
	attempts int
}

func (w *writer) run(t *testing.T, name, base, key, company string, stop *atomic.Bool, count *atomic.Int64) {
	client := w.client
	if client == nil {
		client = &http.Client{Timeout: 10 * time.Second}
		defer client.CloseIdleConnections()
	}
	for version := int32(1); !stop.Load(); version++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, version))
		d := wire.Declaration{
			CompanyReference: company, Source: "crash", DocumentReference: fmt.Sprintf("%s-%d", name, version/3),
			Version: version,
			SHA256:  hex.EncodeToString(sum[:]), SizeBytes: int64(version), MimeType: "application/pdf",
			GeneratedAt: "2026-01-02T03:04:05Z",
		}
		deadline := time.Now().Add(patient)
		for {
			var record wire.Registration
			w.attempts++
			status, err := call(client, http.MethodPost, base+"/api/v1/integrity/records", key, d, &record)
			if err == nil && (status == http.StatusCreated || status == http.StatusOK) {
				w.acks = append(w.acks, acknowledged{d, record.PublicID, time.Now()})
				count.Add(1)
				break
			}
			if err == nil && status != http.StatusServiceUnavailable {
				t.Errorf("%s: a declaration was answered with %d", name, status)
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: not acknowledged within %s: %d %v", name, patient, status, err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestKill kills the service, PostgreSQL and both under load, also stops the service normally, and looks for every
// acknowledged declaration exactly once.
func TestKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills servers for a while")
	}
	address := freeAddress(t)
	s := start(t, dataDir(t), "--demo", "--listen", address)
	access := s.demo()
	var stop atomic.Bool
	var count atomic.Int64
	var wg sync.WaitGroup
	writers := make([]*writer, 8)
	for i := range writers {
		writers[i] = &writer{}
		wg.Go(func() {
			writers[i].run(t, "writer"+strconv.Itoa(i), s.base, access.Keys.Worker, access.CompanyReference, &stop, &count)
		})
	}
	defer wg.Wait()
	defer stop.Store(true)
	more := func(n int64) {
		t.Helper()
		from := count.Load()
		eventually(t, "registrations go on", func() error {
			if now := count.Load(); now < from+n {
				return fmt.Errorf("%d acknowledged", now-from)
			}
			return nil
		})
	}
	for round := range 2 {
		for _, victim := range []string{"service", "postgres", "both", "none"} {
			more(150)
			if victim == "none" {
				s.stop()
				s = start(t, s.dir, "--demo", "--listen", address)
				continue
			}
			postgres, err := s.postgresPID()
			if err != nil {
				t.Fatal(err)
			}
			if victim != "postgres" {
				if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if victim != "service" {
				if err := syscall.Kill(postgres, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
			}
			if victim != "postgres" {
				<-s.exited
				s = start(t, s.dir, "--demo", "--listen", address)
			}
			t.Logf("round %d: killed %s after %d acknowledgements", round, victim, count.Load())
		}
	}
	more(150)
	stop.Store(true)
	wg.Wait()
	if t.Failed() {
		return
	}
	var acks []acknowledged
	attempts := 0
	for _, w := range writers {
		acks, attempts = append(acks, w.acks...), attempts+w.attempts
	}
	t.Logf("%d acknowledged in %d attempts", len(acks), attempts)
	wantEverythingOnce(t, s, access, acks)
}

// wantEverythingOnce checks the API, the feed and the log itself.
func wantEverythingOnce(t *testing.T, s *running, access demo.Access, acks []acknowledged) {
	t.Helper()
	client := plainHTTP()
	for _, ack := range acks {
		var record wire.Registration
		status, err := call(
			client, http.MethodPost, s.base+"/api/v1/integrity/records", access.Keys.Worker, ack.declaration, &record,
		)
		if err != nil || status != http.StatusOK || !record.Replayed || record.PublicID != ack.publicID {
			t.Fatalf(
				"%s version %d: want a replay of %s: %d %v %+v", ack.declaration.DocumentReference, ack.declaration.Version,
				ack.publicID, status, err, record,
			)
		}
	}
	var usage struct {
		Organization struct{ Used int } `json:"organization"`
	}
	if status, err := call(
		client, http.MethodGet, s.base+"/api/v1/integrity/usage", access.Keys.Worker, nil, &usage,
	); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	const example = 1 // the demo's own, however often it starts
	if usage.Organization.Used != len(acks)+example {
		t.Errorf("%d versions were charged, %d acknowledged and the example", usage.Organization.Used, len(acks))
	}

	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	registered, between := map[string]int{}, signInLinks(t, s.base, access)
	last := int64(0)
	for line := range strings.Lines(must(t, env, "changes", "--company", access.CompanyReference, "--json")) {
		var e wire.FeedEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		// The company's events follow the organization's setup; the only later events of others are sign-in links.
		for last++; last > 1 && between[last]; last++ {
		}
		if last > 1 && e.Sequence != last {
			t.Fatalf("the feed goes from sequence %d to %d", last-1, e.Sequence)
		}
		if last = e.Sequence; e.Type == "integrity.registered" {
			registered[e.PublicID]++
		}
	}
	for _, ack := range acks {
		if registered[ack.publicID] != 1 {
			t.Errorf("%s was registered %d times in the feed", ack.publicID, registered[ack.publicID])
		}
	}
	if len(registered) != len(acks)+example {
		t.Errorf("the feed has %d registrations, %d were acknowledged, and the example", len(registered), len(acks))
	}

	next := int64(1)
	for line := range strings.Lines(must(t, nil, "replay", "--data-dir", s.dir, "--organization", access.OrganizationID)) {
		var e struct{ Sequence int64 }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Sequence != next {
			t.Fatalf("the log has sequence %d, want %d", e.Sequence, next)
		}
		next++
	}
	if next-1 != last {
		t.Errorf("the log ends at sequence %d, the feed at %d", next-1, last)
	}
}
