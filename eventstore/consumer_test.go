package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/ledgertest"
)

// reading is what a consumer was given, by shard.
type reading struct {
	mu        sync.Mutex
	positions map[domain.Shard][]int64
	holders   int // who handle the one shard at this moment
	most      int
}

func (r *reading) note(shard domain.Shard, events []domain.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.positions == nil {
		r.positions = map[domain.Shard][]int64{}
	}
	for i := range events {
		r.positions[shard] = append(r.positions[shard], events[i].Position)
	}
}

func (r *reading) enter(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders += n
	r.most = max(r.most, r.holders)
}

func (r *reading) last(shard domain.Shard) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.positions[shard]
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1]
}

// consume runs a consumer until stop is called.
func consume(t *testing.T, l *ledgertest.Ledger, change func(*eventstore.ConsumerConfig)) (c *eventstore.Consumer, stop func()) {
	t.Helper()
	pool, err := cluster.At(l.URL).QueuePool(context.Background(), 6)
	if err != nil {
		t.Fatal(err)
	}
	config := eventstore.ConsumerConfig{Pool: pool, Name: "test", Shards: l.Installation.Shards, Log: slog.New(slog.DiscardHandler), Batch: 7, Poll: 20 * time.Millisecond}
	change(&config)
	if c, err = eventstore.NewConsumer(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		pool.Close()
	})
	t.Cleanup(stop)
	return c, stop
}

func register(t *testing.T, l *ledgertest.Ledger, o ledgertest.Organization, from, n int) {
	t.Helper()
	for i := range n {
		l.Must(t, l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", from+i), 1, fmt.Sprint(from+i))))
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within four minutes: %s", what)
		}
	}
}

// gapless requires that positions begin at 1 and are never skipped; a repetition
// goes back to one that was there before.
func gapless(t *testing.T, positions []int64, repeats bool) {
	t.Helper()
	highest := int64(0)
	for i, p := range positions {
		if p > highest+1 || p <= highest && !repeats {
			t.Fatalf("position %d came after %v", p, positions[max(0, i-5):i])
		}
		highest = max(highest, p)
	}
}

// TestConsumer: every event of every shard once and in order, also over a stop
// and a failure in the middle of a batch.
func TestConsumer(t *testing.T) {
	l := ledgertest.New(t)
	first, second := l.Organization(t, 0, domain.InternalPlan), l.Organization(t, 3, domain.InternalPlan)
	register(t, l, first, 0, 20)
	register(t, l, second, 0, 20)
	head := func(o ledgertest.Organization) int64 { return int64(len(l.Events(t, o.ID.Shard()))) }
	var seen reading
	failed := false
	handle := func(_ context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		seen.mu.Lock()
		fail := shard == 3 && events[0].Position > 8 && !failed
		failed = failed || fail
		seen.mu.Unlock()
		if fail { // three are done, the others come again
			seen.note(shard, events[:3])
			return 3, errors.New("broken on purpose")
		}
		seen.note(shard, events)
		return len(events), nil
	}
	_, stop := consume(t, l, func(c *eventstore.ConsumerConfig) { c.Handle = handle })
	until(t, "both shards are read", func() bool { return seen.last(0) == head(first) && seen.last(3) == head(second) })
	stop()
	register(t, l, first, 20, 20)
	c, stop := consume(t, l, func(c *eventstore.ConsumerConfig) { c.Handle, c.Poll = handle, time.Hour })
	until(t, "what came meanwhile is read", func() bool { return seen.last(0) == head(first) })
	register(t, l, second, 20, 3)
	c.Wake(3) // nothing but this tells it
	until(t, "what came after a wake-up is read", func() bool { return seen.last(3) == head(second) })
	until(t, "nothing is behind", func() bool {
		lag, err := eventstore.ConsumerLag(context.Background(), l.Pool, "test")
		return err == nil && lag[0] == (eventstore.Lag{}) && lag[3] == (eventstore.Lag{})
	})
	stop()
	gapless(t, seen.positions[0], false)
	gapless(t, seen.positions[3], false)
	if !failed {
		t.Error("nothing failed")
	}
	if lag, err := eventstore.ConsumerLag(context.Background(), l.Pool, "another"); err != nil || lag[0].Events != head(first) || lag[0].Since.IsZero() {
		t.Errorf("lag of a consumer that never ran: %v %v", lag, err)
	}
}

