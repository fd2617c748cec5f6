package queue

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
)

// TestQueuesLookUpKeys: the statements of the queues look up rows by key.
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

// TestQuestionsAboutAllShardsLookUpKeys: a query of all shards looks up each shard by key, whatever the tables contain.
func TestQuestionsAboutAllShardsLookUpKeys(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).QueuePool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, c := range map[string]struct {
		query, args string
	}{
		"mails":    {mailDue, "(4, now())"},
		"contents": {contentDue, "(4, now())"},
		"unwarned": {anyUnwarned, "(4, 1, 2, now(), '{gratis}', '{10}', '{10}')"},
		"never":    {Due("SELECT FROM {mails} WHERE shard = s.shard AND created_at <= $2"), "(4, now())"},
	} {
		if _, err := pool.Exec(ctx, "PREPARE "+name+" AS "+c.query); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// rows carry its error
		rows, _ := pool.Query(ctx, "EXPLAIN EXECUTE "+name+c.args, pgx.QueryExecModeSimpleProtocol)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan := strings.Join(lines, "\n")
		if good := !strings.Contains(plan, "Seq Scan") && !strings.Contains(plan, "Hash") &&
			!strings.Contains(plan, "Index Cond: (shard = s.shard)"); good != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}
