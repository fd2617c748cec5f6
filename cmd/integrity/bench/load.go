package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Round is one measurement of one contender.
type Round struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"` // of one call, whatever it holds; 0: not known
	P99       time.Duration `json:"p99Nanoseconds"`
	Longest   time.Duration `json:"longestNanoseconds,omitempty"`
	CPU       CPU           `json:"cpuPerUnit"`
	Done      int64         `json:"done"` // units: registrations, requests, events
}

// operation is one call: it returns how many units it did. Worker numbers the
// caller, of which each has at most one call under way.
type operation func(ctx context.Context, worker int) (units int, err error)

// load is callers at work. Without a pace each of them calls again at once; with one, calls are due at even intervals
// and are timed from when they were due, so that a call that waits shows what those behind it waited.
type load struct {
	workers int
	pace    time.Duration
	call    operation
}

// until calls until end is closed, without a pace at least once a worker, then waits for every call under way. A failed
// call fails the round: what was sent and not answered would make the verification meaningless.
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
	elapsed := time.Since(start)
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		return Round{}, fmt.Errorf("no call was answered in %s", elapsed)
	}
	slices.Sort(all)
	return Round{
		PerSecond: float64(done.Load()) / elapsed.Seconds(), P50: percentile(all, 50), P99: percentile(all, 99), Longest: all[len(all)-1], Done: done.Load(),
	}, nil
}

// lasting calls for so long.
func (l load) lasting(ctx context.Context, duration time.Duration) (Round, error) {
	end, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	return l.until(ctx, end.Done())
}

// poll asks every few milliseconds until the answer is yes.
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

// percentile of a sorted list that is not empty (nearest rank).
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// median of what rounds say; of an even number, the upper one.
func median[R any, T cmp.Ordered](rounds []R, of func(R) T) T {
	list := make([]T, len(rounds))
	for i, r := range rounds {
		list[i] = of(r)
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func shortDuration(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g ms", milliseconds(d))
}
