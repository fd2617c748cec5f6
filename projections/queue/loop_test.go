package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/internal/statement"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/queue"
)

// TestLoopWorksOnEveryShard: a shard that fails is left until the next check and does not delay others. A shard that
// requests more is processed at once, a woken shard by itself, and all shards at every tick until the context ends.
func TestLoopWorksOnEveryShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var worked []domain.Shard
		down := errors.New("down")
		l := queue.NewLoop(queue.Loop{
			Shards: queue.Shards(3), Every: time.Minute, Log: slog.New(slog.DiscardHandler),
			Work: func(_ context.Context, shard domain.Shard) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				worked = append(worked, shard)
				if shard == 0 {
					return true, down
				}
				return shard == 1 && len(worked)%4 == 2, nil
			},
		})
		wants := func(want ...domain.Shard) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(worked, want) {
				t.Errorf("worked on %v, want %v", worked, want)
			}
			worked = nil
		}
		if err := l.Look(t.Context()); !errors.Is(err, down) || !strings.Contains(err.Error(), "shard 0") {
			t.Errorf("a look: %v", err)
		}
		wants(0, 1, 1, 2)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx)
		}()
		wants(0, 1, 1, 2)
		l.Wake(2)
		wants(2)
		time.Sleep(time.Minute)
		wants(0, 1, 1, 2)
		cancel()
		<-ended
		for range 10 {
			l.Wake(1) // never blocks
		}
		if err := l.Look(ctx); err != nil {
			t.Error(err)
		}
		wants()
	})
}

// nodeOfEach holds odd shards on node 1.
type nodeOfEach struct{ eventstore.Database }

func (nodeOfEach) NodeOf(_ context.Context, shard domain.Shard) (int32, error) {
	return int32(shard % 2), nil
}

// TestSilentNodeIsAskedOnceALook: a node that does not answer is waited for once, however many shards it has. A mail
// server or a receiver that does not answer is not treated as a node.
func TestSilentNodeIsAskedOnceALook(t *testing.T) {
	for name, failure := range map[string]error{
		"node": statement.Failed("look", context.DeadlineExceeded), "mail server": context.DeadlineExceeded,
	} {
		var worked []domain.Shard
		l := queue.NewLoop(queue.Loop{
			Pool: nodeOfEach{}, Shards: queue.Shards(6), Every: time.Minute, Log: slog.New(slog.DiscardHandler),
			Work: func(_ context.Context, shard domain.Shard) (bool, error) {
				if worked = append(worked, shard); shard%2 == 1 {
					return false, failure
				}
				return false, nil
			},
		})
		want := []domain.Shard{0, 1, 2, 3, 4, 5}
		if name == "node" {
			want = []domain.Shard{0, 1, 2, 4}
		}
		for range 2 {
			if err := l.Look(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(worked, want) {
				t.Errorf("%s: worked on %v, want %v: %v", name, worked, want, err)
			}
			worked = nil
		}
	}
}

// TestQuietLoopWaitsForAWakeUp: a loop with an empty queue does not check it again until it is woken and finds
// something.
func TestQuietLoopWaitsForAWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, empty atomic.Int64
		empty.Store(1)
		l := queue.NewLoop(queue.Loop{
			Shards: queue.Shards(1), Every: time.Minute, Log: slog.New(slog.DiscardHandler),
			Work:  func(context.Context, domain.Shard) (bool, error) { looks.Add(1); return false, nil },
			Quiet: func() bool { return empty.Load() == 1 },
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		wants := func(want int64) {
			t.Helper()
			if synctest.Wait(); looks.Swap(0) != want {
				t.Errorf("another number of looks than %d", want)
			}
		}
		wants(1)
		time.Sleep(time.Hour)
		wants(0)
		empty.Store(0)
		l.Wake(0)
		wants(1)
		time.Sleep(8*time.Minute + time.Second)
		wants(8)
		empty.Store(1)
		time.Sleep(time.Minute)
		wants(1)
		time.Sleep(time.Hour)
		wants(0)
	})
}

// TestLoopWorksOnWhatIsDue: a check processes each shard with due work once. If the query fails for some shards, the
// others are processed. A wake-up needs no query.
func TestLoopWorksOnWhatIsDue(t *testing.T) {
	var due, worked []domain.Shard
	var failed error
	l := queue.NewLoop(queue.Loop{
		Shards: queue.Shards(4), Every: time.Hour, Log: slog.New(slog.DiscardHandler),
		Due: func(context.Context) ([]domain.Shard, error) { return due, failed },
		Work: func(_ context.Context, shard domain.Shard) (bool, error) {
			worked = append(worked, shard)
			return false, nil
		},
	})
	away := errors.New("a node is away")
	for _, c := range []struct {
		due    []domain.Shard
		failed error
		want   []domain.Shard
	}{
		{nil, nil, nil},
		{[]domain.Shard{3, 1, 3}, nil, []domain.Shard{1, 3}},
		{[]domain.Shard{2}, away, []domain.Shard{2}},
	} {
		due, failed, worked = c.due, c.failed, nil
		if err := l.Look(t.Context()); !slices.Equal(worked, c.want) || !errors.Is(err, c.failed) {
			t.Errorf("due %v: worked on %v, %v", c.due, worked, err)
		}
	}
}

// TestFailedRowHoldsUpNoOther: a row whose work fails stays until its lease expires, and does not delay others.
func TestFailedRowHoldsUpNoOther(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	past := l.Now().Add(-2 * time.Hour)
	var versions []domain.ArtifactVersionID
	for i := range 3 {
		version := domain.NewID[domain.ArtifactVersionID](past)
		artifact := domain.NewID[domain.ArtifactID](past)
		if err := store.AnnounceContent(ctx, o.ID, artifact, version, past.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, version)
	}
	var deleted []domain.ArtifactVersionID
	eraser := queue.NewEraser(queue.Eraser{
		Pool: l.Pool, Ledger: l.Ledger, Shards: l.Installation.Shards, Log: slog.New(slog.DiscardHandler),
		Delete: func(_ context.Context, _ domain.OrganizationID, version domain.ArtifactVersionID) error {
			if deleted = append(deleted, version); version == versions[0] {
				return errors.New("the store is down")
			}
			return nil
		},
	})
	if err := eraser.Look(ctx); err == nil || !strings.Contains(err.Error(), versions[0].String()) {
		t.Errorf("error %v, want one of %s", err, versions[0])
	}
	if !slices.Equal(deleted, versions) {
		t.Errorf("deleted %v, want each of %v once", deleted, versions)
	}
	if err := eraser.Look(ctx); err != nil || len(deleted) > len(versions) {
		t.Errorf("a leased row was taken: %v, %v", deleted, err)
	}
	var left int
	if err := l.Pool.QueryRow(ctx, "SELECT count(*) FROM kept_contents").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d rows are left, %v, want the one that failed", left, err)
	}
}
