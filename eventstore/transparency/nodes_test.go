package transparency

import (
	"context"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/projections/ledgertest"
)

// TestTreeFollowsMoves: every event is a leaf, once, although its shard has moved since the heads were last read, also between
// the look and the page.
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
