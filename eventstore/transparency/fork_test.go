package transparency

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
)

// TestForkUnknownKey: a key of the lost history that was unknown when the log was resumed, because the trusted-keys
// file also came from the backup, signs nothing afterwards. A rotation after the fork works.
func TestForkUnknownKey(t *testing.T) {
	for name, published := range map[string]bool{
		"a fork": false, "a fork before the first checkpoint of the backup": true,
	} {
		t.Run(name, func(t *testing.T) {
			l, a, b := ledgertest.New(t), newSigner(t), newSigner(t)
			o := l.Organization(t, 1, domain.InternalPlan)
			ctx := context.Background()
			pool := owner(t, l)
			if published {
				backUp(t, pool)
			}
			process(t, l, a).turned(t)
			if !published {
				backUp(t, pool)
			}
			register(t, l, o, 0, 2)
			process(t, l, b).turned(t) // a rotation after the backup

			restore(t, l, pool)
			made := newSigner(t)
			check(t, MakeForkKey(ctx, pool, made.LogKey))
			_, _, err := Resume(ctx, pool, Resumption{Fork: true, Signer: made})
			check(t, err)
			register(t, l, o, 2, 1)
			if err := process(t, l, b).turn(ctx); !errors.Is(err, ErrUnrecorded) {
				t.Errorf("a key of the lost history: %v", err)
			}
			process(t, l, made).turned(t)
			next := newSigner(t)
			check(t, RecordKey(ctx, pool, next.LogKey))
			if err := RecordKey(ctx, pool, next.LogKey); !errors.Is(err, ErrKnownKey) {
				t.Errorf("recorded again: %v", err)
			}
			register(t, l, o, 3, 1)
			process(t, l, next).turned(t)
			complete(t, l, made, next)
		})
	}
}

// TestRecordKeyHalted: a rotation while the log is halted creates no key for a fork.
func TestRecordKeyHalted(t *testing.T) {
	l, a, next := ledgertest.New(t), newSigner(t), newSigner(t)
	l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	process(t, l, a).turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	restore(t, l, pool, a)
	check(t, RecordKey(ctx, pool, next.LogKey))
	if state, err := KnownKey(ctx, pool, next.LogKey); err != nil || state.Known {
		t.Errorf("%+v, %v", state, err)
	}
	if _, _, err := Resume(ctx, pool, Resumption{Fork: true, Signer: next}); !errors.Is(err, ErrSameKey) {
		t.Errorf("a fork under it: %v", err)
	}
}

