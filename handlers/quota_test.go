package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// parsePlans reads a table whose plans may omit limits that a test does not need: no monthly limit, and 10,000
// administrative events a day.
func parsePlans(t *testing.T, text string) domain.Plans {
	t.Helper()
	var table map[string]map[string]any
	check(t, json.Unmarshal([]byte(text), &table))
	for _, plan := range table {
		for _, limit := range []string{
			"versionsPerMonth", "requestsPerMonth", "registrationsPerMonth", "webhookAttemptsPerMonth",
		} {
			if _, ok := plan[limit]; !ok {
				plan[limit] = nil
			}
		}
		if _, ok := plan["administrativeEventsPerDay"]; !ok {
			plan["administrativeEventsPerDay"] = 10_000
		}
	}
	whole, err := json.Marshal(table)
	check(t, err)
	plans, err := domain.ParsePlans(whole)
	check(t, err)
	return plans
}

// changePlan changes the plan as the operator does.
func (s *service) changePlan(plan string, internal bool) {
	s.t.Helper()
	must(s, &domain.ChangePlan{Origin: s.org.Operator(), Plan: plan, Internal: internal})
}

// warned lists the warning percentages in the usage.
func (s *service) warned() (percents []int) {
	s.t.Helper()
	for _, w := range s.usage().Warnings {
		instant(s.t, w.ReachedAt)
		percents = append(percents, w.Percent)
	}
	return percents
}

// used returns limit, used and remaining of the month.
func (s *service) used() string {
	s.t.Helper()
	u := s.usage()
	o := u.Organization
	return fmt.Sprint(u.Plan, " ", u.Period, " ", shown(o.Limit), " ", o.Used, " ", shown(o.Remaining), " ", o.ResetsAt)
}

func (s *service) wantUsed(what, want string) {
	s.t.Helper()
	if got := s.used(); got != want {
		s.t.Errorf("%s: usage %q, want %q", what, got, want)
	}
}

// onlyRegistrations requires that the feed contains only registrations.
func (s *service) onlyRegistrations(query string) {
	s.t.Helper()
	for _, e := range s.changes(query).Events {
		if e.Type != "integrity.registered" && e.Type != "integrity.superseded" {
			s.t.Errorf("event %s in the feed", e.Type)
		}
	}
}

func TestWarningsAreShown(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 20}}`)})
	s.hold()
	for version := 1; version <= 20; version++ {
		s.registered("a", version, fmt.Sprint(version))
		want := "[]"
		switch {
		case version >= 20:
			want = "[80 95 100]"
		case version >= 19:
			want = "[80 95]"
		case version >= 16:
			want = "[80]"
		}
		if got := fmt.Sprint(s.warned()); got != want {
			t.Errorf("%d of 20: warnings %s, want %s", version, got, want)
		}
	}
	s.post(integrity+"/records", declaration("a", 21, "x")).refuses(
		http.StatusTooManyRequests, domain.RegistrationQuotaExhausted,
	)
	// Warnings are not events of the feed.
	s.onlyRegistrations("&limit=1000")
	// A mail waits for each warning, and a new month begins without warnings.
	if mails := s.number("SELECT count(*) FROM mails WHERE shard = $1 AND organization_id = $2"); mails != 3 {
		t.Errorf("%d mails", mails)
	}
	s.at(domain.PeriodOf(s.Now()).End())
	if got := s.warned(); got != nil {
		t.Errorf("the new month: warnings %v", got)
	}
	s.Audit(t)
}

// A backfill allowance is charged before the month, also if it ends in the middle of a batch. A replay takes nothing
// from it, and it causes no warnings. The month's entries leave out the versions charged to it. The organization sees
// how many are left.
func TestBackfill(t *testing.T) {
	s := openConsoleWith(t, options{
		plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 3}}`),
	})
	s.hold()
	give := func(versions int64) {
		t.Helper()
		must(s.service, &domain.ChangeBackfill{Origin: s.org.Operator(), Versions: versions})
	}
	left := func(limit, used int64) {
		t.Helper()
		equal(t, "backfill", s.usage().Backfill, quotaOf(limit, used))
	}
	batch := func(document string, want string) {
		t.Helper()
		var items []any
		for i := range 5 {
			items = append(items, declaration(fmt.Sprintf("%s-%d", document, i), 1, "x"))
		}
		var got []int
		for _, r := range s.sendBatch(items...) {
			got = append(got, r.Status)
			if r.Data != nil && (r.Data.Consumption.Applied == 1) != (r.Status == http.StatusCreated) {
				t.Errorf("%d applied %d", r.Status, r.Data.Consumption.Applied)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", document, got, want)
		}
	}
	left(0, 0)
	s.registered("month", 1, "x")
	give(4)
	console := s.signedIn(s.org.Email)
	console.visit("/en/console/plan").says(http.StatusOK, ">Backfill</dt>", "<strong>0</strong> of 4")
	batch("a", "[201 201 201 201 201]")
	batch("a", "[200 200 200 200 200]")
	left(4, 4)
	month := domain.PeriodOf(s.Now()).String()
	end := evidence.FormatTime(domain.PeriodOf(s.Now()).End())
	s.wantUsed("four are charged to the backfill allowance", "gratis "+month+" 3 2 1 "+end)
	equal(t, "contribution", s.usage().Companies[0].Used, 2)
	if a := console.visit("/en/console/plan"); contains(a.body, ">Backfill</dt>") {
		t.Error("a backfill allowance of which nothing is left is shown")
	}
	entries := read[wire.UsageEntries](s.get(integrity+"/usage/entries"), http.StatusOK)
	var charged []string
	for _, e := range entries.Entries {
		charged = append(charged, e.DocumentReference)
	}
	equal(t, "entries", []any{entries.Organization.Used, charged}, []any{2, []any{"month", "a-4"}})

	batch("b", "[201 429 429 429 429]")
	give(3)
	batch("b", "[200 201 201 201 429]")
	give(2)
	s.at(domain.PeriodOf(s.Now()).End()) // it does not end with the month
	s.registered("c", 1, "x")
	left(2, 1)
	console = s.signedIn(s.org.Email)
	console.visit("/console/plan").says(http.StatusOK, ">Carga inicial</dt>", "<strong>1</strong> de 2")
	give(0)
	left(0, 0)
	s.registered("c", 2, "x")
	if used := s.usage().Organization.Used; used != 1 {
		t.Errorf("%d of the new month are used", used)
	}
	details := detailsOf(t, s.history("limit=1&action=organization.backfill_changed")[0])
	equal(t, "history", details, body{"versions": 0})
	s.Audit(t)
}

