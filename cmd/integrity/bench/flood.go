package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	quietPace    = 200 * time.Millisecond // between two registrations of the quiet tenant: 5 a second
	quietCallers = 64
	floodRounds  = 5 // a flood lasts so many times as long as another measurement
	floodLeast   = 3 * time.Second
	floodLight   = 4
	floodHeavy   = 256

	floodService = "flood"

	targetFloodQuiet = "quiet tenant's p99 beside a flood, c = 256 : without"
	targetFloodOwn   = "flooding tenant's registrations/s, batches, c = 256 : c = 4"
)

// Flood is what a tenant that registers five versions a second waits while another
// organization of the same shard and process floods it.
type Flood struct {
	Alone  Round        `json:"alone"`
	Floods []FloodPhase `json:"floods"`
}

// FloodPhase is one flood. The flooding tenant sends what was refused again at once, whatever Retry-After says.
type FloodPhase struct {
	Name        string `json:"name"`
	Concurrency int    `json:"concurrency"`
	// Quiet is the quiet tenant, timed from when each registration was due to its
	// success, refusals in between included.
	Quiet        Round `json:"quiet"`
	QuietRefused int64 `json:"quietRefused"`
	// Flooding is the flooding tenant: versions committed while the flood lasted.
	Flooding            Round   `json:"flooding"`
	Refused             int64   `json:"refusedItems"`
	SignaturesPerCommit float64 `json:"signaturesPerCommit"`
}

// flood measures the quiet tenant alone and beside three floods, on a service of its own.
func (r *run) flood(ctx context.Context) (*Flood, error) {
	service, err := r.serve(ctx, floodService)
	if err != nil {
		return nil, err
	}
	flooder := r.lab.one[0]
	quiet := r.lab.many[slices.IndexFunc(r.lab.many, func(o *organization) bool { return o.id.Shard() == flooder.id.Shard() })]
	f := &Flood{}
	length := max(floodRounds*r.Duration, floodLeast)
	r.Progress("a quiet tenant alone")
	alone := make(chan struct{})
	defer time.AfterFunc(length, func() { close(alone) }).Stop()
	if f.Alone, _, err = r.quiet(ctx, service, quiet, alone); err != nil {
		return nil, err
	}
	for _, phase := range []FloodPhase{
		{Name: "batches of 500", Concurrency: floodLight},
		{Name: "batches of 500", Concurrency: floodHeavy},
		{Name: "single registrations", Concurrency: floodHeavy},
	} {
		size := batchSize
		if len(f.Floods) == 2 {
			size = 1
		}
		if err := service.forget(); err != nil {
			return nil, err
		}
		if err := r.floodOnce(ctx, service, flooder, quiet, size, length, &phase); err != nil {
			return nil, fmt.Errorf("flood of %s, c = %d: %w", phase.Name, phase.Concurrency, err)
		}
		f.Floods = append(f.Floods, phase)
		r.Progress(fmt.Sprintf("%s, c = %d: %.0f registrations/s, %.2f signatures each; quiet tenant p50 %s, p99 %s", phase.Name, phase.Concurrency,
			phase.Flooding.PerSecond, phase.SignaturesPerCommit, shortDuration(phase.Quiet.P50), shortDuration(phase.Quiet.P99)))
	}
	r.measured[targetFloodQuiet] = measurement{
		value: float64(max(f.Floods[1].Quiet.P99, f.Floods[2].Quiet.P99)) / float64(f.Alone.P99),
		note:  fmt.Sprintf("the worse of batches and singles; alone p50 %s, p99 %s", shortDuration(f.Alone.P50), shortDuration(f.Alone.P99)),
	}
	r.measured[targetFloodOwn] = measurement{missing: "nothing was committed while the flood at c = 4 lasted"}
	if light := f.Floods[0].Flooding.PerSecond; light > 0 {
		r.measured[targetFloodOwn] = measurement{value: f.Floods[1].Flooding.PerSecond / light}
	}
	return f, nil
}

