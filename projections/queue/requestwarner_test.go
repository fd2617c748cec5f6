package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
)

// metered is a ledger with a meter of ten requests a month, at a clock that the test moves.
type metered struct {
	*ledgertest.Ledger
	t       *testing.T
	now     atomic.Pointer[time.Time] // a group may still read it after its callers are answered
	store   *query.Store
	reached []domain.Shard
}

func newMetered(t *testing.T) *metered {
	t.Helper()
	plans, err := domain.ParsePlans([]byte(`{
		"gratis": {"perMinute": 10, "versionsPerMonth": 10, "requestsPerMonth": 10, "registrationsPerMonth": 1, "webhookAttemptsPerMonth": 10, "administrativeEventsPerDay": 1},
		"pro": {"perMinute": 10, "versionsPerMonth": 1, "requestsPerMonth": 100, "registrationsPerMonth": 1, "webhookAttemptsPerMonth": null, "administrativeEventsPerDay": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	m := &metered{t: t}
	m.set(domain.PeriodOf(now).Next().Start().AddDate(0, 0, 5)) // no month ends during the test
	clock := func() time.Time { return *m.now.Load() }
	m.Ledger = ledgertest.New(t, func(c *eventstore.Config) { c.Clock, c.Plans = ledgertest.Simulated(clock), plans })
	m.Now = clock
	routed := m.Routed(t)
	m.store = query.New(query.Config{
		Pool: routed, Public: routed, Installation: m.Installation, Plans: plans,
		RequestsReached: func(s domain.Shard) { m.reached = append(m.reached, s) },
	})
	return m
}

func (m *metered) set(now time.Time) { m.now.Store(&now) }

// take counts requests without warning, like a process that stops right afterwards.
func (m *metered) take(o ledgertest.Organization, plan string, n int) {
	m.t.Helper()
	if err := m.store.TakeRequests(
		context.Background(), domain.Access{Organization: o.ID, Plan: plan}, n, m.Now(),
	); err != nil {
		m.t.Fatal(err)
	}
}

func (m *metered) warner(do func(context.Context, domain.Command) error) *queue.Loop {
	return queue.NewMeterWarner(queue.MeterWarner{
		Pool: m.store.Pool, Shards: m.Installation.Shards, Plans: m.store.Plans, Do: do, Now: m.Now,
		Log: slog.New(slog.DiscardHandler),
	})
}

// warned lists the warnings in the log of an organization.
func (m *metered) warned(o ledgertest.Organization) (list []string) {
	m.t.Helper()
	for _, e := range m.Audit(m.t)[o.ID.Shard()] {
		if b, ok := e.Body.(*domain.QuotaWarningReachedBody); ok && e.Organization == o.ID {
			list = append(list, fmt.Sprintf("%s %d %d/%d@%s by %s", b.Allowance, b.Percent, b.Used, b.Limit, b.Period, e.Actor))
		}
	}
	return list
}

func (m *metered) wants(what string, o ledgertest.Organization, want ...string) {
	m.t.Helper()
	if got := m.warned(o); fmt.Sprint(got) != fmt.Sprint(want) {
		m.t.Errorf("%s: warnings %q, want %q", what, got, want)
	}
}

// TestRequestsAreWarnedOfAfterAClockReset: after a wrong clock caused warnings of a future month and was reset,
// warnings of the current month are still recorded.
func TestRequestsAreWarnedOfAfterAClockReset(t *testing.T) {
	m := newMetered(t)
	o := m.Organization(t, 1, "gratis")
	present := m.Now()
	m.set(present.AddDate(0, 2, 0))
	future := domain.PeriodOf(m.Now()).String()
	m.take(o, "gratis", 8)
	if err := m.warner(m.Do).Look(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.set(present.Add(time.Minute))
	process := m.Process(t, m.URL, func(c *eventstore.Config) {
		c.Clock, c.Plans = ledgertest.Simulated(m.Now), m.store.Plans
	})
	if _, err := process.ResetClock(context.Background(), 1, "test"); err != nil {
		t.Fatal(err)
	}
	m.take(o, "gratis", 8)
	for range 2 {
		if err := m.warner(process.Do).Look(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	m.wants(
		"after the reset", o, "requests 80 8/10@"+future+" by system",
		"requests 80 8/10@"+domain.PeriodOf(m.Now()).String()+" by system",
	)
}

// TestWarningsOfAnotherProcessAreReportedOnce: if a process stops between counting a request and recording the warning,
// other processes record it, once per threshold.
func TestWarningsOfAnotherProcessAreReportedOnce(t *testing.T) {
	m := newMetered(t)
	o, neighbour := m.Organization(t, 1, "gratis"), m.Organization(t, 1, "gratis")
	month := domain.PeriodOf(m.Now()).String()
	m.take(o, "gratis", 7)
	m.take(neighbour, "gratis", 7)
	if m.reached != nil {
		t.Errorf("7 of 10 were reported: %v", m.reached)
	}
	m.take(o, "gratis", 1) // the process stops here
	if fmt.Sprint(m.reached) != "[1]" {
		t.Errorf("8 of 10: reported %v", m.reached)
	}
	m.wants("before anyone looks", o)

	// Four processes check at once.
	look := func() {
		var all sync.WaitGroup
		for range 4 {
			ledger := m.Process(t, m.URL, func(c *eventstore.Config) {
				c.Clock, c.Plans = ledgertest.Simulated(m.Now), m.store.Plans
			})
			all.Go(func() {
				if err := m.warner(ledger.Do).Look(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	look()
	eighty := "requests 80 8/10@" + month + " by system"
	m.wants("after four looks", o, eighty)
	look()
	m.wants("after four more", o, eighty)

	// A process reaches the other thresholds at the end of the month and stops, and no process checks before the next
	// month.
	m.set(domain.PeriodOf(m.Now()).End().Add(-time.Second))
	m.take(o, "gratis", 2)
	m.set(m.Now().Add(time.Hour))
	look()
	m.wants(
		"in the next month", o, eighty, "requests 95 10/10@"+month+" by system", "requests 100 10/10@"+month+" by system",
	)
	m.wants("a neighbour who reached nothing", neighbour)

	// Mails wait for each of them, and name the allowance.
	sent := &outbox{}
	mailer := queue.NewMailer(queue.Mailer{
		Pool: m.Pool, Shards: m.Installation.Shards, Now: m.Now, Log: slog.New(slog.DiscardHandler),
		Send: func(ctx context.Context, mail queue.Mail) error {
			if mail.Quota.Allowance != domain.RequestsAllowance {
				t.Errorf("a mail is about %s", mail.Quota.Allowance)
			}
			return sent.send(ctx, mail)
		},
	})
	if err := mailer.Look(context.Background()); err != nil {
		t.Fatal(err)
	}
	// The first is too old for a mail.
	sent.wants(
		t, "what is left of the month before", "owner@example.com 95@"+month+" 10/10",
		"owner@example.com 100@"+month+" 10/10",
	)
}

// TestWarningOutlivesItsPlan: a threshold reached under one plan is reported for that plan, although the plan changes
// before the next check.
func TestWarningOutlivesItsPlan(t *testing.T) {
	m := newMetered(t)
	o := m.Organization(t, 1, "gratis")
	month := domain.PeriodOf(m.Now()).String()
	m.take(o, "gratis", 8)
	plan := &domain.ChangePlan{Origin: o.Operator(), Plan: "pro"}
	m.Must(t, plan)
	m.wants("the plan has grown", o, "requests 80 8/10@"+month+" by operator")
	m.set(m.Now().Add(time.Second))
	m.take(o, "pro", 87)
	plan = &domain.ChangePlan{Origin: o.Operator(), Plan: "gratis"}
	m.Must(t, plan)
	if err := m.warner(m.Do).Look(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.wants("back again", o, "requests 80 8/10@"+month+" by operator",
		"requests 80 95/100@"+month+" by operator", "requests 95 95/100@"+month+" by operator",
		"requests 80 95/10@"+month+" by operator", "requests 95 95/10@"+month+" by operator",
		"requests 100 95/10@"+month+" by operator")
}

// TestWarningsAfterClockReset: warnings of a later month from a wrong clock do not hide warnings of this month, once
// the shard is reset.
func TestWarningsAfterClockReset(t *testing.T) {
	m := newMetered(t)
	o, right := m.Organization(t, 1, "gratis"), m.Now()
	warn := func() {
		t.Helper()
		if err := m.warner(m.Do).Look(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	m.set(domain.PeriodOf(right).End().AddDate(0, 0, 5))
	ahead := "requests 80 8/10@" + domain.PeriodOf(m.Now()).String() + " by system"
	m.take(o, "gratis", 8)
	warn()
	m.wants("ahead", o, ahead)
	m.set(right)
	if _, err := m.ResetClock(context.Background(), 1, "test"); err != nil {
		t.Fatal(err)
	}
	m.take(o, "gratis", 8)
	for _, look := range []string{"set right", "reported already"} {
		warn()
		m.wants(look, o, ahead, "requests 80 8/10@"+domain.PeriodOf(right).String()+" by system")
	}
}

// TestMeterWarnerActsWhenWoken: Run checks periodically, and at once when it is woken.
func TestMeterWarnerActsWhenWoken(t *testing.T) {
	m := newMetered(t)
	o := m.Organization(t, 1, "gratis")
	done := make(chan domain.OrganizationID, 8)
	w := m.warner(func(ctx context.Context, c domain.Command) error {
		err := m.Do(ctx, c)
		done <- c.CommandOrigin().Organization
		return err
	})
	m.store.RequestsReached = w.Wake
	m.take(o, "gratis", 8)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	<-done // thresholds reached before it ran
	m.take(o, "gratis", 2)
	<-done // it was woken
	cancel()
	<-ended
	if got := m.warned(o); len(got) != 3 {
		t.Errorf("warnings %q", got)
	}
}

// TestWebhookAttemptsAreWarnedOf: notes of the meter of webhook attempts are reported like notes of requests, with the
// plan's limit.
func TestWebhookAttemptsAreWarnedOf(t *testing.T) {
	m := newMetered(t)
	o, other := m.Organization(t, 1, "gratis"), m.Organization(t, 1, "pro")
	month := domain.PeriodOf(m.Now())
	for _, id := range []domain.OrganizationID{o.ID, other.ID} {
		if _, err := m.Pool.Exec(context.Background(),
			`INSERT INTO webhook_usage (shard, organization_id, period, used, reached_80, limit_80)
			VALUES ($1, $2, $3, 8, $4, 10)`, o.ID.Shard(), id, int32(month), m.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := m.warner(m.Do).Look(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	m.wants("8 of 10 attempts", o, "webhookAttempts 80 8/10@"+month.String()+" by system")
	m.wants("a plan without a limit", other)
}

// looks checks the meters twice. The first check sends commands commands, and the second none.
func (m *metered) looks(what string, commands int) {
	m.t.Helper()
	for _, want := range []int{commands, 0} {
		sent := 0
		err := m.warner(func(ctx context.Context, c domain.Command) error {
			sent++
			return m.Do(ctx, c)
		}).Look(context.Background())
		if err != nil {
			m.t.Fatal(err)
		}
		if sent != want {
			m.t.Errorf("%s: %d commands, want %d", what, sent, want)
		}
	}
}

// TestNotesOfAMonthsLastSeconds: thresholds of a new plan reached in a month's last seconds are found in the next
// month, once. Notes of a former plan are not found.
func TestNotesOfAMonthsLastSeconds(t *testing.T) {
	m := newMetered(t)
	o, late := m.Organization(t, 1, "gratis"), m.Organization(t, 1, "pro")
	month := domain.PeriodOf(m.Now())
	m.set(month.End().Add(-time.Minute))
	m.take(o, "gratis", 8)
	m.looks("the former plan", 1)
	m.Must(t, &domain.ChangePlan{Origin: o.Operator(), Plan: "pro"})
	m.set(month.End().Add(-time.Second))
	m.take(o, "pro", 72)
	m.take(late, "gratis", 10) // by a process that does not know the new plan
	m.set(month.End().Add(time.Hour))
	m.looks("the next month", 1)
	m.wants(
		"the next month", o, "requests 80 8/10@"+month.String()+" by system",
		"requests 80 80/100@"+month.String()+" by system",
	)
	m.wants("a former plan", late)
}

// TestDifferentPlanTablesWarnWithRequestsAlone: processes with different plan tables warn by their own limits, but only
// while both count requests. Checks alone add no warnings.
func TestDifferentPlanTablesWarnWithRequestsAlone(t *testing.T) {
	m := newMetered(t)
	o := m.Organization(t, 1, "gratis")
	plans := maps.Clone(m.store.Plans)
	lower := plans["gratis"]
	lower.RequestsPerMonth = new(int64(9))
	plans["gratis"] = lower
	process := m.Process(t, m.URL, func(c *eventstore.Config) { c.Clock, c.Plans = ledgertest.Simulated(m.Now), plans })
	other := &metered{Ledger: m.Ledger, t: t, store: query.New(query.Config{
		Pool: m.store.Pool, Public: m.store.Pool, Installation: m.Installation, Plans: plans,
		RequestsReached: func(domain.Shard) {},
	})}
	looks := func() {
		t.Helper()
		for _, look := range []*queue.Loop{other.warner(process.Do), m.warner(m.Do)} {
			if err := look.Look(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.take(o, "gratis", 8)
	other.take(o, "gratis", 1)
	looks()
	// With 9 used, one process notes 80 % of 10, and the other has noted 95 and 100 % of 9.
	access := domain.Access{Organization: o.ID, Plan: "gratis"}
	if err := m.store.ReturnRequest(context.Background(), access, m.Now()); err != nil {
		t.Fatal(err)
	}
	m.take(o, "gratis", 1)
	looks()
	before := m.warned(o)
	for range 3 {
		looks()
	}
	m.wants("after looks alone", o, before...)
}
