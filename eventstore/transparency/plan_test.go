package transparency

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
)

// TestHeadsAreLookedUp: the query of the heads uses their primary key. If a scan were the only plan, which the settings
// discourage, PostgreSQL would estimate such a high cost that it starts parallel workers.
func TestHeadsAreLookedUp(t *testing.T) {
	pgtest.OneServer(t, "a node plans for itself")
	ctx := context.Background()
	pool, err := cluster.At(pgtest.New(t)).ConsumerPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for question, good := range map[string]bool{
		eventstore.HeadsQuery: true, strings.Replace(eventstore.HeadsQuery, "shard >= 0 AND", "", 1): false,
	} {
		rows, _ := pool.Query(ctx, "EXPLAIN "+question) // rows carry its error
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan") == good {
			t.Errorf("%s:\n%s", question, text)
		}
	}
}
