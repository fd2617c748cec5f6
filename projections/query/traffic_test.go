package query_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
)

// TestTrafficAddsUpProcesses: an organization's load is the sum over all processes, load that could not be written is
// kept, and old load is deleted.
func TestTrafficAddsUpProcesses(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	store := l.Store(t)
	busy, quiet := l.Organization(t, 0, "gratis"), l.Organization(t, 3, "gratis")
	now := time.Date(2026, 11, 20, 10, 0, 30, 0, time.UTC)
	one := query.Load{Requests: 2, Registrations: 1, Refusals: 1, Received: 100, Sent: 1000}
	var first, second query.Traffic // two processes
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			first.Note(busy.ID, now, one)
			second.Note(busy.ID, now, one)
			second.Note(quiet.ID, now, query.Load{Requests: 1, Sent: 1 << 20})
		})
	}
	wg.Wait()
	first.Note(domain.OrganizationID{}, now, query.Load{Requests: 3, Refusals: 3})
	first.Note(busy.ID, now.Add(-query.TrafficKept-time.Minute), query.Load{Requests: 1000}) // too old to be written
	first.Note(busy.ID, now.Add(-20*time.Minute), query.Load{Requests: 7})

	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := first.Flush(gone, store, now); err == nil {
		t.Error("a flush without a database succeeded")
	}
	for range 2 { // the second round has nothing to add
		for _, traffic := range []*query.Traffic{&first, &second} {
			wg.Go(func() {
				if err := traffic.Flush(ctx, store, now); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	top := func(since time.Duration, by func(query.Load) int64) (order []domain.OrganizationID, loads []query.Load) {
		t.Helper()
		list, err := store.Top(ctx, now.Add(-since), by)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			order, loads = append(order, o.Organization), append(loads, o.Load)
			if (o.Plan == "gratis") == o.Organization.IsZero() {
				t.Errorf("organization %s has the plan %q", o.Organization, o.Plan)
			}
		}
		return order, loads
	}
	order, loads := top(5*time.Minute, func(l query.Load) int64 { return l.Requests })
	if !slices.Equal(order, []domain.OrganizationID{busy.ID, quiet.ID, {}}) {
		t.Errorf("by requests: %v", order)
	}
	if want := (query.Load{Requests: 32, Registrations: 16, Refusals: 16, Received: 1600, Sent: 16000}); loads[0] != want {
		t.Errorf("load %+v, want %+v", loads[0], want)
	}
	if order, _ := top(5*time.Minute, query.Load.Bytes); order[0] != quiet.ID {
		t.Errorf("by bytes: %v", order)
	}
	if _, loads := top(30*time.Minute, query.Load.Bytes); !slices.ContainsFunc(loads, func(l query.Load) bool {
		return l.Requests == 39
	}) {
		t.Errorf("half an hour: %+v", loads)
	}
	later := now.Add(query.TrafficKept)
	first.Note(busy.ID, later, one)
	if err := first.Flush(ctx, store, later); err != nil {
		t.Fatal(err)
	}
	// The row of 20 minutes ago is gone, although its minute is requested.
	if _, loads := top(30*time.Minute, query.Load.Bytes); slices.ContainsFunc(loads, func(l query.Load) bool {
		return l.Requests > 34
	}) {
		t.Errorf("old load stays: %+v", loads)
	}
}
