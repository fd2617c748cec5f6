package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// machine is a machine whose clocks a test can set. The database's clock is real until it is set.
type machine struct {
	wall, mono, database atomic.Int64
	started              time.Time
}

func newMachine() *machine { return &machine{started: time.Now()} }

func (m *machine) now() time.Time { return time.Now().Round(0).Add(time.Duration(m.wall.Load())) }

func (m *machine) clock() *eventstore.Clock {
	return eventstore.NewClock(eventstore.ClockConfig{
		Now: m.now, Monotonic: func() time.Duration { return time.Since(m.started) + time.Duration(m.mono.Load()) },
		Database: func(at time.Time) time.Time { return at.Add(time.Duration(m.database.Load())) },
	})
}

func (m *machine) set(wall, mono, database time.Duration) {
	m.wall.Store(int64(wall))
	m.mono.Store(int64(mono))
	m.database.Store(int64(database))
}

// on makes a process use the clocks of a machine.
func on(m *machine, more ...func(*eventstore.Config)) func(*eventstore.Config) {
	return func(c *eventstore.Config) {
		c.Clock = m.clock()
		for _, f := range more {
			f(c)
		}
	}
}

// wantClocks fails unless err is the refusal for clocks that disagree.
func wantClocks(t *testing.T, err error) {
	t.Helper()
	var refusal *domain.Error
	if !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable ||
		!strings.Contains(refusal.Message, "clocks") || refusal.RetryAfter == 0 {
		t.Errorf("answered %v, want the refusal for clocks that disagree", err)
	}
}

func refusals(l *eventstore.Ledger, cause eventstore.ClockCause) int64 {
	_, refused := l.Clock.State()
	return refused[cause]
}

const day = 24 * time.Hour

func TestOneSecondOfAWrongClock(t *testing.T) {
	m := newMachine()
	reports := make(chan eventstore.GroupOutcome, 100)
	l := ledgertest.New(t, on(m, func(c *eventstore.Config) {
		c.Observe = func(r eventstore.GroupReport) { reports <- r.Outcome }
	}))
	l.Now = l.Clock.Now
	o := l.Organization(t, 1, domain.InternalPlan)
	for range 5 {
		<-reports
	}
	for i, step := range []struct {
		name                 string
		wall, mono, database time.Duration
		cause                eventstore.ClockCause // empty: all agree
	}{
		{"this machine ten days ahead", 10 * day, 0, 0, eventstore.ClockProcess},
		{"this machine behind", -time.Minute, 0, 0, eventstore.ClockProcess},
		{"the database ahead", 0, 0, 10 * day, eventstore.ClockDatabase},
		{"the database behind", 0, 0, -time.Hour, eventstore.ClockDatabase},
		{"one machine for both, ahead", 40 * day, 0, 40 * day, eventstore.ClockBoth},
		{"one machine for both, behind", -day, 0, -day, eventstore.ClockBoth},
		{"set by less than the tolerance", 8 * time.Second, 0, 3 * time.Second, ""},
		{"suspended, the monotonic clock with it", day, 0, day, eventstore.ClockBoth},
		{"right again", 0, 0, 0, ""},
	} {
		m.set(step.wall, step.mono, step.database)
		before := int64(0)
		if step.cause != "" {
			before = refusals(l.Ledger, step.cause)
		}
		events := len(l.Events(t, 1))
		err := l.Do(context.Background(), l.Register(t, o, o.Declaration("wrong", int32(i+1), "x")))
		outcome := <-reports
		if step.cause == "" {
			if err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
			continue
		}
		t.Log(step.name)
		wantClocks(t, err)
		if refusals(l.Ledger, step.cause) != before+1 || outcome != eventstore.GroupClocks {
			state, refused := l.Clock.State()
			t.Errorf(
				"%s: counted %v after %+v and reported as %v, want one of %s more", step.name, refused, state, outcome, step.cause,
			)
		}
		if _, err := l.Agreed(context.Background()); err == nil {
			t.Errorf("%s: an observation would be signed", step.name)
		}
		var clocks *eventstore.ClockError
		if err := l.Ready(context.Background()); !errors.As(err, &clocks) || clocks.Cause != step.cause {
			t.Errorf("%s: ready: %v", step.name, err)
		}
		if step.wall != 0 && time.Until(l.Clock.Now()).Abs() > time.Minute/2 {
			t.Errorf("%s: everything else reads %s", step.name, l.Clock.Now())
		}
		m.set(0, 0, 0)
		after := l.Register(t, o, o.Declaration("after", int32(i+1), "x"))
		l.Must(t, after)
		<-reports
		log := l.Events(t, 1)
		if last := log[len(log)-1]; len(log) != events+2 && len(log) != events+1 ||
			time.Until(last.OccurredAt).Abs() > time.Minute {
			t.Errorf("%s: %d events became %d, the last of %s", step.name, events, len(log), last.OccurredAt)
		}
	}
	l.Audit(t)
}

