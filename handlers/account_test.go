package handlers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// monthly is a plan with a number of monthly requests at the certification API.
func monthly(t *testing.T, requests int) domain.Plans {
	return parsePlans(t,
		fmt.Sprintf(`{"gratis": {"perMinute": 10000, "versionsPerMonth": 20, "requestsPerMonth": %d, "registrationsPerMonth": 7},
		"none": {"perMinute": 10000, "requestsPerMonth": 0}, "internal": {"perMinute": 10000, "requestsPerMonth": 1}}`,
			requests))
}

// shown dereferences v, or returns nil.
func shown[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}

// quotaOf is a partly used limit.
func quotaOf(limit, used int64) wire.Quota {
	return wire.Quota{Limit: &limit, Used: used, Remaining: new(limit - used)}
}

// allowance returns the month's requests as GET /usage shows them.
func (s *service) allowance(key string) string {
	s.t.Helper()
	u := read[wire.AccountUsage](s.send(http.MethodGet, "/api/v1/usage", key, nil), http.StatusOK)
	var reached []int
	for _, w := range u.Warnings {
		if w.Allowance == "requests" {
			reached = append(reached, w.Percent)
		}
	}
	return fmt.Sprint(shown(u.Requests.Limit), " ", u.Requests.Used, " ", shown(u.Requests.Remaining), " ", reached)
}

func TestMonthlyRequests(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: monthly(t, 5)})
	s.hold()
	s.at(time.Date(2027, 2, 10, 12, 0, 0, 0, time.UTC))
	_, other := s.Key(t, s.org, domain.MetricsRead)
	wantAllowance := func(what, want string) {
		t.Helper()
		if got := s.allowance(s.org.Secret); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	wantAllowance("before", "5 0 5 []")
	s.get("/api/v1/me").is(http.StatusOK)
	s.send(http.MethodGet, "/api/v1/me", other, nil).is(http.StatusOK) // any active key, one allowance
	s.get("/api/v1/me?x=1").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	s.send(http.MethodGet, "/api/v1/me", "wrong", nil).refuses(http.StatusUnauthorized, domain.InvalidKey)
	wantAllowance("two answers, one mistake, one refusal", "5 3 2 []")
	s.send(http.MethodGet, "/api/v1/me", s.org.Secret, nil, "Accept", "text/html").refuses(
		http.StatusNotAcceptable, domain.NotAcceptable,
	)
	wantAllowance("at 80 %", "5 4 1 [80]")
	s.get("/api/v1/me").is(http.StatusOK)

	exhausted := s.get("/api/v1/me")
	exhausted.refuses(http.StatusTooManyRequests, domain.RequestQuotaExhausted)
	seconds, err := strconv.Atoi(exhausted.header.Get("Retry-After"))
	check(t, err)
	if until := s.Now().Add(time.Duration(seconds) * time.Second); until.Before(domain.PeriodOf(s.Now()).End()) ||
		until.After(domain.PeriodOf(s.Now()).End().Add(10*time.Second)) {
		t.Errorf("Retry-After leads to %s", until)
	}
	s.registered("a", 1, "one") // the integrity API does not take from it
	wantAllowance("exhausted", "5 5 0 [80 95 100]")

	s.skew.Add(int64(20 * 24 * time.Hour)) // March
	s.get("/api/v1/me").is(http.StatusOK)
	wantAllowance("the next month", "5 1 4 []")

	none := s.Organization(t, 1, "none")
	s.send(http.MethodGet, "/api/v1/me", none.Secret, nil).refuses(http.StatusForbidden, domain.PlanRequired)
	internal := s.Organization(t, 1, domain.InternalPlan)
	for range 3 {
		s.send(http.MethodGet, "/api/v1/me", internal.Secret, nil).is(http.StatusOK)
	}
	if got := s.allowance(internal.Secret); got != "<nil> 3 <nil> []" {
		t.Errorf("an internal organization: %q", got)
	}
}

