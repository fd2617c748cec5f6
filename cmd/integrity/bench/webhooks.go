package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"integrityledger/domain"
)

const (
	targetWebhooks = "webhook deliveries to a local receiver"

	webhookReplay = 10_000 // deliveries that one request queues
	webhookPace   = 2 * time.Millisecond
	webhookTimed  = 5 * time.Second  // of registrations at that pace whose way to the receiver is timed
	webhookWait   = 10 * time.Minute // longer than the wait after a second failed attempt
)

// webhooks is how fast the service drains a queue to one receiver on this machine,
// and how long an event takes from its decision to its arrival at 500 a second.
func (r *run) webhooks(ctx context.Context) error {
	r.Progress(fmt.Sprintf("webhooks: %d deliveries to a local receiver", webhookReplay))
	box := &inbox{}
	receiver := httptest.NewServer(box)
	defer receiver.Close()
	o := r.lab.one[0]
	ledger, stop, err := r.lab.open(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	// There are as many events of this organization already as are to be delivered.
	for range webhookReplay / batchSize {
		if err := r.lab.register(ctx, ledger, o, batchSize); err != nil {
			return err
		}
	}
	types := domain.MaskOf([]domain.EventType{domain.RecordRegistered})
	create, _ := domain.NewCreateWebhook(domain.CreateWebhook{Origin: o.origin(), URL: receiver.URL, Types: types}, r.secretKey, time.Now())
	if err := ledger.Do(ctx, create); err != nil {
		return err
	}
	id := create.Outcome.ID
	if err := ledger.Do(ctx, &domain.SetWebhookAccess{Origin: o.origin(), Company: o.company, Webhook: id, Enabled: true}); err != nil {
		return err
	}

	c := newClient(r.service, 1)
	c.callers[0] = caller{owner: o, path: "/api/v1/integrity/webhooks/" + id.String() + "/replay", body: []byte(`{"fromSequence":1,"dryRun":false}`)}
	began := time.Now()
	if _, err := c.send(ctx, 0, http.MethodPost, http.StatusAccepted); err != nil {
		return err
	}
	before, last, err := box.wait(ctx, webhookReplay)
	if err != nil {
		return err
	}
	rate := webhookReplay / last.Sub(began).Seconds()

	timed, err := load{workers: 16, pace: webhookPace, call: r.registering(r.service, "webhooks", 16, r.lab.one).call}.lasting(ctx, webhookTimed)
	if err != nil {
		return err
	}
	ways, _, err := box.wait(ctx, len(before)+int(timed.Done))
	if err != nil {
		return err
	}
	ways = ways[len(before):]
	slices.Sort(ways)
	r.measured[targetWebhooks] = measurement{value: rate, note: fmt.Sprintf("a queue of %d drained, queueing included; decision to arrival at %d/s: p50 %s, p99 %s",
		webhookReplay, time.Second/webhookPace, shortDuration(percentile(ways, 50)), shortDuration(percentile(ways, 99)))}
	return ledger.Do(ctx, &domain.DeleteWebhook{Origin: o.origin(), Webhook: id})
}

// inbox is a receiver that notes how long each event took from its occurredAt.
type inbox struct {
	mu   sync.Mutex
	ways []time.Duration
	last time.Time
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var event struct {
		OccurredAt time.Time `json:"occurredAt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		http.Error(w, "no event", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	b.ways, b.last = append(b.ways, at.Sub(event.OccurredAt)), at
	b.mu.Unlock()
}

// wait waits for so many events in all, and says when the last one came.
func (b *inbox) wait(ctx context.Context, n int) (ways []time.Duration, last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, webhookWait)
	defer cancel()
	err = poll(ctx, time.Millisecond, func() (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.ways) < n {
			return false, nil
		}
		ways, last = slices.Clone(b.ways), b.last
		return true, nil
	})
	if err != nil {
		err = fmt.Errorf("webhooks: fewer than %d deliveries arrived: %w", n, err)
	}
	return ways, last, err
}
