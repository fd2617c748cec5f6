package webhooks_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
	"integrityledger/projections/queue/webhooks"
)

const patient = 4 * time.Minute

// house is a ledger with an organization, and workers on its queue.
type house struct {
	*ledgertest.Ledger
	t     *testing.T
	org   ledgertest.Organization
	store *query.Store
	key   domain.SecretKey
	plans domain.Plans
	skew  atomic.Int64              // of all clocks except the receivers'
	still atomic.Pointer[time.Time] // the time at which that clock is stopped; nil: it runs
	wake  atomic.Pointer[webhooks.Worker]
}

func build(t *testing.T, plans domain.Plans, plan string) *house {
	t.Helper()
	if plans == nil {
		var err error
		plans, err = domain.DefaultPlans()
		check(t, err)
	}
	h := &house{t: t, plans: plans}
	key, _ := domain.NewSecretKey()
	h.key = key
	h.Ledger = ledgertest.New(t, func(c *eventstore.Config) {
		c.Plans, c.Clock = plans, ledgertest.Simulated(h.now)
		c.Committed = func(c eventstore.Commit) {
			if w := h.wake.Load(); w != nil && c.Queued {
				w.Wake(c.Shard)
			}
		}
	})
	h.Now = h.now
	h.store = query.New(query.Config{Pool: h.Pool, Public: h.Pool, Installation: h.Installation, Plans: plans})
	h.org = h.Organization(t, 1, plan)
	return h
}

func (h *house) now() time.Time {
	now := time.Now()
	if still := h.still.Load(); still != nil {
		now = *still
	}
	return now.Add(time.Duration(h.skew.Load()))
}

// stop stops the clock: time passes only with pass, however slow the machine is.
func (h *house) stop() {
	now := time.Now()
	h.still.Store(&now)
}

func (h *house) pass(d time.Duration) {
	h.skew.Add(int64(d))
	if w := h.wake.Load(); w != nil {
		w.Wake(h.org.ID.Shard())
	}
}

// worker runs a Worker. stop ends it like a shutdown.
func (h *house) worker(change ...func(*webhooks.Config)) (stop func()) {
	h.t.Helper()
	pool, err := cluster.At(h.URL).QueuePool(context.Background(), 4)
	check(h.t, err)
	c := webhooks.Config{
		Pool: pool, Shards: h.Installation.Shards, Plans: h.plans, SecretKeys: func() domain.SecretKeys { return domain.SecretKeys{h.key} },
		Allows: webhooks.EgressPolicy{Insecure: true}.Allows,
		Do:     h.Do, Now: h.now, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&c)
	}
	w, err := webhooks.New(c)
	check(h.t, err)
	h.wake.Store(w)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			<-ended
			pool.Close()
		})
	}
	h.t.Cleanup(stop)
	return stop
}

// destination creates a destination and authorizes it for the organization's company.
func (h *house) destination(url string) (domain.Webhook, string) {
	h.t.Helper()
	c, secret := domain.NewCreateWebhook(
		domain.CreateWebhook{Origin: h.org.Origin(), URL: url, Types: domain.MaskOf(domain.WebhookTypes())}, h.key, h.now(),
	)
	h.Must(h.t, c)
	h.authorize(c.Outcome.ID, true)
	return c.Outcome, secret
}

func (h *house) authorize(id domain.WebhookID, enabled bool) {
	h.t.Helper()
	h.Must(h.t, &domain.SetWebhookAccess{Origin: h.org.Origin(), Company: h.org.Company.ID, Webhook: id, Enabled: enabled})
}

// register registers n new documents and returns their events' ids.
func (h *house) register(n int) {
	h.t.Helper()
	commands := make([]domain.Command, n)
	for i := range commands {
		content := fmt.Sprint(documents.Add(1))
		commands[i] = h.Register(h.t, h.org, h.org.Declaration("d-"+content, 1, content))
	}
	for _, answer := range h.Execute(context.Background(), commands...) {
		check(h.t, answer.Err)
	}
}

var documents atomic.Int64 // names are unique although tests never share a ledger

// feed returns the ids of all events of the organization's company.
func (h *house) feed() map[string]bool {
	h.t.Helper()
	ids := map[string]bool{}
	after := int64(0)
	for {
		page, err := h.store.Changes(
			context.Background(), domain.Access{Organization: h.org.ID, Key: h.org.Key.ID}, h.org.Company.Reference,
			query.AnyEpoch, after, 1000,
		)
		check(h.t, err)
		for _, e := range page.Events {
			ids[e.ID.String()], after = true, e.Sequence
		}
		if !page.More {
			return ids
		}
	}
}

// deliveries lists the deliveries of a destination, newest first.
func (h *house) deliveries(id domain.WebhookID) []query.Delivery {
	h.t.Helper()
	list, _, err := h.store.Deliveries(context.Background(), h.org.ID, id, "", domain.DeliveryID{}, 1000)
	check(h.t, err)
	return list
}

// inStatus waits until n deliveries of a destination have a status, and returns them.
func (h *house) inStatus(id domain.WebhookID, n int, status projections.DeliveryStatus) []query.Delivery {
	h.t.Helper()
	var list []query.Delivery
	h.eventually(fmt.Sprintf("%d deliveries are %s", n, status), func() bool {
		list = nil
		for _, d := range h.deliveries(id) {
			if d.Status == status {
				list = append(list, d)
			}
		}
		return len(list) == n
	})
	return list
}

func (h *house) eventually(what string, holds func() bool) {
	h.t.Helper()
	for end := time.Now().Add(patient); ; time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("not within %s: %s", patient, what)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// arrival is a delivery as a receiver sees it.
type arrival struct {
	header http.Header
	body   []byte
}

// receiver receives deliveries. answer answers them.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	arrivals []arrival
	answer   func(http.ResponseWriter, *http.Request)
}

func receive(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body) // a broken body shows in the recorded bytes
	r.mu.Lock()
	r.arrivals = append(r.arrivals, arrival{q.Header.Clone(), body})
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(w, q)
	}
}

func (r *receiver) set(answer func(http.ResponseWriter, *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) got() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.arrivals...)
}

func answering(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}