// TestSuspended: a monotonic clock that counts suspended time agrees with the other clocks afterwards.
func TestSuspended(t *testing.T) {
	m := newMachine()
	l := ledgertest.New(t, on(m))
	l.Now = l.Clock.Now
	o := l.Organization(t, 1, domain.InternalPlan)
	m.set(day, day, day)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
}

// TestStepsDoNotAddUp: each step is below the tolerance, but they follow each other too quickly to be corrections.
func TestStepsDoNotAddUp(t *testing.T) {
	m := newMachine()
	l := ledgertest.New(t, on(m))
	o := l.Organization(t, 1, domain.InternalPlan)
	wall, refused := time.Duration(0), 0
	for i := range 10 {
		wall += 4 * time.Second
		m.set(wall, 0, wall)
		if l.Do(context.Background(), l.Register(t, o, o.Declaration("quick", int32(i+1), "x"))) != nil {
			refused++
		}
	}
	if refused < 8 {
		t.Errorf("%d of ten groups were refused while the clocks went 40 s ahead", refused)
	}
	m = newMachine()
	l = ledgertest.New(t, on(m))
	l.Now = l.Clock.Now
	o = l.Organization(t, 1, domain.InternalPlan)
	for i := range 10 {
		drift := time.Duration(i+1) * 4 * time.Second
		passed := time.Duration(i+1) * time.Hour
		m.set(passed+drift, passed, passed+drift)
		l.Must(t, l.Register(t, o, o.Declaration("slow", int32(i+1), "x")))
	}
}

func TestTwoProcessesApart(t *testing.T) {
	right := ledgertest.New(t)
	o := right.Organization(t, 1, domain.InternalPlan)
	right.Must(t, right.Register(t, o, o.Declaration("before", 1, "x")))
	for i, wrong := range []time.Duration{time.Hour, -time.Hour, 40 * day} {
		m := newMachine()
		m.set(wrong, 0, 0)
		ahead := right.Process(t, right.URL, on(m))
		prepared := *right
		prepared.Now = m.now
		wantClocks(t, ahead.Do(context.Background(), prepared.Register(t, o, o.Declaration("ahead", 1, "x"))))
		if refusals(ahead, eventstore.ClockApart) != 1 || ahead.Ready(context.Background()) == nil {
			t.Errorf("%s: the process is ready", wrong)
		}
		right.Must(t, right.Register(t, o, o.Declaration("right", int32(i+1), "x")))
		events := right.Events(t, 1)
		if last := events[len(events)-1]; time.Until(last.OccurredAt).Abs() > time.Minute {
			t.Errorf("%s: the other process dates %s", wrong, last.OccurredAt)
		}
		// The clocks have never agreed, so correcting this one is no step. The time signed before is wrong, however.
		stale := prepared.Register(t, o, o.Declaration("stale", 1, "x"))
		m.set(0, 0, 0)
		wantClocks(t, ahead.Do(context.Background(), stale))
		wantClocks(t, ahead.Do(context.Background(), &domain.Idempotent{Command: stale}))
		if err := ahead.Do(
			context.Background(), prepared.Register(t, o, o.Declaration("late", int32(i+1), "x")),
		); err != nil {
			t.Errorf("%s: after its clock is right: %v", wrong, err)
		}
	}
	right.Audit(t)
}

