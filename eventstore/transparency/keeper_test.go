package transparency

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestLog: every event of every shard is a leaf exactly once, and each checkpoint extends the previous one.
func TestLog(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	reader := &Reader{Pool: l.Pool}
	if _, err := reader.Checkpoint(context.Background()); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("before the first turn: %v", err)
	}
	if _, err := reader.Tile(context.Background(), "0/000"); !errors.Is(err, ErrNoTile) {
		t.Errorf("before the first turn: %v", err)
	}
	first, second := l.Organization(t, 0, domain.InternalPlan), l.Organization(t, 3, domain.InternalPlan)
	if _, err := reader.Inclusion(context.Background(), 0, 1, nil); !errors.Is(err, ErrNotIntegrated) {
		t.Errorf("before the first turn: %v", err)
	}
	log := process(t, l, signer, func(c *Config) { c.Batch = 7 })
	log.turned(t)
	complete(t, l, signer)
	for round := range 4 {
		size, root := published(t, l, signer)
		register(t, l, first, 10*round, 3)
		register(t, l, second, 10*round, 5)
		if _, err := reader.Inclusion(
			context.Background(), 3, int64(len(l.Events(t, 3))), nil,
		); !errors.Is(err, ErrNotIntegrated) {
			t.Errorf("an event that no checkpoint covers: %v", err)
		}
		log.turned(t)
		later, laterRoot := published(t, l, signer)
		if later != size+8 {
			t.Errorf("8 events made the tree grow from %d to %d", size, later)
		}
		consistent(t, l, size, root, later, laterRoot)
		complete(t, l, signer)
	}
	before := log.last.note
	log.turned(t)
	if status, err := ReadStatus(context.Background(), l.Pool); err != nil || log.last.note != before ||
		status.Leaves != status.Events || status.Published != status.Events ||
		!status.Oldest.IsZero() || status.Halted || status.SignedBy != signer.Name+"+"+signer.KeyHash ||
		status.SignedAt.IsZero() {
		t.Errorf("a turn without news: %+v, %v", status, err)
	}
	register(t, l, second, 100, 2)
	if status, err := ReadStatus(context.Background(), l.Pool); err != nil || status.Events != status.Published+2 ||
		status.Oldest.IsZero() {
		t.Errorf("behind by two: %+v, %v", status, err)
	}

	// This is the state between the commit of the tree and the commit of its checkpoint.
	exec(t, owner(t, l), "CREATE TABLE checkpoint_before AS TABLE transparency_checkpoint")
	log.turned(t)
	exec(
		t, owner(t, l),
		"UPDATE transparency_checkpoint c SET size = b.size, root = b.root, note = b.note FROM checkpoint_before b",
	)
	if i, err := (&Reader{Pool: l.Pool}).Inclusion(
		context.Background(), 3, int64(len(l.Events(t, 3))), nil,
	); !errors.Is(err, ErrNotIntegrated) {
		t.Errorf("an event in the tree that is not published: %+v, %v", i, err)
	}
}

// TestRun: the keeper works by itself and wakes up.
func TestRun(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	log := process(t, l, signer, func(c *Config) { c.Interval, c.Poll = time.Millisecond, time.Hour })
	log.consumer.Gather = time.Hour // publishing ends it
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		log.Run(ctx)
	}()
	eventually(t, "the first events are published", func() bool { return behind(t, l) == 0 })
	for round := range 3 {
		register(t, l, o, 10*round, 3)
		log.Wake()
		eventually(t, "what came after a wake-up is published", func() bool { return behind(t, l) == 0 })
	}
	cancel()
	<-ended
	complete(t, l, signer)
}