// TestOneConsumerAtATime: of two processes one handles a shard; the other goes on
// where it was when it ends.
func TestOneConsumerAtATime(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	var seen reading
	handle := func(_ context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		if shard == 1 {
			seen.enter(1)
			defer seen.enter(-1)
			seen.note(shard, events)
		}
		return len(events), nil
	}
	// It renews its lease in time however slow the machine is.
	_, stopFirst := consume(t, l, func(c *eventstore.ConsumerConfig) { c.Handle, c.Lease = handle, time.Hour })
	until(t, "the first process has the shard", func() bool { return seen.last(1) == int64(len(l.Events(t, 1))) })
	var asking *pgxpool.Pool
	_, stopSecond := consume(t, l, func(c *eventstore.ConsumerConfig) {
		c.Handle, c.Lease, asking = handle, 100*time.Millisecond, c.Pool
	})
	asked := asking.Stat().AcquireCount()
	register(t, l, o, 0, 5)
	until(t, "the second process has asked for the shards", func() bool { return asking.Stat().AcquireCount() > asked+4*int64(l.Installation.Shards) })
	until(t, "the first events are read", func() bool { return seen.last(1) == int64(len(l.Events(t, 1))) })
	stopFirst()
	register(t, l, o, 5, 10)
	until(t, "the other process goes on", func() bool { return seen.last(1) == int64(len(l.Events(t, 1))) })
	stopSecond()
	gapless(t, seen.positions[1], false)
	if seen.most != 1 {
		t.Errorf("%d processes handled the shard at once", seen.most)
	}
}

// TestConsumerTakesOverFromTheDead: the lease of a process that is gone ends.
func TestConsumerTakesOverFromTheDead(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	register(t, l, o, 0, 10)
	entered, forever := make(chan struct{}), make(chan struct{})
	var once sync.Once
	_, stopDead := consume(t, l, func(c *eventstore.ConsumerConfig) {
		c.Lease = time.Second
		c.Handle = func(_ context.Context, shard domain.Shard, events []domain.Event) (int, error) {
			if shard == 1 && events[0].Position > 7 {
				once.Do(func() { close(entered) })
				<-forever // frozen: neither done nor failed
				return len(events), nil
			}
			return len(events), nil
		}
	})
	<-entered
	var seen reading
	_, stop := consume(t, l, func(c *eventstore.ConsumerConfig) {
		c.Lease = time.Second
		c.Handle = func(_ context.Context, shard domain.Shard, events []domain.Event) (int, error) {
			seen.note(shard, events)
			return len(events), nil
		}
	})
	head := int64(len(l.Events(t, 1)))
	until(t, "the other process takes over", func() bool { return seen.last(1) == head })
	if first := seen.positions[1][0]; first != 8 {
		t.Errorf("it began at position %d, the dead one had done 7", first)
	}
	behind := func() int64 {
		lag, err := eventstore.ConsumerLag(context.Background(), l.Pool, "test")
		if err != nil {
			t.Fatal(err)
		}
		return lag[1].Events
	}
	until(t, "its position is kept", func() bool { return behind() == 0 })
	close(forever) // the frozen one comes back to life, and its lease is another's
	stopDead()
	if n := behind(); n != 0 {
		t.Errorf("the one that was frozen took the position back by %d", n)
	}
	register(t, l, o, 10, 5)
	until(t, "the holder goes on", func() bool { return seen.last(1) == head+5 })
	stop()
	gapless(t, append([]int64{1, 2, 3, 4, 5, 6, 7}, seen.positions[1]...), false)
}
