package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/projections/ledgertest"
)

// TestExpiredAnswersAreDeleted: all expired answers are deleted, however many, and nothing else.
func TestExpiredAnswersAreDeleted(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	conn, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	const old = 2500 // more than one step deletes
	for _, rows := range []struct {
		name          string
		shard, count  int
		created, held time.Duration
	}{
		{"old", 0, old, -25 * time.Hour, -25 * time.Hour},
		{"other shard", 3, 3, -24 * time.Hour, -24 * time.Hour},
		{"young", 0, 5, -23 * time.Hour, -23 * time.Hour},
		{"still running", 0, 1, -30 * time.Hour, time.Minute},
	} {
		if _, err := conn.Exec(ctx,
			`INSERT INTO idempotency_keys (shard, organization_id, route, key, token, fingerprint, created_at, lease_until)
			SELECT $1, gen_random_uuid(), 'x', $2 || n, gen_random_uuid(), '', $3, $4 FROM generate_series(1, $5::int) n`,
			rows.shard, rows.name, now.Add(rows.created), now.Add(rows.held), rows.count); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.ForgetAnswers(ctx, now); err != nil {
		t.Fatal(err)
	}
	var young, running, all int
	if err := conn.QueryRow(
		ctx,
		`SELECT count(*) FILTER (WHERE key LIKE 'young%'), count(*) FILTER (WHERE key LIKE 'still%'), count(*) FROM idempotency_keys`,
	).
		Scan(&young, &running, &all); err != nil {
		t.Fatal(err)
	}
	if young != 5 || running != 1 || all != 6 {
		t.Errorf("%d young, %d running, %d in all are left", young, running, all)
	}
}
