package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	quietPace   = 200 * time.Millisecond // between two registrations of the quiet tenant: 5 a second
	floodRounds = 5                      // how many times longer a flood lasts than other measurements
	floodLeast  = 3 * time.Second
	floodMost   = time.Minute // how much longer a flood waits for its first commit

	floodService = "flood"

	targetQuietBatches = "quiet tenant's p99 beside batches, c = 256 : alone"
	targetQuietSingles = "quiet tenant's p99 beside singles, c = 256 : alone"
	targetFlooding     = "flooding tenant's registrations/s, batches, c = 256 : c = 4"
)

// Flood compares the waits of a tenant that registers five versions a second, alone and while another organization
// floods the same shard and process.
type Flood struct {
	Alone  Round        `json:"alone"`
	Note   string       `json:"note,omitempty"` // about Alone
	Floods []FloodPhase `json:"floods"`
}

// FloodPhase is one flood. The flooding tenant repeats refused requests at once, regardless of Retry-After.
type FloodPhase struct {
	Name        string `json:"name"`
	Concurrency int    `json:"concurrency"`
	// Quiet is the quiet tenant. Each registration is timed from when it was due to its success, including refusals in
	// between.
	Quiet        Round `json:"quiet"`
	QuietRefused int64 `json:"quietRefused"`
	// Flooding is the flooding tenant: the versions committed during the flood.
	Flooding            Round   `json:"flooding"`
	Refused             int64   `json:"refusedItems"`
	SignaturesPerCommit float64 `json:"signaturesPerCommit"`

	size int // declarations per call
}

// flood measures the quiet tenant alone and beside three floods, on a separate service.
func (r *run) flood(ctx context.Context, result *Result) error {
	service, err := r.serve(ctx, floodService)
	if err != nil {
		return err
	}
	flooding := r.lab.one[0]
	quiet := r.lab.neighbour(flooding)
	f := &Flood{Floods: []FloodPhase{
		{Name: "batches of 500", Concurrency: 4, size: batchSize},
		{Name: "batches of 500", Concurrency: 256, size: batchSize},
		{Name: "single registrations", Concurrency: 256, size: 1},
	}}
	length := max(floodRounds*r.Duration, floodLeast)
	if f.Note, err = r.settle(ctx); err != nil {
		return err
	}
	r.Progress("a quiet tenant alone")
	if f.Alone, err = r.newTenant(service, quiet, 64, 1, 20*time.Millisecond).quietly().lasting(ctx, length); err != nil {
		return err
	}
	for i := range f.Floods {
		phase := &f.Floods[i]
		if err := r.floodOnce(ctx, service, flooding, quiet, length, phase); err != nil {
			return fmt.Errorf("flood of %s, c = %d: %w", phase.Name, phase.Concurrency, err)
		}
		r.Progress(fmt.Sprintf("%s, c = %d: %.0f registrations/s, %.2f signatures each; quiet tenant p50 %s, p99 %s",
			phase.Name, phase.Concurrency,
			phase.Flooding.PerSecond, phase.SignaturesPerCommit, shortDuration(phase.Quiet.P50), shortDuration(phase.Quiet.P99)))
	}
	for name, phase := range map[string]FloodPhase{targetQuietBatches: f.Floods[1], targetQuietSingles: f.Floods[2]} {
		slower := float64(phase.Quiet.P99) / float64(f.Alone.P99)
		r.measured[name] = measurement{value: slower, wall: slower,
			note: fmt.Sprintf("p50 %s, p99 %s of %d registrations; alone %s, %s",
				shortDuration(phase.Quiet.P50), shortDuration(phase.Quiet.P99), phase.Quiet.Done, shortDuration(f.Alone.P50),
				shortDuration(f.Alone.P99))}
	}
	own := measurement{missing: "nothing was committed while the flood at c = 4 lasted"}
	if light, heavy := f.Floods[0].Flooding, f.Floods[1].Flooding; light.PerSecond > 0 {
		own = measurement{
			value: heavy.PerSecond / light.PerSecond, wall: heavy.PerSecond / light.PerSecond, perSecond: heavy.PerSecond,
		}
	}
	r.measured[targetFlooding], result.Flood = own, f
	return nil
}

// neighbour returns another organization of the same shard.
func (l *lab) neighbour(of *organization) *organization {
	return l.many[slices.IndexFunc(l.many, func(o *organization) bool { return o.id.Shard() == of.id.Shard() })]
}

