package transparency

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// read returns what an audit has read of shards.
func read(t *testing.T, l *ledgertest.Ledger, shards ...domain.Shard) (logs []audit.Log) {
	t.Helper()
	for _, shard := range shards {
		log := audit.Log{Shard: shard}
		for _, e := range l.Events(t, shard) {
			log.Position, log.Head = e.Position, audit.Head(log.Head, e.Hash)
		}
		logs = append(logs, log)
	}
	return logs
}

// TestExtent: a prefix contains only what the audit has read, and the next check goes on from it, wherever a run was cut
// and whatever the tree lacked.
func TestExtent(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	a, b := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 2, domain.InternalPlan)
	after := func(x Extent) Prefix {
		t.Helper()
		d, err := x.Check(context.Background(), l.Pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.Prefix
	}
	if p := after(Extent{Logs: read(t, l, 1, 2)}); !reflect.DeepEqual(p, Prefix{}) {
		t.Errorf("without a tree: %+v", p)
	}
	before := Extent{}
	for round, ahead := range []int{0, 3, 300, 0, 2} {
		register(t, l, a, 1000*round+500, 2) // the next run begins with them, and the audit ends within it
		now := read(t, l, 1, 2)
		// The tree is behind the audit in the last round, and ahead of it or equal in the others.
		register(t, l, a, 1000*round, ahead)
		register(t, l, b, 1000*round, ahead)
		if round < 4 {
			process(t, l, signer).turned(t)
		}
		whole, since := after(Extent{Logs: now}), after(Extent{After: before.After, Logs: now})
		if !reflect.DeepEqual(whole, since) {
			t.Errorf("round %d: since %+v, whole %+v", round, since, whole)
		}
		for i, log := range whole.Shards {
			if log.Position > now[i].Position || i == 0 && ahead > 0 && round < 4 && log != now[i] {
				t.Errorf("round %d: the prefix has %+v, the audit has read %+v", round, log, now[i])
			}
		}
		before.After = whole
	}
	if before.After.Size < 300 {
		t.Errorf("the last prefix has %d leaves", before.After.Size)
	}
}

// TestExtentTampered: a check that goes on finds another root, a restored tree, and another event in the place of one
// that the audit has read.
func TestExtentTampered(t *testing.T) {
	pgtest.OneServer(t, "it disables the triggers of a table")
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 300)
	process(t, l, signer).turned(t)
	logs := read(t, l, 1)
	d, err := Extent{Logs: logs}.Check(context.Background(), l.Pool, nil)
	check(t, err)
	register(t, l, o, 300, 5) // in no tree yet
	x := Extent{d.Prefix, read(t, l, 1)}
	pool := owner(t, l)
	exec(t, pool, "ALTER TABLE events DISABLE TRIGGER USER")
	spoiled := func(sql, found string) {
		t.Helper()
		tx, err := pool.Begin(context.Background())
		check(t, err)
		_, err = tx.Exec(context.Background(), sql)
		check(t, err)
		check(t, tx.Commit(context.Background()))
		if _, err := x.Check(context.Background(), l.Pool, nil); !errors.Is(err, ErrDiffers) ||
			!strings.Contains(err.Error(), found) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	restored := restoring(t, pool, "transparency_tree", "transparency_tiles", "events")
	for sql, found := range map[string]string{
		"UPDATE transparency_tiles SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 0 AND n = 1": "the log was rewritten",
		"UPDATE transparency_tiles SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 1":           "the log was rewritten",
		"DELETE FROM transparency_tiles WHERE level = 1":                                                                "tile 1/0 has 0 bytes",
		"UPDATE transparency_tree SET size = size - 1; DELETE FROM transparency_checkpoint":                             "restored to an earlier state",
		"UPDATE events SET hash = sha256('x') WHERE shard = 1 AND position = (SELECT max(position) - 2 FROM events)":    "differ from those that the audit has read",
		"DELETE FROM events WHERE shard = 1 AND position = (SELECT max(position) FROM events)":                          "that the log lacks",
	} {
		spoiled(sql, found)
		restored()
	}
	x.After.Root[0] ^= 1
	spoiled("SELECT", "the log was rewritten")
	// A full tile before the prefix is not read: only a whole check finds it.
	x.After = d.Prefix
	exec(t, pool, "UPDATE transparency_tiles SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 0 AND n = 0")
	if _, err := x.Check(context.Background(), l.Pool, nil); err != nil {
		t.Errorf("an old tile: %v", err)
	}
	if _, err := Check(context.Background(), l.Pool, nil); !errors.Is(err, ErrDiffers) {
		t.Errorf("an old tile, by the whole check: %v", err)
	}
}

// TestExtentWithoutTree: without a tree the hashes of all events are compared with those that the audit has read, also
// if lower shards have none.
func TestExtentWithoutTree(t *testing.T) {
	pgtest.OneServer(t, "it disables the triggers of a table")
	l, signer := ledgertest.New(t), newSigner(t)
	register(t, l, l.Organization(t, 1, domain.InternalPlan), 0, 3)
	x := Extent{Logs: read(t, l, 1)}
	pool := owner(t, l)
	exec(t, pool, "ALTER TABLE events DISABLE TRIGGER USER")
	exec(t, pool, "UPDATE events SET hash = sha256('x') WHERE shard = 1 AND position = 2")
	if _, err := x.Check(context.Background(), l.Pool, nil); !errors.Is(err, ErrDiffers) {
		t.Errorf("a changed event: %v", err)
	}
	process(t, l, signer).turned(t) // of shard 1 alone
	register(t, l, l.Organization(t, 3, domain.InternalPlan), 0, 1)
	if _, err := (Extent{Logs: read(t, l, 1, 3)}).Check(context.Background(), l.Pool, nil); err != nil {
		t.Errorf("shards 1 and 3: %v", err)
	}
}

// restoring saves tables, and returns a function that restores them.
func restoring(t *testing.T, pool *pgxpool.Pool, tables ...string) func() {
	t.Helper()
	for _, table := range tables {
		exec(t, pool, "CREATE TABLE former_"+table+" AS TABLE "+table)
	}
	return func() {
		t.Helper()
		for _, table := range tables {
			exec(t, pool, "TRUNCATE "+table)
			exec(t, pool, "INSERT INTO "+table+" TABLE former_"+table)
		}
	}
}
