package webhooks

import (
	"context"
	"strings"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// On tables without statistics too, no statement of the worker walks over a shard: the fixed plans would keep that
// until the statistics are next taken.
func TestWorkerLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).QueuePool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, query := range map[string]string{
		"find_due": findDue, "take": takeRows, "charge": chargeAttempts, "refund": refundAttempts, "lock": lockHeld, "ended": logEnded, "remove": removeEnded, "retried": writeRetried,
		"released": writeReleased, "working": writeWorking, "failing": writeFailing, "overdue": findFailing, "prune": pruneLog,
		"never": "SELECT delivery_id FROM webhook_deliveries WHERE shard = $1",
	} {
		plan := pgtest.Explain(t, pool, name, query)
		if good := !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "Index Cond: (shard = $1)\n"); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
