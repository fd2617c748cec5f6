package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	mendPace       = 5 * time.Millisecond // between two registrations: 200 a second
	mendCallers    = 64
	mendDeliveries = 2000 // that were delivered before, and must not come again

	targetMendWait = "longest wait of a registration during the rebuild"
)

// Mending is a rebuild of a ledger of which many rows were made wrong, while others register at an even pace.
type Mending struct {
	Records   int64 `json:"records"`
	Corrupted int64 `json:"corruptedRows"`
	Projected int   `json:"corruptedProjections"`

	Rebuilt struct { // what integrity rebuild says of itself
		Events          int64   `json:"events"`
		EventsPerSecond float64 `json:"eventsPerSecond"`
		Differences     int64   `json:"differences"`
		Mended          int64   `json:"mended"`
		LongestPauseMs  float64 `json:"longestPauseMs"`
		DurationSeconds float64 `json:"durationSeconds"`
	} `json:"rebuild"`
	Before    Paced `json:"before"`
	During    Paced `json:"during"`
	Delivered int   `json:"webhooksDelivered"`
	Repeated  int   `json:"webhooksSentAgain"`
}

// Paced are registrations over HTTP that were due at an even pace. Each is timed
// from when it was due, so that one that waits shows what those behind it waited.
type Paced struct {
	Round
	Longest time.Duration `json:"longestNanoseconds"`
	// Silence is the longest time without an answer.
	Silence time.Duration `json:"silenceNanoseconds"`
}

// mend spoils the projections, rebuilds them under load with the program's own command, and fails unless exactly the
// spoiled rows were found and mended, none is left, and no webhook was sent again.
func (r *run) mend(ctx context.Context) (*Mending, error) {
	m := &Mending{Records: r.lab.records()}
	box := &inbox{}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	receiver := &http.Server{Handler: box, ReadHeaderTimeout: time.Minute}
	go func() { _ = receiver.Serve(listener) }() // ends with Close
	defer receiver.Close()
	told := r.lab.one[0]
	if err := r.deliverFirst(ctx, told, "http://"+listener.Addr().String(), box); err != nil {
		return nil, err
	}

	r.Progress(fmt.Sprintf("registering %d a second", time.Second/mendPace))
	before := make(chan struct{})
	timer := time.AfterFunc(5*r.Duration, func() { close(before) })
	defer timer.Stop()
	if m.Before, err = r.paced(ctx, before); err != nil {
		return nil, err
	}
	r.Progress("spoiling rows of every projection")
	if m.Corrupted, m.Projected, err = r.lab.spoil(ctx); err != nil {
		return nil, err
	}
	r.Progress(fmt.Sprintf("rebuilding: %d rows are wrong, and registrations go on", m.Corrupted))
	rebuilt := make(chan struct{})
	var rebuilding error
	go func() {
		defer close(rebuilt)
		rebuilding = r.command(ctx, &m.Rebuilt, "rebuild", "--json")
	}()
	m.During, err = r.paced(ctx, rebuilt)
	<-rebuilt
	if err = firstError([]error{rebuilding, err}); err != nil {
		return nil, err
	}
	if m.Rebuilt.Differences != m.Corrupted || m.Rebuilt.Mended != m.Corrupted {
		return nil, fmt.Errorf("%d rows were made wrong; the rebuild found %d and mended %d", m.Corrupted, m.Rebuilt.Differences, m.Rebuilt.Mended)
	}
	r.Progress("comparing once more")
	var left struct{ Differences int64 }
	if err := r.command(ctx, &left, "rebuild", "--check", "--json"); err != nil {
		return nil, fmt.Errorf("after the rebuild %d rows are wrong: %w", left.Differences, err)
	}
	arrived, err := box.wait(ctx, int(told.acknowledged.Load()))
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, a := range arrived {
		ids[a.id] = true
	}
	m.Delivered, m.Repeated = len(ids), len(arrived)-len(ids)
	if m.Repeated != 0 || int64(m.Delivered) != told.acknowledged.Load() {
		return nil, fmt.Errorf("%d webhooks were delivered and %d of them again, of %d events", m.Delivered, m.Repeated, told.acknowledged.Load())
	}
	return m, nil
}

