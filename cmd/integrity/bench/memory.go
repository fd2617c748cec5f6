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
	c, err := r.overHTTP(service, "memory", memoryConcurrency)
	if err != nil {
		return err
	}
	round, err := c.round(ctx, max(r.Duration, 2*time.Second))
	if err != nil {
		return err
	}
	peak, err := residentPeak(service.pid())
	r.measured[targetMemory] = measurement{value: float64(peak) / 1e6,
		note: fmt.Sprintf("most resident memory (VmHWM) of a fresh process, at %.0f registrations/s", round.PerSecond)}
	return err
}
