package ledgertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/projections"
)

// Audit checks the whole ledger against its log: positions and sequences have no gaps, every hash is recomputed, every
// event is valid after the previous ones, heads are at the last events, and every projection equals a replay of the log
// in different groups. It returns all events by shard.
func (l *Ledger) Audit(t testing.TB) map[domain.Shard][]domain.Event {
	t.Helper()
	ctx := context.Background()
	must(t, history.CheckHeads(ctx, l.Pool))
	logs := map[domain.Shard][]domain.Event{}
	for shard := range domain.Shard(l.Installation.Shards) {
		events := l.Events(t, shard)
		logs[shard] = events
		state := domain.NewState(domain.Plans{})
		for i := range events {
			e := &events[i]
			if domain.LeafHash(e.Leaf()) != e.Hash {
				t.Fatalf("shard %d position %d: stored hash differs from the recomputed one", shard, e.Position)
			}
			if i > 0 && e.OccurredAt.Before(events[i-1].OccurredAt) && e.Type != domain.ClockReset {
				t.Fatalf("shard %d position %d: time went backwards", shard, e.Position)
			}
			must(t, state.Apply(e))
		}
	}
	tables, err := projections.Projections(ctx, l.Pool)
	must(t, err)
	must(t, l.replay(ctx, tables, logs))
	for _, table := range tables {
		var differing int
		must(t, l.Pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (
			(TABLE public.%[1]s EXCEPT ALL TABLE rebuild.%[1]s) UNION ALL (TABLE rebuild.%[1]s EXCEPT ALL TABLE public.%[1]s)) d`, table)).Scan(&differing))
		if differing != 0 {
			t.Errorf(
				"projection %s: %d rows differ between the groups as committed and a replay in other groups", table, differing,
			)
		}
	}
	return logs
}

// replay applies the logs to the schema rebuild, in random groups.
func (l *Ledger) replay(ctx context.Context, tables []string, logs map[domain.Shard][]domain.Event) error {
	pool, err := cluster.At(l.URL).RebuildPool(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, table := range tables {
			if _, err := tx.Exec(ctx, "DELETE FROM rebuild."+table); err != nil {
				return err
			}
		}
		for shard, events := range logs {
			for len(events) > 0 {
				n := 1 + rand.IntN(min(len(events), 200)) //nolint:gosec // any division will do
				b := &pgx.Batch{}
				if err := projections.Apply(b, shard, events[:n]); err != nil {
					return err
				}
				if err := tx.SendBatch(ctx, b).Close(); err != nil {
					return fmt.Errorf("replay: %w", err)
				}
				events = events[n:]
			}
		}
		return nil
	})
}
