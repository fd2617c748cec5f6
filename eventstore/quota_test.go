package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// TestQuotaIsExact: of 50 concurrent registrations, a monthly quota of ten admits exactly ten, and a backfill allowance of
// five as many more, which are charged to it first. TestLastUnitsOverTwoProcesses in handlers shares a quota between two
// processes over HTTP.
func TestQuotaIsExact(t *testing.T) {
	for _, backfill := range []int64{0, 5} {
		t.Run(fmt.Sprint(backfill), func(t *testing.T) { quotaIsExact(t, backfill) })
	}
}

func quotaIsExact(t *testing.T, backfill int64) {
	now := time.Now().Add(time.Minute) // fixed, so that no month ends during the test
	clock := func() time.Time { return now }
	l := ledgertest.New(t, func(c *eventstore.Config) {
		limit := int64(10)
		c.Plans, c.Clock = domain.Plans{"gratis": {PerMinute: 1000, VersionsPerMonth: &limit}}, ledgertest.Simulated(clock)
	})
	l.Now = clock
	o := l.Organization(t, 0, "gratis")
	l.Must(t, &domain.ChangeBackfill{Origin: o.Operator(), Versions: backfill})
	commands := make([]*domain.Register, 50)
	errs := make([]error, len(commands))
	var wg sync.WaitGroup
	for i := range commands {
		commands[i] = l.Register(t, o, o.Declaration(fmt.Sprintf("d-%d", i), 1, "x"))
		wg.Go(func() { errs[i] = l.Do(context.Background(), commands[i]) })
	}
	wg.Wait()
	given := 0
	for i, err := range errs {
		var refusal *domain.Error
		switch {
		case err == nil:
			given++
			replay := l.Register(t, o, commands[i].Declaration)
			l.Must(t, replay)
			if !replay.Replayed || replay.Usage.Used != 10 || replay.BackfillLeft != 0 {
				t.Error("a replay after exhaustion was counted")
			}
		case !errors.As(err, &refusal) || refusal.Code != domain.RegistrationQuotaExhausted:
			t.Errorf("refused with %v", err)
		case !now.Truncate(time.Microsecond).Add(refusal.RetryAfter).Equal(domain.PeriodOf(now).End()):
			t.Errorf("RetryAfter %s does not lead to the next month", refusal.RetryAfter)
		}
	}
	if given != int(10+backfill) {
		t.Errorf("%d registrations were accepted, want %d", given, 10+backfill)
	}
	for _, e := range l.Audit(t)[0] {
		if b, ok := e.Body.(*domain.RecordRegisteredBody); ok {
			if backfill--; (b.FromBackfill != 0) != (backfill >= 0) || e.V == 2 != (backfill >= 0) {
				t.Errorf("%d of the backfill allowance are left: %d, version %d", backfill+1, b.FromBackfill, e.V)
			}
		}
	}
}
