package transparency

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// proven fails unless the answer proves the leaf, according to the go command's log code.
func proven(t testing.TB, q *leafQuestion, leaf [32]byte, root []byte) {
	t.Helper()
	path, err := q.prover.prove(q.index)
	check(t, err)
	check(t, tlog.CheckRecord(path, q.head.size, hashOf(root), q.index, leaf))
}

func readPool(t testing.TB, l *ledgertest.Ledger) *pgxpool.Pool {
	t.Helper()
	pool, err := cluster.At(l.URL).ReadPool(context.Background(), 4)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestConcurrentProofs: questions about all shards in one batch each get their own proof, next to questions about
// unpublished and missing events.
func TestConcurrentProofs(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	var organizations []ledgertest.Organization
	for shard := range domain.Shard(l.Installation.Shards) {
		o := l.Organization(t, shard, domain.InternalPlan)
		organizations = append(organizations, o)
		register(t, l, o, 0, 15+int(shard))
	}
	process(t, l, signer).turned(t)
	_, root := published(t, l, signer)
	integrated := map[domain.Shard]int{}
	for shard, o := range organizations {
		integrated[domain.Shard(shard)] = len(l.Events(t, domain.Shard(shard)))
		register(t, l, o, 1000, 3)
	}
	var batch []*leafQuestion
	var events []domain.Event
	for shard := range domain.Shard(l.Installation.Shards) {
		for _, e := range l.Events(t, shard) {
			batch = append(
				batch, &leafQuestion{shard: shard, position: e.Position}, &leafQuestion{shard: shard + 100, position: e.Position},
			)
			events = append(events, e)
		}
	}
	if len(batch) <= 128 {
		t.Fatalf("a batch of %d", len(batch))
	}
	reader := &Reader{Pool: readPool(t, l)}
	reader.look(struct{}{}, batch)
	for i, e := range events {
		q, nowhere := batch[2*i], batch[2*i+1]
		if !errors.Is(nowhere.err, ErrNotIntegrated) {
			t.Errorf("an event that there is not: %v", nowhere.err)
		}
		if int(e.Position) > integrated[e.Shard] {
			if !errors.Is(q.err, ErrNotIntegrated) {
				t.Errorf("event %d of shard %d is not integrated: %v", e.Position, e.Shard, q.err)
			}
			continue
		}
		check(t, q.err)
		proven(t, q, e.Hash, root)
	}

	// The same through the Batcher, with all tiles in memory.
	var asking sync.WaitGroup
	for _, e := range events {
		asking.Go(func() {
			inclusion, err := reader.Inclusion(context.Background(), e.Shard, e.Position, e.Leaf())
			if there := int(e.Position) <= integrated[e.Shard]; there != (err == nil) ||
				!there && !errors.Is(err, ErrNotIntegrated) {
				t.Errorf("event %d of shard %d: %v", e.Position, e.Shard, err)
			} else if there && inclusion.Leaf != string(e.Leaf()) {
				t.Errorf("event %d of shard %d is given the leaf %s", e.Position, e.Shard, inclusion.Leaf)
			}
		})
	}
	asking.Wait()
}

func lockTable(t testing.TB, admin *pgxpool.Pool, table string) pgx.Tx {
	t.Helper()
	tx, err := admin.Begin(context.Background())
	check(t, err)
	_, err = tx.Exec(context.Background(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	check(t, err)
	return tx
}

func awaitLock(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	eventually(t, "a question waits for the lock", func() bool {
		var n int
		check(
			t,
			admin.QueryRow(
				context.Background(),
				"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
			).Scan(&n),
		)
		return n > 0
	})
}

// TestLockedTree: locked tables cost one connection, however many callers ask. A caller that gives up returns, and the
// batch ends by itself.
func TestLockedTree(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	l.Organization(t, 1, domain.InternalPlan)
	process(t, l, signer).turned(t)
	e := l.Events(t, 1)[0]
	pool, admin, ctx := readPool(t, l), owner(t, l), context.Background()
	locked := lockTable(t, admin, "transparency_runs")
	reader := &Reader{Pool: pool, Limit: time.Hour}
	asking, leave := context.WithCancel(ctx)
	answers := make(chan error)
	ask := func() {
		go func() {
			_, err := reader.Inclusion(asking, 1, e.Position, e.Leaf())
			answers <- err
		}()
	}
	ask()
	awaitLock(t, admin)
	for range 20 {
		ask()
	}
	leave()
	for range 21 {
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up: %v", err)
		}
	}
	if n := pool.Stat().AcquireCount(); n != 1 {
		t.Errorf("%d connections were asked for", n)
	}
	check(t, locked.Rollback(ctx))
	_, err := reader.Inclusion(ctx, 1, e.Position, e.Leaf())
	check(t, err)

	locked = lockTable(t, admin, "transparency_runs")
	_, err = (&Reader{Pool: pool, Limit: time.Millisecond}).Inclusion(ctx, 1, e.Position, e.Leaf())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a batch whose time is over: %v", err)
	}
	check(t, locked.Rollback(ctx))
}

// TestSmallerTree: after a restore, a process that has seen a larger tree proves inclusion in the current one.
func TestSmallerTree(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	a, b := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 2, domain.InternalPlan)
	ctx, pool, reader := context.Background(), owner(t, l), &Reader{Pool: l.Pool}
	process(t, l, signer).turned(t)
	tables := []string{"transparency_tree", "transparency_tiles", "transparency_runs", "transparency_checkpoint"}
	for _, table := range tables {
		exec(t, pool, "CREATE TABLE saved_"+table+" AS TABLE "+table)
	}
	prove := func(e domain.Event) error {
		_, err := reader.Inclusion(ctx, e.Shard, e.Position, e.Leaf())
		return err
	}
	register(t, l, b, 0, 3)
	process(t, l, signer).turned(t)
	last := l.Events(t, 2)[len(l.Events(t, 2))-1]
	check(t, prove(last))
	for _, table := range tables {
		exec(t, pool, "TRUNCATE "+table)
		exec(t, pool, "INSERT INTO "+table+" TABLE saved_"+table)
	}
	check(t, prove(l.Events(t, 1)[0]))
	if err := prove(last); !errors.Is(err, ErrNotIntegrated) {
		t.Errorf("an event that the restored tree lacks: %v", err)
	}
	register(t, l, a, 0, 3)
	again := process(t, l, signer, func(c *Config) { c.Batch = 3 }) // of the shard that is integrated first
	if n, err := again.integrate(ctx); n != 3 || err != nil {
		t.Fatalf("%d leaves, %v", n, err)
	}
	check(t, again.publish(ctx))
	for _, e := range l.Events(t, 1) {
		check(t, prove(e))
	}
}

