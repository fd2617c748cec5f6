package query_test

import (
	"context"
	"testing"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// A shard reports the date of its last event, an empty shard none: the date of its creation means nothing.
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
