package eventstore_test

import (
	"context"
	"strconv"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestAnnouncementsFollowAMove: readers waiting for a shard are announced on the node that the shard was moved to.
func TestAnnouncementsFollowAMove(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	l := ledgertest.Attach(t, pgtest.New(t))
	here, there := l.Notifier(t, neverLooks), l.Notifier(t, neverLooks)
	commits := make(chan eventstore.Commit, 10)
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) {
		c.Committed = func(c eventstore.Commit) { here.Committed(c); commits <- c }
	})
	o := l.Organization(t, 0, domain.InternalPlan)
	woken, leave := there.Wait(o.ID, o.Company.ID)
	defer leave()
	within(t, "the tail begins", woken)
	announcements(t, l, true, 1)
	if err := clustertest.Move(ctx, l.URL, 0); err != nil {
		t.Fatal(err)
	}
	nodes := placesOf(t, l.URL)
	pgtest.Eventually(t, "it is announced on the other node", func() (announced bool, err error) {
		conn, _, err := nodes.Acquire(ctx, 0)
		if err != nil {
			return false, err
		}
		defer conn.Release()
		err = conn.QueryRow(
			ctx,
			"SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 2002872692 AND mode = "+
				"'ShareLock' AND granted)",
		).Scan(&announced)
		return announced, err
	})
	for len(commits) > 0 {
		<-commits
	}
	for len(woken) > 0 {
		<-woken
	}
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	if c := <-commits; !c.Awaited {
		t.Errorf("%+v: must be awaited", c)
	}
	within(t, "after the move", woken)
}

// TestABlackHoledNodeSilencesNoOther: while a node neither answers nor closes its connections, readers of other nodes'
// shards are still announced and woken.
func TestABlackHoledNodeSilencesNoOther(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	l := ledgertest.Attach(t, pgtest.New(t))
	holders := placesOf(t, l.URL)
	on := map[int32][]domain.Shard{}
	for shard := range domain.Shard(4) {
		piece, err := holders.Place(ctx, uint16(shard))
		if err != nil {
			t.Fatal(err)
		}
		on[piece.Node()] = append(on[piece.Node()], shard)
	}
	var dark, lit []domain.Shard
	for _, shards := range on {
		if dark = shards; len(dark) > len(lit) {
			dark, lit = lit, dark
		}
	}
	if len(on) != 2 || len(lit) < 2 {
		t.Fatalf("shards by node: %v", on)
	}
	hole, reached := clustertest.Through(t, l.URL, uint16(dark[0]))
	nodes := reached.Nodes(2, (*cluster.Primary).NotifyPool)
	here, there := l.Notifier(t, neverLooks), l.Notifier(t, neverLooks, func(c *eventstore.NotifierConfig) {
		c.Nodes = nodes
	})
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) { c.Committed = here.Committed })
	wait := func(o ledgertest.Organization) <-chan struct{} {
		t.Helper()
		woken, leave := there.Wait(o.ID, o.Company.ID)
		t.Cleanup(leave)
		within(t, "the tail begins", woken)
		return woken
	}
	one, other := l.Organization(t, lit[0], domain.InternalPlan), l.Organization(t, lit[1], domain.InternalPlan)
	unlucky := l.Organization(t, dark[0], domain.InternalPlan)
	wait(unlucky)
	woken := wait(one)
	announcements(t, l, true, 2)
	hole.Set(pgtest.Weather{Hole: true})
	later := wait(other) // makes it check all announcements
	for version := range int32(3) {
		l.Must(t, l.Register(t, one, one.Declaration("a", version+1, strconv.Itoa(int(version)))))
		within(t, "a node that answers", woken)
	}
	announcements(t, l, true, 3)
	l.Must(t, l.Register(t, other, other.Declaration("a", 1, "x")))
	within(t, "a shard that is awaited later", later)
}

// placesOf returns connections to the nodes.
func placesOf(t *testing.T, url string) *cluster.Nodes {
	t.Helper()
	holders, err := cluster.At(url).Holders(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holders.Close)
	return holders.Nodes(2, (*cluster.Primary).ReadPool)
}