// TestQuietKeeper: while the tree does not grow, it is checked less and less often, unless witnesses may have to be
// asked again.
func TestQuietKeeper(t *testing.T) {
	pool, err := pgxpool.New(context.Background(), "postgres://nobody@localhost/none?pool_max_conns=2")
	check(t, err)
	defer pool.Close()
	for _, witnesses := range [][]*Witness{nil, {{}}} {
		synctest.Test(t, func(t *testing.T) {
			var looks []time.Duration
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			k, err := New(Config{Pool: pool, Witnesses: witnesses, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				Signer: func() *Signer {
					looks = append(looks, time.Since(began))
					return nil // sign nothing and do not query the database
				}})
			check(t, err)
			go k.publishing(ctx)
			time.Sleep(14*time.Second + time.Millisecond)
			cancel()
			synctest.Wait()
			want := []time.Duration{0, 2 * time.Second, 5 * time.Second, 10 * time.Second}
			if witnesses != nil {
				want = []time.Duration{
					0, 2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second, 10 * time.Second, 12 * time.Second,
					14 * time.Second,
				}
			}
			if !slices.Equal(looks, want) {
				t.Errorf("looks after %v, want %v", looks, want)
			}
		})
	}
}

func behind(t *testing.T, l *ledgertest.Ledger) int64 {
	status, err := ReadStatus(context.Background(), l.Pool)
	check(t, err)
	return status.Events - status.Published
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within four minutes: %s", what)
		}
	}
}

// TestOnTheDisk: a checkpoint is stored only once its tree is on disk, and is itself on disk before it is served,
// although growing the tree does not wait for the disk.
func TestOnTheDisk(t *testing.T) {
	pgtest.OneServer(t, "it looks at the log of one")
	l, signer := ledgertest.New(t), newSigner(t)
	pool := owner(t, l)
	exec(t, pool,
		`CREATE TABLE commits (id bigint GENERATED ALWAYS AS IDENTITY, relation text, setting text, inserted pg_lsn, flushed pg_lsn);
		CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
		$$ BEGIN INSERT INTO commits (relation, setting, inserted, flushed)
			VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'), pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()); RETURN NULL; END $$`)
	for _, table := range []string{
		"transparency_tree", "transparency_tiles", "transparency_runs", "transparency_checkpoint",
	} {
		exec(
			t, pool,
			"CREATE CONSTRAINT TRIGGER note_commit AFTER INSERT OR UPDATE ON "+table+
				" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit()",
		)
	}
	o := l.Organization(t, 0, domain.InternalPlan)
	for round := range 5 {
		register(t, l, o, 10*round, 10)
		process(t, l, signer).turned(t)
	}
	complete(t, l, signer)
	const stored = "FROM commits c WHERE relation = 'transparency_checkpoint'"
	var checkpoints, lazy, early int
	check(t,
		pool.QueryRow(context.Background(),
			`SELECT (SELECT count(*) `+stored+`), (SELECT count(*) `+stored+` AND setting <> 'on'),
		(SELECT count(*) `+stored+` AND EXISTS (SELECT FROM commits g WHERE g.id < c.id AND g.relation <> c.relation AND g.inserted >= c.flushed))`).
			Scan(&checkpoints, &lazy, &early))
	if checkpoints != 5 || lazy > 0 || early > 0 {
		t.Errorf(
			"%d checkpoints, %d did not wait for the disk, %d were stored before their tree was there", checkpoints, lazy,
			early,
		)
	}
}

