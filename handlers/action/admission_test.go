package action

import (
	"context"
	"math"
	"sync"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/fair"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/edge"
)

// TestSinglesHaveAllWhileAlone: the share of an organization is smaller while others ask.
func TestUsedVersions(t *testing.T) {
	u := newUsedVersions()
	o, limit := domain.OrganizationID{1}, int64(10)
	const month = domain.Period(24_000)
	remains := func(what string, limit *int64, p domain.Period, want int) {
		t.Helper()
		if got := u.remaining(o, limit, p, 20); got != want {
			t.Errorf("%s: %d remain, want %d", what, got, want)
		}
	}
	remains("nothing is known", &limit, month, 10)
	remains("no limit", nil, month, 20)
	u.note(o, domain.Usage{Period: month, Limit: &limit, Used: 7}, 0)
	u.note(o, domain.Usage{Period: month, Limit: &limit, Used: 5}, 0)     // an older answer
	u.note(o, domain.Usage{Period: month - 1, Limit: &limit, Used: 9}, 0) // the previous month
	remains("seven are used", &limit, month, 3)
	remains("another month", &limit, month+1, 10)
	remains("no limit", nil, month, 20)
	less, zero := int64(5), int64(0)
	remains("another plan", &less, month, 0)
	remains("a plan without versions", &zero, month, 0)
	u.note(o, domain.Usage{Period: month, Limit: &limit, Used: 7}, 5)
	remains("with a backfill allowance", &limit, month, 8)
	remains("the backfill allowance of another plan", &less, month, 5)
	remains("the backfill allowance in another month", &limit, month+1, 15)
	u.note(domain.OrganizationID{2}, domain.Usage{Period: month, Used: 7}, 0)
	if u.organizations.Len() != 1 {
		t.Error("an organization without a limit is remembered")
	}
	for i := range maxUsedVersions {
		u.note(domain.OrganizationID{3, byte(i), byte(i >> 8)}, domain.Usage{Period: month, Limit: &limit, Used: 1}, 0)
	}
	if u.organizations.Len() > maxUsedVersions {
		t.Errorf("%d organizations are remembered", u.organizations.Len())
	}
}

// While a batch is prepared, another organization waits for a few of its items, not for all.
func TestBatchYieldsToOthers(t *testing.T) {
	s := &Service{preparing: fair.NewSemaphore[domain.OrganizationID](fair.Limits{Most: 1, Each: 1, Line: math.MaxInt})}
	flooder, quiet := domain.OrganizationID{1}, domain.OrganizationID{2}
	prepared, before := 0, -1
	var group sync.WaitGroup
	// Other batches of the flooding organization are already waiting.
	flood := func() {
		group.Go(func() {
			if err := s.inTurns(context.Background(), flooder, edge.MaxDeclarations, func(int) { prepared++ }); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.inTurns(context.Background(), flooder, edge.MaxDeclarations, func(i int) {
		prepared++
		if i != 5 {
			return
		}
		for range 3 {
			flood()
		}
		pgtest.Eventually(t, "the batches wait", func() (bool, error) { return s.preparing.Waiting() == 3, nil })
		group.Go(func() {
			if err := s.inTurns(context.Background(), quiet, 1, func(int) { before = prepared }); err != nil {
				t.Error(err)
			}
		})
		pgtest.Eventually(t, "the quiet organization waits", func() (bool, error) { return s.preparing.Waiting() == 4, nil })
	}); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if before < 0 || before > 16 {
		t.Errorf("the quiet organization waited for %d items", before)
	}
	if prepared != 4*edge.MaxDeclarations {
		t.Errorf("%d items were prepared", prepared)
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	done := 0
	release, err := s.preparing.Acquire(context.Background(), quiet, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.inTurns(gone, flooder, 10, func(int) { done++ }); err == nil || done != 0 {
		t.Errorf("%d items were prepared for a caller who is gone (%v)", done, err)
	}
	release()
}
