package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/handlers"
	"integrityledger/projections/queue/webhooks"
)

// delivered is a delivery as it was sent, and the receiver's status; 502 means no answer.
type delivered struct {
	header http.Header
	body   []byte
	status int
}

// receiver is the Python sample behind a fixed address.
type receiver struct {
	*httptest.Server
	t        *testing.T
	files    pythonFiles
	database string
	target   atomic.Pointer[string]
	arrivals chan delivered
	process  *exec.Cmd
}

func newReceiver(t *testing.T, files pythonFiles) *receiver {
	r := &receiver{
		t: t, files: files, database: filepath.Join(t.TempDir(), "events.db"), arrivals: make(chan delivered, 100),
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		status := r.send(request.Header, body)
		r.arrivals <- delivered{request.Header, body, status}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// send sends a delivery to the sample.
func (r *receiver) send(header http.Header, body []byte) int {
	request, err := http.NewRequestWithContext(
		context.Background(), http.MethodPost, *r.target.Load(), bytes.NewReader(body),
	)
	if err != nil {
		return http.StatusBadGateway
	}
	request.Header = header.Clone()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return http.StatusBadGateway
	}
	response.Body.Close()
	return response.StatusCode
}

// start runs the sample with a secret, after killing the former process.
func (r *receiver) start(secret string) {
	r.t.Helper()
	r.kill()
	r.process = r.files.command(
		r.t, []string{"INTEGRITY_WEBHOOK_SECRET=" + secret}, "integrity_webhook.py", r.database, "--listen", "127.0.0.1:0",
	)
	errs, err := r.process.StderrPipe()
	check(r.t, err)
	check(r.t, r.process.Start())
	r.t.Cleanup(r.kill)
	first, err := bufio.NewReader(errs).ReadString('\n')
	check(r.t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if !ok {
		r.t.Fatalf("it says %q", first)
	}
	go func() { _, _ = io.Copy(io.Discard, errs) }()
	target := "http://" + address + "/hook"
	r.target.Store(&target)
}

func (r *receiver) kill() {
	if r.process != nil {
		_ = r.process.Process.Kill()
		_ = r.process.Wait()
		r.process = nil
	}
}

// next waits for n deliveries with this status.
func (r *receiver) next(n, status int) (list []delivered) {
	r.t.Helper()
	timeout := time.After(patience)
	for len(list) < n {
		select {
		case d := <-r.arrivals:
			if d.status != status {
				r.t.Fatalf("answered %d, want %d: %s", d.status, status, d.body)
			}
			list = append(list, d)
		case <-timeout:
			r.t.Fatalf("%d of %d deliveries", len(list), n)
		}
	}
	return list
}

// stored returns the ids of the events in the sample's database.
func (r *receiver) stored() (ids []string) {
	r.t.Helper()
	db, err := sql.Open("sqlite", r.database)
	check(r.t, err)
	defer db.Close()
	rows, err := db.QueryContext(context.Background(), "SELECT id FROM event ORDER BY id")
	check(r.t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		check(r.t, rows.Scan(&id))
		ids = append(ids, id)
	}
	check(r.t, rows.Err())
	var pending string
	check(
		r.t, db.QueryRowContext(context.Background(), "SELECT group_concat(company_reference) FROM pending").Scan(&pending),
	)
	equal(r.t, "companies to read", pending, "company-1")
	return ids
}

// The sample accepts the service's deliveries and stores each event once, across duplicates, a rotated secret and its
// own crash. It refuses everything that the service has not sent.
func TestPythonWebhookReceiver(t *testing.T) {
	t.Parallel()
	pythonReceiverStory(t, servedPython(t))
}

func pythonReceiverStory(t *testing.T, files pythonFiles) {
	t.Helper()
	s := open(t, options{config: func(c *handlers.Config) { c.Egress = webhooks.EgressPolicy{Insecure: true} }})
	r := newReceiver(t, files)
	id, secret := s.webhook(r.URL + "/hook")
	s.authorized(id, true).is(http.StatusOK)
	r.start(secret)
	s.deliver(webhooks.EgressPolicy{Insecure: true})

	s.registered("a", 1, "one")
	s.registered("a", 2, "two")
	first := r.next(3, http.StatusNoContent)[0]

	signed := func(at time.Time, body []byte, secret string) http.Header {
		return http.Header{"Service-Signature": {domain.SignWebhook(at, body, secret)}}
	}
	now := time.Now()
	for _, c := range []struct {
		name   string
		header http.Header
		body   []byte
		status int
	}{
		{"the same delivery", first.header, first.body, http.StatusNoContent},
		{
			"the same event in another attempt", signed(now.Add(-150*time.Second), first.body, secret), first.body,
			http.StatusNoContent,
		},
		{
			"a changed body", first.header, bytes.Replace(first.body, []byte("company-1"), []byte("company-2"), 1),
			http.StatusUnauthorized,
		},
		{"an old one", signed(now.Add(-400*time.Second), first.body, secret), first.body, http.StatusUnauthorized},
		{"one of the future", signed(now.Add(400*time.Second), first.body, secret), first.body, http.StatusUnauthorized},
		{"another secret", signed(now, first.body, secret+"x"), first.body, http.StatusUnauthorized},
		{"no signature", http.Header{}, first.body, http.StatusUnauthorized},
		{"another protocol", signed(now, []byte(`{"version":2}`), secret), []byte(`{"version":2}`), http.StatusBadRequest},
	} {
		if got := r.send(c.header, c.body); got != c.status {
			t.Errorf("%s: %d, want %d", c.name, got, c.status)
		}
	}

	rotated := s.post(hooks+"/"+id+"/secret/rotate", body{"overlapSeconds": 3600}).is(http.StatusOK)["secret"].(string)
	s.registered("b", 1, "b")
	if both := r.next(1, http.StatusNoContent)[0].header.Get("Service-Signature"); strings.Count(both, "v1=") != 2 {
		t.Errorf("during a rotation: %s", both)
	}
	r.start(rotated)
	s.registered("c", 1, "c")
	r.next(1, http.StatusNoContent)

	s.hold() // no retry before the receiver is back
	r.kill()
	s.registered("d", 1, "d")
	r.next(1, http.StatusBadGateway)
	r.start(rotated)
	s.skew.Add(int64(10 * time.Second)) // beyond the first wait
	r.next(1, http.StatusNoContent)

	var want []string
	for _, event := range s.changes("").Events {
		want = append(want, event.ID)
	}
	slices.Sort(want)
	equal(t, "the events stored", r.stored(), want)
}

// deliver runs the workers that send webhooks, until the test ends.
func (s *service) deliver(egress webhooks.EgressPolicy) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := cluster.At(s.URL).QueuePool(ctx, 4)
	check(s.t, err)
	plans, err := domain.DefaultPlans()
	check(s.t, err)
	worker, err := webhooks.New(webhooks.Config{
		Pool: pool, Shards: s.Installation.Shards, Plans: plans, SecretKeys: domain.FixedSecretKeys(domain.SecretKey{1}), Allows: egress.Allows,
		Do: s.Do, Now: s.Now, Log: slog.New(slog.DiscardHandler),
	})
	check(s.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		worker.Run(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-ended
		pool.Close()
	})
}
