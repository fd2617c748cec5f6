package transparency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestTampered: a modified tree is detected by Check, and is neither signed nor used for proofs.
func TestTampered(t *testing.T) {
	pgtest.OneServer(t, "it disables the triggers of a table")
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	process(t, l, signer).turned(t)
	register(t, l, o, 0, 260)
	process(t, l, signer).turned(t)
	register(t, l, o, 260, 3) // new events for the next process
	pool := owner(t, l)
	exec(t, pool, "ALTER TABLE events DISABLE TRIGGER USER")
	tables := []string{"transparency_tree", "transparency_tiles", "transparency_runs", "transparency_checkpoint", "events"}
	for _, table := range tables {
		exec(t, pool, "CREATE TABLE saved_"+table+" AS TABLE "+table)
	}
	restore := func() {
		t.Helper()
		for _, table := range tables {
			exec(t, pool, "TRUNCATE "+table)
			exec(t, pool, "INSERT INTO "+table+" TABLE saved_"+table)
		}
	}
	for name, c := range map[string]struct {
		sql, found string
		// signs is set if a process that takes over the tree cannot notice the change, which does not affect what it signs.
		signs bool
	}{
		"a full tile": {
			"UPDATE transparency_tiles SET hashes = set_byte(hashes, 99, get_byte(hashes, 99) # 1) WHERE level = 0 AND n = 0",
			"tile 0/0 differs", true,
		},
		"the edge": {
			"UPDATE transparency_tiles SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 0 AND n = 1",
			"tile 0/1 differs", false,
		},
		"an upper tile": {
			"UPDATE transparency_tiles SET hashes = set_byte(hashes, 9, get_byte(hashes, 9) # 1) WHERE level = 1",
			"tile 1/0 differs", false,
		},
		"a missing tile": {"DELETE FROM transparency_tiles WHERE level = 0 AND n = 0", "tile 0/0 differs", true},
		"the root":       {"UPDATE transparency_tree SET root = sha256('x')", "stored root differs", false},
		"the size":       {"UPDATE transparency_tree SET size = size - 1", "covers", false},
		"no tree":        {"DELETE FROM transparency_tree", "the tree has 0", false},
		"no tree, no tiles": {
			"DELETE FROM transparency_tree; DELETE FROM transparency_tiles; DELETE FROM transparency_runs", "the tree has 0",
			false,
		},
		"the checkpoint": {
			"UPDATE transparency_checkpoint SET root = sha256('x'), note = replace(note, encode(root, 'base64'), " +
				"encode(sha256('x'), 'base64'))",
			"the checkpoint of", false,
		},
		"its root":           {"UPDATE transparency_checkpoint SET root = sha256('x')", "does not name", false},
		"a position":         {"UPDATE transparency_tree SET positions[2] = positions[2] - 1", "its runs end at", true},
		"a run's shard":      {"UPDATE transparency_runs SET from_shard = 2", "does not continue", true},
		"a run's position":   {"UPDATE transparency_runs SET first_position = first_position + 1", "does not continue", true},
		"a run's length":     {"UPDATE transparency_runs SET leaves = leaves - 1", "no run contains", true},
		"a run that is gone": {"DELETE FROM transparency_runs", "no run contains", true},
		"the hash of an event": {
			"UPDATE events SET hash = sha256('x') WHERE shard = 1 AND position = 5", "tile 0/0 differs", true,
		},
		"events at the end": {"DELETE FROM events WHERE shard = 1 AND position > 260", "the log lacks", true},
	} {
		exec(t, pool, c.sql)
		if _, err := Check(context.Background(), l.Pool, nil); !errors.Is(err, ErrDiffers) ||
			!strings.Contains(err.Error(), c.found) {
			t.Errorf("%s: derived anew: %v", name, err)
		}
		if err := process(t, l, signer).turn(context.Background()); c.signs != (err == nil) {
			t.Errorf("%s: the next process: %v", name, err)
		}
		if _, err := Check(context.Background(), l.Pool, nil); err == nil {
			t.Errorf("%s: the next process has mended it", name)
		}
		restore()
	}
	if _, err := Check(context.Background(), l.Pool, nil); err != nil {
		t.Errorf("the test itself leaves it damaged: %v", err)
	}
}

