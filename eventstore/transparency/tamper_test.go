package transparency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/projections/ledgertest"
)

// TestTampered: what is changed behind the tree's back is found by who derives it
// anew, and neither signed nor proved.
func TestTampered(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	process(t, l, signer).turned(t)
	register(t, l, o, 0, 260)
	endLease(t, l)
	process(t, l, signer).turned(t)
	register(t, l, o, 260, 3) // news for the next process
	pool := owner(t, l)
	exec(t, pool, "ALTER TABLE events DISABLE TRIGGER USER")
	tables := []string{"log_tree", "log_tiles", "log_runs", "log_checkpoint", "events"}
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
		// signs: a process that takes the tree over cannot see it, and need not: it is no part of what it signs.
		signs bool
	}{
		"a full tile":          {"UPDATE log_tiles SET hashes = overlay(hashes PLACING '\\x00' FROM 100) WHERE level = 0 AND n = 0", "tile 0/0 differs", true},
		"the edge":             {"UPDATE log_tiles SET hashes = overlay(hashes PLACING '\\x00' FROM 10) WHERE level = 0 AND n = 1", "tile 0/1 differs", false},
		"an upper tile":        {"UPDATE log_tiles SET hashes = overlay(hashes PLACING '\\x00' FROM 10) WHERE level = 1", "tile 1/0 differs", false},
		"a missing tile":       {"DELETE FROM log_tiles WHERE level = 0 AND n = 0", "tile 0/0 differs", true},
		"the root":             {"UPDATE log_tree SET root = sha256('x')", "stored root is not", false},
		"the size":             {"UPDATE log_tree SET size = size - 1", "covers", false},
		"no tree":              {"DELETE FROM log_tree", "the tree has 0", false},
		"no tree, no tiles":    {"DELETE FROM log_tree; DELETE FROM log_tiles; DELETE FROM log_runs", "the tree has 0", false},
		"the checkpoint":       {"UPDATE log_checkpoint SET root = sha256('x'), note = replace(note, encode(root, 'base64'), encode(sha256('x'), 'base64'))", "the checkpoint of", false},
		"its root":             {"UPDATE log_checkpoint SET root = sha256('x')", "does not name", false},
		"a position":           {"UPDATE log_tree SET positions[2] = positions[2] - 1", "its runs end at", true},
		"a run's shard":        {"UPDATE log_runs SET from_shard = 2", "does not have", true},
		"a run's position":     {"UPDATE log_runs SET first_position = first_position + 1", "does not go on", true},
		"a run's length":       {"UPDATE log_runs SET leaves = leaves - 1", "no run says", true},
		"a run that is gone":   {"DELETE FROM log_runs", "no run says", true},
		"the hash of an event": {"UPDATE events SET hash = sha256('x') WHERE shard = 1 AND position = 5", "tile 0/0 differs", true},
		"events at the end":    {"DELETE FROM events WHERE shard = 1 AND position > 260", "does not have", true},
	} {
		exec(t, pool, c.sql)
		if _, err := Check(context.Background(), l.Pool, nil); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), c.found) {
			t.Errorf("%s: derived anew: %v", name, err)
		}
		endLease(t, l)
		if _, err := process(t, l, signer).turn(context.Background()); c.signs != (err == nil) {
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

// TestLostLeaves: a tree that lost leaves which no checkpoint covered, as in a failover, and took others in their
// place is served as it is now, by a process that had read the former tiles too.
func TestLostLeaves(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	a, b := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 2, domain.InternalPlan)
	ctx := context.Background()
	log, pool, reader := process(t, l, signer), owner(t, l), &Reader{Pool: l.Pool}
	log.turned(t)
	size := log.last.size
	for _, table := range []string{"log_tree", "log_tiles", "log_runs"} {
		exec(t, pool, "CREATE TABLE saved_"+table+" AS TABLE "+table)
	}
	register(t, l, b, 0, 3)
	if n, err := log.integrate(ctx); err != nil || n != 3 {
		t.Fatalf("%d leaves, %v", n, err)
	}
	if _, err := reader.Tile(ctx, fmt.Sprintf("0/000.p/%d", size)); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"log_tree", "log_tiles", "log_runs"} {
		exec(t, pool, "TRUNCATE "+table)
		exec(t, pool, "INSERT INTO "+table+" TABLE saved_"+table)
	}
	register(t, l, a, 0, 3) // of the shard that is taken up first
	endLease(t, l)
	other := process(t, l, signer, func(c *Config) { c.Batch = 3 })
	check(t, other.takeOver(ctx))
	if n, err := other.integrate(ctx); err != nil || n != 3 {
		t.Fatalf("%d leaves, %v", n, err)
	}
	check(t, other.publish(ctx, signer))
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