// floodOnce floods for so long, and then waits until it is known what was committed.
func (r *run) floodOnce(ctx context.Context, service *child, flooder, quiet *organization, size int, length time.Duration, phase *FloodPhase) error {
	c, err := newClient(service.base, phase.Concurrency)
	if err != nil {
		return err
	}
	defer c.transport.CloseIdleConnections()
	signed, err := service.signatures(ctx)
	if err != nil {
		return err
	}
	var done, refused atomic.Int64
	end := make(chan struct{})
	errs := make([]error, phase.Concurrency) // of each caller
	var failed sync.Once
	stop := func() { failed.Do(func() { close(end) }) }
	var callers sync.WaitGroup
	for i := range phase.Concurrency {
		callers.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if errs[i] = r.lab.floodCall(ctx, c, i, flooder, size, end, &done, &refused); errs[i] != nil {
					stop()
					return
				}
			}
		})
	}
	// All callers make their first declarations at once: that is not what is measured.
	startErr := pause(ctx, length/floodRounds)
	before, began := done.Load(), time.Now()
	spent, cpuErr := r.floodCPU(service)
	defer time.AfterFunc(length, stop).Stop()
	var quietErr error
	phase.Quiet, phase.QuietRefused, quietErr = r.quiet(ctx, service, quiet, end)
	stop()
	// Counted when the flood ends: what is committed afterwards was not committed in time.
	committed, elapsed := done.Load()-before, time.Since(began)
	now, cpuAfterErr := r.floodCPU(service)
	phase.Flooding = Round{PerSecond: float64(committed) / elapsed.Seconds(), Done: committed, CPU: now.less(spent).per(committed + phase.Quiet.Done)}
	phase.Refused = refused.Load()
	callers.Wait()
	if err := errors.Join(ctx.Err(), firstError(slices.Concat(errs, []error{startErr, cpuErr, quietErr, cpuAfterErr}))); err != nil {
		return err
	}
	after, err := service.signatures(ctx)
	phase.SignaturesPerCommit = float64(after-signed) / float64(done.Load()+phase.Quiet.Done)
	return err
}

// sending is a declaration on its way.
type sending struct {
	text []byte
	// unknown: an answer has left it open whether it is registered, so it is sent until one says.
	unknown bool
}