// TestLostLeaves: a tree that lost leaves not covered by a checkpoint, as in a failover, and got others in their place
// is served in its current form, even by a process that had read the former tiles.
func TestLostLeaves(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	a, b := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 2, domain.InternalPlan)
	ctx := context.Background()
	log, pool, reader := process(t, l, signer), owner(t, l), &Reader{Pool: l.Pool}
	log.turned(t)
	size := log.last.size
	for _, table := range []string{"transparency_tree", "transparency_tiles", "transparency_runs"} {
		exec(t, pool, "CREATE TABLE saved_"+table+" AS TABLE "+table)
	}
	register(t, l, b, 0, 3)
	if n, err := log.integrate(ctx); err != nil || n != 3 {
		t.Fatalf("%d leaves, %v", n, err)
	}
	if _, err := reader.Tile(ctx, fmt.Sprintf("0/000.p/%d", size)); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"transparency_tree", "transparency_tiles", "transparency_runs"} {
		exec(t, pool, "TRUNCATE "+table)
		exec(t, pool, "INSERT INTO "+table+" TABLE saved_"+table)
	}
	register(t, l, a, 0, 3) // of the shard that is integrated first
	other := process(t, l, signer, func(c *Config) { c.Batch = 3 })
	if n, err := other.integrate(ctx); err != nil || n != 3 {
		t.Fatalf("%d leaves, %v", n, err)
	}
	check(t, other.publish(ctx))
	path := fmt.Sprintf("0/000.p/%d", size+3)
	served, err := reader.Tile(ctx, path)
	check(t, err)
	stored, err := (&Reader{Pool: l.Pool}).Tile(ctx, path)
	check(t, err)
	if !bytes.Equal(served, stored) {
		t.Error("hashes that were never published are served")
	}
	other.turned(t)
	complete(t, l, signer)
}

// TestOverwritten: a tile that would lose hashes is not written.
func TestOverwritten(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	log := process(t, l, signer)
	ctx := context.Background()
	check(t, log.stores(ctx, []int64{3}, leaves(0, 3), []run{{0, 0, 1, 3}}))
	exec(t, owner(t, l), "UPDATE transparency_tiles SET hashes = set_byte(hashes, 39, get_byte(hashes, 39) # 1)")
	if err := log.stores(ctx, []int64{5}, leaves(3, 5), []run{{3, 0, 4, 2}}); !errors.Is(err, errOverwritten) {
		t.Errorf("a tile that was changed: %v", err)
	}
}

// TestFalseProof: no caller gets the proof of another event.
func TestFalseProof(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 3)
	log := process(t, l, signer)
	log.turned(t)
	reader := &Reader{Pool: l.Pool}
	leaf := l.Events(t, 1)[4].Leaf()
	_, err := reader.Inclusion(context.Background(), 1, 5, leaf)
	check(t, err)
	exec(t, owner(t, l), "UPDATE transparency_runs SET first_leaf = first_leaf - 1, leaves = leaves + 1")
	// The cached data stays: it leads to the leaf.
	_, err = reader.Inclusion(context.Background(), 1, 5, leaf)
	check(t, err)
	reader = &Reader{Pool: l.Pool}
	if i, err := reader.Inclusion(context.Background(), 1, 5, leaf); err == nil || errors.Is(err, ErrNotIntegrated) {
		t.Errorf("a run that was shifted: %+v, %v", i, err)
	}
}

// saved lists the log's tables that are backed up. The ledger's events are not.
var saved = []string{
	"transparency_tree", "transparency_tiles", "transparency_runs", "transparency_checkpoint", "transparency_keys",
	"log_timestamps",
}

func backUp(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, table := range saved {
		exec(t, pool, "CREATE TABLE saved_"+table+" AS TABLE "+table)
	}
}

