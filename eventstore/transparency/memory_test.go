package transparency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// lostLeaves restores the log's tables to the state of backUp and removes the last events of shard 1, without raising
// the epoch, like the promotion of a standby that lacks commits.
func lostLeaves(t *testing.T, l *ledgertest.Ledger, events int) {
	t.Helper()
	pool := owner(t, l)
	exec(t, pool, "ALTER TABLE events DISABLE TRIGGER ALL")
	exec(t, pool, "UPDATE shard_heads SET position = position - $1 WHERE shard = 1", events)
	exec(t, pool, "DELETE FROM events e USING shard_heads h WHERE e.shard = h.shard AND e.position > h.position")
	for _, table := range saved {
		exec(t, pool, "TRUNCATE "+table)
		exec(t, pool, "INSERT INTO "+table+" TABLE saved_"+table)
	}
}

// standsStill fails unless a keeper refuses to sign because known parts of the log are missing.
func standsStill(t *testing.T, k *Keeper, by eventstore.Knowledge) {
	t.Helper()
	before, err := readCheckpoint(context.Background(), k.Pool)
	check(t, err)
	if err := k.turn(context.Background()); err == nil {
		t.Error("a turn succeeds")
	}
	if !k.Guard.Lost()[by] {
		t.Errorf("nothing is known to be lost by %s", by)
	}
	after, err := readCheckpoint(context.Background(), k.Pool)
	check(t, err)
	if after.note != before.note {
		t.Errorf("%d leaves were signed", after.size)
	}
}

// TestSignedLeavesAreLost: neither the process that signed the lost leaves nor one that only read them signs another
// history, even if that is longer by now or a third process has begun to sign it. Nor does a process started with the
// kept head. Signing continues once the leaves are back, or after the epoch is raised and the log resumed.
func TestSignedLeavesAreLost(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o, another := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 2, domain.InternalPlan)
	ctx, pool := context.Background(), owner(t, l)
	var kept Head
	signs := process(t, l, signer, func(c *Config) {
		c.Keep = func(h Head) (Head, error) {
			if last, err := readCheckpoint(ctx, pool); err != nil || last.note == h.Note {
				t.Errorf("stored before it is kept: %v", err)
			}
			kept = h
			return h, nil
		}
	})
	reads := process(t, l, signer)
	signs.turned(t)
	reads.turned(t)
	backUp(t, pool)
	register(t, l, o, 0, 3)
	signs.turned(t)
	reads.turned(t)
	size, _ := published(t, l, signer)
	if kept.Size != size || kept.Epoch != 1 || kept.SignedBy() != keyName(signer.LogKey) {
		t.Errorf("kept: %+v", kept)
	}
	lostLeaves(t, l, 3)
	knows := func() *Keeper { return process(t, l, signer, func(c *Config) { c.Known = kept }) }
	for _, k := range []*Keeper{signs, reads, knows()} {
		standsStill(t, k, eventstore.BySignedHead)
	}
	if missing, err := kept.Lacks(ctx, pool); err != nil || !strings.Contains(missing.String(), "lacks the tree of") {
		t.Errorf("lacks %q, %v", missing, err)
	}

	forgetful := process(t, l, signer) // like a process of an earlier version
	register(t, l, another, 10, 7)
	forgetful.turned(t)
	if now, _ := published(t, l, signer); now <= size {
		t.Fatalf("%d leaves of another history", now)
	}
	for _, k := range []*Keeper{signs, reads, knows()} {
		standsStill(t, k, eventstore.BySignedHead)
	}

	restore(t, l, pool, signer)
	if err := signs.turn(ctx); !errors.Is(err, ErrRestored) || signs.Guard.Err() != nil {
		t.Errorf("after a restore: %v, %v", err, signs.Guard.Err())
	}
	if kept.Size != size {
		t.Errorf("a tree that stands still was kept: %+v", kept)
	}
	status, err := ReadStatus(ctx, pool)
	check(t, err)
	older := opened(t, status.Checkpoint, signer)
	if _, _, err := Resume(ctx, pool, Resumption{Published: older, Kept: kept}); !errors.Is(err, ErrNotNewest) {
		t.Errorf("resumed with an older checkpoint than this machine keeps: %v", err)
	}
	made := newSigner(t)
	check(t, MakeForkKey(ctx, pool, made.LogKey))
	_, _, err = Resume(ctx, pool, Resumption{Fork: true, Signer: made, Kept: kept})
	check(t, err)
	register(t, l, another, 20, 1)
	process(t, l, made, func(c *Config) { c.Known = kept }).turned(t)
	complete(t, l, made)
}

// TestSharedMemory: processes that keep their heads in the same place sign nothing on a server that lacks what another
// of them has signed, even if they have not read it.
func TestSharedMemory(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o, another := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 2, domain.InternalPlan)
	var kept Head
	shares := func(c *Config) {
		c.Keep = func(h Head) (Head, error) {
			if h.Epoch > kept.Epoch || h.Size > kept.Size {
				kept = h
			}
			return kept, nil
		}
	}
	signs, reads := process(t, l, signer, shares), process(t, l, signer, shares)
	signs.turned(t)
	reads.turned(t)
	backUp(t, owner(t, l))
	register(t, l, o, 0, 9)
	signs.turned(t)
	lostLeaves(t, l, 9)
	register(t, l, another, 10, 1)
	if err := reads.turn(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("a tree that is smaller than the kept one: %v", err)
	}
	standsStill(t, reads, eventstore.BySignedHead)
}

