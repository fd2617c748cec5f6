package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections"
)

const targetRebuild = "rebuild of all projections, events"

// rebuild replays the whole ledger and compares it with every projection, as
// integrity rebuild does, and fails where a row differs.
func (r *run) rebuild(ctx context.Context) error {
	pool, err := cluster.At(r.lab.url).RebuildPool(ctx, runtime.GOMAXPROCS(0))
	if err != nil {
		return err
	}
	defer pool.Close()
	b := &projections.Rebuild{Pool: pool, Program: "bench", Check: true}
	r.Progress("rebuild: every event is replayed, every row compared")
	start := time.Now()
	var events, differences atomic.Int64
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for shard := range domain.Shard(r.lab.installation.Shards) {
		group.Go(func() error {
			result, err := b.Shard(running, shard)
			events.Add(result.Events)
			differences.Add(result.Differences)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(start)
	if n := differences.Load(); n > 0 {
		return fmt.Errorf("rebuild: %d rows of the projections are not as the log says", n)
	}
	r.measured[targetRebuild] = measurement{value: float64(events.Load()) / took.Seconds(),
		note: fmt.Sprintf("%d events replayed and all rows compared in %s", events.Load(), took.Round(time.Millisecond))}
	return b.Clear(ctx)
}
