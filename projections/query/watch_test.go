package query_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// TestWatchReportsTheDateOfLastEvents: a shard reports the date of its last event. An empty shard reports no date,
// because its creation date means nothing.
func TestWatchReportsTheDateOfLastEvents(t *testing.T) {
	l := ledgertest.New(t)
	l.Organization(t, 1, domain.InternalPlan)
	watched, err := query.Watch(context.Background(), l.Pool)
	if err != nil {
		t.Fatal(err)
	}
	events := l.Events(t, 1)
	want := events[len(events)-1].OccurredAt
	if empty, last := watched.Shards[0].Last, watched.Shards[1].Last; empty != nil || last == nil || !last.Equal(want) {
		t.Errorf("the last events are of %v and %v, want none and %s", empty, last, want)
	}
}

// TestLongBacklogsAreEstimated: the length of a queue that cannot be counted within a scrape is estimated, and not
// capped.
func TestLongBacklogsAreEstimated(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	owner, err := pgx.Connect(ctx, l.URL) // has no time limit for a statement, unlike the pool
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	const rows = 150_000
	if _, err := owner.Exec(ctx,
		`INSERT INTO mails (shard, mail_id, organization_id, period, percent, used, allowance, created_at, due_at, attempts, sent)
		SELECT n % 2, gen_random_uuid(), gen_random_uuid(), 202601, 80, 1, 1, now(), now(), 0, '{}' FROM generate_series(1, $1) n
		WHERE n % 2 = 1 OR n <= 14`, 2*rows); err != nil {
		t.Fatal(err)
	}
	mails := func() (few, many int64) {
		t.Helper()
		backlogs, err := query.Backlogs(ctx, l.Pool)
		if err != nil {
			t.Fatal(err)
		}
		return backlogs[0].Mails, backlogs[1].Mails
	}
	if few, many := mails(); few != 7 || many <= 100_000 {
		t.Errorf("without statistics %d and %d rows", few, many)
	}
	if _, err := owner.Exec(ctx, "ANALYZE mails"); err != nil {
		t.Fatal(err)
	}
	if few, many := mails(); few != 7 || many < rows*9/10 || many > rows*11/10 {
		t.Errorf("%d and %d rows, want 7 and about %d", few, many, rows)
	}
}