// TestResumeKnowsKeys: if nothing was lost, every key of the operator may sign, even after a key for a fork was made.
func TestResumeKnowsKeys(t *testing.T) {
	l, a, b := ledgertest.New(t), newSigner(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	log := process(t, l, a)
	log.turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	newest := opened(t, log.last.note, a)
	restore(t, l, pool)
	check(t, MakeForkKey(ctx, pool, newSigner(t).LogKey))
	_, lost, err := Resume(ctx, pool, Resumption{Published: newest, Keys: keysOf(a, b)})
	if err != nil || lost {
		t.Fatalf("%v, %v", lost, err)
	}
	register(t, l, o, 0, 1)
	process(t, l, b).turned(t)
	complete(t, l, a, b)
}

// TestClaimedKeys: the signers of a checkpoint are barred even if no file of the operator trusts them.
func TestClaimedKeys(t *testing.T) {
	l, a, b := ledgertest.New(t), newSigner(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	process(t, l, a).turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	register(t, l, o, 0, 2)
	before := process(t, l, b)
	before.turned(t)
	claimed := ClaimedKeys(before.last.note, logName)
	if len(claimed) != 1 || keyName(claimed[0]) != keyName(b.LogKey) {
		t.Fatalf("claimed %v", claimed)
	}
	if other := ClaimedKeys(before.last.note, "other.example/log"); other != nil {
		t.Errorf("of another log: %v", other)
	}
	restore(t, l, pool, a)
	made := newSigner(t)
	check(t, MakeForkKey(ctx, pool, made.LogKey))
	_, _, err := Resume(ctx, pool, Resumption{Fork: true, Signer: made, Keys: append(keysOf(a), claimed...)})
	check(t, err)
	register(t, l, o, 2, 1)
	if err := process(t, l, b).turn(ctx); !errors.Is(err, ErrBarred) {
		t.Errorf("the claimed key: %v", err)
	}
}

// TestResumeAsksWitnesses: a checkpoint older than the newest that a witness has seen does not resume the log, because
// the leaves published after it would be signed a second time.
func TestResumeAsksWitnesses(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	server := newWitness(t, "witness.example", signer)
	seeing, err := NewWitness(server.verifierKey(), server.URL+"/prefix")
	check(t, err)
	log := process(t, l, signer, func(c *Config) { c.Witnesses = []*Witness{seeing} })
	log.turned(t)
	pool := owner(t, l)
	backUp(t, pool)
	older := opened(t, log.last.note, signer)
	register(t, l, o, 0, 2)
	log.turned(t) // the witness has seen it
	restore(t, l, pool, signer)

	away := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(away.Close)
	silent, err := NewWitness(server.verifierKey(), away.URL)
	check(t, err)
	var unasked []string
	r := Resumption{
		Published: older, Keys: keysOf(signer), Witnesses: []*Witness{silent, seeing},
		Unasked: func(witness string, _ error) { unasked = append(unasked, witness) },
	}
	if _, _, err := Resume(ctx, pool, r); !errors.Is(err, ErrNotNewest) ||
		!strings.Contains(err.Error(), "a tree of 7 leaves, but it has 5") {
		t.Errorf("a witness has seen more: %v", err)
	}
	if status, err := ReadStatus(ctx, pool); err != nil || !status.Halted || len(unasked) != 1 {
		t.Errorf("%+v, %v, unasked %v", status, err, unasked)
	}
	r.Witnesses = r.Witnesses[:1]
	if _, _, err := Resume(ctx, pool, r); !errors.Is(err, ErrUnasked) {
		t.Errorf("no witness answers, and nothing was kept: %v", err)
	}
	r.Kept = Head{Size: older.Size, Root: older.Root}
	if _, lost, err := Resume(ctx, pool, r); err != nil || lost {
		t.Errorf("no witness answers, but this machine knows what it signed last: %v, %v", lost, err)
	}
}

// TestResumeWithAnOlderCheckpoint: after a restore without loss any earlier checkpoint resumes the log, even if this
// machine and a witness know a larger tree, because the restored tree contains that one too.
func TestResumeWithAnOlderCheckpoint(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	server := newWitness(t, "witness.example", signer)
	seeing, err := NewWitness(server.verifierKey(), server.URL+"/prefix")
	check(t, err)
	var kept Head
	log := process(t, l, signer, func(c *Config) {
		c.Witnesses = []*Witness{seeing}
		c.Keep = func(h Head) (Head, error) {
			kept = h
			return h, nil
		}
	})
	log.turned(t)
	older := opened(t, log.last.note, signer)
	register(t, l, o, 0, 2)
	log.turned(t) // the witness has seen it
	pool := owner(t, l)
	backUp(t, pool)
	restore(t, l, pool, signer)

	r := Resumption{
		Published: older, Kept: kept, Keys: keysOf(signer), Witnesses: []*Witness{seeing},
		Unasked: func(witness string, err error) { t.Errorf("%s: %v", witness, err) },
	}
	if kept.Size <= older.Size {
		t.Fatalf("this machine keeps a tree of %d leaves", kept.Size)
	}
	r.Kept.Root[0]++
	if _, _, err := Resume(ctx, pool, r); !errors.Is(err, ErrNotNewest) {
		t.Errorf("this machine has signed another tree: %v", err)
	}
	r.Kept = kept
	if size, lost, err := Resume(ctx, pool, r); err != nil || lost || size != kept.Size {
		t.Errorf("nothing was lost: %d, %v, %v", size, lost, err)
	}
}
