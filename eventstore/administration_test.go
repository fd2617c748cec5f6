package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestAdministrativeEventsAreLimitedExactly: however many callers of two processes make changes at once, exactly the
// allowed number of events is written, in every shard.
func TestAdministrativeEventsAreLimitedExactly(t *testing.T) {
	const allowance = 37
	plans, err := domain.DefaultPlans()
	if err != nil {
		t.Fatal(err)
	}
	plan := plans[domain.FreePlan]
	plan.AdministrativeEventsPerDay = new(int64(allowance))
	plans[domain.FreePlan] = plan
	limited := func(c *eventstore.Config) { c.Plans = plans }
	l := ledgertest.New(t, limited)
	processes := []*eventstore.Ledger{l.Ledger, l.Process(t, l.URL, limited)}
	orgs := []ledgertest.Organization{l.Organization(t, 0, domain.FreePlan), l.Organization(t, 0, domain.FreePlan),
		l.Organization(t, 1, domain.FreePlan)}
	created := make([]atomic.Int64, len(orgs))
	var callers sync.WaitGroup
	for caller := range 20 {
		callers.Go(func() {
			for i := range 10 {
				for n, o := range orgs {
					err := processes[caller%2].Do(context.Background(), &domain.CreateCompany{Origin: o.Origin(),
						Reference: fmt.Sprintf("c-%d-%d", caller, i)})
					refused, _ := errors.AsType[*domain.Error](err)
					switch {
					case err == nil:
						created[n].Add(1)
					case refused == nil || refused.Code != domain.RateLimited || refused.RetryAfter <= 0:
						t.Error(err)
					}
				}
			}
		})
	}
	callers.Wait()
	for n := range orgs {
		if got := created[n].Load(); got != allowance {
			t.Errorf("organization %d created %d companies, want %d", n, got, allowance)
		}
	}
	counts, err := pgtest.Ask[[]int64](l.URL, "SELECT array_agg(DISTINCT used) FROM administrative_usage")
	if err != nil || len(counts) != 1 || counts[0] != allowance {
		t.Errorf("the table counts %v (%v)", counts, err)
	}
	l.Audit(t)
}
