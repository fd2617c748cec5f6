package transparency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestTreeFollowsMoves: every event becomes a leaf exactly once, even if its shard has moved since the heads were last
// read, or between the check and the page.
func TestTreeFollowsMoves(t *testing.T) {
	pgtest.Citus(t)
	l, ctx := ledgertest.New(t), context.Background()
	holders, err := cluster.At(l.URL).Holders(ctx)
	check(t, err)
	t.Cleanup(holders.Close)
	signer := newSigner(t)
	k := process(t, l, signer, func(c *Config) {
		c.Nodes, c.Shards = holders.Nodes(2, (*cluster.Primary).ConsumerPool), l.Installation.Shards
	})
	o, other := l.Organization(t, 0, domain.InternalPlan), l.Organization(t, 3, domain.InternalPlan)
	for version := range int32(4) {
		l.Must(t, l.Register(t, o, o.Declaration("d", version+1, "x")))
		l.Must(t, l.Register(t, other, other.Declaration("d", version+1, "x")))
		if found, err := k.growth.look(ctx); err != nil || len(found) != 1 {
			t.Errorf("a look before page %d: %v %v", version, found, err)
		}
		check(t, clustertest.Move(ctx, l.URL, 0))
		check(t, k.turn(ctx))
		if found, err := k.growth.look(ctx); err != nil || len(found) != 0 {
			t.Errorf("a look after page %d: %v %v", version, found, err)
		}
	}
	want := int64(len(l.Events(t, 0)) + len(l.Events(t, 3)))
	if n, err := pgtest.Ask[int64](l.URL, "SELECT size FROM transparency_tree"); err != nil || n != want {
		t.Errorf("%d leaves of %d events: %v", n, want, err)
	}
	_, err = Check(ctx, l.Pool, nil)
	check(t, err)
}

// TestTreeGrowsWithoutANode: while a node does not answer or cannot be reached, the tree grows by the events of the
// other nodes. The node's events become leaves once it is back.
func TestTreeGrowsWithoutANode(t *testing.T) {
	pgtest.Citus(t)
	l, ctx := ledgertest.New(t), context.Background()
	var orgs []ledgertest.Organization
	for shard := range domain.Shard(4) {
		orgs = append(orgs, l.Organization(t, shard, domain.InternalPlan))
	}
	proxy, holders := clustertest.Through(t, l.URL, 0)
	k := process(t, l, newSigner(t), func(c *Config) {
		c.Nodes, c.Shards = holders.Nodes(2, (*cluster.Primary).ConsumerPool), l.Installation.Shards
	})
	k.turned(t)
	away, err := holders.NodeOf(ctx, 0)
	check(t, err)
	register := func(document string) {
		for _, o := range orgs {
			l.Must(t, l.Register(t, o, o.Declaration(document, 1, document)))
		}
	}
	grown := func(when string) {
		t.Helper()
		pgtest.Eventually(t, when+": the events of the nodes that answer are leaves", func() (bool, error) {
			if err := k.turn(ctx); err != nil {
				return false, err
			}
			all := true
			for shard := range domain.Shard(4) {
				node, err := holders.NodeOf(ctx, uint16(shard))
				check(t, err)
				lacks, err := pgtest.Ask[bool](
					l.URL,
					fmt.Sprintf("SELECT coalesce(positions[%d], 0) < %d FROM transparency_tree", shard+1, len(l.Events(t, shard))),
				)
				check(t, err)
				if node == away && !lacks {
					t.Fatalf("%s: shard %d, of a node that is away, lacks no event", when, shard)
				}
				all = all && (node == away || !lacks)
			}
			return all, nil
		})
	}
	register("hole")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if found, err := k.growth.askHeads(gone); err == nil {
		t.Errorf("no node has answered: %+v", found)
	}
	proxy.Set(pgtest.Weather{Hole: true})
	grown("a hole")
	looking, stop := context.WithTimeout(ctx, 5*time.Second) // like a consumer
	defer stop()
	if found, err := k.growth.look(looking); err != nil || len(found) != 1 {
		t.Errorf("a look into a hole: %v %v", found, err)
	}
	register("cut")
	proxy.Set(pgtest.Weather{Away: true})
	proxy.Cut()
	grown("away")
	proxy.Set(pgtest.Weather{})
	away = -1
	grown("back")
	if found, err := k.growth.askHeads(ctx); err != nil || found.partial {
		t.Errorf("all nodes have answered: %+v, %v", found, err)
	}
	_, err = Check(ctx, l.Pool, nil)
	check(t, err)
}