// TestMemoryWithoutKey: a process without a log key notices that missing leaves are back.
func TestMemoryWithoutKey(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	signs := process(t, l, signer)
	signs.turned(t)
	k := process(t, l, signer, func(c *Config) {
		c.Signer, c.Known = func() *Signer { return nil }, Head{Epoch: 1, Size: signs.last.size + 1}
	})
	k.Guard.Missing(eventstore.BySignedHead, "at the start")
	if err := k.publish(t.Context()); err == nil {
		t.Error("it is not missing any more")
	}
	register(t, l, o, 0, 1)
	signs.turned(t)
	k.known = signs.last.head() // as on the server that is back
	k.known.Epoch = 1
	if err := k.publish(t.Context()); err != nil || k.Guard.Err() != nil {
		t.Errorf("what is there again: %v, %v", err, k.Guard.Err())
	}
}

// TestOutdatedKeeperSignsNothing: a keeper signs nothing once the ledger accepts only newer programs.
func TestOutdatedKeeperSignsNothing(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	gate := eventstore.NewGate(eventstore.ThisProgram(), nil)
	k := process(t, l, signer, func(c *Config) { c.Gate = gate })
	k.turned(t)
	register(t, l, o, 0, 1)
	exec(t, owner(t, l), "UPDATE ledger SET minimum_version = $1", domain.ThisRelease+1)
	var outdated *eventstore.OutdatedError
	if err := k.turn(t.Context()); !errors.As(err, &outdated) || gate.Err() == nil {
		t.Errorf("%v, and the gate: %v", err, gate.Err())
	}
	if status, err := ReadStatus(t.Context(), l.Pool); err != nil || status.Published != k.last.size {
		t.Errorf("%d leaves were signed, %v", status.Published, err)
	}
}

// TestLostCheckpoint: if the row of a signed checkpoint is lost with a server but its tree is not, the tree is signed
// again.
func TestLostCheckpoint(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	k := process(t, l, signer)
	k.turned(t)
	backUp(t, owner(t, l))
	register(t, l, o, 0, 3)
	k.turned(t)
	exec(t, owner(t, l), "TRUNCATE transparency_checkpoint")
	exec(t, owner(t, l), "INSERT INTO transparency_checkpoint TABLE saved_transparency_checkpoint")
	k.turned(t)
	complete(t, l, signer)
}

// TestNothingIsSignedThatCannotBeKept: if the head cannot be kept outside the database, the checkpoint is not stored.
func TestNothingIsSignedThatCannotBeKept(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	l.Organization(t, 1, domain.InternalPlan)
	full := errors.New("the disk is full")
	k := process(t, l, signer, func(c *Config) { c.Keep = func(h Head) (Head, error) { return h, full } })
	if err := k.turn(context.Background()); !errors.Is(err, full) {
		t.Errorf("a turn: %v", err)
	}
	if last, err := readCheckpoint(context.Background(), k.Pool); err != nil || last.size != 0 {
		t.Errorf("%d leaves are signed, %v", last.size, err)
	}
	k.Keep = nil
	k.turned(t)
}

// TestWitnessKnowsMore: before its first signature a process asks the witnesses for the largest tree they have seen. A
// larger tree than the stored one stops only the signing of checkpoints, because a witness may lie. A witness without a
// useful answer stops nothing, and after a fork no witness does.
func TestWitnessKnowsMore(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	process(t, l, signer).turned(t)
	register(t, l, o, 0, 1)
	w := newWitness(t, "w.example", signer)
	asks := func() *Keeper {
		return process(t, l, signer, func(c *Config) { c.Witnesses = []*Witness{w.configured()} })
	}
	w.does(func(out http.ResponseWriter, _ *http.Request, _ []byte) { conflict(out, "4282") })
	k := asks()
	standsStill(t, k, eventstore.ByWitness)
	if err := k.Guard.Err(); err != nil {
		t.Errorf("a witness's word stops the ledger: %v", err)
	}
	w.does(func(out http.ResponseWriter, _ *http.Request, _ []byte) { out.WriteHeader(http.StatusTeapot) })
	check(t, k.publish(context.Background()))
	if k.Guard.Lost()[eventstore.ByWitness] {
		t.Error("what a witness knew is still missing")
	}

	register(t, l, o, 1, 1)
	w.does(func(out http.ResponseWriter, _ *http.Request, _ []byte) { conflict(out, "4282") })
	standsStill(t, asks(), eventstore.ByWitness)
	former := uint64(0)
	k.asked = &former // before a standby was promoted
	standsStill(t, k, eventstore.ByWitness)
	exec(t, owner(t, l), "UPDATE transparency_keys SET made = true")
	check(t, asks().publish(context.Background()))
}

// TestWitnessOfAPublishingProcess: a witness that has seen a tree that another process has published since causes no
// alarm.
func TestWitnessOfAPublishingProcess(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	process(t, l, signer).turned(t)
	w := newWitness(t, "w.example", signer)
	k := process(t, l, signer, func(c *Config) { c.Witnesses = []*Witness{w.configured()} })
	register(t, l, o, 0, 1)
	w.does(func(out http.ResponseWriter, _ *http.Request, _ []byte) {
		register(t, l, o, 1, 1)
		process(t, l, signer).turned(t)
		size, _ := published(t, l, signer)
		conflict(out, fmt.Sprint(size))
	})
	if err := k.publish(context.Background()); err != nil && !errors.Is(err, errLost) {
		t.Error(err)
	}
	if k.Guard.Lost()[eventstore.ByWitness] {
		t.Error("an alarm")
	}
}
