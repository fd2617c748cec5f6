// Package clustertest holds helpers for tests of statements that run on the nodes of a cluster.
package clustertest

import (
	"context"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
)

// Aimed fails unless each statement's text for a piece (cluster.Piece) names only parts of distributed tables. On
// Citus, the node's PostgreSQL must plan it. On one server, Aimed renames the distributed tables: PostgreSQL must then
// accept the piece's text but not the statement's own. There it also checks everything that the linked packages have
// declared.
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
	rows, _ := conn.Query(ctx, // rows carry its error
		`SELECT c.relname::text FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
		WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attname = 'shard'`)
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
	piece := cluster.NewPiece(tables, parts)
	statements = maps.Clone(statements)
	for _, statement := range cluster.Declared() {
		statements["declared: "+statement] = statement
	}
	for name, statement := range statements {
		if _, err := conn.Prepare(ctx, "", statement); err == nil {
			t.Errorf("%s names no table: %s", name, statement)
		}
		text, err := piece.Text(statement)
		if err == nil {
			_, err = conn.Prepare(ctx, "", text)
		}
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, text)
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
	pgtest.Direct(t, conn, piece.Text, statements)
}
