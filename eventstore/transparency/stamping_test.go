package transparency

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/projections/ledgertest"
)

// stamping configures a process whose trusted keys pin the authorities.
func stamping(t *testing.T, authorities ...*stamptest.Authority) func(*Config) {
	return func(c *Config) {
		c.Pinned = func(name string) (evidence.Authority, bool) {
			for _, a := range authorities {
				if a.Name == name {
					return a.Pinned(), true
				}
			}
			return evidence.Authority{}, false
		}
		for _, a := range authorities {
			c.Authorities = append(c.Authorities, configured(t, a))
		}
	}
}

func configured(t *testing.T, a *stamptest.Authority) *TimestampAuthority {
	t.Helper()
	configured, err := NewTimestampAuthority(a.Name, a.URL)
	check(t, err)
	return configured
}

// stampNow checks every authority once.
func (k *Keeper) stampNow() {
	for _, a := range k.Authorities {
		k.stamp(context.Background(), a)
	}
}

// tokens returns the stored tokens as <tree size> <authority>. OpenSSL must accept each for its checkpoint under its
// authority's root, and the log must have signed each checkpoint.
func tokens(t *testing.T, l *ledgertest.Ledger, signer *Signer, authorities ...*stamptest.Authority) (names []string) {
	t.Helper()
	v, err := note.NewVerifier(signer.VerifierKey)
	check(t, err)
	for _, s := range stampsOf(t, l) {
		names = append(names, fmt.Sprintf("%d %s", s.TreeSize, s.Authority))
		opened, err := note.Open([]byte(s.Checkpoint), note.VerifierList(v))
		check(t, err)
		if len(opened.UnverifiedSigs) > 0 || !strings.HasPrefix(opened.Text, fmt.Sprintf("%s\n%d\n", logName, s.TreeSize)) {
			t.Errorf("the stamped checkpoint %q", s.Checkpoint)
		}
		i := slices.IndexFunc(authorities, func(a *stamptest.Authority) bool { return a.Name == s.Authority })
		authorities[i].Verify([]byte(s.Checkpoint), s.Token)
	}
	return names
}

// TestOneTokenForAll: 1000 records registered between two checks share one token, and another implementation proves
// each of them to be in the stamped tree.
func TestOneTokenForAll(t *testing.T) {
	l, signer, a := ledgertest.New(t), newSigner(t), stamptest.New(t, "tsa.example")
	o := l.Organization(t, 1, domain.InternalPlan)
	log := process(t, l, signer, stamping(t, a))
	log.turned(t)
	for round := range 10 { // with checkpoints in between, as within a minute
		register(t, l, o, 100*round, 100)
		log.turned(t)
	}
	log.stampNow()
	log.stampNow()
	size, root := published(t, l, signer)
	if got, want := tokens(t, l, signer, a), []string{fmt.Sprintf("%d tsa.example", size)}; !slices.Equal(got, want) ||
		a.Asked() != 1 {
		t.Fatalf("tokens %v, want %v; the authority was asked %d times", got, want, a.Asked())
	}
	if log.Authorities[0].Stored() != 1 || log.Authorities[0].Failures() != 0 {
		t.Errorf("%d stored, %d failures", log.Authorities[0].Stored(), log.Authorities[0].Failures())
	}
	reader := &Reader{Pool: l.Pool}
	events := l.Events(t, 1)
	if len(events) < 1000 {
		t.Fatalf("%d events", len(events))
	}
	for _, e := range events {
		stamped, err := reader.Stamped(context.Background(), 1, e.Position, e.Leaf())
		check(t, err)
		if len(stamped) != 1 || len(stamped[0].Tokens) != 1 || stamped[0].TreeSize != size {
			t.Fatalf("position %d: %+v", e.Position, stamped)
		}
		proves(t, stamped[0], e.Leaf(), root)
	}
}