// restore restores the tables like integrity restore, in a ledger that knows the keys.
func restore(t *testing.T, l *ledgertest.Ledger, pool *pgxpool.Pool, known ...*Signer) eventstore.Installation {
	t.Helper()
	for _, table := range saved {
		exec(t, pool, "TRUNCATE "+table)
		exec(t, pool, "INSERT INTO "+table+" TABLE saved_"+table)
	}
	exec(t, pool, "UPDATE ledger SET epoch = 1")
	check(t, Stop(context.Background(), pool, keysOf(known...)))
	in, err := eventstore.RaiseEpoch(context.Background(), l.URL, time.Now())
	check(t, err)
	return in
}

// opened reads a checkpoint like a monitor.
func opened(t *testing.T, text string, keys ...*Signer) *evidence.Checkpoint {
	t.Helper()
	trusted, err := evidence.NewTrustedKeys(nil, nil, keysOf(keys...))
	check(t, err)
	c, err := evidence.OpenCheckpoint(text, trusted)
	check(t, err)
	return &c
}

// TestRestored: after a restore the tree is halted until the operator has compared it with the published checkpoint. If
// nothing was lost, it continues.
func TestRestored(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	log := process(t, l, signer)
	log.turned(t)
	pool := owner(t, l)
	older := opened(t, log.last.note, signer)
	if _, _, err := Resume(ctx, pool, Resumption{Fork: true, Signer: signer}); !errors.Is(err, ErrNotHalted) {
		t.Errorf("a log that goes on: %v", err)
	}
	if err := MakeForkKey(ctx, pool, newSigner(t).LogKey); !errors.Is(err, ErrNotHalted) {
		t.Errorf("the key of a fork for a log that goes on: %v", err)
	}
	register(t, l, o, 0, 2)
	log.turned(t)
	backUp(t, pool)
	newest := opened(t, log.last.note, signer)
	restore(t, l, pool)
	log = process(t, l, signer)
	if err := log.turn(ctx); !errors.Is(err, ErrRestored) {
		t.Fatalf("after a restore: %v", err)
	}
	if status, err := ReadStatus(ctx, l.Pool); err != nil || !status.Halted {
		t.Errorf("after a restore: %+v, %v", status, err)
	}
	if _, _, err := Resume(ctx, pool, Resumption{}); !errors.Is(err, ErrForked) {
		t.Errorf("nothing to compare with: %v", err)
	}
	for what, change := range map[string]func(*evidence.Checkpoint){
		"another root":  func(c *evidence.Checkpoint) { c.Root[0]++ },
		"a larger tree": func(c *evidence.Checkpoint) { c.Size = newest.Size + 1 },
	} {
		other := *older
		change(&other)
		if _, lost, err := Resume(ctx, pool, Resumption{Published: &other}); !errors.Is(err, ErrForked) || !lost {
			t.Errorf("%s: %v, %v", what, lost, err)
		}
	}
	if size, lost, err := Resume(ctx, pool, Resumption{Published: older}); err != nil || lost || size != newest.Size {
		t.Errorf("an older checkpoint, and nothing was lost: %d, %v, %v", size, lost, err)
	}
	register(t, l, o, 2, 1)
	log.turned(t)
	complete(t, l, signer)
}

// TestRestoredWhileRunning: a process with the tree in memory does not continue after a restore.
func TestRestoredWhileRunning(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	log := process(t, l, signer)
	log.turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	restore(t, l, pool)
	register(t, l, o, 0, 1)
	if err := log.turn(context.Background()); !errors.Is(err, ErrRestored) {
		t.Errorf("it goes on with the tree that it remembers: %v", err)
	}
}

// TestRestoredBeforeSigned: a confirmed tree is not signed in a database that no longer has it, neither while the log
// is halted nor after it is resumed.
func TestRestoredBeforeSigned(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	log := process(t, l, signer)
	log.turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	newest := opened(t, log.last.note, signer)
	register(t, l, o, 0, 3)
	_, err := log.integrate(ctx)
	check(t, err)
	confirmed, err := log.confirmed(ctx, signer)
	check(t, err)
	restore(t, l, pool)
	if err := log.sign(ctx, signer, confirmed); !errors.Is(err, ErrRestored) {
		t.Errorf("while the log stands still: %v", err)
	}
	if _, _, err := Resume(ctx, pool, Resumption{Published: newest}); err != nil {
		t.Fatal(err)
	}
	if err := log.sign(ctx, signer, confirmed); err == nil {
		t.Error("a tree that the database does not have is signed")
	}
	log.turned(t)
	complete(t, l, signer)
}