// TestTileBorders: the stored tree equals another implementation's on both sides of 256 and 65,536 leaves.
func TestTileBorders(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	log := process(t, l, signer)
	ctx := context.Background()
	reader := &Reader{Pool: l.Pool}
	var size int64
	var root []byte
	for _, next := range []int64{1, 255, 256, 257, 65_535, 65_536, 65_537, 65_800} {
		check(t, log.stores(ctx, []int64{next}, leaves(size, next), []run{{size, 0, size + 1, next - size}}))
		check(t, log.publish(ctx))
		later, laterRoot := published(t, l, signer)
		if later != next {
			t.Fatalf("a checkpoint of %d, not %d", later, next)
		}
		if size > 0 {
			consistent(t, l, size, root, later, laterRoot)
		}
		size, root = later, laterRoot
		var batch []*leafQuestion
		for i := range int64(300) {
			batch = append(
				batch, &leafQuestion{position: 1 + min(i, size-1)}, &leafQuestion{position: max(1, size-i)},
				&leafQuestion{position: 1 + i*size/300},
			)
		}
		reader.look(struct{}{}, batch)
		for _, q := range batch {
			check(t, q.err)
			proven(t, q, leaf(q.position-1), root)
		}
	}
	for path, want := range map[string]int{
		"0/000": 256, "0/255": 256, "0/256": 256, "0/257.p/8": 8, "0/257.p/3": 3, "0/000.p/255": 255, "1/000": 256,
		"1/001.p/1": 1, "2/000.p/1": 1,
	} {
		hashes, err := reader.Tile(ctx, path)
		if err != nil || len(hashes) != want*32 {
			t.Errorf("tile %s: %d bytes, %v", path, len(hashes), err)
		}
	}
	if hashes, err := reader.Tile(ctx, "0/257.p/8"); err != nil || [32]byte(hashes[7*32:]) != leaf(65_799) {
		t.Errorf("the last leaf: %v", err)
	}
	for _, path := range []string{
		"entries/000", "entries/000.p/1", "data/000", "0/257", "0/257.p/9", "0/258", "1/001", "3/000.p/1", "0/0",
		"0/000.p/256", "0/000.p/0", "0/x000/000", "-1/000", "63/000", "0/000/", "", "0",
	} {
		if _, err := reader.Tile(ctx, path); !errors.Is(err, ErrNoTile) {
			t.Errorf("tile %s: %v", path, err)
		}
	}
	var runs int
	check(t, l.Pool.QueryRow(ctx, "SELECT count(*) FROM transparency_runs").Scan(&runs))
	if runs != 1 {
		t.Errorf("what goes on where the last run ended made %d runs", runs)
	}
	// A committed but unsigned tree is not shown.
	check(t, log.stores(ctx, []int64{size + 5}, leaves(size, size+5), []run{{size, 0, size + 1, 5}}))
	if _, err := reader.Tile(ctx, "0/257.p/9"); !errors.Is(err, ErrNoTile) {
		t.Errorf("a leaf that no checkpoint covers: %v", err)
	}
}

// TestOneProcessWrites: only one of two processes holds the tree. A process that was frozen while it held the tree
// loses it, and then neither changes it nor publishes again what another process has published meanwhile.
func TestOneProcessWrites(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	frozen, other := process(t, l, signer), process(t, l, signer)
	frozen.turned(t)
	register(t, l, o, 0, 5)
	ctx := context.Background()
	if n, err := frozen.integrate(ctx); n != 5 || err != nil {
		t.Fatalf("%d leaves, %v", n, err)
	}
	unsigned, err := frozen.confirmed(ctx, signer) // and is frozen while publishing, too
	check(t, err)
	register(t, l, o, 5, 5)
	tx, err := frozen.claim(ctx)
	if tx == nil || err != nil {
		t.Fatalf("the tree has grown, and is not claimed: %v", err)
	}
	if second, err := other.claim(ctx); second != nil || err != nil {
		t.Fatalf("two processes have the tree: %v", err)
	}
	eventually(t, "the other process takes over", func() bool {
		n, err := other.integrate(ctx)
		check(t, err)
		return n == 5
	})
	_, err = frozen.grow(ctx, tx)
	if err == nil {
		t.Error("the frozen process wrote")
	}
	if tx.end(nil) == nil {
		t.Error("the frozen process committed")
	}
	check(t, other.publish(ctx))
	size, root := published(t, l, signer)
	if err := frozen.sign(ctx, signer, unsigned); !errors.Is(err, errLost) {
		t.Errorf("the frozen process published: %v", err)
	}
	if again, same := published(t, l, signer); again != size || string(same) != string(root) {
		t.Errorf("the checkpoint went from %d to %d", size, again)
	}
	frozen.turned(t)
	complete(t, l, signer)
}

