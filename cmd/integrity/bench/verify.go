package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
)

const (
	targetRebuild = "rebuild of all projections, events"

	rebuildPace = 5 * time.Millisecond // between two registrations: 200 a second
)

// verify compares the log with what was acknowledged, and has the program prove the rest by integrity audit: no hole in
// positions or sequences, every hash and signature, and every row of every projection. It returns the number of
// registrations.
func (r *run) verify(ctx context.Context) (int64, error) {
	r.Progress("verifying what was written")
	for _, o := range r.lab.everybody() {
		var events int64
		if err := r.lab.owner.QueryRow(ctx, "SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND type = $3",
			o.id.Shard(), [16]byte(o.id), string(domain.RecordRegistered)).Scan(&events); err != nil {
			return 0, err
		}
		if acknowledged := o.acknowledged.Load(); events != acknowledged {
			return 0, fmt.Errorf("%s: %d registrations were acknowledged, and %d are in the log", o.id, acknowledged, events)
		}
	}
	var audit struct {
		Clean    bool
		Findings []any
	}
	if err := r.command(ctx, &audit, "audit", "--json"); err != nil {
		return 0, err
	}
	if !audit.Clean {
		return 0, fmt.Errorf("integrity audit: %.1000v", audit.Findings)
	}
	return r.lab.records(), nil
}

// Rebuild is a rebuild of a ledger while others register at an even pace.
type Rebuild struct {
	Records int64   `json:"records"`
	Rebuilt Rebuilt `json:"rebuild"`
	// Each registration is timed from when it was due.
	Before Round `json:"before"`
	During Round `json:"during"`
}

// Rebuilt is what integrity rebuild says of itself.
type Rebuilt struct {
	Events          int64   `json:"events"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	Differences     int64   `json:"differences"`
	LongestPauseMs  float64 `json:"longestPauseMs"`
	DurationSeconds float64 `json:"durationSeconds"`
}

func (b Rebuilt) duration() time.Duration {
	return time.Duration(b.DurationSeconds * float64(time.Second)).Round(time.Millisecond)
}

// rebuild replays the whole ledger and compares it with every projection.
func (r *run) rebuild(ctx context.Context) error {
	r.Progress("rebuild: every event is replayed, every row compared")
	var b Rebuilt
	err := r.command(ctx, &b, "rebuild", "--check", "--json")
	r.measured[targetRebuild] = measurement{value: b.EventsPerSecond, note: fmt.Sprintf("%d events replayed and all rows compared in %s", b.Events, b.duration())}
	return err
}

// rebuildUnderLoad registers for everybody, before and while the program's own command rebuilds. Rows that differ are an error.
func (r *run) rebuildUnderLoad(ctx context.Context, result *Result) (err error) {
	b := &Rebuild{Records: r.lab.records()}
	c := r.registering(r.service, "registrations at an even pace", 64, r.lab.everybody())
	paced := load{workers: c.workers, pace: rebuildPace, call: c.call}
	r.Progress(fmt.Sprintf("registering %d a second", time.Second/rebuildPace))
	if b.Before, err = paced.lasting(ctx, 5*r.Duration); err != nil {
		return err
	}
	r.Progress("rebuilding, and registrations go on")
	rebuilt := make(chan struct{})
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(rebuilt)
		return r.command(running, &b.Rebuilt, "rebuild", "--json")
	})
	group.Go(func() (err error) {
		b.During, err = paced.until(running, rebuilt)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if b.Rebuilt.Differences > 0 {
		return fmt.Errorf("rebuild: %d rows of the projections were not as the log says", b.Rebuilt.Differences)
	}
	result.Rebuild, result.Targets = b, []Target{newTarget("longest wait of a registration during the rebuild", unitTime, atMost, 1000, 0, measurement{value: milliseconds(b.During.Longest),
		note: fmt.Sprintf("%d registrations at %d/s, from when each was due", b.During.Done, time.Second/rebuildPace)})}
	return nil
}