// TestForkNeedsNewKey: no key that existed before the restore signs a fork: not the key that signed the backup, nor a
// later key that only the operator knows, nor a key of another restore.
func TestForkNeedsNewKey(t *testing.T) {
	l, a, b := ledgertest.New(t), newSigner(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	process(t, l, a).turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	register(t, l, o, 0, 3)
	before := process(t, l, b) // a rotation
	before.turned(t)
	lost := opened(t, before.last.note, a, b)

	first := restore(t, l, pool, a)
	fork := func(p *evidence.Checkpoint, signer *Signer, keys ...*Signer) error {
		t.Helper()
		_, _, err := Resume(ctx, pool, Resumption{Published: p, Fork: true, Signer: signer, Keys: keysOf(keys...)})
		return err
	}
	for name, err := range map[string]error{
		"no key":                                  fork(nil, nil),
		"the key of the backup":                   fork(nil, a, a),
		"a key after the backup, of no file":      fork(nil, b),
		"a key after the backup":                  fork(nil, b, a, b),
		"a key after the backup, and what it did": fork(lost, b, a, b),
	} {
		if !errors.Is(err, ErrSameKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := MakeForkKey(ctx, pool, a.LogKey); !errors.Is(err, ErrKnownKey) {
		t.Errorf("a key that restore knew of: %v", err)
	}
	made := newSigner(t)
	check(t, MakeForkKey(ctx, pool, made.LogKey))
	if err := fork(lost, b, a, b); !errors.Is(err, ErrSameKey) {
		t.Errorf("another key than the one that was made: %v", err)
	}
	if status, err := ReadStatus(ctx, pool); err != nil || !status.Halted {
		t.Errorf("a refusal lets the tree go on: %+v, %v", status, err)
	}
	check(t, fork(lost, made, a, b))
	// A server without the new key signs nothing and leaves the tree to one that has it.
	register(t, l, o, 3, 1)
	for _, former := range []*Signer{a, b} {
		if err := process(t, l, former).turn(ctx); !errors.Is(err, ErrBarred) {
			t.Errorf("a barred key: %v", err)
		}
	}
	process(t, l, made).turned(t)
	complete(t, l, made)
	forked, _ := published(t, l, made)
	if forked < lost.Size {
		t.Errorf("the fork has %d leaves, the lost history had %d", forked, lost.Size)
	}

	// The same backup is restored again: readers see another epoch, and the key of the first fork counts as old.
	second := restore(t, l, pool, a, b)
	if second.Epoch == first.Epoch {
		t.Errorf("two restores of one backup have the epoch %d", first.Epoch)
	}
	if err := fork(lost, made, a, b); !errors.Is(err, ErrSameKey) {
		t.Errorf("the key of another restore: %v", err)
	}
	exec(t, pool, "TRUNCATE transparency_keys") // and a key from a backup of the fork
	exec(
		t, pool, "INSERT INTO transparency_keys (key, epoch, made, barred) VALUES ($1, $2, true, false)",
		keyName(made.LogKey), first.Epoch,
	)
	if err := fork(lost, made, a, b); !errors.Is(err, ErrSameKey) {
		t.Errorf("the key that an earlier restore made: %v", err)
	}
}

// TestRestoredBeforeFirstCheckpoint: a restored backup without a tree is halted, too.
func TestRestoredBeforeFirstCheckpoint(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	l.Organization(t, 1, domain.InternalPlan)
	pool := owner(t, l)
	backUp(t, pool)
	process(t, l, signer).turned(t)
	restore(t, l, pool, signer)
	if err := process(t, l, signer).turn(context.Background()); !errors.Is(err, ErrRestored) {
		t.Errorf("a second first checkpoint: %v", err)
	}
}
