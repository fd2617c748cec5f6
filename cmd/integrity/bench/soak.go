package bench

import (
	"context"
	"fmt"
	"time"
)

// Soak is a long run over HTTP, cut into slices of a minute (of half of it, where it is shorter than two).
type Soak struct {
	Concurrency int         `json:"concurrency"`
	Slices      []SoakSlice `json:"slices"`
}

// SoakSlice is one of them.
type SoakSlice struct {
	Length time.Duration `json:"lengthNanoseconds"`
	Round
	ResidentPeak int64 `json:"residentPeakBytes"` // of the service, since its start
}

func (r *run) soak(ctx context.Context) (*Soak, error) {
	c, err := r.overHTTP(r.service, httpBusy, r.Concurrency)
	if err != nil {
		return nil, err
	}
	if _, err := c.round(ctx, min(2*time.Second, r.Soak)); err != nil {
		return nil, err
	}
	s := &Soak{Concurrency: r.Concurrency}
	length := min(time.Minute, r.Soak/2)
	for i := range int(r.Soak / length) {
		slice := SoakSlice{Length: length}
		if slice.Round, err = r.measureOne(ctx, c, length, i == 0); err != nil {
			return nil, fmt.Errorf("soak, c = %d: %w", r.Concurrency, err)
		}
		if slice.ResidentPeak, err = residentPeak(r.service.pid()); err != nil {
			return nil, err
		}
		s.Slices = append(s.Slices, slice)
		r.Progress(fmt.Sprintf("%s of %s: %.0f registrations/s, p50 %s, p99 %s, service at most %.0f MB", time.Duration(i+1)*length, r.Soak,
			slice.PerSecond, shortDuration(slice.P50), shortDuration(slice.P99), float64(slice.ResidentPeak)/1e6))
	}
	return s, nil
}

func (s *Soak) target() Target {
	first, last := s.Slices[0], s.Slices[len(s.Slices)-1]
	return newTarget(targetSoak, unitRatio, atLeast, 0.85, 0,
		measurement{value: last.PerSecond / first.PerSecond, note: fmt.Sprintf("c = %d", s.Concurrency)})
}
