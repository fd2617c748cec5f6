package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/eventstore/outbound"
)

// Round is one measurement of one contender.
type Round struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"` // of a call, whatever its size; 0: unknown
	P99       time.Duration `json:"p99Nanoseconds"`
	Longest   time.Duration `json:"longestNanoseconds,omitempty"`
	CPU       CPU           `json:"cpuPerUnit"`
	WAL       int           `json:"walBytesPerUnit,omitempty"` // of the whole server; 0: unknown
	Done      int64         `json:"done"`                      // units: registrations, requests or events
}

// operation makes one call and returns the number of units done. worker numbers the callers, each of which has at most
// one call in progress.
type operation func(ctx context.Context, worker int) (units int, err error)

// load is a set of callers. Without a pace each caller calls again at once. With a pace, calls are due at even
// intervals and timed from when they were due, so that one slow call also counts in the times of the calls behind it.
type load struct {
	workers int
	pace    time.Duration
	call    operation
}

// until makes calls until end is closed, without a pace at least one per worker, and waits for every call in progress.
// A failed call fails the round: with an unanswered call the verification would be meaningless.
func (l load) until(ctx context.Context, end <-chan struct{}) (Round, error) {
	latencies := make([][]time.Duration, l.workers)
	var done, next atomic.Int64
	group, running := errgroup.WithContext(ctx)
	start := time.Now()
	for i := range l.workers {
		group.Go(func() error {
			for k := 0; ; k++ {
				due := time.Now()
				if l.pace > 0 {
					due = start.Add(time.Duration(next.Add(1)-1) * l.pace)
					select {
					case <-end:
					case <-running.Done():
					case <-time.After(time.Until(due)):
					}
				}
				if l.pace > 0 || k > 0 {
					select {
					case <-end:
						return nil
					case <-running.Done():
						return nil
					default:
					}
				}
				units, err := l.call(ctx, i)
				if err != nil {
					return err
				}
				latencies[i] = append(latencies[i], time.Since(due))
				done.Add(int64(units))
			}
		})
	}
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return Round{}, err
	}
	return summary(slices.Concat(latencies...), done.Load(), time.Since(start))
}

// summary returns the round of the calls with these latencies, which it sorts.
func summary(latencies []time.Duration, done int64, elapsed time.Duration) (Round, error) {
	if len(latencies) == 0 {
		return Round{}, fmt.Errorf("no call was answered in %s", elapsed)
	}
	slices.Sort(latencies)
	return Round{
		PerSecond: float64(done) / elapsed.Seconds(), P50: percentile(latencies, 50), P99: percentile(latencies, 99),
		Longest: latencies[len(latencies)-1], Done: done,
	}, nil
}

// lasting makes calls for the given duration.
func (l load) lasting(ctx context.Context, duration time.Duration) (Round, error) {
	end, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	return l.until(ctx, end.Done())
}

// poll calls ask every few milliseconds until it returns true.
func poll(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// percentile returns a percentile of a sorted, non-empty list (nearest rank).
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// median returns the median of a value over rounds; for an even number, the upper one.
func median[R any, T cmp.Ordered](rounds []R, of func(R) T) T {
	list := make([]T, len(rounds))
	for i, r := range rounds {
		list[i] = of(r)
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func medianOf(list []float64) float64 { return median(list, func(v float64) float64 { return v }) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func shortDuration(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g ms", milliseconds(d))
}

// client is the load generator's HTTP client: net/http with persistent connections, and little else. Each contender has
// its own.
type client struct {
	transport http.RoundTripper
	host      string
	callers   []caller
}

// caller holds a worker's next request and the answer to its last one.
type caller struct {
	owner       *organization // whose key is sent; nil: no key
	header      http.Header   // sent instead; nil: the owner's
	path, query string
	body        []byte
	reader      bytes.Reader
	answer      bytes.Buffer
}

func newClient(service *child, workers int) *client {
	bounded := outbound.New(outbound.Config{Idle: 2 * workers, Answer: 16 << 20, Plain: true})
	return &client{
		transport: bounded.Transport,
		host:      strings.TrimPrefix(service.base, "http://"), callers: make([]caller, workers),
	}
}

// header returns the headers of requests with a key. Requests share it, and it must not be modified.
func header(key string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
	return h
}

var withoutKey = header("")

// exchange sends a worker's request, and stores the answer in the worker's caller.
func (c *client) exchange(ctx context.Context, worker int, method string) (status int, err error) {
	w := &c.callers[worker]
	r := &http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: c.host, Path: w.path, RawQuery: w.query}, Host: c.host,
		Header: withoutKey,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if w.owner != nil {
		r.Header = w.owner.header
	}
	if w.header != nil {
		r.Header = w.header
	}
	if method == http.MethodPost {
		w.reader.Reset(w.body)
		r.Body, r.ContentLength = io.NopCloser(&w.reader), int64(len(w.body))
	}
	resp, err := c.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	w.answer.Reset()
	_, err = w.answer.ReadFrom(resp.Body)
	return resp.StatusCode, err
}

// send is exchange with an error for any status other than the expected one.
func (c *client) send(ctx context.Context, worker int, method string, want int) ([]byte, error) {
	status, err := c.exchange(ctx, worker, method)
	w := &c.callers[worker]
	if err == nil && status != want {
		err = fmt.Errorf("%s %s answered %d, not %d: %.300s", method, w.path, status, want, w.answer.Bytes())
	}
	return w.answer.Bytes(), err
}
