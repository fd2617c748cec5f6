package eventstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// TestMoveWaitsForGroup moves a shard to the other node during a group: the move waits for the group, and the next
// group goes to the other node, although this process was not informed.
func TestMoveWaitsForGroup(t *testing.T) {
	pgtest.Citus(t)
	arrived, goOn := make(chan struct{}, 1), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(goOn) })
	var holdUp atomic.Bool
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Apply = func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error {
			if holdUp.CompareAndSwap(true, false) {
				arrived <- struct{}{}
				<-goOn
			}
			return projections.Apply(b, shard, events)
		}
	})
	o := l.Organization(t, 0, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("d", 1, "before")))
	ctx := context.Background()
	holders := commits(t, l.URL)
	from, err := holders.Locate(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}

	defer letGo() // otherwise the ledger never closes
	holdUp.Store(true)
	registered := make(chan error, 1)
	go func() { registered <- l.Do(ctx, l.Register(t, o, o.Declaration("d", 2, "meanwhile"))) }()
	<-arrived
	moved := make(chan error, 1)
	go func() { moved <- clustertest.Move(ctx, l.URL, 0) }()
	pgtest.Eventually(t, "the move waits", func() (bool, error) {
		conn, _, err := holders.Acquire(ctx, 0)
		if err != nil {
			return false, err
		}
		defer conn.Release()
		var waits bool
		err = conn.QueryRow(
			ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
		).Scan(&waits)
		return waits, err
	})
	select {
	case err := <-moved:
		t.Fatalf("the move did not wait: %v", err)
	default:
	}
	letGo()
	if err := <-registered; err != nil {
		t.Errorf("the group under way: %v", err)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	to, err := holders.Locate(ctx, 0)
	if err != nil || to.Node() == from.Node() {
		t.Fatalf("shard 0 is on node %d still: %v", to.Node(), err)
	}
	l.Must(t, l.Register(t, o, o.Declaration("d", 3, "after")))
	if err := clustertest.Move(ctx, l.URL, 0); err != nil {
		t.Fatal(err)
	}
	l.Must(t, l.Register(t, o, o.Declaration("d", 4, "back again")))
	versions := map[string]int{}
	for _, e := range l.Audit(t)[0] {
		if e.Type == domain.RecordRegistered {
			versions[e.Subject]++
		}
	}
	if len(versions) != 4 {
		t.Errorf("%d versions are registered: %v", len(versions), versions)
	}
}

// commits returns connections to the nodes like a ledger's.
func commits(t *testing.T, url string) *cluster.Nodes {
	t.Helper()
	holders, err := cluster.At(url).Holders(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holders.Close)
	return holders.Nodes(1, (*cluster.Primary).CommitPool)
}

// TestReadsFollowAMove: a read of a shard returns the rows of its current node, although the former node keeps a copy
// for a while after a move.
func TestReadsFollowAMove(t *testing.T) {
	pgtest.Citus(t)
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	ctx := context.Background()
	holders, err := cluster.At(l.URL).Holders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holders.Close)
	db := eventstore.Route(l.Pool, holders.Nodes(1, (*cluster.Primary).ReadPool))
	highest := cluster.SQL("SELECT sequence FROM {organization_state} WHERE shard = $1 AND organization_id = $2")
	read := func(db eventstore.Database) (sequence int64) {
		t.Helper()
		if err := db.QueryRow(ctx, highest, o.ID.Shard(), o.ID).Scan(&sequence); err != nil {
			t.Fatal(err)
		}
		return sequence
	}
	for move := range int32(3) {
		read(db)
		if move > 0 {
			if err := clustertest.Move(ctx, l.URL, 0); err != nil {
				t.Fatal(err)
			}
		}
		l.Must(t, l.Register(t, o, o.Declaration("d", move+1, "copy")))
		if got, want := read(db), read(l.Pool); got != want {
			t.Errorf("after %d moves the sequence is read as %d, not %d", move, got, want)
		}
	}

	// The node's only connection is always released.
	for _, sql := range []string{
		cluster.SQL("SELECT 1/0 FROM {shard_heads} WHERE shard = $1"),
		cluster.SQL("SELECT nothing FROM {shard_heads} WHERE shard = $1"),
		"SELECT FROM nothing WHERE $1 = 1", "SELECT FROM shard_heads WHERE shard = $1 -- which is not marked",
	} {
		if _, err := db.Exec(ctx, sql, domain.Shard(0)); err == nil {
			t.Errorf("%s: no error", sql)
		}
		var n int
		if err := db.QueryRow(ctx, sql, domain.Shard(0)).Scan(&n); err == nil {
			t.Errorf("%s: no error", sql)
		}
		b := &pgx.Batch{}
		b.Queue("BEGIN")
		b.Queue(sql, domain.Shard(0))
		b.Queue("COMMIT")
		if err := db.SendBatch(ctx, b).Close(); err == nil {
			t.Errorf("%s: no error", sql)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := db.Exec(ended, cluster.SQL("SELECT FROM {shard_heads} WHERE shard = $1"), domain.Shard(0)); err == nil {
		t.Error("no error of a context that has ended")
	}
	read(db)
}
