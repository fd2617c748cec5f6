package webhooks

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// On tables without statistics too, no statement of the worker walks over a
// shard: the fixed plans would keep that until the statistics are next taken.
func TestWorkerLooksUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).QueuePool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	parameter := regexp.MustCompile(`\$(\d+)`)
	head := regexp.MustCompile(`Index Only Scan using shard_heads_pkey on shard_heads.*\n *Index Cond: \(shard = \$1\)\n`)
	for name, query := range map[string]string{
		"find_due": findDue, "take": takeRows, "charge": chargeAttempts, "refund": refundAttempts, "ended": writeEnded, "retried": writeRetried,
		"released": writeReleased, "working": writeWorking, "failing": writeFailing, "overdue": findFailing, "prune": pruneLog,
		"never": "SELECT delivery_id FROM webhook_deliveries WHERE shard = $1",
	} {
		arguments := 0
		for _, n := range parameter.FindAllStringSubmatch(query, -1) {
			number, _ := strconv.Atoi(n[1])
			arguments = max(arguments, number)
		}
		if _, err := pool.Exec(ctx, fmt.Sprintf("PREPARE %s AS %s", name, query)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows, err := pool.Query(ctx, fmt.Sprintf("EXPLAIN EXECUTE %s(0%s)", name, strings.Repeat(", NULL", arguments-1)), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan := strings.Join(lines, "\n") + "\n"
		plan = head.ReplaceAllString(plan, "head\n") // whose whole key is the shard
		if good := !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "Index Cond: (shard = $1)\n"); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
