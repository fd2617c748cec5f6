package eventstore

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/postgres/pgtest"
)

// TestEpochsDiffer: a restore raises the epoch above that of its backup, whatever the clock says, and two restores of
// one backup give different ones, also at the same moment.
func TestEpochsDiffer(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	seen := map[int64]bool{}
	for _, now := range []time.Time{at, at, at, time.Unix(-1, 0), at.Add(time.Minute)} {
		for _, last := range []int64{1, 2, 1 << 40, at.Unix() / 60 * epochStep} {
			next, err := nextEpoch(last, now, rand.Uint32())
			if err != nil || next <= last || next > maxEpoch || seen[next] {
				t.Errorf("after %d at %s: %d, %v; seen before: %v", last, now, next, err, seen[next])
			}
			seen[next] = true
		}
	}
	// The later restore has the higher one.
	low, err := nextEpoch(1, at, math.MaxUint32)
	high, err2 := nextEpoch(1, at.Add(time.Minute), 0)
	if err != nil || err2 != nil || low > high {
		t.Errorf("%d, a minute later %d, %v, %v", low, high, err, err2)
	}
	for name, c := range map[string]struct {
		last int64
		now  time.Time
	}{"a clock of the year 2300": {1, at.AddDate(274, 0, 0)}, "the last epoch": {maxEpoch, at}} {
		if next, err := nextEpoch(c.last, c.now, 0); err == nil || !strings.Contains(err.Error(), "must be at most") {
			t.Errorf("%s: %d, %v", name, next, err)
		}
	}
}

// TestRestoredTwice: the caller gets what the database keeps.
func TestRestoredTwice(t *testing.T) {
	url := pgtest.New(t)
	ctx, now := context.Background(), time.Now()
	created, err := Ensure(ctx, url, Settings{Issuer: "x", Shards: 1, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{created.Epoch: true}
	for range 3 {
		pgtest.Exec(t, url, "UPDATE ledger SET epoch = 1") // the backup
		in, err := RaiseEpoch(ctx, url, now)
		if err != nil || seen[in.Epoch] {
			t.Fatalf("%d, %v", in.Epoch, err)
		}
		seen[in.Epoch] = true
		if kept, err := pgtest.Ask[int64](url, "SELECT epoch FROM ledger"); err != nil || kept != in.Epoch {
			t.Errorf("kept %d, said %d, %v", kept, in.Epoch, err)
		}
	}
}
