package queue_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// TestWarningsUnderPlanChanges: two processes count, warn and change the plan at once while a month ends, and a process
// that does not know of the change counts half of the requests. Each warning belongs to the plan in force, is correct
// and given once, and none is missing in the end.
func TestWarningsUnderPlanChanges(t *testing.T) {
	m := newMetered(t)
	o := m.Organization(t, 1, "gratis")
	second := m.Process(t, m.URL, func(c *eventstore.Config) {
		c.Clock, c.Plans = ledgertest.Simulated(m.Now), m.store.Plans
	})
	processes := []func(context.Context, domain.Command) error{m.Do, second.Do}
	m.store.RequestsReached = nil
	month := domain.PeriodOf(m.Now())
	m.set(month.End().Add(-time.Minute))
	plans := []string{"gratis", "pro"}
	var work, looks sync.WaitGroup
	for range 3 {
		work.Go(func() {
			for range 60 {
				// A refused request was not counted, which is sufficient here.
				_ = m.store.TakeRequests(
					context.Background(), domain.Access{Organization: o.ID, Plan: plans[rand.IntN(2)]}, 1+rand.IntN(3), m.Now(),
				)
			}
		})
	}
	work.Go(func() {
		for i := range 12 {
			if err := processes[i%2](
				context.Background(), &domain.ChangePlan{Origin: o.Operator(), Plan: plans[rand.IntN(2)]},
			); err != nil {
				t.Error(err)
			}
			m.set(m.Now().Add(10 * time.Second))
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	for _, do := range processes {
		looks.Go(func() {
			for ctx.Err() == nil {
				if err := m.warner(do).Look(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	stop()
	looks.Wait()
	if err := m.warner(m.Do).Look(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.looks("in the end", 0)

	type allowance struct {
		period domain.Period
		limit  int64
	}
	var last allowance
	given, plan := map[int]bool{}, "gratis"
	for _, e := range m.Audit(t)[o.ID.Shard()] {
		switch b := e.Body.(type) {
		case *domain.PlanChangedBody:
			plan = b.Plan
		case *domain.QuotaWarningReachedBody:
			of := allowance{b.Period, b.Limit}
			if of != last {
				last, given = of, map[int]bool{}
			}
			if given[b.Percent] || b.Limit != *m.store.Plans[plan].RequestsPerMonth || 100*b.Used < int64(b.Percent)*b.Limit {
				t.Errorf("on plan %s, %v given: %+v", plan, given, *b)
			}
			given[b.Percent] = true
		}
	}
	of := allowance{month.Next(), *m.store.Plans[plan].RequestsPerMonth}
	var used int64
	err := m.Pool.QueryRow(context.Background(),
		"SELECT coalesce(sum(used), 0) FROM request_usage WHERE shard = $1 AND organization_id = $2 AND period = $3",
		o.ID.Shard(), o.ID, int32(of.period)).Scan(&used)
	if err != nil {
		t.Fatal(err)
	}
	for _, percent := range domain.WarningPercents() {
		if 100*used >= int64(percent)*of.limit && (last != of || !given[percent]) {
			t.Errorf("%d of %d used: no warning at %d %%; the last were %v of %+v", used, of.limit, percent, given, last)
		}
	}
}
