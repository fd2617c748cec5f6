package pgtest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// headScan matches the lookup of a shard's head, whose whole key is the shard.
	headScan = regexp.MustCompile(
		`Index (?:Only )?Scan using shard_heads_pkey on shard_heads.*\n *Index Cond: \(shard = \$1\)`,
	)
	// placeScan matches a read of a row at the place that a lookup has found. The shard is named for Citus.
	placeScan = regexp.MustCompile(`Tid Scan on \w+ .*\n *TID Cond: .*\n *Filter: \(shard = \$1\)`)
	indexScan = regexp.MustCompile(
		`(?:Index (?:Only )?Scan (?:Backward )?using|Bitmap Index Scan on) (\w+) .*\n *Index Cond: (.*)`,
	)
)

// Explain returns the generic plan of a statement on a pool's connections. Lookups of a shard's head and of rows by
// their place, which cannot scan a table, are replaced by "head" and "place".
func Explain(t testing.TB, pool *pgxpool.Pool, name, query string) string {
	t.Helper()
	plan, err := explain(context.Background(), pool, query)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return placeScan.ReplaceAllString(headScan.ReplaceAllString(plan, "head"), "place")
}

// explain returns the plan of a statement whose first parameter is a shard. The others are null, or zeros for a key,
// because a null key would leave nothing to look up.
func explain(ctx context.Context, pool *pgxpool.Pool, query string) (plan string, err error) {
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		plan, err = explainOn(ctx, conn, query)
		return err
	})
	return plan, err
}

func explainOn(ctx context.Context, conn *pgxpool.Conn, query string) (string, error) {
	if _, err := conn.Exec(ctx, "PREPARE explained AS "+query); err != nil {
		return "", err
	}
	var types []string
	if err := conn.QueryRow(
		ctx, "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'explained'",
	).Scan(&types); err != nil {
		return "", err
	}
	arguments := "0"
	for _, typ := range types[1:] {
		if typ == "uuid" {
			arguments += ", '" + strings.Repeat("0", 32) + "'"
		} else {
			arguments += ", NULL"
		}
	}
	rows, err := conn.Query(ctx, "EXPLAIN EXECUTE explained("+arguments+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	plan := strings.Join(lines, "\n") + "\n"
	_, err = conn.Exec(ctx, "DEALLOCATE explained")
	return plan, err
}

// LooksUpKeys reports whether a plan scans no table and restricts the leading columns of every index that it uses, at
// least two if the index has two.
func LooksUpKeys(t testing.TB, pool *pgxpool.Pool, plan string) bool {
	t.Helper()
	if strings.Contains(plan, "Seq Scan") {
		return false
	}
	found := indexScan.FindAllStringSubmatch(plan, -1)
	for _, m := range found {
		rows, err := pool.Query(
			context.Background(), `SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) ORDER BY attnum`,
			m[1],
		)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		bound := 0
		for _, column := range columns {
			if !regexp.MustCompile(`\("?` + column + `"? [=<>]`).MatchString(m[2]) {
				break
			}
			bound++
		}
		conditions := map[string]bool{}
		for _, c := range regexp.MustCompile(`\("?(\w+)"? [=<>]`).FindAllStringSubmatch(m[2], -1) {
			conditions[c[1]] = true
		}
		if bound < min(2, len(columns)) || bound < len(conditions) {
			return false
		}
	}
	return len(found) == strings.Count(plan, " using ")+strings.Count(plan, "Bitmap Index Scan on ") &&
		len(found) == strings.Count(plan, "Index Cond:")
}
