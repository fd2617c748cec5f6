package queue

import (
	"context"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// The statements of the queues are the work of one node of Citus.
func TestQueuesAreRoutedToOneNode(t *testing.T) {
	pgtest.Citus(t)
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Routed(t, pool, map[string]string{
		"never": "SELECT version_id FROM kept_contents WHERE shard >= $1",

		"due": takeDue, "unwarned": unwarned,
	})
}