// TestOverwritten: a tile that would lose what it held is not written.
func TestOverwritten(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	log := process(t, l, signer)
	ctx := context.Background()
	check(t, log.load(ctx))
	check(t, log.grow(ctx, []int64{3}, leaves(0, 3), []run{{0, 0, 1, 3}}))
	exec(t, owner(t, l), "UPDATE log_tiles SET hashes = overlay(hashes PLACING '\\x00' FROM 40)")
	if err := log.grow(ctx, []int64{5}, leaves(3, 5), []run{{3, 0, 4, 2}}); !errors.Is(err, errOverwritten) {
		t.Errorf("a tile that was changed: %v", err)
	}
}

// TestFalseProof: nobody is given the proof of another event.
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
	exec(t, owner(t, l), "UPDATE log_runs SET first_leaf = first_leaf - 1, leaves = leaves + 1")
	if i, err := reader.Inclusion(context.Background(), 1, 5, leaf); err == nil || errors.Is(err, ErrNotIntegrated) {
		t.Errorf("a run that was shifted: %+v, %v", i, err)
	}
}

// TestRestored: after a restore the tree stands still until the operator has compared it with what was published.
func TestRestored(t *testing.T) {
	l, signer, rotated := ledgertest.New(t), newSigner(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	log := process(t, l, signer)
	log.turned(t)
	pool := owner(t, l)
	older := log.last.note
	trusted, err := evidence.NewTrustedKeys(nil, nil, keysOf(signer, rotated))
	check(t, err)
	opened := func(text string) *evidence.Checkpoint {
		t.Helper()
		c, err := evidence.OpenCheckpoint(text, trusted)
		check(t, err)
		return &c
	}
	if _, _, err := Resume(ctx, pool, nil, signer, true); !errors.Is(err, ErrNotHalted) {
		t.Errorf("a log that goes on: %v", err)
	}
	halt := func() {
		t.Helper()
		exec(t, pool, "UPDATE ledger SET epoch = epoch + 1")
		endLease(t, l)
		register(t, l, o, int(log.last.size), 1)
		log = process(t, l, signer)
		if _, err := log.turn(ctx); !errors.Is(err, ErrRestored) {
			t.Fatalf("after a restore: %v", err)
		}
		if status, err := ReadStatus(ctx, l.Pool); err != nil || !status.Halted {
			t.Errorf("after a restore: %+v, %v", status, err)
		}
	}
	halt()
	if _, _, err := Resume(ctx, pool, nil, rotated, false); !errors.Is(err, ErrForked) {
		t.Errorf("nothing to compare with: %v", err)
	}
	if size, lost, err := Resume(ctx, pool, opened(older), signer, false); err != nil || lost || size != opened(older).Size {
		t.Errorf("nothing was lost: %d, %v, %v", size, lost, err)
	}
	log.turned(t)
	complete(t, l, signer)

	// Another history was published: more leaves, or others.
	other := ledgertest.New(t)
	other.Organization(t, 1, domain.InternalPlan)
	elsewhere := process(t, other, signer)
	elsewhere.turned(t)
	halt()
	for _, p := range []*evidence.Checkpoint{opened(elsewhere.last.note), {Size: 1 << 40, SignedBy: []string{rotated.KeyHash, signer.KeyHash}}} {
		if _, _, err := Resume(ctx, pool, p, rotated, false); !errors.Is(err, ErrForked) {
			t.Errorf("another history: %v", err)
		}
		if _, _, err := Resume(ctx, pool, p, signer, true); !errors.Is(err, ErrSameKey) {
			t.Errorf("another history under the same key: %v", err)
		}
	}
	if _, lost, err := Resume(ctx, pool, opened(elsewhere.last.note), rotated, true); err != nil || !lost {
		t.Errorf("a fork under another key: %v, %v", lost, err)
	}
	log = process(t, l, rotated)
	endLease(t, l)
	log.turned(t)
	complete(t, l, rotated)
	halt()
	if _, _, err := Resume(ctx, pool, opened(elsewhere.last.note), signer, true); !errors.Is(err, ErrSameKey) {
		t.Errorf("the key before the last one, which signed what is known outside: %v", err)
	}
}