// floodCall declares so many new versions and sends what was refused again, at once
// while the flood lasts. Then only those are sent that may be registered, with pauses.
func (l *lab) floodCall(ctx context.Context, c *client, worker int, o *organization, size int, end <-chan struct{}, done, refused *atomic.Int64) error {
	items := make([]sending, size)
	for i := range items {
		d := l.declaration()
		items[i].text = appendJSON(nil, &d)
	}
	h := header(o.secret)
	for len(items) > 0 {
		left, err := c.declareAll(ctx, worker, h, items, size > 1)
		if err != nil {
			return err
		}
		o.acknowledged.Add(int64(len(items) - len(left)))
		done.Add(int64(len(items) - len(left)))
		refused.Add(int64(len(left)))
		items = left
		select {
		case <-end:
			items = slices.DeleteFunc(items, func(s sending) bool { return !s.unknown })
			if len(items) > 0 {
				err = pause(ctx, time.Second)
			}
			if err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// declareAll sends declarations, and returns those that were not registered.
func (c *client) declareAll(ctx context.Context, worker int, h http.Header, items []sending, batch bool) ([]sending, error) {
	w := &c.callers[worker]
	path := recordsPath
	w.body = w.body[:0]
	if batch {
		path += "/batch"
		w.body = append(w.body, `{"declarations":[`...)
	}
	for i, item := range items {
		if i > 0 {
			w.body = append(w.body, ',')
		}
		w.body = append(w.body, item.text...)
	}
	if batch {
		w.body = append(w.body, "]}"...)
	}
	status, err := c.exchange(ctx, worker, http.MethodPost, path, "", h, w.body)
	if err != nil {
		return nil, err
	}
	results, each := [][]byte{w.answer}, batch && status == http.StatusOK
	if each { // a result begins with its status
		results = bytes.Split(w.answer, []byte(`{"status":`))[1:]
	} else if batch && status == http.StatusServiceUnavailable {
		results = slices.Repeat(results, len(items))
	}
	if len(results) != len(items) {
		return nil, fmt.Errorf("POST %s answered %d, and %d results for %d declarations: %.300s", path, status, len(results), len(items), w.answer)
	}
	var left []sending
	for i, result := range results {
		if each {
			if status, err = strconv.Atoi(string(result[:3])); err != nil {
				return nil, fmt.Errorf("POST %s: item %d: %.300s", path, i, result)
			}
		}
		switch status {
		case http.StatusCreated:
		case http.StatusOK:
			if !items[i].unknown {
				return nil, fmt.Errorf("POST %s: item %d was registered before it was sent: %.300s", path, i, result)
			}
		case http.StatusServiceUnavailable:
			left = append(left, sending{items[i].text, items[i].unknown || bytes.Contains(result, []byte("is not known"))})
		default:
			return nil, fmt.Errorf("POST %s: item %d: %.300s", path, i, result)
		}
	}
	return left, nil
}

// quiet registers at an even pace until end is closed, and waits for what is under way.
func (r *run) quiet(ctx context.Context, service *child, o *organization, end <-chan struct{}) (Round, int64, error) {
	c, err := newClient(service.base, quietCallers)
	if err != nil {
		return Round{}, 0, err
	}
	defer c.transport.CloseIdleConnections()
	free := make(chan int, quietCallers)
	for i := range quietCallers {
		free <- i
	}
	h := header(o.secret)
	var mu sync.Mutex
	var waits []time.Duration
	var failure error
	var refused int64
	var calls sync.WaitGroup
	begin := time.Now()
	for k := 0; ; k++ {
		due := begin.Add(time.Duration(k) * quietPace)
		select {
		case <-end:
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
			caller := <-free
			calls.Go(func() {
				d := r.lab.declaration()
				items := []sending{{text: appendJSON(nil, &d)}}
				sent, err := 0, error(nil)
				for ; len(items) > 0 && err == nil; sent++ {
					if sent > 0 {
						err = pause(ctx, 20*time.Millisecond)
					}
					if err == nil {
						items, err = c.declareAll(ctx, caller, h, items, false)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if failure = errors.Join(failure, err); err == nil {
					waits, refused = append(waits, time.Since(due)), refused+int64(sent-1)
					o.acknowledged.Add(1)
				}
				free <- caller
			})
			continue
		}
		break
	}
	calls.Wait()
	if err := errors.Join(ctx.Err(), failure); err != nil {
		return Round{}, 0, err
	}
	slices.Sort(waits)
	n := int64(len(waits))
	return Round{PerSecond: float64(n) / time.Since(begin).Seconds(), P50: percentile(waits, 50), P99: percentile(waits, 99), Done: n}, refused, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signatures is how many the service has made.
func (c *child) signatures(ctx context.Context) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	const name = "integrity_signing_duration_seconds_count "
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("the metrics lack %s", name)
}

// floodCPU is what was spent so far by everybody.
func (r *run) floodCPU(service *child) (spent CPU, err error) {
	if r.Server != nil {
		if spent.PostgreSQL, err = treeCPU(r.Server.PID()); err != nil {
			return spent, err
		}
	}
	if spent.Load, err = ownCPU(syscall.RUSAGE_SELF); err != nil {
		return spent, err
	}
	s, err := readStat(service.pid())
	spent.Service = s.own
	return spent, err
}

func (f *Flood) lines(b *strings.Builder) {
	fmt.Fprintf(b, "\na tenant that registers %d a second, beside another that floods its shard\n", time.Second/quietPace)
	fmt.Fprintf(b, "%-22s %5s %10s %10s %8s %12s %10s %12s   CPU µs each: %8s %10s %6s\n",
		"", "c", "quiet p50", "quiet p99", "refused", "flood/s", "refused", "signatures", "service", "PostgreSQL", "load")
	fmt.Fprintf(b, "%-22s %5s %10s %10s\n", "alone", "–", shortDuration(f.Alone.P50), shortDuration(f.Alone.P99))
	micro := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }
	for _, p := range f.Floods {
		fmt.Fprintf(b, "%-22s %5d %10s %10s %8d %12.0f %10d %12.2f %23s %10s %6s\n", p.Name, p.Concurrency, shortDuration(p.Quiet.P50), shortDuration(p.Quiet.P99), p.QuietRefused,
			p.Flooding.PerSecond, p.Refused, p.SignaturesPerCommit, micro(p.Flooding.CPU.Service), micro(p.Flooding.CPU.PostgreSQL), micro(p.Flooding.CPU.Load))
	}
}
