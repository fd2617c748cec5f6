package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Aimed requires that each statement, as aim sends it to the node of a piece (cluster.Piece), names the parts of tables alone:
// the tables have other names here, and the statement is understood as it is aimed, and not as it was.
func Aimed(t *testing.T, statements map[string]string, aim func(tables, parts []string, b *pgx.Batch)) {
	t.Helper()
	OneServer(t, "its tables have parts")
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, New(t))
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
		aim(tables, parts, b)
		if _, err := conn.Prepare(ctx, "", b.QueuedQueries[0].SQL); err != nil {
			t.Errorf("%s: %v: %s", name, err, b.QueuedQueries[0].SQL)
		}
	}
}
