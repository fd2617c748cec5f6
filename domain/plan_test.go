package domain

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const wholePlan = `{"perMinute": 30, "versionsPerMonth": 1000, "requestsPerMonth": null, "registrationsPerMonth": 0, "webhookAttemptsPerMonth": 1, "administrativeEventsPerDay": 5}`

func TestParsePlans(t *testing.T) {
	plans, err := ParsePlans([]byte(
		`{"gratis": ` + wholePlan + `, "big": ` + strings.Replace(wholePlan, "{", `{"priceEur": 29.5, `, 1) + `}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	g, b := plans["gratis"], plans["big"]
	if len(plans) != 2 || g.PriceEUR != nil || *b.PriceEUR != 29.5 || g.PerMinute != 30 || *g.VersionsPerMonth != 1000 ||
		g.RequestsPerMonth != nil || *g.RegistrationsPerMonth != 0 || *g.WebhookAttemptsPerMonth != 1 ||
		*g.AdministrativeEventsPerDay != 5 {
		t.Errorf("%+v", plans)
	}
	if _, err := DefaultPlans(); err != nil {
		t.Error(err)
	}
}

// TestParsePlansRefuses: an omitted or misspelt member must not mean "no limit".
func TestParsePlansRefuses(t *testing.T) {
	gratis := func(from, to string) string { return `{"gratis": ` + strings.Replace(wholePlan, from, to, 1) + `}` }
	for text, want := range map[string]string{
		`{}`:                                     "/gratis: the plan is missing",
		`[]`:                                     "must be an object",
		`{"gratis": 1}`:                          "/gratis: must be an object",
		`{"pro": ` + wholePlan + `}`:             "/gratis: the plan is missing",
		gratis("", "") + "x":                     "invalid character",
		gratis(`"versionsPerMonth": 1000, `, ""): "/gratis/versionsPerMonth: the member is required",
		gratis(`, "webhookAttemptsPerMonth": 1`, ""): "/gratis/webhookAttemptsPerMonth: the member is " +
			"required",
		gratis(`, "administrativeEventsPerDay": 5`, ""): "/gratis/administrativeEventsPerDay: the member is " +
			"required",
		gratis(`Day": 5`, `Day": 0`):                   "/gratis/administrativeEventsPerDay: ",
		gratis(`versionsPerMonth`, "versionspermonth"): "did you mean versionsPerMonth?",
		gratis(`"perMinute": 30`, `"perMinute": 0`):    "/gratis/perMinute: ",
		gratis(`"perMinute": 30`, `"perMinute": null`): "/gratis/perMinute: ",
		gratis(`1000`, `-1`):                           "/gratis/versionsPerMonth: ",
		gratis(`1000`, `1000, "versionsPerMonth": 2000`): "/gratis/versionsPerMonth: the member appears more " +
			"than once",
		gratis(`{`, `{"priceEur": -1, `):                             "/gratis/priceEur: must be a number of at least 0",
		gratis(`{`, `{"priceEur": "1", `):                            "/gratis/priceEur: must be a number of at least 0",
		`{"gratis": ` + wholePlan + `, "gratis": ` + wholePlan + `}`: "/gratis: the member appears more than once",
	} {
		if plans, err := ParsePlans([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, plans, err, want)
		}
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		limit   int64
		percent int
		want    int64
	}{
		{1000, 80, 800}, {1000, 95, 950}, {1000, 100, 1000}, {3, 80, 3}, {1, 80, 1}, {10, 95, 10}, {99, 80, 80},
		{101, 95, 96},
		{math.MaxInt64, 100, math.MaxInt64}, {math.MaxInt64, 80, 7378697629483820646},
	} {
		if got := share(c.limit, c.percent); got != c.want {
			t.Errorf("%d %% of %d: %d, want %d", c.percent, c.limit, got, c.want)
		}
	}
}

// warnings lists the warnings among events as percent@period.
func warnings(events []Event) (list []string) {
	for _, e := range events {
		if w, ok := e.Body.(*QuotaWarningReachedBody); ok {
			list = append(list, fmt.Sprintf("%d@%s", w.Percent, w.Period))
		}
	}
	return list
}

func (w *world) wantWarnings(what, want string) {
	w.t.Helper()
	if got := fmt.Sprint(warnings(w.events)); got != want {
		w.t.Fatalf("%s: warnings %s, want %s", what, got, want)
	}
}

func (w *world) plan(name string, internal bool) {
	w.t.Helper()
	if code := w.execute(&ChangePlan{Origin: w.origin, Plan: name, Internal: internal}); code != "" {
		w.t.Fatal(code)
	}
}

func TestWarnings(t *testing.T) {
	signer := testSigner(t)
	rapid.Check(t, func(t *rapid.T) { // once is enough; the world requires its T
		w := newWorld(t, signer, 10)
		large, none, zero := int64(1000), (*int64)(nil), int64(0)
		w.state.plans["pro"] = Plan{PerMinute: 1, VersionsPerMonth: &large}
		w.state.plans["free"] = Plan{PerMinute: 1, VersionsPerMonth: none}
		w.state.plans["none"] = Plan{PerMinute: 1, VersionsPerMonth: &zero}
		version := int32(0)
		register := func(n int) {
			for range n {
				version++
				if _, code := w.register("d", version, fmt.Sprint(version), nil); code != "" {
					t.Fatalf("version %d: %s", version, code)
				}
			}
		}
		register(7)
		w.wantWarnings("7 of 10", "[]")
		register(1)
		w.wantWarnings("8 of 10", "[80@2026-11]")
		if _, code := w.register("d", 1, "1", nil); code != "" { // a replay uses nothing and causes no warning
			t.Fatal(code)
		}
		register(1)
		w.wantWarnings("9 of 10", "[80@2026-11]")
		// A larger plan in the middle of the month: earlier warnings stay.
		w.plan("pro", false)
		register(20)
		w.wantWarnings("29 of 1000", "[80@2026-11]")
		// Back to the smaller plan: more is used than it allows, nothing is reset, and no registration is possible that would
		// warn.
		w.plan("gratis", false)
		w.wantWarnings("29 of 10", "[80@2026-11 95@2026-11 100@2026-11]")
		if _, code := w.register("d", 1000, "x", nil); code != RegistrationQuotaExhausted {
			t.Fatalf("29 of 10: %s", code)
		}
		w.plan("pro", false)
		w.plan("gratis", false)
		w.wantWarnings("to and fro", "[80@2026-11 95@2026-11 100@2026-11]")

		w.now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		register(9)
		w.wantWarnings("a new month", "[80@2026-11 95@2026-11 100@2026-11 80@2026-12]")
		for _, plan := range []string{"free", "none"} {
			w.plan(plan, false)
		}
		w.plan("gratis", true)
		register(5)
		w.wantWarnings("no quota", "[80@2026-11 95@2026-11 100@2026-11 80@2026-12]")
		w.plan("gratis", false)
		w.wantWarnings("a quota again", "[80@2026-11 95@2026-11 100@2026-11 80@2026-12 95@2026-12 100@2026-12]")

		// A replay of the log gives the same state.
		again := NewState(w.state.plans)
		for i := range w.events {
			if err := again.Apply(&w.events[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i, at := range again.Organization(w.origin.Organization).Warned[VersionsAllowance].ReachedAt {
			if at == nil || !at.Equal(*w.state.Organization(w.origin.Organization).Warned[VersionsAllowance].ReachedAt[i]) {
				t.Fatalf("warning %d after a replay: %v", i, at)
			}
		}
	})
}

// allowances lists the warnings among events as allowance percent used/limit.
func allowances(events []Event) (list []string) {
	for _, e := range events {
		if b, ok := e.Body.(*QuotaWarningReachedBody); ok {
			list = append(list, fmt.Sprintf("%s %d %d/%d@%s", b.Allowance, b.Percent, b.Used, b.Limit, b.Period))
		}
	}
	return list
}

// meter notes an amount used, and the limits of the reached thresholds.
func (w *world) meter(a Allowance, p Period, used int64, reached ...int64) {
	u := MeterUsage{Used: used}
	for i, limit := range reached {
		at := w.now
		u.ReachedAt[i], u.Limits[i] = &at, &limit
	}
	w.state.AddMetered(w.origin.Organization, a, p, u)
}

// replays compares the organization's warnings with the log.
func (w *world) replays() {
	w.t.Helper()
	again := NewState(w.state.plans)
	for i := range w.events {
		if err := again.Apply(&w.events[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	o := w.origin.Organization
	if got, want := fmt.Sprint(again.Organization(o).Warned), fmt.Sprint(w.state.Organization(o).Warned); got != want {
		w.t.Fatalf("a replay gives %s, want %s", got, want)
	}
}

// warnOfMeters checks the meters as the service and lists the resulting warnings.
func (w *world) warnOfMeters() string {
	w.t.Helper()
	c := &WarnOfMeters{Origin: w.origin}
	before := len(w.events)
	if code := w.execute(c); code != "" {
		w.t.Fatal(code)
	}
	return fmt.Sprint(allowances(w.events[before:]))
}

func TestWarningsOfRequests(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	ten, large, zero := int64(10), int64(1000), int64(0)
	w.state.plans["gratis"] = Plan{PerMinute: 1, RequestsPerMonth: &ten}
	w.state.plans["pro"] = Plan{PerMinute: 1, RequestsPerMonth: &large}
	w.state.plans["none"] = Plan{PerMinute: 1, RequestsPerMonth: &zero}
	o, month := w.origin.Organization, PeriodOf(w.now)
	meter := func(p Period, used int64, reached ...int64) { w.meter(RequestsAllowance, p, used, reached...) }
	want := func(what, want string) {
		t.Helper()
		if got := w.warnOfMeters(); got != want {
			t.Errorf("%s: warned of %s, want %s", what, got, want)
		}
	}
	meter(month, 7)
	want("7 of 10", "[]")
	// If the process stopped between counting and warning, the next check reports the threshold once. The plan has grown
	// meanwhile, and the warning names the limit that was reached.
	meter(month, 8, 10)
	w.plan("pro", false)
	if got := fmt.Sprint(allowances(w.events)); got != "[requests 80 8/10@2026-11]" {
		t.Errorf("the change of plan warned of %s", got)
	}
	want("told already", "[]")
	// A batch reaches two thresholds at once. Returning a request does not remove its warning.
	meter(month, 949, 10, 1000)
	want("two looks see the same", "[requests 80 949/1000@2026-11 requests 95 950/1000@2026-11]")
	want("two looks see the same, the second", "[]")
	// A smaller plan: more is used than it allows, and no request can be counted that would warn.
	w.plan("gratis", false)
	if got := allowances(w.events); fmt.Sprint(got[3:]) !=
		"[requests 80 949/10@2026-11 requests 95 949/10@2026-11 requests 100 949/10@2026-11]" {
		t.Errorf("a smaller plan warned of %s", got)
	}
	// The last moment of a month is reported in the next month; an older one is not.
	next := month.Next()
	w.now = next.End().Add(-1)
	meter(next, 10, 10, 10)
	w.now = next.End()
	want("the last month", "[requests 80 10/10@2026-12 requests 95 10/10@2026-12]")
	meter(next.Next(), 8, 10)
	want("this month", "[requests 80 8/10@2027-01]")
	meter(next, 10, 10, 10, 10)
	want("a month before the last warning", "[]")
	forgotten := next.Next().Next()
	w.now = forgotten.Start()
	meter(forgotten, 8, 10)
	w.now = forgotten.End().Add(WarningLifetime)
	want("a forgotten month", "[]")
	w.plan("none", false)
	meter(PeriodOf(w.now), 8)
	want("a plan without requests", "[]")
	w.plan("gratis", false)

	// A shard dated in a later month has warnings of that month. After a reset, it gets warnings of this month.
	ahead := PeriodOf(w.now).Next()
	w.now = ahead.Start()
	meter(ahead, 8, 10)
	want("a month too early", "[requests 80 8/10@"+ahead.String()+"]")
	w.now = ahead.Start().Add(-1)
	meter(PeriodOf(w.now), 8, 10)
	want("the month set right", "[requests 80 8/10@"+PeriodOf(w.now).String()+"]")
	want("told already after that", "[]")

	again := NewState(w.state.plans)
	for i := range w.events {
		if err := again.Apply(&w.events[i]); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(
		again.Organization(o).Warned[RequestsAllowance].Period,
	), fmt.Sprint(PeriodOf(w.now)); got != want {
		t.Errorf("after a replay the last warned month is %s, want %s", got, want)
	}
}

func TestWarningsOfRegistrations(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	five, two := int64(5), int64(2)
	w.state.plans["gratis"] = Plan{PerMinute: 1, RegistrationsPerMonth: &five}
	w.state.plans["small"] = Plan{PerMinute: 1, RegistrationsPerMonth: &two}
	register := func(want string) {
		t.Helper()
		c := NewRegisterArtifactVersion(
			RegisterArtifactVersion{Origin: w.origin, Content: Content{Kind: TextContent, Title: "Title"}}, w.now,
		)
		before := len(w.events)
		if code := w.execute(c); code != "" {
			t.Fatal(code)
		}
		if got := fmt.Sprint(allowances(w.events[before:])); got != want {
			t.Errorf("warned of %s, want %s", got, want)
		}
	}
	for range 3 {
		register("[]")
	}
	register("[registrations 80 4/5@2026-11]")
	register("[registrations 95 5/5@2026-11 registrations 100 5/5@2026-11]")
	w.execute(&AddCredits{Origin: w.origin, Credits: 3})
	register("[]") // uses a credit
	w.now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for range 3 {
		register("[]")
	}
	w.plan("small", false)
	if got := fmt.Sprint(allowances(w.events)[3:]); got !=
		"[registrations 80 3/2@2026-12 registrations 95 3/2@2026-12 registrations 100 3/2@2026-12]" {
		t.Errorf("a smaller plan warned of %s", got)
	}
}

// TestWarningsBelongToALimit: warnings belong to a limit. They start again with another plan, whatever causes them, and
// contain the amount used.
func TestWarningsBelongToALimit(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	limit := func(n int64) Plan {
		return Plan{
			PerMinute: 1, VersionsPerMonth: &n, RequestsPerMonth: &n, RegistrationsPerMonth: &n, WebhookAttemptsPerMonth: &n,
		}
	}
	w.state.plans["gratis"], w.state.plans["pro"], w.state.plans["twin"] = limit(10), limit(100), limit(10)
	o, month := w.origin.Organization, PeriodOf(w.now)
	meter := func(used int64, reached ...int64) {
		for _, a := range MeteredAllowances() {
			w.meter(a, month, used, reached...)
		}
	}
	seen := 0
	want := func(what string, want ...string) {
		t.Helper()
		all := allowances(w.events)
		if got := fmt.Sprint(all[seen:]); got != fmt.Sprint(want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		seen = len(all)
	}
	for version := range int32(10) {
		if _, code := w.register("d", version+1, "x", nil); code != "" {
			t.Fatal(code)
		}
	}
	want("10 of 10", "versions 80 8/10@2026-11", "versions 95 10/10@2026-11", "versions 100 10/10@2026-11")
	meter(8, 10)
	w.plan("pro", false)
	want("what was noted of the former plan", "requests 80 8/10@2026-11", "webhookAttempts 80 8/10@2026-11")
	warned := w.state.Organization(o).Warned[VersionsAllowance]
	if warned.Limit != 10 || warned.Used != [3]int64{8, 10, 10} {
		t.Errorf("warned of %+v", warned)
	}
	meter(80, 100)
	w.warnOfMeters()
	w.warnOfMeters()
	want("of the new plan", "requests 80 80/100@2026-11", "webhookAttempts 80 80/100@2026-11")
	w.plan("gratis", false)
	want("back again", "requests 80 80/10@2026-11", "requests 95 80/10@2026-11", "requests 100 80/10@2026-11",
		"webhookAttempts 80 80/10@2026-11", "webhookAttempts 95 80/10@2026-11", "webhookAttempts 100 80/10@2026-11")
	w.plan("twin", false)
	want("a plan of the same limit")
	w.warnOfMeters()
	want("told already")
	w.now = month.End()
	w.warnOfMeters()
	want("the month before, in the next one")
	w.replays()
}

// TestLastNotesOfAMonth: the last notes of a month are still used after its end, whatever changes of plan came before
// and after them.
func TestLastNotesOfAMonth(t *testing.T) {
	for name, next := range map[string]func(w *world, month Period){
		"a look": func(w *world, _ Period) { w.warnOfMeters() },
		"a change of plan before the first look": func(w *world, month Period) {
			for _, a := range MeteredAllowances() {
				w.meter(a, month, 80, 100)
			}
			w.plan("gratis", false)
		},
	} {
		w := newWorld(t, testSigner(t), 10)
		for plan, n := range map[string]int64{"gratis": 10, "pro": 100} {
			w.state.plans[plan] = Plan{PerMinute: 1, RequestsPerMonth: &n, WebhookAttemptsPerMonth: &n}
		}
		month := PeriodOf(w.now)
		w.now = month.End().Add(-time.Second)
		for _, a := range MeteredAllowances() {
			w.meter(a, month, 8, 10)
		}
		w.warnOfMeters()
		w.plan("pro", false)
		seen := len(w.events)
		// Decisions may be dated slightly after the notes before them.
		noted := w.now.Add(-time.Second)
		for _, a := range MeteredAllowances() {
			w.state.AddMetered(w.origin.Organization, a, month,
				MeterUsage{Used: 80, ReachedAt: [warningCount]*time.Time{&noted}, Limits: [warningCount]*int64{new(int64(100))}})
		}
		w.now = month.End()
		next(w, month.Next())
		w.warnOfMeters()
		got := fmt.Sprint(allowances(w.events[seen:]))
		for _, a := range MeteredAllowances() {
			if warning := fmt.Sprintf("%s 80 80/100@%s", a, month); strings.Count(got, warning) != 1 {
				t.Errorf("%s: %s, want %s once", name, got, warning)
			}
		}
	}
}

// TestNotesOfAFormerPlanAreNoWarnings: thresholds of a former limit, noted by a process that did not know of the change
// of plan, cause no warnings.
func TestNotesOfAFormerPlanAreNoWarnings(t *testing.T) {
	for _, plan := range []string{"pro", "endless"} {
		w := newWorld(t, testSigner(t), 10)
		for plan, n := range map[string]*int64{"gratis": new(int64(10)), "pro": new(int64(100)), "endless": nil} {
			w.state.plans[plan] = Plan{PerMinute: 1, RequestsPerMonth: n, WebhookAttemptsPerMonth: n}
		}
		w.plan(plan, false)
		month := PeriodOf(w.now)
		for _, a := range MeteredAllowances() {
			w.meter(a, month, 10, 10, 10, 10)
		}
		w.warnOfMeters()
		w.now = month.End()
		w.warnOfMeters()
		w.plan("gratis", false)
		if got := allowances(w.events); got != nil {
			t.Errorf("%s: %s", plan, got)
		}
	}
}

// TestNoWarningOfAFormerLimit: use under another plan does not count towards a former limit, neither after the plan has
// changed again nor in the next month.
func TestNoWarningOfAFormerLimit(t *testing.T) {
	for name, then := range map[string]func(w *world){
		"another plan": func(w *world) { w.plan("escala", false) },
		"next month":   func(w *world) { w.now = PeriodOf(w.now).End().AddDate(0, 0, 20); w.warnOfMeters() },
	} {
		w := newWorld(t, testSigner(t), 10)
		for plan, n := range map[string]int64{"gratis": 1000, "pro": 25_000, "escala": 250_000} {
			w.state.plans[plan] = Plan{PerMinute: 1, RequestsPerMonth: &n}
		}
		at, limit, month := w.now, int64(1000), PeriodOf(w.now)
		u := MeterUsage{Used: 800, ReachedAt: [warningCount]*time.Time{&at}, Limits: [warningCount]*int64{&limit}}
		w.state.AddMetered(w.origin.Organization, RequestsAllowance, month, u)
		w.warnOfMeters()
		w.plan("pro", false)
		u.Used = 5000
		w.state.AddMetered(w.origin.Organization, RequestsAllowance, month, u)
		then(w)
		if got := fmt.Sprint(allowances(w.events)); got != "[requests 80 800/1000@2026-11]" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestWarningsOfReservations: reservations cause warnings of both limits, in every month, and of a limit set by the
// operator.
func TestWarningsOfReservations(t *testing.T) {
	w := newWorld(t, testSigner(t), 10)
	reserve := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, code := w.reserve(fmt.Sprint("d-", i), 1); code != "" {
				t.Fatal(code)
			}
		}
	}
	reserve(0, 799)
	reserve(0, 799) // renewed
	if got := allowances(w.events); got != nil {
		t.Fatalf("799 of 1000: %s", got)
	}
	reserve(799, 1000)
	limit := int32(1000)
	w.execute(&ChangeLimits{Origin: w.origin, Unfinalized: &limit})
	w.now = PeriodOf(w.now).End()
	limit = 1100
	w.execute(&ChangeLimits{Origin: w.origin, Unfinalized: &limit})
	reserve(1000, 1001)
	want := "[pendingReservations 80 800/1000@2026-11 pendingReservations 95 950/1000@2026-11 pendingReservations 100 " +
		"1000/1000@2026-11 " +
		"unfinalizedIdentities 80 1000/1000@2026-11 unfinalizedIdentities 95 1000/1000@2026-11 unfinalizedIdentities 100 " +
		"1000/1000@2026-11 " +
		"unfinalizedIdentities 80 1000/1100@2026-12]"
	if got := fmt.Sprint(allowances(w.events)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