// Two processes never give out the last request of the month twice.
func TestLastRequestsOfTheMonth(t *testing.T) {
	o := options{plan: "gratis", plans: monthly(t, 10)}
	s := open(t, o)
	s.hold()
	processes := []*service{s, s.second(o)}
	var taken, refused atomic.Int64
	var group sync.WaitGroup
	for i := range 40 {
		p := processes[i%2]
		r := p.request(http.MethodGet, "/api/v1/me", s.org.Secret, nil)
		group.Go(func() {
			a, err := p.tryExchange(r)
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusOK:
				taken.Add(1)
			case a.status == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	group.Wait()
	if taken.Load() != 10 || refused.Load() != 30 {
		t.Errorf("%d taken, %d refused", taken.Load(), refused.Load())
	}
	// Each mark was reached once and reported once, whichever process counted.
	if got := fmt.Sprint(s.warnings()); got != "[requests 80 requests 95 requests 100]" {
		t.Errorf("warnings in the history: %s", got)
	}
	s.Audit(t)
}

// warnings lists the warnings in the organization's history, oldest first.
func (s *service) warnings() (list []string) {
	s.t.Helper()
	for _, e := range s.Events(s.t, s.org.ID.Shard()) {
		if b, ok := e.Body.(*domain.QuotaWarningReachedBody); ok && e.Organization == s.org.ID {
			list = append(list, fmt.Sprint(b.Allowance, " ", b.Percent))
		}
	}
	return list
}

// Warnings of every allowance are events of the history, appear next to their allowance, and wait to be mailed. They
// are not in the feed.
func TestEveryAllowanceWarns(t *testing.T) {
	s := open(t,
		options{plan: "gratis",
			plans: parsePlans(t,
				`{"gratis": {"perMinute": 10000, "versionsPerMonth": 2, "requestsPerMonth": 10, "registrationsPerMonth": 5},
		"pro": {"perMinute": 10000, "versionsPerMonth": 100, "requestsPerMonth": 100, "registrationsPerMonth": 100}}`)})
	s.hold()
	text := func(n int) {
		t.Helper()
		s.post(
			"/api/v1/artifacts", body{"kind": "text", "title": "Title", "text": fmt.Sprint("text ", n)},
		).is(http.StatusCreated)
	}
	for n := range 5 {
		text(n)
	}
	s.registered("a", 1, "one")
	s.registered("a", 2, "two")
	for range 2 {
		s.get("/api/v1/me").is(http.StatusOK)
	}
	quota := read[wire.Me](s.get("/api/v1/me"), http.StatusOK).Quota
	equal(t, "quota", []any{quota.Versions, quota.Requests, quota.Registrations, quota.Credits, quota.ResetsAt},
		[]any{quotaOf(2, 2), quotaOf(10, 8), quotaOf(5, 5), wire.Credits{},
			domain.PeriodOf(s.Now()).End().Format(time.RFC3339)})
	shown := func(warnings []wire.Warning) (list []string) {
		for _, w := range warnings {
			list = append(list, fmt.Sprint(w.Allowance, " ", w.Percent))
		}
		return list
	}
	account := func() []wire.Warning {
		return read[wire.AccountUsage](s.get("/api/v1/usage"), http.StatusOK).Warnings
	}
	const versions = "versions 80 versions 95 versions 100"
	const ofAccount = "requests 80 registrations 80 registrations 95 registrations 100"
	if got := fmt.Sprint(shown(quota.Warnings)); got != "["+versions+" "+ofAccount+"]" {
		t.Errorf("/me shows %s", got)
	}
	if got := fmt.Sprint(shown(account())); got != "["+versions+" "+ofAccount+"]" {
		t.Errorf("/usage shows %s", got)
	}
	if got := fmt.Sprint(shown(s.usage().Warnings)); got != "["+versions+"]" {
		t.Errorf("/integrity/usage shows %s", got)
	}
	if got := fmt.Sprint(s.warnings()); got !=
		"[registrations 80 registrations 95 registrations 100 versions 80 versions 95 versions 100 requests 80]" {
		t.Errorf("the history has %s", got)
	}
	if mails := s.number(
		"SELECT count(DISTINCT (of_allowance, percent)) FROM mails WHERE shard = $1 AND organization_id = $2",
	); mails != 7 {
		t.Errorf("%d mails", mails)
	}
	s.onlyRegistrations("")
	s.get("/api/v1/audit-events?action=quota.warning_reached").is(http.StatusOK)
	first := s.usage().Warnings[0]
	equal(t, "a warning", first,
		wire.Warning{Allowance: "versions", Percent: 80, Limit: 2, Used: 2, ReachedAt: first.ReachedAt})

	// Another plan has other limits, and no mark of them was reached. Back on the former plan, its warnings are shown
	// again.
	s.changePlan("pro", false)
	if got := append(shown(account()), shown(s.usage().Warnings)...); got != nil {
		t.Errorf("a larger plan shows %s", got)
	}
	s.changePlan("gratis", false)
	if got := fmt.Sprint(shown(s.usage().Warnings)); got != "["+versions+"]" {
		t.Errorf("back again, /integrity/usage shows %s", got)
	}

	// Reservations and webhook attempts are shown with the versions.
	limit := int32(1)
	must(s, &domain.ChangeLimits{Origin: s.org.Operator(), Unfinalized: &limit})
	s.reserved("r", 1)
	const unfinalized = " unfinalizedIdentities 80 unfinalizedIdentities 95 unfinalizedIdentities 100"
	if got := fmt.Sprint(shown(s.usage().Warnings)); got != "["+versions+unfinalized+"]" {
		t.Errorf("with a reservation, /integrity/usage shows %s", got)
	}
	consumption, _ := s.tool(ordinaryMCP, s.org.Secret, "consultar_consumo", body{})
	consumed := typed[wire.AccountUsage](t, consumption)
	const reserved = "[" + versions + unfinalized + " requests 80 "
	if got := fmt.Sprint(shown(consumed.Warnings)); !strings.HasPrefix(got, reserved) {
		t.Errorf("with a reservation, the tool shows %s", got)
	}
	s.at(domain.PeriodOf(s.Now()).End())
	if got := shown(account()); got != nil {
		t.Errorf("the next month shows %s", got)
	}
	s.Audit(t)
}

func TestUsageTenAMinute(t *testing.T) {
	o := options{}
	s := open(t, o)
	second := s.second(o)
	s.freshMinute()
	for i := range 12 {
		process := s
		if i%2 == 1 {
			process = second
		}
		a := process.get("/api/v1/usage")
		if got := a.header.Get("RateLimit-Policy"); got != `"minute";q=60000;w=60, "usage";q=10;w=60` {
			t.Fatalf("RateLimit-Policy %s", got)
		}
		var minute, own, reset int
		_, err := fmt.Sscanf(
			a.header.Get("RateLimit"), `"minute";r=%d;t=%d, "usage";r=%d;t=%d`, &minute, &reset, &own, &reset,
		)
		check(t, err)
		if minute != 59999-i || own != max(0, 9-i) {
			t.Errorf("request %d: RateLimit %s", i, a.header.Get("RateLimit"))
		}
		if i < 10 {
			a.is(http.StatusOK)
			continue
		}
		a.refuses(http.StatusTooManyRequests, domain.RateLimited)
		if got := a.header.Get("Retry-After"); got != strconv.Itoa(reset) {
			t.Errorf("Retry-After %s, RateLimit resets in %d", got, reset)
		}
	}
	_, other := s.Key(t, s.org, domain.MetricsRead)
	s.send(http.MethodGet, "/api/v1/usage", other, nil).is(http.StatusOK)
	s.get("/api/v1/me").is(http.StatusOK)
	s.skew.Add(int64(time.Minute))
	s.get("/api/v1/usage").is(http.StatusOK)
}

func TestMe(t *testing.T) {
	s := open(t, options{plan: "pro"})
	_, key := s.Key(t, s.org, domain.AuditRead, domain.IntegrityRead)
	me := read[wire.Me](s.send(http.MethodGet, "/api/v1/me", key, nil), http.StatusOK)
	equal(t, "organization", []any{me.Organization.ID, me.Organization.Plan, me.PerMinuteLimit},
		[]any{s.org.ID.String(), "pro", 120})
	equal(t, "scopes", me.Key.Scopes, []domain.Scope{domain.AuditRead, domain.IntegrityRead})
	equal(t, "role", me.Member.Role, domain.Owner)
}

// The history names the company for which a key or a destination got or lost access.
func TestHistoryOfAccess(t *testing.T) {
	s := open(t, options{})
	s.Everything(t, s.org)
	s.Grant(t, s.org, s.org.Key.ID, s.org.Company.ID, false)
	for action, want := range map[string]struct {
		target  string
		enabled any
		company any
	}{
		"company.access_changed":  {"key", false, s.org.Company.ID.String()},
		"company.webhook_changed": {"webhook", true, s.org.Company.ID.String()},
		"company.created":         {"company", nil, s.org.Company.ID.String()},
		"organization.created":    {"organization", nil, nil},
	} {
		target := ""
		if action == "company.created" {
			target = "&target=" + s.org.Company.ID.String()
		}
		e := s.history("limit=1&action=" + action + target)[0]
		equal(t, action, []any{e.Target.Type, e.Enabled, e.CompanyID}, []any{want.target, want.enabled, want.company})
	}
}

// detailsOf returns the details of an event. Their members depend on its action.
func detailsOf(t *testing.T, e wire.AuditEvent) (details body) {
	t.Helper()
	check(t, json.Unmarshal(e.Details, &details))
	return details
}

// Every event names its changes in ids and values. Only keys that may use a company see its references. Texts written
// by people are never shown.
func TestHistoryDetails(t *testing.T) {
	s := open(t, options{})
	s.Everything(t, s.org)
	auditor, secret := s.Key(t, s.org, domain.AuditRead)
	registered := s.registered("details", 1, "one")
	const path = "/api/v1/audit-events?limit=200&afterSequence=0"
	seen := map[domain.EventType]bool{}
	for reader, granted := range map[string]bool{s.org.Secret: true, secret: false} {
		for _, e := range read[wire.AuditEvents](s.send(http.MethodGet, path, reader, nil), http.StatusOK).Events {
			details := detailsOf(t, e)
			seen[e.Action] = true
			names := domain.AuditDetailNames(e.Action)
			if got := slices.Sorted(maps.Keys(details)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
				t.Errorf("%s: %v, want %v", e.Action, got, names)
			}
			if _, has := details["documentReference"]; has && (details["documentReference"] != nil) != granted {
				t.Errorf("%s, granted %t: %v", e.Action, granted, details)
			}
			if company, has := details["companyId"]; has && company != shown(e.CompanyID) {
				t.Errorf("%s: %v", e.Action, e)
			}
		}
	}
	if len(seen) < 25 {
		t.Errorf("only %d actions were seen", len(seen))
	}
	newest := func(query string) body {
		t.Helper()
		return detailsOf(t, s.history("limit=1&" + query)[0])
	}
	equal(t, "a key", newest("action=key.created"), body{
		"keyId": auditor.ID.String(), "memberId": auditor.Member.String(), "scopes": []string{"audit:read"},
		"expiresAt": evidence.FormatTime(auditor.ExpiresAt),
		"source":    nil, "network": nil, "networks": nil, "maxVersionStep": nil, "nameTextId": nil,
	})
	details := newest("target=" + registered)
	equal(t, "a registration",
		[]any{
			details["companyReference"], details["source"], details["documentReference"], details["version"], details["sha256"],
			details["reserved"], details["companyId"],
		},
		[]any{"company-1", "billing", "details", 1, hash("one"), false, s.org.Company.ID.String()})
	s.Grant(t, s.org, s.org.Key.ID, s.org.Company.ID, false)
	equal(
		t, "access", newest("action=company.access_changed"),
		body{"companyId": s.org.Company.ID.String(), "keyId": s.org.Key.ID.String(), "enabled": false},
	)
	for _, query := range []string{
		"target=" + registered, "action=integrity.registered", "action=integrity.reserved",
		"action=company.created&target=" + s.org.Company.ID.String(),
	} {
		details := newest(query)
		equal(
			t, "a key without the grant, "+query,
			[]any{details["companyReference"], details["source"], details["documentReference"], details["reference"]},
			[]any{nil, nil, nil, nil},
		)
	}
}
