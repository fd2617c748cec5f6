package eventstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"integrityledger/eventstore/pgtest"
)

// TestEpochsDiffer: a restore raises the epoch above its backup's, whatever the clock says, and two restores of one
// backup get different epochs, even at the same moment.
func TestEpochsDiffer(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	seen := map[int64]bool{}
	for i, now := range []time.Time{at, at, at, time.Unix(-1, 0), at.Add(time.Minute)} {
		for _, last := range []int64{1, epochAt(at.Add(time.Hour).UnixMilli())} {
			next, err := nextEpoch(last, now, uint32(i))
			if err != nil || next <= last || next > maxEpoch || seen[next] {
				t.Errorf("after %d at %s: %d, %v; seen before: %v", last, now, next, err, seen[next])
			}
			seen[next] = true
		}
	}
	// The later restore has the higher epoch, even if it is only a millisecond later.
	for ms := range 200 {
		at := at.Add(time.Minute - 100*time.Millisecond + time.Duration(ms)*time.Millisecond)
		for within := range uint32(2000) {
			low, err := nextEpoch(1, at, within)
			high, err2 := nextEpoch(1, at.Add(time.Millisecond), 0)
			if err != nil || err2 != nil || low >= high {
				t.Fatalf("%d, a millisecond after %s %d, %v, %v", low, at, high, err, err2)
			}
		}
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

// TestRestoredTwice: the returned epoch is the stored one, and a later restore of the same backup has a higher epoch.
func TestRestoredTwice(t *testing.T) {
	url := pgtest.New(t)
	ctx := context.Background()
	created, err := Ensure(ctx, url, Settings{Issuer: "x", Shards: 1, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	last := created.Epoch
	for range 3 {
		pgtest.Exec(t, url, "UPDATE ledger SET epoch = 1") // the backup
		in, err := RaiseEpoch(ctx, url, time.Now())
		if err != nil || in.Epoch <= last {
			t.Fatalf("%d after %d, %v", in.Epoch, last, err)
		}
		last = in.Epoch
		if kept, err := pgtest.Ask[int64](url, "SELECT epoch FROM ledger"); err != nil || kept != in.Epoch {
			t.Errorf("kept %d, said %d, %v", kept, in.Epoch, err)
		}
	}
}