// TestFreshTree: a tree that is fresh enough proves its leaves without being read again. A missing leaf is looked up in
// the newest tree, which is used for the rest from then on.
func TestFreshTree(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx, reader := context.Background(), &Reader{Pool: l.Pool, Fresh: time.Hour}
	size := func(e domain.Event) int64 {
		i, err := reader.Inclusion(ctx, e.Shard, e.Position, e.Leaf())
		check(t, err)
		return i.TreeSize
	}
	process(t, l, signer).turned(t)
	first := l.Events(t, 1)[0]
	before := size(first)
	register(t, l, o, 0, 3)
	process(t, l, signer).turned(t)
	events := l.Events(t, 1)
	if got := size(first); got != before {
		t.Errorf("the tree of %d leaves was read anew: %d", before, got)
	}
	if got := size(events[len(events)-1]); got != before+3 {
		t.Errorf("a new leaf is proven in a tree of %d leaves, not %d", got, before+3)
	}
	if got := size(first); got != before+3 {
		t.Errorf("the tree of %d leaves was forgotten: %d", before+3, got)
	}
	reader.Fresh = 0
	exec(t, owner(t, l), "DELETE FROM transparency_checkpoint")
	if _, err := reader.Inclusion(ctx, 1, first.Position, first.Leaf()); !errors.Is(err, ErrNotIntegrated) {
		t.Errorf("without a checkpoint: %v", err)
	}
}

// TestForkedTree: cached data of another tree of the same size, as before a restore, makes no proof fail.
func TestForkedTree(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	register(t, l, l.Organization(t, 1, domain.InternalPlan), 0, 3)
	process(t, l, signer).turned(t)
	first := l.Events(t, 1)[0]
	for _, fresh := range []time.Duration{0, time.Hour} {
		reader := &Reader{Pool: l.Pool, Fresh: fresh}
		_, err := reader.Inclusion(context.Background(), 1, first.Position, first.Leaf())
		check(t, err)
		reader.runs[0].firstLeaf++
		_, err = reader.Inclusion(context.Background(), 1, first.Position, first.Leaf())
		check(t, err)
	}
}

// TestTreeChangesMeanwhile: if another caller first sees the smaller tree of a restore, a question in progress is not
// answered from cached data of the larger one.
func TestTreeChangesMeanwhile(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	register(t, l, l.Organization(t, 1, domain.InternalPlan), 0, 3)
	process(t, l, signer).turned(t)
	ctx, admin, first := context.Background(), owner(t, l), l.Events(t, 1)[0]
	reader := &Reader{Pool: readPool(t, l), Limit: time.Hour}
	_, err := reader.Inclusion(ctx, 1, first.Position, first.Leaf())
	check(t, err)
	size := reader.size
	reader.size, reader.runs[0].firstLeaf = size+1000, 500 // as if from a larger tree
	locked := lockTable(t, admin, "transparency_checkpoint")
	answer := make(chan error)
	go func() {
		_, err := reader.Inclusion(ctx, 1, first.Position, first.Leaf())
		answer <- err
	}()
	awaitLock(t, admin)
	reader.published(size)
	check(t, locked.Rollback(ctx))
	check(t, <-answer)
}

// TestLeavesAreLookedUp: even without statistics, a leaf is found by the index of its position.
func TestLeavesAreLookedUp(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	conn, err := readPool(t, ledgertest.New(t)).Acquire(ctx)
	check(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, "PREPARE leaves AS "+findLeaves)
	check(t, err)
	rows, err := conn.Query(ctx, "EXPLAIN EXECUTE leaves (NULL, NULL, NULL)", pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	if text := strings.Join(plan, "\n"); !strings.Contains(
		text, "Index Scan Backward using transparency_runs_position",
	) || !strings.Contains(text, "from_shard = n.from_shard) AND (first_position <= n.\"position\")") ||
		strings.Contains(text, "Seq Scan") {
		t.Error(text)
	}
}

// TestWatch: however many callers wait, all are woken by a new tree, and the process stops reading when they have left.
func TestWatch(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	reader := &Reader{Pool: readPool(t, l)}
	var all []<-chan struct{}
	var leaves []func()
	for range 3 {
		changed, leave := reader.Watch()
		<-changed // at the beginning
		all, leaves = append(all, changed), append(leaves, leave)
	}
	for round := range 2 {
		register(t, l, o, 10*round, 3)
		process(t, l, signer).turned(t)
		for _, changed := range all {
			<-changed
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if len(reader.watching.all) != 0 {
		t.Errorf("%d callers are left", len(reader.watching.all))
	}
}
