package webhooks

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/ledgertest"
)

// TestResultsLockTheirRows: the rows of results stay locked until the results are written, on a cluster, too. A missing
// row is not an error.
func TestResultsLockTheirRows(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	pool, err := cluster.At(l.URL).QueuePool(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	held, gone := domain.NewID[domain.DeliveryID](l.Now()), domain.NewID[domain.DeliveryID](l.Now())
	if _, err := pool.Exec(ctx,
		`INSERT INTO webhook_deliveries (shard, webhook_id, delivery_id, organization_id, sequence, event_id, type, created_at,
			due_at, attempts, reason)
		VALUES (1, $1, $1, $1, 1, $1, 1, now(), now(), 0, '')`, held); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	rows, _ := tx.Query(ctx, lockHeld, domain.Shard(1), []domain.DeliveryID{held, gone})
	if found, err := pgx.CollectRows(rows, pgx.RowTo[domain.DeliveryID]); err != nil || len(found) != 1 ||
		found[0] != held {
		t.Fatalf("%v, %v", found, err)
	}
	var refused *pgconn.PgError
	_, err = pool.Exec(ctx, "SELECT FROM webhook_deliveries WHERE shard = 1 AND delivery_id = $1 FOR UPDATE NOWAIT", held)
	if !errors.As(err, &refused) || refused.Code != "55P03" {
		t.Errorf("a row of a result is not locked: %v", err)
	}
}
