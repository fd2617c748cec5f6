package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// HeadError is a head that contradicts its log: the database was changed behind the ledger's back.
type HeadError struct {
	Shard      int
	Head, Last int64 // the position that the head says, and that of the last event
}

func (e HeadError) Error() string {
	return fmt.Sprintf("shard %d: its head says position %d, its last event is %d", e.Shard, e.Head, e.Last)
}

// CheckHeads compares every shard head with the last event of its log. Only a HeadError says that they differ; after
// any other error nothing is known of them.
func CheckHeads(ctx context.Context, pool *pgxpool.Pool) error {
	const query = `SELECT h.shard, h.position, coalesce(e.position, 0)
		FROM shard_heads h
		LEFT JOIN LATERAL (SELECT position FROM events WHERE events.shard = h.shard ORDER BY position DESC LIMIT 1) e ON true
		WHERE h.position <> coalesce(e.position, 0) ORDER BY h.shard`
	rows, _ := pool.Query(ctx, query)
	faults, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (error, error) {
		var e HeadError
		err := row.Scan(&e.Shard, &e.Head, &e.Last)
		return e, err
	})
	if err != nil {
		return fmt.Errorf("check shard heads: %w", err)
	}
	return errors.Join(faults...)
}
