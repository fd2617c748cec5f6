package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestPageHoldsAMove: a page is a transaction only on the node of its shard. A move waits for it, and the next page is
// read on the other node. Nothing is skipped or repeated.
func TestPageHoldsAMove(t *testing.T) {
	pgtest.Citus(t)
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	register(t, l, o, 0, 10)
	holders, err := cluster.At(l.URL).Holders(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holders.Close)
	nodes := holders.Nodes(1, (*cluster.Primary).CommitPool)
	ask := func(question string) (answer int, err error) {
		conn, _, err := nodes.Acquire(context.Background(), 0)
		if err != nil {
			return 0, err
		}
		defer conn.Release()
		err = conn.QueryRow(context.Background(), question).Scan(&answer)
		return answer, err
	}
	db := eventstore.Route(l.Pool, holders.Nodes(1, (*cluster.Primary).ReadPool))
	var seen reading
	var once sync.Once
	moved := make(chan error, 1)
	c, stop := consume(t, l, l.URL, func(ctx context.Context, shard domain.Shard, events []domain.Event) (int, error) {
		if shard == 0 {
			once.Do(func() {
				if there, err := pgtest.Ask[int](l.URL, pgtest.OnAllNodes(open)); err != nil || there == 0 {
					t.Errorf("%d transactions at the nodes: %v", there, err)
				}
				if here, err := pgtest.Ask[int](l.URL, open); err != nil || here != 0 {
					t.Errorf("%d transactions at the coordinator: %v", here, err)
				}
				go func() { moved <- clustertest.Move(context.Background(), l.URL, 0) }()
				pgtest.Eventually(t, "the move waits", func() (bool, error) {
					n, err := ask("SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
					return n > 0, err
				})
				// Reads for the page do not wait for the move.
				var position int64
				if err := db.QueryRow(
					ctx, cluster.SQL("SELECT position FROM {shard_heads} WHERE shard = $1"), shard,
				).Scan(&position); err != nil || position == 0 {
					t.Errorf("read beside the transaction: %d, %v", position, err)
				}
			})
		}
		return seen.take(ctx, shard, events)
	}, func(c *consumer.Config) { c.Poll = time.Hour })
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	c.Wake(0)
	until(t, "the rest is read at the other node", func() bool { return behind(t, l, 0) == 0 })
	stop()
	gapless(t, seen.positions[0], false)
	if want := int64(len(l.Events(t, 0))); seen.last(0) != want {
		t.Errorf("read up to %d, want %d", seen.last(0), want)
	}
}

// TestConsumerFollowsMoves: while a shard moves back and forth and events are registered in it, all of them are
// delivered in order and once.
func TestConsumerFollowsMoves(t *testing.T) {
	pgtest.Citus(t)
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	var seen reading
	c, stop := consume(t, l, l.URL, seen.take, nil)
	moved := make(chan error, 1)
	go func() {
		for range 4 {
			if err := clustertest.Move(context.Background(), l.URL, 0); err != nil {
				moved <- err
				return
			}
		}
		moved <- nil
	}()
	for n, moving := 0, true; moving || n < 20; n++ {
		// an error means that the move took too long
		_ = l.Do(context.Background(), l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", n), 1, "x")))
		c.Wake(0)
		select {
		case err := <-moved:
			if moving = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	until(t, "all are read", func() bool { return behind(t, l, 0) == 0 })
	stop()
	gapless(t, seen.positions[0], false)
	if want := int64(len(l.Events(t, 0))); seen.last(0) != want {
		t.Errorf("read up to %d, want %d", seen.last(0), want)
	}
}

// TestQuietConsumerAsksOnce counts the transactions of an idle consumer: one query for all its shards on each server,
// and no claims.
func TestQuietConsumerAsksOnce(t *testing.T) {
	l := ledgertest.New(t)
	register(t, l, l.Organization(t, 1, domain.InternalPlan), 0, 1)
	transactions := func() int {
		t.Helper()
		n, err := pgtest.Ask[int](
			l.URL,
			pgtest.OnAllNodes(
				"SELECT (xact_commit + xact_rollback)::int FROM pg_stat_database WHERE datname = current_database()",
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const wanted = 100
	var looks atomic.Int64
	var before int
	counted := make(chan struct{})
	started := make(chan struct{})
	_, stop := consume(t, l, l.URL, (&reading{}).take, func(c *consumer.Config) {
		news := c.News
		c.Poll = 15 * time.Millisecond
		c.News = func(ctx context.Context) ([]int, error) {
			found, err := news(ctx)
			if len(found) > 0 || err != nil {
				return found, err
			}
			switch looks.Add(1) {
			case 20: // the first claims are over
				close(started)
				<-ctx.Done() // until the transactions are counted
			case 20 + wanted:
				close(counted)
			}
			return found, err
		}
	})
	<-started
	before = transactions()
	<-counted
	stop()
	pgtest.Eventually(t, "all servers have counted", func() (bool, error) { return transactions()-before >= wanted, nil })
	servers := 1
	if pgtest.OnCitus() {
		servers = 2
	}
	// Idle connections are pinged, and some queries are the test's own.
	if n := transactions() - before; n > wanted*servers*5/4+150 {
		t.Errorf("%d transactions for %d looks of %d shards", n, wanted, l.Installation.Shards)
	}
}