// deliverFirst gives an organization a destination and events that are delivered there.
func (r *run) deliverFirst(ctx context.Context, o *organization, address string, box *inbox) error {
	r.Progress(fmt.Sprintf("delivering %d webhooks", mendDeliveries))
	ledger, stop, err := r.lab.open(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := r.destination(ctx, ledger, o, address); err != nil {
		return err
	}
	for range mendDeliveries / batchSize {
		if err := r.lab.registerAll(ctx, ledger, o, batchSize); err != nil {
			return err
		}
	}
	_, err = box.wait(ctx, mendDeliveries)
	return err
}

// paced registers for everybody until end is closed, and then waits for all that is under way.
func (r *run) paced(ctx context.Context, end <-chan struct{}) (Paced, error) {
	c, err := newClient(r.service.base, mendCallers)
	if err != nil {
		return Paced{}, err
	}
	all := append(r.lab.one[:1:1], r.lab.busy()...)
	headers := make([]http.Header, len(all))
	for i, o := range all {
		headers[i] = header(o.secret)
	}
	type answered struct {
		at    time.Time
		after time.Duration
	}
	var next atomic.Int64
	var failed atomic.Bool
	answers := make([][]answered, mendCallers)
	errs := make([]error, mendCallers)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range mendCallers {
		group.Go(func() {
			for !failed.Load() {
				k := next.Add(1) - 1
				due := begin.Add(time.Duration(k) * mendPace)
				select {
				case <-end:
					return
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				who := int(k) % len(all)
				d := r.lab.declaration()
				c.callers[i].body = appendJSON(c.callers[i].body[:0], &d)
				if _, err := c.send(ctx, i, http.MethodPost, recordsPath, "", headers[who], c.callers[i].body, http.StatusCreated); err != nil {
					errs[i] = fmt.Errorf("register: %w", err)
					failed.Store(true)
					return
				}
				all[who].acknowledged.Add(1)
				now := time.Now()
				answers[i] = append(answers[i], answered{now, now.Sub(due)})
			}
		})
	}
	group.Wait()
	c.transport.CloseIdleConnections()
	list := slices.Concat(answers...)
	if err := errors.Join(ctx.Err(), firstError(errs)); err != nil {
		return Paced{}, err
	}
	if len(list) == 0 {
		return Paced{}, fmt.Errorf("no registration was answered in %s", time.Since(begin))
	}
	slices.SortFunc(list, func(a, b answered) int { return a.at.Compare(b.at) })
	p := Paced{}
	waits := make([]time.Duration, len(list))
	for i, a := range list {
		waits[i] = a.after
		if i > 0 {
			p.Silence = max(p.Silence, a.at.Sub(list[i-1].at))
		}
	}
	slices.Sort(waits)
	p.Round = Round{PerSecond: float64(len(list)) / time.Since(begin).Seconds(), P50: percentile(waits, 50), P99: percentile(waits, 99), Done: int64(len(list))}
	p.Longest = waits[len(waits)-1]
	return p, nil
}

// command runs the program on the lab's database and reads the last line of its output.
func (r *run) command(ctx context.Context, to any, args ...string) error {
	c := exec.CommandContext(ctx, r.Program, args...) //nolint:gosec // the program is ourselves
	c.Env, c.Stderr = append(foreignEnviron(), "INTEGRITY_DATABASE_URL="+r.lab.url), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	var last []byte
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = append(last[:0], lines.Bytes()...)
	}
	err = c.Wait()
	if unreadable := json.Unmarshal(last, to); unreadable != nil && err == nil {
		err = unreadable
	}
	if err != nil {
		return fmt.Errorf("integrity %s: %w", args[0], err)
	}
	return nil
}

func (m *Mending) target() Target {
	return newTarget(targetMendWait, unitTime, atMost, 1000, 0, measurement{value: float64(m.During.Longest) / float64(time.Millisecond),
		note: fmt.Sprintf("%d registrations at %d/s, from when each was due", m.During.Done, time.Second/mendPace)})
}