// Plans change in the middle of a month. Used units do not come back, and evidence stays available on every plan.
func TestPlanChanges(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 3},
		"pro": {"perMinute": 10000, "versionsPerMonth": 10}, "internal": {"perMinute": 60000}}`)})
	s.hold()
	month := domain.PeriodOf(s.Now())
	end := month.End().Format(time.RFC3339)
	var id string
	for version := 1; version <= 3; version++ {
		id = s.registered("a", version, fmt.Sprint(version))
	}
	s.post(integrity+"/records", declaration("a", 4, "4")).refuses(
		http.StatusTooManyRequests, domain.RegistrationQuotaExhausted,
	)
	s.changePlan("pro", false)
	for version := 4; version <= 6; version++ {
		s.registered("a", version, fmt.Sprint(version))
	}
	s.wantUsed("pro", fmt.Sprintf("pro %s 10 6 4 %s", month, end))
	// The subscription is cancelled.
	s.changePlan("gratis", false)
	s.wantUsed("cancelled", fmt.Sprintf("gratis %s 3 6 0 %s", month, end))
	s.post(integrity+"/records", declaration("a", 7, "7")).refuses(
		http.StatusTooManyRequests, domain.RegistrationQuotaExhausted,
	)
	if replay := s.post(integrity+"/records", declaration("a", 6, "6")).is(http.StatusOK); replay["replayed"] != true {
		t.Errorf("replay %v", replay)
	}
	if a := s.get(integrity + "/records/" + id + "/evidence"); a.status != http.StatusOK {
		t.Errorf("evidence after the cancellation: %d %s", a.status, a.body)
	}
	if got := s.compared(id, "3").Result; got != "MATCH_HISTORICAL" {
		t.Errorf("comparison after the cancellation: %v", got)
	}
	// Internal organizations have no quota and are still reported.
	s.changePlan("internal", true)
	s.registered("a", 7, "7")
	s.wantUsed("internal", fmt.Sprintf("internal %s <nil> 7 <nil> %s", month, end))
	u := s.usage()
	if !u.Organization.Unlimited {
		t.Errorf("usage %+v", u)
	}
	equal(t, "contribution", u.Companies, []wire.CompanyUsage{{CompanyReference: "company-1", Used: 7}})
	s.changePlan("gratis", false)
	s.at(month.End())
	s.registered("a", 8, "8")
	s.wantUsed("the next month", fmt.Sprintf("gratis %s 3 1 2 %s", month.Next(), month.Next().End().Format(time.RFC3339)))
	s.Audit(t)
}

// The month of the decision is charged: a declaration may arrive in the last second of a month and be decided in the
// first second of the next. Leap days count as days.
func TestMonthsEnd(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 1}}`)})
	// A key lives at most two years, so the clock moves by less than a year at a time.
	leap := time.Date(2028, 2, 29, 23, 30, 0, 0, time.UTC)
	if time.Until(leap) < 0 || time.Until(leap) > 700*24*time.Hour {
		leap = time.Date(s.Now().Year()+1, 2, 28, 23, 30, 0, 0, time.UTC)
	}
	s.at(leap)
	key, secret := domain.NewCreateKey(
		domain.CreateKey{
			Origin: s.org.Operator(), Email: s.org.Email, Scopes: domain.Scopes(), Lifetime: domain.MaxKeyLifetime,
		},
		s.Now(),
	)
	must(s, key)
	s.org.Secret = secret
	s.Grant(t, s.org, key.Outcome.ID, s.org.Company.ID, true)
	day := domain.PeriodOf(leap)
	registration := read[wire.Registration](s.post(integrity+"/records", declaration("a", 1, "one")), http.StatusCreated)
	equal(t, "period of the last day", registration.Usage.Period, day)
	s.post(integrity+"/records", declaration("a", 2, "two")).refuses(
		http.StatusTooManyRequests, domain.RegistrationQuotaExhausted,
	)
	s.wantUsed("the last day", fmt.Sprintf("gratis %s 1 1 0 %s", day, day.End().Format(time.RFC3339)))

	// Prepared, and so received and signed, at the last moment; decided after midnight.
	s.at(day.End().Add(-time.Millisecond * 500))
	origin := s.org.Origin()
	origin.Actor = domain.KeyActor(key.Outcome.ID)
	register, err := s.Registrar.Prepare(
		origin, key.Outcome.ID, domain.KeyLimits{}, s.org.Declaration("b", 1, "b"), day.End().Add(-time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	s.at(day.End().Add(time.Millisecond))
	check(t, s.Do(context.Background(), register))
	if r := register; r.Usage.Period != day.Next() || r.Usage.Used != 1 ||
		!r.Outcome.ReceivedAt.Equal(day.End().Add(-time.Millisecond)) {
		t.Errorf("received before midnight and decided after it: %+v", r)
	}
	s.wantUsed("the first moment", fmt.Sprintf("gratis %s 1 1 0 %s", day.Next(), day.Next().End().Format(time.RFC3339)))
	refused := s.post(integrity+"/records", declaration("a", 2, "two"))
	refused.refuses(http.StatusTooManyRequests, domain.RegistrationQuotaExhausted)
	s.at(day.Next().End())
	s.post(integrity+"/records", declaration("a", 2, "two")).is(http.StatusCreated)
	s.Audit(t)
}

// Fifty requests compete for the last ten units, through two server processes.
func TestLastUnitsOverTwoProcesses(t *testing.T) {
	o := options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 20}}`)}
	s := open(t, o)
	s.hold()
	processes := []*service{s, s.second(o)}
	for version := 1; version <= 10; version++ {
		s.registered("first", version, fmt.Sprint(version))
	}
	var created, refused atomic.Int64
	var mu sync.Mutex
	var winners []int
	var group sync.WaitGroup
	for i := range 50 {
		p := processes[i%2]
		group.Go(func() {
			a, err := p.trySend(integrity+"/records", declaration(fmt.Sprint("d", i), 1, fmt.Sprint(i)))
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusCreated:
				created.Add(1)
				mu.Lock()
				winners = append(winners, i)
				mu.Unlock()
			case a.status == http.StatusTooManyRequests && contains(a.body, string(domain.RegistrationQuotaExhausted)) &&
				a.header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	group.Wait()
	if created.Load() != 10 || refused.Load() != 40 {
		t.Errorf("%d created, %d refused", created.Load(), refused.Load())
	}
	for _, i := range winners {
		processes[(i+1)%2].post(integrity+"/records", declaration(fmt.Sprint("d", i), 1, fmt.Sprint(i))).is(http.StatusOK)
	}
	if got := fmt.Sprint(s.warned()); got != "[80 95 100]" {
		t.Errorf("warnings %s", got)
	}
	s.Audit(t)
}

// Two processes share an organization's minute for all its keys, while other organizations of the shard arrive in the
// opposite order.
func TestMinuteOverTwoProcesses(t *testing.T) {
	o := options{plan: "gratis"}
	s := open(t, o)
	processes := []*service{s, s.second(o)}
	_, more := s.Key(t, s.org, domain.IntegrityRead)
	neighbour := s.Organization(t, 1, "gratis")
	s.freshMinute()
	type tally struct{ allowed, refused atomic.Int64 }
	var own, theirs tally
	var group sync.WaitGroup
	for i := range 120 {
		p := processes[i%2]
		for j, secret := range []string{[]string{s.org.Secret, more}[i/2%2], neighbour.Secret} {
			count := &own
			if j == 1 {
				count = &theirs
			}
			r := p.request(http.MethodGet, integrity+"/usage", secret, nil)
			group.Go(func() {
				a, err := p.tryExchange(r)
				switch {
				case err != nil:
					t.Error(err)
				case a.status == http.StatusOK:
					count.allowed.Add(1)
				case a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "":
					count.refused.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
	}
	group.Wait()
	for _, c := range []*tally{&own, &theirs} {
		if c.allowed.Load() != 30 || c.refused.Load() != 90 {
			t.Errorf("%d allowed, %d refused", c.allowed.Load(), c.refused.Load())
		}
	}
	s.skew.Add(int64(time.Minute))
	processes[1].get(integrity + "/usage").is(http.StatusOK)

	// After one process revokes a key, the other refuses it at once.
	key, secret := s.Key(t, s.org, domain.IntegrityRead)
	processes[1].send(http.MethodGet, integrity+"/usage", secret, nil).is(http.StatusOK)
	must(s, &domain.RevokeKey{Origin: s.org.Operator(), Key: key.ID})
	processes[1].send(http.MethodGet, integrity+"/usage", secret, nil).refuses(http.StatusUnauthorized, domain.InvalidKey)
}
