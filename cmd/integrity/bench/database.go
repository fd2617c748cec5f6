package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"integrityledger/migrations"
)

// ownServerOnly is why something is not measured on a database that was given.
const ownServerOnly = "needs a PostgreSQL of the benchmark's own"

// requireEmpty refuses a database in which anybody has made a table or a sequence: the
// benchmark fills the one that it is given, and must never find itself in another's.
func requireEmpty(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var found []string
	if err := conn.QueryRow(ctx, `SELECT coalesce(array_agg(c.oid::regclass::text ORDER BY 1), '{}') FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'f', 'm', 'v', 'S') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
			AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')`).Scan(&found); err != nil {
		return fmt.Errorf("look whether the database is empty: %w", err)
	}
	if len(found) > 0 {
		return fmt.Errorf("the database has %d tables, views or sequences (%s): it must be empty, made for the benchmark and dropped after it; "+
			"without INTEGRITY_DATABASE_URL it starts a PostgreSQL of its own", len(found), strings.Join(found[:min(3, len(found))], ", "))
	}
	return nil
}

// spread distributes the tables where the database is the coordinator of a Citus cluster.
func spread(ctx context.Context, url string) error {
	_, err := migrations.Distribute(ctx, url, false)
	if errors.Is(err, migrations.ErrNoCitus) {
		return nil
	}
	return err
}

// vacuum does what autovacuum does within the first minutes of a ledger. The tables
// are named, because Citus hands only those on to its nodes.
func (l *lab) vacuum(ctx context.Context) error {
	var tables string
	if err := l.read.QueryRow(ctx, `SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'`).Scan(&tables); err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	return l.exec(ctx, "VACUUM (ANALYZE) "+tables)
}
