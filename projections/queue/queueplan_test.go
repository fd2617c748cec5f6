package queue

import (
	"context"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// The statements of the queues look rows up by their keys.
func TestQueuesLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).ReadPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"due": takeDue, "unwarned": unwarned, "invitation": takeInvitation, "invited": findInvited,
		"never": "SELECT version_id FROM artifact_versions WHERE shard = $1 AND artifact_id IS NOT NULL AND version = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
