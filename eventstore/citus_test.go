package eventstore

import (
	"context"
	"testing"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
)

var routed = map[string]string{
	"never": cluster.SQL("SELECT position FROM {events} WHERE position > $1"),

	"head": lockHead, "move": moveHead, "events": insertEvents, "texts": insertTexts,
}

// See the test of the same name in projections.
func TestStatementsAreRoutedToOneNode(t *testing.T) {
	pgtest.Citus(t)
	pool, err := cluster.At(pgtest.New(t)).CommitPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Routed(t, pool, routed)
}

// Citus does not push down an INSERT that selects from no relation.
func TestInsertsSelectFromRelations(t *testing.T) { pgtest.Pushable(t, routed) }

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	clustertest.Aimed(t, routed)
}
