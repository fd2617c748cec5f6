package webhooks

import (
	"context"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// See the test of the same name in projections.
func TestStatementsAreRoutedToOneNode(t *testing.T) {
	pgtest.Citus(t)
	pool, err := cluster.At(pgtest.New(t)).QueuePool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Routed(t, pool, map[string]string{
		"never": "SELECT delivery_id FROM webhook_deliveries WHERE shard >= $1",

		"due": findDue, "take": takeRows, "charge": chargeAttempts, "refund": refundAttempts, "prune": pruneLog,
		"lock": lockHeld, "log": logEnded, "end": removeEnded, "retry": writeRetried, "release": writeReleased,
		"working": writeWorking, "write_failing": writeFailing, "find_failing": findFailing,
	})
}
