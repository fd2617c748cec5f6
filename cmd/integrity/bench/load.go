package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Round is one measurement of one contender.
type Round struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"` // of one call, whatever it holds; 0: not known
	P99       time.Duration `json:"p99Nanoseconds"`
	CPU       CPU           `json:"cpuPerUnit"`
	Done      int64         `json:"done"` // units: registrations, requests, events
}

// operation is one call: it returns how many units it did. Worker numbers the
// caller, of which each has at most one call under way.
type operation func(ctx context.Context, worker int) (units int, err error)

// load calls from so many workers until the time is over, each at least once, then waits for every call under way. A
// failed call fails the round: what was sent and not answered would make the verification meaningless.
func load(ctx context.Context, workers int, duration time.Duration, call operation) (Round, error) {
	latencies := make([][]time.Duration, workers)
	errs := make([]error, workers)
	var done atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(duration)
	for i := range workers {
		wg.Go(func() {
			for !failed.Load() && ctx.Err() == nil {
				began := time.Now()
				if len(latencies[i]) > 0 && began.After(end) {
					return
				}
				units, err := call(ctx, i)
				if err != nil {
					errs[i] = err
					failed.Store(true)
					return
				}
				latencies[i] = append(latencies[i], time.Since(began))
				done.Add(int64(units))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(ctx.Err(), firstError(errs)); err != nil {
		return Round{}, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	return Round{
		PerSecond: float64(done.Load()) / elapsed.Seconds(), P50: percentile(all, 50), P99: percentile(all, 99), Done: done.Load(),
	}, nil
}

// percentile of a sorted list that is not empty (nearest rank).
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// median of a list that is not empty; of an even number, the upper one.
func median[T int64 | float64 | time.Duration](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
