package query_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// TestHealedRecordsAreChargedOnce: a healed record counts, and is listed, in the month in which it was received. Without
// a receipt it counts in none. The entries of a month are always as many as are charged.
func TestHealedRecordsAreChargedOnce(t *testing.T) {
	ctx := context.Background()
	var clock atomic.Pointer[time.Time]
	now := func() time.Time { return *clock.Load() }
	in := func(month time.Month) domain.Period {
		at := time.Date(2100, month, 9, 12, 0, 0, 0, time.UTC)
		clock.Store(&at)
		return domain.PeriodOf(at)
	}
	january := in(time.January)
	l := ledgertest.New(t, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(now) })
	l.Now = now
	o := l.Organization(t, 1, domain.InternalPlan)
	register := func(document string) string {
		c := l.Register(t, o, o.Declaration(document, 1, "x"))
		l.Must(t, c)
		return c.Outcome.PublicID.String()
	}
	lost := func(document string) (domain.Lost, string) {
		lost := l.Lost(t, o, o.Declaration(document, 1, "x"))
		return lost, lost.PublicID.String()
	}
	first := register("first")
	early, earlyID := lost("early")
	again, againID := lost("again")
	february := in(time.February)
	second := register("second")
	declared, _ := lost("declared")
	declared.Receipt = nil
	late, lateID := lost("late")
	for _, record := range []domain.Lost{late, early, declared, again} {
		l.Heal(t, o, record)
	}
	third := register("third")
	l.Heal(t, o, declared)
	march := in(time.March)
	fourth := register("fourth")
	store := l.Store(t)
	access := domain.Access{Organization: o.ID, Key: o.Key.ID}
	for month, want := range map[domain.Period][]string{
		january.Previous(): nil, january: {first, earlyID, againID}, february: {second, lateID, third}, march: {fourth},
	} {
		usage, err := store.Usage(ctx, access, month)
		if err != nil || usage.Total.Used != int64(len(want)) {
			t.Errorf("%s: %d are charged, want %d (%v)", month, usage.Total.Used, len(want), err)
		}
		for _, limit := range []int{1, 2, 1000} {
			page, err := store.UsageEntries(ctx, access, month, nil, limit)
			var got []string
			for {
				if err != nil || page.Cursor.Used != int64(len(want)) || len(got) > len(want) {
					t.Fatalf("%s by pages of %d: %+v %v", month, limit, page.Cursor, err)
				}
				for _, e := range page.Entries {
					got = append(got, e.PublicID.String())
				}
				if !page.More {
					break
				}
				page, err = store.UsageEntries(ctx, access, month, &page.Cursor, limit)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by pages of %d: %q, want %q", month, limit, got, want)
			}
		}
	}
}