// proves fails unless a stamped checkpoint contains a leaf.
func proves(t *testing.T, s evidence.Timestamp, leaf, root []byte) {
	t.Helper()
	check(t, tlog.CheckRecord(parseHashes(t, s.Hashes), s.TreeSize, hashOf(root), s.LeafIndex, tlog.RecordHash(leaf)))
}

// TestStamped: each event gets the earliest token of each authority that covers it, ordered by checkpoint, even from a
// reader that has seen other trees before.
func TestStamped(t *testing.T) {
	l, signer := ledgertest.New(t), newSigner(t)
	first, second := stamptest.New(t, "b.first"), stamptest.New(t, "a.second")
	o := l.Organization(t, 2, domain.InternalPlan)
	log := process(t, l, signer, stamping(t, first, second))
	ctx := context.Background()
	roots := map[int64][]byte{}
	grow := func(from, n int, who ...int) int64 {
		t.Helper()
		register(t, l, o, from, n)
		log.turned(t)
		for _, i := range who {
			if pause := log.stamp(ctx, log.Authorities[i]); pause != log.Stamp {
				t.Fatalf("authority %d did not stamp", i)
			}
		}
		size, root := published(t, l, signer)
		roots[size] = root
		return size
	}
	one := grow(0, 100, 0)
	two := grow(100, 200, 0, 1)
	three := grow(300, 5, 1)
	four := grow(305, 5)
	if got, want := strings.Join(tokens(t, l, signer, first, second), ", "), fmt.Sprintf(
		"%d b.first, %d a.second, %d b.first, %d a.second", one, two, two, three,
	); got != want {
		t.Fatalf("tokens %s, want %s", got, want)
	}
	reader := &Reader{Pool: l.Pool}
	for round := range 2 { // the second from memory
		for shard := range domain.Shard(l.Installation.Shards) {
			for _, e := range l.Events(t, shard) {
				stamped, err := reader.Stamped(ctx, shard, e.Position, e.Leaf())
				check(t, err)
				inclusion, err := reader.Inclusion(ctx, shard, e.Position, e.Leaf())
				check(t, err)
				var want, got []string
				switch leaf := inclusion.LeafIndex; {
				case leaf < one:
					want = []string{fmt.Sprintf("%d b.first", one), fmt.Sprintf("%d a.second", two)}
				case leaf < two:
					want = []string{fmt.Sprintf("%d a.second b.first", two)}
				case leaf < three:
					want = []string{fmt.Sprintf("%d a.second", three)}
				}
				for _, s := range stamped {
					text := fmt.Sprint(s.TreeSize)
					for _, token := range s.Tokens {
						text += " " + token.Authority
						pinned := first.Pinned()
						if token.Authority == second.Name {
							pinned = second.Pinned()
						}
						der, err := base64.StdEncoding.DecodeString(token.Token)
						check(t, err)
						said, err := pinned.CheckToken(der, sha256.Sum256([]byte(s.Checkpoint)))
						check(t, err)
						if token.GenTime != evidence.FormatTime(said.GenTime) {
							t.Errorf("genTime %s of a token of %s", token.GenTime, said.GenTime)
						}
					}
					got = append(got, text)
					proves(t, s, e.Leaf(), roots[s.TreeSize])
				}
				if !slices.Equal(got, want) {
					t.Fatalf("round %d, leaf %d: %q, want %q", round, inclusion.LeafIndex, got, want)
				}
			}
		}
	}
	register(t, l, o, 310, 1)
	if _, err := reader.Stamped(ctx, 2, int64(len(l.Events(t, 2))), nil); !errors.Is(err, ErrNotIntegrated) {
		t.Errorf("an event that no checkpoint covers: %v", err)
	}
	e := l.Events(t, 2)[0]
	if _, err := reader.Stamped(ctx, 2, e.Position, []byte("another leaf")); err == nil {
		t.Error("another leaf was proved")
	}

	page := func(after int64, limit int) (sizes []int64) {
		t.Helper()
		stamps, err := reader.Timestamps(ctx, after, limit)
		check(t, err)
		for _, s := range stamps {
			sizes = append(sizes, s.TreeSize)
		}
		return sizes
	}
	if got := page(0, 1); !slices.Equal(got, []int64{one}) {
		t.Errorf("the first page: %v", got)
	}
	if got := page(one, 1); !slices.Equal(got, []int64{two, two}) {
		t.Errorf("a page does not hold a tree's size whole: %v", got)
	}
	if got := page(three, 100); got != nil {
		t.Errorf("after the last: %v", got)
	}

	states, err := ReadStamps(ctx, l.Pool, []string{"a.second", "none"})
	check(t, err)
	if len(states) != 3 || states[0].TreeSize != three || states[1].TreeSize != two || states[2].TreeSize != 0 ||
		states[2].Authority != "none" {
		t.Fatalf("states %+v", states)
	}
	var decided []time.Time // by leaf
	for _, of := range []int64{three, two, 0} {
		decided = append(decided, decidedAt(t, l, of))
	}
	for i, s := range states {
		if !s.Unstamped.Equal(decided[i]) {
			t.Errorf("%s: the first event without a token is of %s, want %s", s.Authority, s.Unstamped, decided[i])
		}
	}
	if four <= three {
		t.Error("the tree did not grow")
	}
}

