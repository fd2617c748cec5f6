package consumer

import (
	"context"
	"testing"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
)

// See the test of the same name in projections.
func TestStatementsAreRoutedToOneNode(t *testing.T) {
	pgtest.Citus(t)
	pool, err := cluster.At(pgtest.New(t)).CommitPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Routed(t, pool, map[string]string{
		"never": "SELECT position FROM consumers WHERE position > $1",
		"begin": beginPages, "claim": claimPages, "read": readPages, "advance": advancePages,
	})
}
