// Package clustertest holds what tests of statements share that go to the nodes of a cluster.
package clustertest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/eventstore/cluster"
)

// Aimed requires that each statement, as it goes to the node of a piece (cluster.Piece), names the parts of tables
// alone. On Citus PostgreSQL itself must plan it there. On one server, whose tables are given other names, it must be
// understood as it is aimed, and not as it was.
func Aimed(t *testing.T, statements map[string]string) {
	t.Helper()
	if pgtest.OnCitus() {
		onNode(t, statements)
		return
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace") // its error is that of the rows
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]string, len(tables))
	for i, table := range tables {
		parts[i] = table + "_102008"
		if _, err := conn.Exec(ctx, "ALTER TABLE "+table+" RENAME TO "+parts[i]); err != nil {
			t.Fatal(err)
		}
	}
	for name, statement := range statements {
		b := &pgx.Batch{}
		b.Queue(statement)
		if _, err := conn.Prepare(ctx, "", statement); err == nil {
			t.Errorf("%s names no table: %s", name, statement)
		}
		cluster.NewPiece(tables, parts).Aim(b)
		if _, err := conn.Prepare(ctx, "", b.QueuedQueries[0].SQL); err != nil {
			t.Errorf("%s: %v: %s", name, err, b.QueuedQueries[0].SQL)
		}
	}
}

func onNode(t *testing.T, statements map[string]string) {
	t.Helper()
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
	pgtest.Direct(t, conn, piece.Aim, statements)
}
