package pgtest

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	// The look-up of a shard's head, whose whole key is the shard.
	headScan = regexp.MustCompile(`Index (?:Only )?Scan using shard_heads_pkey on shard_heads.*\n *Index Cond: \(shard = \$1\)`)
	// A row at the place that a look-up has found; the shard is named for Citus.
	placeScan = regexp.MustCompile(`Tid Scan on \w+ .*\n *TID Cond: .*\n *Filter: \(shard = \$1\)`)
	indexScan = regexp.MustCompile(`Index (?:Only )?Scan (?:Backward )?using (\w+) on .*\n *Index Cond: (.*)`)
)

// Explain returns the generic plan of a statement on a pool's connections. Look-ups of a shard's head and of rows by their
// place, which cannot walk over a table, are replaced by "head" and "place".
func Explain(t testing.TB, pool *pgxpool.Pool, name, query string) string {
	t.Helper()
	ctx := context.Background()
	arguments := 0
	for _, n := range parameter.FindAllStringSubmatch(query, -1) {
		number, _ := strconv.Atoi(n[1])
		arguments = max(arguments, number)
	}
	if _, err := pool.Exec(ctx, fmt.Sprintf("PREPARE %s AS %s", name, query)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	rows, err := pool.Query(ctx, fmt.Sprintf("EXPLAIN EXECUTE %s(0%s)", name, strings.Repeat(", NULL", arguments-1)), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	plan := strings.Join(lines, "\n") + "\n"
	return placeScan.ReplaceAllString(headScan.ReplaceAllString(plan, "head"), "place")
}

// LooksUpKeys reports whether a plan reads no table as a whole and binds the leading columns of every index that it uses, at
// least two of them.
func LooksUpKeys(t testing.TB, pool *pgxpool.Pool, plan string) bool {
	t.Helper()
	if strings.Contains(plan, "Seq Scan") {
		return false
	}
	found := indexScan.FindAllStringSubmatch(plan, -1)
	for _, m := range found {
		rows, err := pool.Query(context.Background(), `SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) ORDER BY attnum`, m[1])
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
		if bound < 2 || bound < len(conditions) {
			return false
		}
	}
	return len(found) == strings.Count(plan, " using ") && len(found) == strings.Count(plan, "Index Cond:")
}
