package query_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
)

// TestUsageOfManyCallers: callers who ask at the same time share a statement, and each gets its own month.
func TestUsageOfManyCallers(t *testing.T) {
	l := ledgertest.New(t)
	store := l.Store(t)
	period := domain.PeriodOf(time.Now())
	type question struct {
		access domain.Access
		period domain.Period
	}
	var questions []question
	for n := range 3 {
		o := l.Organization(t, 1, domain.InternalPlan)
		for i := range n + 1 {
			l.Must(t, l.Register(t, o, o.Declaration(fmt.Sprint("d-", i), 1, "x")))
		}
		without, _ := l.Key(t, o, domain.IntegrityRead)
		for _, key := range []domain.KeyID{o.Key.ID, without.ID} {
			for _, p := range []domain.Period{period, period.Previous()} {
				questions = append(questions, question{domain.Access{Organization: o.ID, Key: key}, p})
			}
		}
	}
	ask := func(q question) any {
		of, err := store.Usage(t.Context(), q.access, q.period)
		if err != nil {
			t.Error(err)
		}
		account, err := store.AccountUsage(t.Context(), q.access, q.period)
		if err != nil {
			t.Error(err)
		}
		return []any{of, account}
	}
	var want []any
	for _, q := range questions {
		answer := ask(q)
		for _, other := range want {
			if reflect.DeepEqual(answer, other) && q.period == period {
				t.Errorf("two questions have the answer %+v", other)
			}
		}
		want = append(want, answer)
	}
	var asking sync.WaitGroup
	for range 10 {
		for i, q := range questions {
			asking.Go(func() {
				if got := ask(q); !reflect.DeepEqual(got, want[i]) {
					t.Errorf("%+v: %+v, want %+v", q, got, want[i])
				}
			})
		}
	}
	asking.Wait()
}

// TestWarningOfUnknownAllowance: a warning about an allowance that the program does not know fails the month of its
// organization, but no other month of the same statement, and no command.
func TestWarningOfUnknownAllowance(t *testing.T) {
	l := ledgertest.New(t)
	store := l.Store(t)
	damaged, sound := l.Organization(t, 1, domain.InternalPlan), l.Organization(t, 1, domain.InternalPlan)
	period := domain.PeriodOf(l.Now())
	if _, err := l.Pool.Exec(t.Context(), `INSERT INTO allowance_warnings (shard, organization_id, allowance, period, of_limit)
		VALUES (1, $1, 'inventions', $2, 1)`, damaged.ID, int32(period)); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 20 {
		for _, q := range []struct {
			o      ledgertest.Organization
			period domain.Period
		}{{damaged, period}, {damaged, period.Previous()}, {sound, period}} {
			asking.Go(func() {
				_, err := store.AccountUsage(t.Context(), domain.Access{Organization: q.o.ID, Key: q.o.Key.ID}, q.period)
				if bad := q.o.ID == damaged.ID && q.period == period; (err != nil) != bad {
					t.Errorf("organization damaged: %t, month %s: %v", q.o.ID == damaged.ID, q.period, err)
				}
			})
		}
	}
	asking.Wait()
	l.Must(t, l.Reserve(t, damaged, "d", 1))
}
