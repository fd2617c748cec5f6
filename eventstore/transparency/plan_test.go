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

// The question about the heads looks them up by their key. Where a scan is the only plan, which the settings forbid,
// PostgreSQL takes it for so dear that it starts further processes for it.
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
