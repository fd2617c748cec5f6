package bench

import (
	"context"
	"fmt"
	"time"
)

const memoryConcurrency = 1024

// memory is the most that a fresh service has resident while so many callers register at once.
func (r *run) memory(ctx context.Context) error {
	r.Progress(fmt.Sprintf("memory of the service under c = %d", memoryConcurrency))
	service, err := r.serve(ctx, "memory")
	if err != nil {
		return err
	}
	round, err := r.registering(service, "memory", memoryConcurrency, r.lab.many).round(ctx, max(r.Duration, 2*time.Second))
	if err != nil {
		return err
	}
	peak, err := residentPeak(service.cmd.Process.Pid)
	r.measured[targetMemory] = measurement{value: float64(peak) / 1e6,
		note: fmt.Sprintf("most resident memory (VmHWM) of a fresh process, at %.0f registrations/s", round.PerSecond)}
	return err
}

// Soak is a long run over HTTP, cut into slices of a minute (of half of it, where it is shorter than two).
type Soak struct {
	Concurrency int         `json:"concurrency"`
	Slices      []SoakSlice `json:"slices"`
}

// SoakSlice is one of them.
type SoakSlice struct {
	Length time.Duration `json:"lengthNanoseconds"`
	Round
	ResidentPeak uint64 `json:"residentPeakBytes"` // of the service, since its start
}

func (r *run) soak(ctx context.Context) (*Soak, error) {
	c := r.registering(r.service, httpBusy, r.Concurrency, r.lab.many)
	if _, err := c.round(ctx, min(2*time.Second, r.Soak)); err != nil {
		return nil, err
	}
	s := &Soak{Concurrency: r.Concurrency}
	length := min(time.Minute, r.Soak/2)
	for i := range int(r.Soak / length) {
		round, err := r.measureOne(ctx, c, length, i == 0)
		if err != nil {
			return nil, fmt.Errorf("soak, c = %d: %w", r.Concurrency, err)
		}
		peak, err := residentPeak(r.service.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		s.Slices = append(s.Slices, SoakSlice{length, round, peak})
		r.Progress(fmt.Sprintf("%s of %s: %.0f registrations/s, p50 %s, p99 %s, service at most %.0f MB", time.Duration(i+1)*length, r.Soak,
			round.PerSecond, shortDuration(round.P50), shortDuration(round.P99), float64(peak)/1e6))
	}
	return s, nil
}

func (s *Soak) target() Target {
	first, last := s.Slices[0], s.Slices[len(s.Slices)-1]
	return newTarget(targetSoak, unitRatio, atLeast, 0.85, 0,
		measurement{value: last.PerSecond / first.PerSecond, note: fmt.Sprintf("c = %d", s.Concurrency)})
}