// TestStampedUnderARevokedKey: a token over a checkpoint of a log key that was revoked before, which verifiers do not
// accept, does not hide a later token under another key.
func TestStampedUnderARevokedKey(t *testing.T) {
	l, former, next, a := ledgertest.New(t), newSigner(t), newSigner(t), stamptest.New(t, "tsa.example")
	o := l.Organization(t, 1, domain.InternalPlan)
	ctx := context.Background()
	var sizes []int64
	for i, signer := range []*Signer{former, former, next} {
		register(t, l, o, i, 1)
		log := process(t, l, signer, stamping(t, a))
		log.turned(t)
		for range leftTo + 1 {
			log.stampNow()
		}
		size, _ := published(t, l, signer)
		sizes = append(sizes, size)
	}
	owner, err := pgxpool.New(ctx, l.URL)
	check(t, err)
	t.Cleanup(owner.Close)
	_, err = owner.Exec(
		ctx, `UPDATE log_timestamps SET gen_time = gen_time - interval '1 hour' WHERE tree_size = $1`, sizes[0],
	)
	check(t, err)
	stamps := stampsOf(t, l)
	if len(stamps) != 3 {
		t.Fatalf("%d tokens", len(stamps))
	}
	trusted, err := evidence.NewTrustedKeys(nil, nil, []evidence.LogKey{former.LogKey, next.LogKey})
	check(t, err)
	trusted, err = trusted.Revoke(former.KeyID(), evidence.ReasonCompromised, evidence.FormatTime(stamps[1].GenTime))
	check(t, err)
	reader := &Reader{Pool: l.Pool, Trusted: func() *evidence.TrustedKeys { return trusted }}
	for leaf, e := range l.Events(t, o.ID.Shard()) {
		stamped, err := reader.Stamped(ctx, e.Shard, e.Position, e.Leaf())
		check(t, err)
		want := sizes[2]
		if int64(leaf) < sizes[0] {
			want = sizes[0]
		}
		if len(stamped) != 1 || stamped[0].TreeSize != want {
			t.Errorf("leaf %d: %+v, want the token of %d leaves", leaf, stamped, want)
		}
	}
}

// decidedAt returns the time of a leaf's event.
func decidedAt(t *testing.T, l *ledgertest.Ledger, leaf int64) time.Time {
	t.Helper()
	for shard := range domain.Shard(l.Installation.Shards) {
		for _, e := range l.Events(t, shard) {
			if i, err := (&Reader{Pool: l.Pool}).Inclusion(context.Background(), shard, e.Position, e.Leaf()); err == nil &&
				i.LeafIndex == leaf {
				return e.OccurredAt
			}
		}
	}
	t.Fatalf("no event is leaf %d", leaf)
	return time.Time{}
}