// TestRegistrationNeverWaits: whatever is wrong with the tree, registrations continue, and it catches up afterwards.
func TestRegistrationNeverWaits(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	missing := false
	log := process(t, l, signer, func(c *Config) {
		c.Signer = func() *Signer {
			if missing {
				return nil
			}
			return signer
		}
	})
	log.turned(t)
	pool := owner(t, l)
	ctx := context.Background()
	n := 0
	during := func(what string) {
		t.Helper()
		register(t, l, o, n, 3)
		n += 3
		if behind(t, l) != 3 {
			t.Errorf("%s: %d events are behind", what, behind(t, l))
		}
	}
	after := func(what string) {
		t.Helper()
		if log.turned(t); behind(t, l) != 0 {
			t.Errorf("%s: %d events are behind afterwards", what, behind(t, l))
		}
		complete(t, l, signer)
	}

	tx, err := pool.Begin(ctx)
	check(t, err)
	// readers of the status are not blocked
	_, err = tx.Exec(ctx, "LOCK TABLE transparency_tree, transparency_tiles, transparency_runs IN SHARE MODE")
	check(t, err)
	during("locked")
	waiting := make(chan error, 1)
	go func() {
		waiting <- log.turn(ctx)
	}()
	over := false
	eventually(t, "the tree waits for the lock", func() bool {
		var n int
		check(
			t,
			pool.QueryRow(
				ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
			).Scan(&n),
		)
		over = len(waiting) > 0
		return n > 0 || over
	})
	register(t, l, o, n, 1)
	n++
	check(t, tx.Rollback(ctx))
	var answer *pgconn.PgError // on a slow machine it may give up
	if err := <-waiting; (err != nil || over) && (!errors.As(err, &answer) ||
		answer.Code != "55P03" && answer.Code != "57014") {
		t.Errorf("after the lock: %v", err)
	}
	after("locked")

	missing = true
	if err := log.turn(ctx); err != nil {
		t.Errorf("without a key: %v", err)
	}
	during("without a key")
	if err := log.turn(ctx); err != nil {
		t.Errorf("without a key: %v", err)
	}
	missing = false
	after("without a key")

	exec(
		t, pool,
		`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$`,
	)
	for _, table := range []string{"transparency_tiles", "transparency_tree", "transparency_checkpoint"} {
		exec(
			t, pool,
			"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON "+table+" FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
		)
		during("full " + table)
		err := log.turn(ctx)
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || answer.Code != "53100" {
			t.Errorf("full %s: %v", table, err)
		}
		exec(t, pool, "DROP TRIGGER full_disk ON "+table)
		after("full " + table)
	}
}

// TestShardsRaised: shards added later are included.
func TestShardsRaised(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	l.Organization(t, 0, domain.InternalPlan)
	log := process(t, l, signer)
	log.turned(t)
	exec(t, owner(t, l), "UPDATE ledger SET shards = 7")
	exec(t, owner(t, l), "INSERT INTO shard_heads SELECT n, 0, now() FROM generate_series(4, 6) AS n")
	l.Installation.Shards = 7
	l.Organization(t, 6, domain.InternalPlan)
	log.turned(t)
	complete(t, l, signer)
	fresh := process(t, l, signer)
	fresh.turned(t)
	complete(t, l, signer)
}

// TestRevokedKeySignedAnew: a checkpoint of a revoked key is replaced once by one of the same tree under another key,
// and only if the other Signer lists the revocation.
func TestRevokedKeySignedAnew(t *testing.T) {
	l, former, next := ledgertest.New(t), newSigner(t), newSigner(t)
	l.Organization(t, 1, domain.InternalPlan)
	process(t, l, former).turned(t)
	before, err := ReadStatus(context.Background(), l.Pool)
	check(t, err)
	process(t, l, next).turned(t)
	same, err := ReadStatus(context.Background(), l.Pool)
	check(t, err)
	if same.Checkpoint != before.Checkpoint {
		t.Errorf("signed anew without need:\n%s", same.Checkpoint)
	}
	next.Revoked = []string{before.SignedBy}
	for range 2 {
		process(t, l, next).turned(t)
	}
	anew, err := ReadStatus(context.Background(), l.Pool)
	check(t, err)
	if anew.SignedBy != keyName(next.LogKey) || anew.Published != before.Published {
		t.Errorf(
			"signed by %s with %d leaves, before %s with %d", anew.SignedBy, anew.Published, before.SignedBy, before.Published,
		)
	}
	complete(t, l, next)
}
