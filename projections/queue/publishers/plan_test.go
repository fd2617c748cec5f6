package publishers

import (
	"context"
	"testing"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
)

// TestChecksLookUpKeys: the statements of the queue look up rows by key.
func TestChecksLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	pool, err := cluster.At(pgtest.New(t)).QueuePool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"take": take, "taken": findTaken, "note": note, "end": noteLast,
		"never": "SELECT statement_id FROM publisher_checks WHERE shard = $1 AND organization_id = $2",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := pgtest.LooksUpKeys(t, pool, plan); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
