package webhooks

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestWorkerLooksUpKeys: even on tables without statistics, no statement of the worker scans a shard. The generic plans
// would otherwise do so until the next ANALYZE.
func TestWorkerLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).QueuePool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"find_due": findDue, "none": findNone, "take": takeRows, "charge": chargeAttempts, "cap": capAttempts,
		"refund": refundAttempts, "lock": lockHeld, "ended": logEnded, "remove": removeEnded, "retried": writeRetried,
		"released": writeReleased, "working": writeWorking, "failing": writeFailing, "overdue": findFailing,
		"prune": pruneLog,
		"never": "SELECT delivery_id FROM webhook_deliveries WHERE shard = $1",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := !strings.Contains(plan, "Seq Scan") &&
			!strings.Contains(plan, "Index Cond: (shard = $1)\n"); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestResultsLookUpKeys: statistics of a nearly empty queue say that it has one row. The statements on results still
// look up each row, so a backlog is not scanned for every result of a batch.
func TestResultsLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	url := pgtest.New(t)
	owner, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	if _, err := owner.Exec(ctx,
		`INSERT INTO webhook_deliveries (shard, webhook_id, delivery_id, organization_id, sequence, event_id, type, created_at,
			due_at, attempts, reason)
		SELECT 0, i, i, i, 1, i, 1, now(), now(), 0, '' FROM gen_random_uuid() AS i; ANALYZE`); err != nil {
		t.Fatal(err)
	}
	pool, err := cluster.At(url).QueuePool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"lock": lockHeld, "ended": logEnded, "remove": removeEnded, "retried": writeRetried, "released": writeReleased,
		"never": "SELECT delivery_id FROM webhook_deliveries WHERE shard = $1",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := !strings.Contains(plan, "Seq Scan") &&
			!strings.Contains(plan, "Index Cond: (shard = $1)\n"); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// TestDeliveriesToComeKeepTheWorkerAwake: a worker checks less often only if it has seen that no delivery is left. A
// delivery that becomes due later keeps it at its normal rate, and so does a process that holds its maximum and
// therefore did not check.
func TestDeliveriesToComeKeepTheWorkerAwake(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	owner, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	pool, err := cluster.At(url).QueuePool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := &shardWorker{Worker: &Worker{Config: Config{Pool: pool, Now: time.Now}}}
	for _, c := range []struct {
		change string
		empty  bool
	}{
		{"SELECT", true},
		{`INSERT INTO webhook_deliveries (shard, webhook_id, delivery_id, organization_id, sequence, event_id, type, created_at, due_at, attempts, reason)
			SELECT 0, i, i, i, 1, i, 1, now(), now() + interval '1 hour', 0, '' FROM gen_random_uuid() AS i`, false},
		{"DELETE FROM webhook_deliveries WHERE shard = 0", true},
	} {
		if _, err := owner.Exec(ctx, c.change); err != nil {
			t.Fatal(err)
		}
		if more, err := s.claim(ctx); more || err != nil || s.empty.Load() != c.empty {
			t.Errorf("after %.6s: empty %t, more %t, %v", c.change, s.empty.Load(), more, err)
		}
	}
	s.empty.Store(true)
	s.held.Store(maxHeld)
	if _, err := s.claim(ctx); err != nil || s.empty.Load() {
		t.Errorf("a worker that holds all it may, and has not looked: empty %t, %v", s.empty.Load(), err)
	}
}

// TestForgottenDeliveriesAreFound: shards whose last check found nothing are queried together. Only a shard that has a
// delivery is woken.
func TestForgottenDeliveriesAreFound(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	w, err := New(Config{
		Pool: l.Routed(t), Shards: l.Installation.Shards, Plans: domain.Plans{}, Allows: func(netip.Addr) bool {
			return false
		},
		Do: func(context.Context, domain.Command) error { return nil }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	wants := func(want ...domain.Shard) {
		t.Helper()
		if found, err := w.forgotten(ctx); err != nil || !slices.Equal(found, want) {
			t.Errorf("found %v, %v, want %v", found, err, want)
		}
	}
	for _, s := range w.shards {
		s.empty.Store(true)
	}
	wants()
	pgtest.Exec(t, l.URL,
		`INSERT INTO webhook_deliveries (shard, webhook_id, delivery_id, organization_id, sequence, event_id, type, created_at, due_at, attempts, reason)
		SELECT 2, i, i, i, 1, i, 1, now(), now() + interval '1 hour', 0, '' FROM gen_random_uuid() AS i`)
	wants(2)
	w.shards[2].empty.Store(false) // it checks by itself
	wants()
}