// hanging puts odd shards on node 1, which returns its heads but, while it hangs, no hashes.
type hanging struct {
	eventstore.Database
	hangs bool
	asked int // number of queries for hashes of node 1
	most  int // number of hashes requested last
}

func (h *hanging) NodeOf(_ context.Context, shard domain.Shard) (int32, error) {
	return int32(shard % 2), nil
}

func (h *hanging) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(args) == 3 && args[0].(domain.Shard)%2 == 1 {
		h.asked++
		h.most = args[2].(int)
		if h.hangs {
			<-ctx.Done()
			return pgx.FailedBatchResults(&pgx.Batch{}, ctx.Err()).Query()
		}
	}
	return h.Database.Query(ctx, sql, args...)
}

// TestAPageGoesOnWithoutAHangingNode: a node that returns heads but hangs on hashes is asked once per page, and the
// page consists of the other node's events. It is asked for fewer hashes each time, and for the full number once it has
// answered.
func TestAPageGoesOnWithoutAHangingNode(t *testing.T) {
	l, ctx := ledgertest.New(t), context.Background()
	for shard := range domain.Shard(4) {
		l.Organization(t, shard, domain.InternalPlan)
	}
	k := process(t, l, newSigner(t))
	node := &hanging{Database: k.growth.log, hangs: true}
	k.growth.log = node
	lacking := func() (lacks []bool) {
		t.Helper()
		for shard := range domain.Shard(4) {
			has, err := pgtest.Ask[int](l.URL, fmt.Sprintf("SELECT coalesce(positions[%d], 0) FROM transparency_tree", shard+1))
			check(t, err)
			lacks = append(lacks, has < len(l.Events(t, shard)))
		}
		return lacks
	}
	if n, err := k.integrate(ctx); err != nil || n == 0 || node.asked != 1 {
		t.Fatalf("the first page: %d leaves, asked %d times, %v", n, node.asked, err)
	}
	if got := lacking(); !slices.Equal(got, []bool{false, true, false, true}) {
		t.Errorf("after the first page shards lack leaves: %v", got)
	}
	before := node.most
	if n, err := k.integrate(ctx); !errors.Is(err, context.DeadlineExceeded) || n != 0 || node.asked != 2 ||
		node.most >= before {
		t.Errorf("without other news: %d leaves, asked %d times for %d after %d, %v", n, node.asked, node.most, before, err)
	}
	node.hangs = false
	k.turned(t)
	if got := lacking(); slices.Contains(got, true) || len(k.growth.slow) != 0 {
		t.Errorf("once the node answers shards lack leaves: %v, slow are %v", got, k.growth.slow)
	}
	_, err := Check(ctx, l.Pool, nil)
	check(t, err)
}

// TestHeadsOfSomeNodes: shards of a node that does not answer are neither behind nor lost.
func TestHeadsOfSomeNodes(t *testing.T) {
	for _, test := range []struct {
		heads  heads
		tree   []int64
		behind bool
	}{
		{heads{positions: []int64{0, 2}}, []int64{0, 2}, false},
		{heads{positions: []int64{0, 2}}, []int64{1, 2}, true},
		{heads{positions: []int64{0, 2}}, []int64{0, 2, 1}, true},
		{heads{positions: []int64{0, 2}, partial: true}, []int64{1, 2, 1}, false},
		{heads{positions: []int64{0, 2}, partial: true}, []int64{1, 3}, true},
	} {
		if got := test.heads.behind(test.tree); got != test.behind {
			t.Errorf("%+v is behind %v: %t", test.heads, test.tree, got)
		}
	}
}
