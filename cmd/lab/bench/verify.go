package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
)

const (
	targetRebuild = "rebuild of all projections, events"
	targetAudit   = "audit of the log, events"
	targetExport  = "export of a history, events"
	targetPause   = "longest wait of a registration during the rebuild"

	rebuildPace = 5 * time.Millisecond // between two registrations: 200 a second
)

// verify compares the log with the acknowledged registrations, and runs the program's integrity audit for the rest:
// positions and sequences without gaps, every hash and signature, and every row of every projection. It returns the
// number of registrations.
func (r *run) verify(ctx context.Context) (int64, error) {
	r.Progress("verifying what was written")
	if err := r.lab.count(ctx); err != nil {
		return 0, err
	}
	var audit struct {
		Clean                            bool
		Findings                         []any
		EventsPerSecond, DurationSeconds float64
	}
	if err := r.command(ctx, &audit, "audit", "--json"); err != nil {
		return 0, err
	}
	if !audit.Clean {
		return 0, fmt.Errorf("integrity audit: %.1000v", audit.Findings)
	}
	r.measured[targetAudit] = measurement{
		value: audit.EventsPerSecond, note: fmt.Sprintf("with every row of every projection %.3g s", audit.DurationSeconds),
	}
	return r.lab.records(), nil
}

// count returns an error for an acknowledged registration that is missing from the log or there twice, and for any
// other registration. No two registrations of a run declare the same document, so equal numbers of hashes and
// acknowledgements prove it.
func (l *lab) count(ctx context.Context) error {
	for _, o := range l.organizations() {
		var events, records int64
		if err := l.owner.QueryRow(ctx,
			`SELECT (SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND type = $3),
			(SELECT count(DISTINCT sha256) FROM versions WHERE shard = $1 AND organization_id = $2)`,
			o.id.Shard(), [16]byte(o.id), string(domain.RecordRegistered)).Scan(&events, &records); err != nil {
			return err
		}
		if acknowledged := o.acknowledged.Load(); events != acknowledged || records != acknowledged {
			return fmt.Errorf(
				"%s: %d registrations were acknowledged, %d are in the log, of %d documents", o.id, acknowledged, events, records,
			)
		}
	}
	return nil
}

// Rebuild is a rebuild of a ledger while registrations arrive at an even pace.
type Rebuild struct {
	Records int64   `json:"records"`
	Rebuilt Rebuilt `json:"rebuild"`
	// Each registration is timed from when it was due.
	Before Round `json:"before"`
	During Round `json:"during"`
}

// Rebuilt is the output of integrity rebuild.
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
	r.measured[targetRebuild] = measurement{
		value: b.EventsPerSecond,
		note:  fmt.Sprintf("%d events replayed and all rows compared in %s", b.Events, b.duration()),
	}
	return err
}

// export writes the busy organization's history, including its texts.
func (r *run) export(ctx context.Context) error {
	r.Progress("export of the busy organization's history")
	began := time.Now()
	var view struct{ Events int64 }
	err := r.command(ctx, &view, "export", "--organization", r.lab.one[0].id.String(), "--out", r.file("export"), "--json")
	elapsed := time.Since(began)
	r.measured[targetExport] = measurement{
		value: float64(view.Events) / elapsed.Seconds(),
		note: fmt.Sprintf(
			"%d events in %s, the start of the program included", view.Events, elapsed.Round(time.Millisecond),
		),
	}
	return err
}

// rebuildUnderLoad registers for all organizations, before and during a rebuild by the program's own command. Rows that
// differ are an error.
func (r *run) rebuildUnderLoad(ctx context.Context, result *Result) (err error) {
	b := &Rebuild{Records: r.lab.records()}
	c := r.registering(r.service, "registrations at an even pace", 64, r.lab.organizations())
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
	r.measured[targetPause], result.Rebuild = measurement{value: milliseconds(b.During.Longest),
		note: fmt.Sprintf("%d registrations at %d/s, from when each was due", b.During.Done, time.Second/rebuildPace)}, b
	return nil
}
