package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
)

const (
	targetWebhooks = "webhook deliveries to a local receiver"

	webhookReplay = 10_000 // deliveries that one request queues
	webhookPace   = 2 * time.Millisecond
	webhookTimed  = 2500             // registrations at that pace whose way to the receiver is timed
	webhookWait   = 10 * time.Minute // longer than the wait after a second failed attempt
)

// webhooks is how fast the service drains a queue to one receiver on this machine,
// and how long an event takes from its decision to its arrival at 500 a second.
func (r *run) webhooks(ctx context.Context) error {
	r.Progress(fmt.Sprintf("webhooks: %d deliveries to a local receiver", webhookReplay))
	box := &inbox{}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	receiver := &http.Server{Handler: box, ReadHeaderTimeout: time.Minute}
	go func() { _ = receiver.Serve(listener) }() // ends with Close
	defer receiver.Close()

	o := r.lab.one[0]
	ledger, stop, err := r.lab.open(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	// There are as many events of this organization already as are to be delivered.
	for range webhookReplay / batchSize {
		if err := r.lab.registerAll(ctx, ledger, o, batchSize); err != nil {
			return err
		}
	}
	id, err := r.destination(ctx, ledger, o, "http://"+listener.Addr().String())
	if err != nil {
		return err
	}

	c, err := newClient(r.service.base, 1)
	if err != nil {
		return err
	}
	began := time.Now()
	path := "/api/v1/integrity/webhooks/" + id.String() + "/replay"
	if _, err := c.send(ctx, 0, http.MethodPost, path, "", header(o.secret), []byte(`{"fromSequence":1,"dryRun":false}`), http.StatusAccepted); err != nil {
		return err
	}
	arrived, err := box.wait(ctx, webhookReplay)
	if err != nil {
		return err
	}
	rate := webhookReplay / arrived[len(arrived)-1].at.Sub(began).Seconds()

	ways, err := r.timedDeliveries(ctx, o, box)
	if err != nil {
		return err
	}
	r.measured[targetWebhooks] = measurement{value: rate, note: fmt.Sprintf("a queue of %d drained, queueing included; decision to arrival at %d/s: p50 %s, p99 %s",
		webhookReplay, time.Second/webhookPace, shortDuration(percentile(ways, 50)), shortDuration(percentile(ways, 99)))}
	return ledger.Do(ctx, &domain.DeleteWebhook{Origin: o.origin(), Webhook: id})
}

// destination gives an organization one, which gets what its company registers.
func (r *run) destination(ctx context.Context, ledger *eventstore.Ledger, o *organization, address string) (domain.WebhookID, error) {
	now := time.Now()
	types := domain.MaskOf([]domain.EventType{domain.RecordRegistered})
	create, _ := domain.NewCreateWebhook(domain.CreateWebhook{Origin: o.origin(), URL: address, Types: types}, r.secretKey, now)
	if err := ledger.Do(ctx, create); err != nil {
		return domain.WebhookID{}, err
	}
	return create.Outcome.ID, ledger.Do(ctx, &domain.SetWebhookAccess{Origin: o.origin(), Company: o.company, Webhook: create.Outcome.ID, Enabled: true})
}

// timedDeliveries registers at an even pace over HTTP, and returns in ascending
// order how long each event took from its occurredAt to the receiver.
func (r *run) timedDeliveries(ctx context.Context, o *organization, box *inbox) ([]time.Duration, error) {
	const callers = 16
	c, err := newClient(r.service.base, callers)
	if err != nil {
		return nil, err
	}
	h := header(o.secret)
	before := box.count()
	begin := time.Now()
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for k := i; k < webhookTimed && errs[i] == nil && ctx.Err() == nil; k += callers {
				time.Sleep(time.Until(begin.Add(time.Duration(k) * webhookPace)))
				d := r.lab.declaration()
				c.callers[i].body = appendJSON(c.callers[i].body[:0], &d)
				if _, errs[i] = c.send(ctx, i, http.MethodPost, recordsPath, "", h, c.callers[i].body, http.StatusCreated); errs[i] == nil {
					o.acknowledged.Add(1)
				}
			}
		})
	}
	group.Wait()
	if err := firstError(errs); err != nil {
		return nil, err
	}
	arrived, err := box.wait(ctx, before+webhookTimed)
	if err != nil {
		return nil, err
	}
	var ways []time.Duration
	for _, a := range arrived[before:] {
		ways = append(ways, a.at.Sub(a.occurredAt))
	}
	slices.Sort(ways)
	return ways, nil
}

// inbox is a receiver that notes when what arrives.
type inbox struct {
	mu       sync.Mutex
	arrivals []webhookArrival
}

type webhookArrival struct {
	id             string // of the event
	at, occurredAt time.Time
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var event struct {
		ID         string    `json:"id"`
		OccurredAt time.Time `json:"occurredAt"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	if err != nil {
		http.Error(w, "no event", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	b.arrivals = append(b.arrivals, webhookArrival{event.ID, at, event.OccurredAt})
	b.mu.Unlock()
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrivals)
}

// wait returns everything that has arrived once there are n.
func (b *inbox) wait(ctx context.Context, n int) ([]webhookArrival, error) {
	ctx, cancel := context.WithTimeout(ctx, webhookWait)
	defer cancel()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for b.count() < n {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("webhooks: %d of %d deliveries arrived: %w", b.count(), n, ctx.Err())
		case <-look.C:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.arrivals), nil
}
