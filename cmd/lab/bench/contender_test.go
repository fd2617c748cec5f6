package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest"
)

// TestCeilingTables: the ceiling writes every table that a registration writes, and no other.
func TestCeilingTables(t *testing.T) {
	ctx := context.Background()
	l, err := newLab(ctx, pgtest.New(t), 4, evidence.GenerateSigner())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(ctx)
	if err := l.fill(ctx, 4000); err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(slices.Concat(insertedTables, updatedTables)))
	var written []string
	// Statistics arrive only after the connections that caused them have ended. The setup writes far fewer rows of any
	// table than there are registrations. A table that a group updates may have few rows written by few groups.
	arrived := func() (bool, error) {
		rows, err := l.owner.Query(
			ctx,
			`SELECT relname::text FROM pg_stat_user_tables WHERE schemaname = 'public' AND n_tup_ins + n_tup_upd > $1 ORDER BY 1`,
			10*(1+sixteen),
		)
		if err != nil {
			return false, err
		}
		written, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return !slices.ContainsFunc(insertedTables, func(table string) bool { return !slices.Contains(written, table) }), err
	}
	waiting, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	if err := poll(waiting, 50*time.Millisecond, arrived); err != nil ||
		slices.ContainsFunc(written, func(table string) bool {
			return !slices.Contains(want, table)
		}) {
		t.Errorf("a registration writes %v, the ceiling %v: %v", written, want, err)
	}
	script, err := l.ceilingScript(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range want {
		var n int64
		if err := l.owner.QueryRow(
			ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE shard = 1", table),
		).Scan(&n); err != nil || n == 0 {
			t.Errorf("shard 1 has %d rows of %s: %v: %s", n, table, err, script)
		}
	}
}

func TestReadPgbench(t *testing.T) {
	const out = "transaction type: ceiling.sql\nnumber of transactions actually processed: 473\nlatency average = 8.4 " +
		"ms\n" +
		"initial connection time = 11.9 ms\ntps = 236.861 (without initial connection time)\n"
	round, err := readPgbench(out)
	if err != nil || round.Done != 473 || round.PerSecond != 236.861 {
		t.Errorf("%+v, %v", round, err)
	}
	if _, err := readPgbench("pgbench: error: connection refused"); err == nil {
		t.Error("nothing was measured, and that is not reported")
	}
}