// TestLockWait: waiting for the lock makes no clock look wrong.
func TestLockWait(t *testing.T) {
	m := newMachine()
	l := ledgertest.New(t, on(m))
	o := l.Organization(t, 1, domain.InternalPlan)
	held, err := pgx.Connect(context.Background(), l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close(context.Background())
	if _, err := held.Exec(context.Background(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(context.Background(), "SELECT 1 FROM shard_heads WHERE shard = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- l.Do(context.Background(), l.Register(t, o, o.Declaration("a", 1, "x"))) }()
	for waiting := false; !waiting; {
		if err := held.QueryRow(context.Background(), "SELECT ("+pgtest.LockWaits()+") > 0").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	m.set(time.Minute, time.Minute, time.Minute) // as if a minute passed
	if _, err := held.Exec(context.Background(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSlowFirstRoundTrip: a long round trip sets no baseline for the database's clock.
func TestSlowFirstRoundTrip(t *testing.T) {
	m := newMachine()
	var slow atomic.Bool
	l := ledgertest.New(t, on(m, func(c *eventstore.Config) {
		config := c.Clock.ClockConfig
		config.Database = func(at time.Time) time.Time {
			at = at.Add(time.Duration(m.database.Load()))
			if slow.CompareAndSwap(true, false) {
				m.set(time.Minute, time.Minute, time.Minute) // as if a minute passed before the answer is read
			}
			return at
		}
		c.Clock = eventstore.NewClock(config)
	}))
	slow.Store(true)
	for range 2 {
		if err := l.Ready(context.Background()); err != nil {
			t.Error(err)
		}
	}
	m.set(2*time.Minute, time.Minute, time.Minute)
	var clocks *eventstore.ClockError
	if err := l.Ready(context.Background()); !errors.As(err, &clocks) || clocks.Cause != eventstore.ClockProcess {
		t.Errorf("a step after that: %v", err)
	}
}

// TestFrozenBetweenReadings: a process suspended between reading its two clocks reads both again.
func TestFrozenBetweenReadings(t *testing.T) {
	m := newMachine()
	var freeze atomic.Bool
	c := eventstore.NewClock(eventstore.ClockConfig{
		Now: func() time.Time {
			now := m.now()
			if freeze.CompareAndSwap(true, false) {
				m.set(time.Hour, time.Hour, time.Hour)
			}
			return now
		},
		Monotonic: func() time.Duration { return time.Since(m.started) + time.Duration(m.mono.Load()) },
		Database:  func(at time.Time) time.Time { return at.Add(time.Duration(m.database.Load())) },
	})
	l := ledgertest.New(t, func(config *eventstore.Config) { config.Clock = c })
	l.Organization(t, 1, domain.InternalPlan)
	freeze.Store(true)
	if err := l.Ready(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestMonthOfDecisionIsLoaded: a group decided in a month whose usage it has not read is refused.
func TestMonthOfDecisionIsLoaded(t *testing.T) {
	limit := int64(3)
	var early atomic.Bool
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Plans = domain.Plans{"gratis": {PerMinute: 1000, VersionsPerMonth: &limit}}
		c.Load = func(
			b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time,
			s *domain.State,
		) {
			if early.Load() {
				now = now.Add(-70 * day)
			}
			projections.Load(b, shard, organizations, needs, now, s)
		}
	})
	o := l.Organization(t, 1, "gratis")
	early.Store(true)
	wantClocks(t, l.Do(context.Background(), l.Register(t, o, o.Declaration("a", 1, "x"))))
	if refusals(l.Ledger, eventstore.ClockPeriod) != 1 {
		t.Error("it was not refused for its month")
	}
	early.Store(false)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
}

// TestMonthEnd: at the end of a month each version counts towards the quota of the month of its decision.
func TestMonthEnd(t *testing.T) {
	limit := int64(3)
	var at atomic.Pointer[time.Time]
	end := time.Date(2100, 2, 1, 0, 0, 0, 0, time.UTC)
	move := func(to time.Time) { at.Store(&to) }
	move(end.Add(-time.Second))
	now := func() time.Time { return *at.Load() }
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Plans, c.Clock = domain.Plans{"gratis": {PerMinute: 1000, VersionsPerMonth: &limit}}, ledgertest.Simulated(now)
	})
	l.Now = now
	o := l.Organization(t, 1, "gratis")
	for _, month := range []struct {
		at     time.Time
		period domain.Period
	}{
		{end.Add(-time.Second), 210001}, {end.Add(time.Second), 210002}, {end.Add(-5 * time.Second), 210002},
		{end.AddDate(0, 1, 0), 210003},
	} {
		before := now()
		move(month.at)
		given := 0
		for i := range 5 {
			c := l.Register(t, o, o.Declaration(fmt.Sprint("at-", month.at.Unix()), int32(i+1), "x"))
			if l.Do(context.Background(), c) == nil {
				given++
			}
			if c.Usage.Period != month.period {
				t.Errorf("%s is charged to %s, want %s", month.at, c.Usage.Period, month.period)
			}
		}
		want := 3
		if month.at.Before(before) {
			want = 0 // the head is ahead by less than the tolerance, and so is the month
		}
		if given != want {
			t.Errorf("%s: %d of five were accepted, want %d", month.at, given, want)
		}
	}
}

// poisoned returns a shard whose head a program with a wrong clock has dated in the future.
func poisoned(t *testing.T, l *ledgertest.Ledger, by time.Duration) {
	t.Helper()
	m := newMachine()
	m.set(by, 0, by)
	old := *l
	old.Ledger, old.Now = l.Process(t, l.URL, on(m, func(c *eventstore.Config) { c.Plans = l.Plans })), m.now
	a, b := old.Organization(t, 2, "gratis"), old.Organization(t, 2, "gratis")
	for _, o := range []ledgertest.Organization{a, b} {
		old.Must(t, old.Register(t, o, o.Declaration("future", 1, "x")))
	}
}

func TestClockReset(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, 10 * day, 40 * day, 300 * day} {
		t.Run(by.String(), func(t *testing.T) { testClockReset(t, by) })
	}
}

func testClockReset(t *testing.T, by time.Duration) {
	ctx := context.Background()
	limit := int64(4)
	m := newMachine()
	l := ledgertest.New(t, on(m, func(c *eventstore.Config) {
		c.Plans = domain.Plans{"gratis": {PerMinute: 1000, VersionsPerMonth: &limit}}
	}))
	old := l.Organization(t, 2, "gratis")
	l.Must(t, l.Register(t, old, old.Declaration("before", 1, "x")))
	quiet := l.Organization(t, 2, "gratis")
	other := l.Organization(t, 1, "gratis")
	poisoned(t, l, by)
	// old also has an event dated in the future; quiet has none.
	future := newMachine()
	future.set(by, 0, by)
	wrong := *l
	wrong.Ledger, wrong.Now = l.Process(t, l.URL, on(future, func(c *eventstore.Config) { c.Plans = l.Plans })), future.now
	wrong.Must(t, wrong.Register(t, old, old.Declaration("poisoned", 1, "x")))

	wantClocks(t, l.Do(ctx, l.Register(t, old, old.Declaration("refused", 1, "x"))))
	if refusals(l.Ledger, eventstore.ClockHead) != 1 {
		t.Error("it was not refused for the head")
	}
	l.Must(t, l.Register(t, other, other.Declaration("another-shard", 1, "x")))
	if err := l.Ready(ctx); err != nil {
		t.Errorf("not ready, though another shard commits: %v", err)
	}
	if _, err := l.ResetClock(ctx, 1, "test"); !errors.Is(err, eventstore.ErrClockRight) {
		t.Errorf("a shard that is right: %v", err)
	}
	if _, err := l.ResetClock(ctx, 3, "test"); !errors.Is(err, eventstore.ErrClockRight) {
		t.Errorf("an empty shard: %v", err)
	}
	m.set(-time.Hour, 0, 0)
	if _, err := l.ResetClock(ctx, 2, "test"); err == nil || errors.Is(err, eventstore.ErrClockRight) {
		t.Errorf("a reset while the clocks disagree: %v", err)
	}
	m.set(0, 0, 0)
	before := l.Events(t, 2)
	reset, err := l.ResetClock(ctx, 2, "test")
	if err != nil {
		t.Fatal(err)
	}
	events := l.Events(t, 2)
	if len(reset.Organizations) != 3 || len(events) != len(before)+3 ||
		!reset.From.Equal(before[len(before)-1].OccurredAt) {
		t.Fatalf("%+v after %d events, now %d", reset, len(before), len(events))
	}
	for _, e := range events[len(before):] {
		body, ok := e.Body.(*domain.ClockResetBody)
		if !ok || !body.From.Equal(reset.From) || !e.OccurredAt.Equal(reset.To) || e.Actor != domain.OperatorActor ||
			e.Organization == quiet.ID {
			t.Errorf("event %+v", e)
		}
	}
	if _, err := l.ResetClock(ctx, 2, "test"); !errors.Is(err, eventstore.ErrClockRight) {
		t.Errorf("a second reset: %v", err)
	}
	for _, o := range []ledgertest.Organization{old, quiet} {
		given := 0
		for i := range 8 {
			c := l.Register(t, o, o.Declaration("after", int32(i+1), "x"))
			if l.Do(ctx, c) == nil {
				given++
			}
			if c.Usage.Period != domain.PeriodOf(time.Now()) {
				t.Errorf("charged to %s", c.Usage.Period)
			}
		}
		// Versions charged to another month stay there.
		want := 4
		if o.ID == old.ID {
			want = 3
			if domain.PeriodOf(time.Now()) == domain.PeriodOf(time.Now().Add(by)) {
				want = 2
			}
		}
		if given != want {
			t.Errorf("%d were accepted, want %d", given, want)
		}
	}
	l.Audit(t)
}

// TestEmptyShardBindsNothing: the head of an empty shard has its creation time, by any clock.
func TestEmptyShardBindsNothing(t *testing.T) {
	l := ledgertest.New(t)
	conn, err := pgx.Connect(context.Background(), l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(
		context.Background(), "UPDATE shard_heads SET occurred_at = $1", time.Now().Add(9*day),
	); err != nil {
		t.Fatal(err)
	}
	if err := l.Ready(context.Background()); err != nil {
		t.Error(err)
	}
	o := l.Organization(t, 0, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	if events := l.Events(t, 0); time.Until(events[0].OccurredAt).Abs() > time.Minute {
		t.Errorf("its first event is of %s", events[0].OccurredAt)
	}
}

// TestEveryShardAhead: if no shard can commit, the process is not ready.
func TestEveryShardAhead(t *testing.T) {
	l := ledgertest.New(t, func(c *eventstore.Config) {
		c.Plans = domain.Plans{"gratis": {PerMinute: 1000}}
	})
	poisoned(t, l, time.Hour)
	conn, err := pgx.Connect(context.Background(), l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var clocks *eventstore.ClockError
	if err := l.Ready(context.Background()); !errors.As(err, &clocks) || clocks.Cause != eventstore.ClockHead {
		t.Errorf("ready: %v", err)
	}
	// The first call in a process compares the clocks itself.
	if _, err := l.Process(t, l.URL).Agreed(context.Background()); err != nil {
		t.Errorf("the clocks agree: %v", err)
	}
	// A head later than every event is damage that no reset event can explain.
	if _, err := conn.Exec(
		context.Background(), "UPDATE shard_heads SET occurred_at = $1", time.Now().Add(9*day),
	); err != nil {
		t.Fatal(err)
	}
	later := newMachine()
	later.set(time.Hour, 0, time.Hour)
	process := l.Process(t, l.URL, on(later))
	if _, err := process.ResetClock(context.Background(), 2, "test"); err == nil ||
		!strings.Contains(err.Error(), "no event") {
		t.Errorf("a reset of a head that no event has dated: %v", err)
	}
}

// TestClockCostsNoRoundTrip: comparing the clocks adds no round trip to the two of a group.
func TestClockCostsNoRoundTrip(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	pool, err := cluster.At(l.URL).CommitPool(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	config := pool.Config()
	pool.Close()
	var trips tripCounter
	config.ConnConfig.Tracer = &trips
	counted, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(counted.Close)
	process := l.Process(t, l.URL, func(c *eventstore.Config) { c.Pool = counted })
	for i := range 4 {
		if err := process.Do(context.Background(), l.Register(t, o, o.Declaration("a", int32(i+1), "x"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := trips.batches.Load(); n != 8 {
		t.Errorf("%d batches for four groups, want 8", n)
	}
}

// tripCounter counts batches, each of which is a round trip once its statements are prepared.
type tripCounter struct{ batches atomic.Int64 }

func (c *tripCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *tripCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *tripCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.batches.Add(1)
	return ctx
}
func (c *tripCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *tripCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