// floodOnce floods for the given time, and then waits until every outcome is known.
func (r *run) floodOnce(
	ctx context.Context, service *child, flooding, quiet *organization, length time.Duration, phase *FloodPhase,
) error {
	signed, err := service.signatures(ctx)
	if err != nil {
		return err
	}
	loud, calm := r.newTenant(service, flooding, phase.Concurrency, phase.size, 0), r.newTenant(
		service, quiet, 64, 1, 20*time.Millisecond,
	)
	group, running := errgroup.WithContext(ctx)
	end, stop := context.WithCancel(running)
	defer stop()
	group.Go(func() error {
		loud.end = end.Done()
		_, err := load{workers: phase.Concurrency, call: loud.register}.until(running, end.Done())
		return err
	})
	// All callers make their first declarations at once, which must not be measured.
	_ = pause(running, length/floodRounds) // the next statement reports its error
	measured := &contender{service: service}
	before, began := loud.done.Load(), time.Now()
	spent, err := r.cpu(measured)
	if err != nil {
		return err
	}
	phase.Quiet, err = calm.quietly().lasting(running, length)
	// A busy machine may commit no batch in that time, which would leave no rate to compare.
	for most := time.Now().Add(floodMost); err == nil && loud.done.Load() == before && time.Now().Before(most); {
		err = pause(running, 20*time.Millisecond)
	}
	// Count at the end of the flood: later commits were not in time.
	committed, elapsed := loud.done.Load()-before, time.Since(began)
	now, cpuErr := r.cpu(measured)
	phase.Flooding = Round{
		PerSecond: float64(committed) / elapsed.Seconds(), Done: committed, CPU: now.per(committed+phase.Quiet.Done, spent),
	}
	phase.Refused, phase.QuietRefused = loud.refused.Load(), calm.refused.Load()
	stop()
	if err := errors.Join(group.Wait(), err, cpuErr); err != nil {
		return err
	}
	after, err := service.signatures(ctx)
	phase.SignaturesPerCommit = float64(after-signed) / float64(loud.done.Load()+phase.Quiet.Done)
	return err
}

// tenant is an organization that declares new versions in calls of a given size, and repeats refused ones.
type tenant struct {
	*run
	organization *organization
	client       *client
	size         int
	pause        time.Duration // before repeating refused declarations
	// end is the end of the flood. From then on only declarations that may be registered are sent, with longer pauses.
	end           <-chan struct{}
	done, refused atomic.Int64
}

func (r *run) newTenant(service *child, o *organization, callers, size int, pause time.Duration) *tenant {
	return &tenant{run: r, organization: o, client: newClient(service, callers), size: size, pause: pause}
}

// quietly registers at an even pace.
func (t *tenant) quietly() load {
	return load{workers: len(t.client.callers), pace: quietPace, call: t.register}
}

// sending is a declaration in progress.
type sending struct {
	text []byte
	// unknown means that an answer left its outcome open. It is sent again until an answer tells.
	unknown bool
}

func (t *tenant) register(ctx context.Context, worker int) (int, error) {
	items := make([]sending, t.size)
	for i := range items {
		items[i].text = t.lab.appendDeclaration(nil)
	}
	for wait := t.pause; ; {
		left, err := t.declare(ctx, worker, items)
		if err != nil {
			return 0, err
		}
		registered := int64(len(items) - len(left))
		t.organization.acknowledged.Add(registered)
		t.done.Add(registered)
		t.refused.Add(int64(len(left)))
		select {
		case <-t.end:
			wait, left = time.Second, slices.DeleteFunc(left, func(s sending) bool { return !s.unknown })
		default:
		}
		if items = left; len(items) == 0 {
			return t.size, nil
		}
		if err := pause(ctx, wait); err != nil {
			return 0, err
		}
	}
}

// declare sends declarations, and returns those that were not registered.
func (t *tenant) declare(ctx context.Context, worker int, items []sending) (left []sending, err error) {
	w := &t.client.callers[worker]
	texts := make([][]byte, len(items))
	for i, item := range items {
		texts[i] = item.text
	}
	w.owner, w.path, w.body = t.organization, recordsPath, texts[0]
	if t.size > 1 {
		w.path, w.body = recordsPath+"/batch", fmt.Appendf(nil, `{"declarations":[%s]}`, bytes.Join(texts, []byte(",")))
	}
	status, err := t.client.exchange(ctx, worker, http.MethodPost)
	if err != nil {
		return nil, err
	}
	results := slices.Repeat([][]byte{w.answer.Bytes()}, len(items))
	each := t.size > 1 && status == http.StatusOK
	if each { // a result begins with its status
		if results = bytes.Split(w.answer.Bytes(), []byte(`{"status":`))[1:]; len(results) != len(items) {
			return nil, fmt.Errorf(
				"POST %s answered %d results for %d declarations: %.300s", w.path, len(results), len(items), w.answer.Bytes(),
			)
		}
	}
	for i, result := range results {
		if each {
			status, _ = strconv.Atoi(string(result[:3])) // text that is not a number is rejected below
		}
		switch {
		case status == http.StatusCreated && (each || t.size == 1), status == http.StatusOK && items[i].unknown:
		case status == http.StatusServiceUnavailable:
			left = append(left, sending{items[i].text, items[i].unknown || bytes.Contains(result, []byte("is not known"))})
		default: // 200: it was already registered
			return nil, fmt.Errorf("POST %s: item %d: %d: %.300s", w.path, i, status, result)
		}
	}
	return left, nil
}

// signatures returns how many signatures the service has made.
func (c *child) signatures(ctx context.Context) (int64, error) {
	text, err := fetch(ctx, c.metrics+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	_, value, _ := strings.Cut(string(text), "\nintegrity_signing_duration_seconds_count ")
	value, _, _ = strings.Cut(value, "\n")
	return strconv.ParseInt(value, 10, 64)
}
