package eventstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

var routed = map[string]string{
	"never": "SELECT position FROM events WHERE position > $1",

	"head": lockHead, "move": moveHead, "events": insertEvents, "texts": insertTexts,
}

// See the test of the same name in projections.
func TestStatementsAreRoutedToOneNode(t *testing.T) {
	pgtest.Citus(t)
	pool, err := cluster.At(pgtest.New(t)).CommitPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgtest.Routed(t, pool, routed)
}

// Citus pushes down no INSERT that selects from what has no relation.
func TestInsertsSelectFromRelations(t *testing.T) { pgtest.Pushable(t, routed) }

// See the test of the same name in projections.
func TestStatementsAreAimed(t *testing.T) {
	pgtest.Aimed(t, routed, func(tables, parts []string, b *pgx.Batch) { cluster.NewPiece(tables, parts).Aim(b) })
}

// A group that goes to the node of its shard is planned by PostgreSQL alone.
func TestStatementsNameTheShardsTables(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	holders, err := cluster.At(pgtest.New(t)).Holders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer holders.Close()
	conn, piece, err := holders.Nodes(1, (*cluster.Primary).CommitPool).Acquire(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	pgtest.Direct(t, conn, piece.Aim, routed)
}
