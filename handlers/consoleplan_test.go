package handlers_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
)

// Every member sees the plan, the months and the entries of all companies, on pages and in one file.
func TestPlanInTheConsole(t *testing.T) {
	s := openConsole(t)
	const entries = 501 // more than a piece of the file has
	items := make([]body, entries-1)
	for i := range items {
		items[i] = declaration(fmt.Sprintf("document-%d", i), 1, "x")
	}
	s.post(integrity+"/records/batch", body{"declarations": items}).is(http.StatusOK)
	s.registered("last", 1, "y")
	other := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	reader, _ := s.added("viewer@example.com", domain.Viewer)

	period := domain.PeriodOf(s.Now())
	page := reader.visit("/en/console/plan").says(
		http.StatusOK, "Plan and usage", "Plan: internal",
		"Requests to the integrity API, such as registering versions, do not count.", "no limit", period.String(),
		fmt.Sprintf("month: %d.", entries), "document-0",
	)
	seen, next := []string{}, regexp.MustCompile(`href="(/en/console/plan\?after=[^"#]+)#entries"`)
	publicID := regexp.MustCompile(`/en/integrity/([0-9A-Za-z_-]+)"`)
	for {
		for _, match := range publicID.FindAllSubmatch(page.body, -1) {
			seen = append(seen, string(match[1]))
		}
		to := next.FindSubmatch(page.body)
		if to == nil {
			break
		}
		page = reader.visit(strings.ReplaceAll(string(to[1]), "&amp;", "&")).says(http.StatusOK, "First page")
	}

	file := reader.visit("/en/console/plan/entries.csv?period=" + period.String())
	if file.status != http.StatusOK || file.header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" ||
		file.header.Get("Content-Disposition") != `attachment; filename="usage-`+period.String()+`.csv"` {
		t.Fatalf("%d %v", file.status, file.header)
	}
	lines, err := csv.NewReader(bytes.NewReader(file.body)).ReadAll()
	check(t, err)
	if strings.Join(lines[0], " ") != "sequence occurredAt companyReference source documentReference version publicId "+
		"eventId" || bytes.Count(file.body, []byte("\r\n")) != len(lines) {
		t.Errorf("the file begins with %v", lines[0])
	}
	if len(lines) != entries+1 || lines[1][2] != "company-1" || lines[1][4] != "document-0" ||
		lines[entries][4] != "last" || lines[entries][5] != "1" {
		t.Errorf("%d lines, from %v to %v", len(lines), lines[1], lines[len(lines)-1])
	}
	var filed []string
	for _, line := range lines[1:] {
		filed = append(filed, line[6])
	}
	if !slices.Equal(seen, filed) {
		t.Errorf("the pages have %d entries, the file %d", len(seen), len(filed))
	}

	// Another organization has only its own entries. An unknown month or place leads to the first page of this month.
	must(s.service, &domain.AddMember{Origin: other.Operator(), Email: "stranger@example.com", Role: domain.Viewer})
	stranger := s.signedIn("stranger@example.com")
	if a := stranger.visit("/en/console/plan").says(http.StatusOK, "No new version"); contains(a.body, "document-0") {
		t.Error("another organization's entries are shown")
	}
	if a := stranger.visit("/en/console/plan/entries.csv"); a.status != http.StatusOK ||
		bytes.Count(a.body, []byte("\n")) != 1 {
		t.Errorf("%s", a.body)
	}
	for _, asked := range []string{"?period=2001-01", "?period=x", "?after=x", "?period=" + period.Next().String()} {
		reader.visit("/en/console/plan"+asked).says(http.StatusOK, "document-0")
	}
	s.guest().visit("/en/console/plan/entries.csv").leads("/en/console/sign-in")

	// In the following month, this month is one of the previous months.
	s.skew.Add(int64(period.End().Sub(s.Now()) + 24*time.Hour))
	reader = s.signedIn("viewer@example.com")
	reader.visit("/en/console/plan").says(http.StatusOK, period.String(), period.Next().String(), "No new version")
	reader.visit("/console/plan?period="+period.String()).says(http.StatusOK, "document-0", "Descargar todas en CSV")
}

// The page shows the rest of each allowance and the marks that were reached.
func TestAllowancesInTheConsole(t *testing.T) {
	s := openConsoleWith(
		t,
		options{
			plan:  "gratis",
			plans: parsePlans(t, `{"gratis": {"perMinute": 1000, "versionsPerMonth": 2, "requestsPerMonth": 5}}`),
		},
	)
	s.registered("a", 1, "one")
	s.registered("b", 1, "two")
	limit := int32(4)
	must(s.service, &domain.ChangeLimits{Origin: s.org.Operator(), Unfinalized: &limit})
	for number := range 4 {
		s.reserved("r", number+1)
	}
	last := s.post(integrity+"/reservations", version("r", 4)).is(http.StatusOK)["publicId"].(string)
	s.send(http.MethodDelete, integrity+"/reservations/"+last, s.org.Secret, nil).is(http.StatusOK)
	s.send(http.MethodGet, certificationAction+"/me", s.org.Secret, nil).is(http.StatusOK)
	s.signedIn(s.org.Email).visit("/en/console/plan").says(http.StatusOK, "Plan: gratis",
		"<strong>2</strong> of 2 <span>(100%; remaining: 0)", "<strong>1</strong> of 5 <span>(20%; remaining: 4)",
		"80% reached on <time", "95% reached on <time", "100% reached on <time", "(2 of 2)</p>", "(4 of 4)</p>",
		"<strong>3</strong> of 1000", "The day ends on <time", `aria-label="Versions never registered: 100%"`)
	s.signedIn(s.org.Email).visit("/en/console").says(http.StatusOK, `href="/en/console/plan"`, "<strong>2</strong> of 2",
		"Webhook attempts", "100% reached on <time",
		`<a href="/en/console/plan#use-versions">New versions</a>: 2 of 2 (100%; remaining: 0). <strong>The limit is reached.</strong>`,
		`<a href="/en/console/plan#use-unfinalizedIdentities">Versions never registered</a>: 4 of 4 (100%; remaining: 0).`,
		`data-level="used-up"`, `aria-label="New versions: 100%"`, `aria-label="Requests: 20%"`)
}

// monthUsed is a month with numbers of counted requests and webhook attempts.
func (s *service) monthUsed(requests, attempts int) {
	s.t.Helper()
	for table, used := range map[string]int{"request_usage": requests, "webhook_usage": attempts} {
		s.owner(fmt.Sprintf("INSERT INTO %s (shard, organization_id, period, used) VALUES (%d, '%x', %d, %d)",
			table, s.org.ID.Shard(), s.org.ID[:], domain.PeriodOf(s.Now()), used))
	}
}

// failing is a webhook destination that has failed since yesterday.
func (s *service) failing(webhook string) {
	s.t.Helper()
	id, err := domain.ParseID[domain.WebhookID](webhook)
	check(s.t, err)
	s.owner(fmt.Sprintf(
		"INSERT INTO webhook_health (shard, webhook_id, failing_since) VALUES (%d, '%x', now() - interval '1 day')",
		s.org.ID.Shard(), id[:],
	))
}

// The first page shows the rest of each allowance and links to failing destinations: suspended ones, and those that may
// be suspended soon.
func TestOverview(t *testing.T) {
	s := openConsoleWith(
		t,
		options{
			plan:  "gratis",
			plans: parsePlans(t, `{"gratis": {"perMinute": 1000, "requestsPerMonth": 200, "webhookAttemptsPerMonth": 40}}`),
		},
	)
	add := func(url string) string {
		return s.post(integrity+"/webhooks", body{"url": url}).is(http.StatusCreated)["id"].(string)
	}
	works, fails, gone := add("https://hooks.example/works"), add(
		"https://hooks.example/fails",
	), add("https://hooks.example/gone")
	s.monthUsed(170, 40)
	s.failing(fails)
	id, err := domain.ParseID[domain.WebhookID](gone)
	check(t, err)
	must(s.service, &domain.DisableWebhook{Origin: s.org.Operator(), Webhook: id, Reason: domain.DisabledGone})
	owner, reader := s.signedIn(s.org.Email), s.as(domain.Viewer)
	page := owner.visit("/en/console").says(http.StatusOK,
		`href="/en/console/webhooks/`+fails+`">https://hooks.example/fails</a>: only failures since <time`,
		`href="/en/console/webhooks/`+gone+`">https://hooks.example/gone</a>: nothing is sent any more, answered 410`,
		`<div data-level="near"><dt id="use-requests">`, "<strong>170</strong> of 200 <span>(85%; remaining: 30)",
		`<rect class="used" width="85"`, `d="M80 0V10"`,
		`<div data-level="used-up"><dt id="use-webhookAttempts">`, "<strong>40</strong> of 40",
		"<strong>0</strong> <span>(no limit)")
	page.says(http.StatusOK, ">Requests</a>: 170 of 200 (85%; remaining: 30).</li>")
	if contains(page.body, works) {
		t.Error("a destination that works is among those that fail")
	}
	if page := reader.visit("/en/console").says(http.StatusOK, "85%"); contains(page.body, "hooks.example") {
		t.Error("a viewer sees destinations")
	}
}

// The first page lists the first steps that the person may take, ticks those that are done, and drops the list after
// the last of them.
func TestFirstSteps(t *testing.T) {
	s := openConsole(t)
	owner, reader := s.signedIn(s.org.Email), s.as(domain.Viewer)
	steps := func(p *guest, count string, undone ...string) {
		t.Helper()
		page := p.visit("/en/console").says(http.StatusOK, count)
		for path, name := range map[string]string{
			"companies": "company", "keys/new": "key", "records/new": "record", "webhooks/new": "webhook", "security#passkeys": "passkey",
			"members#invite": "owner",
		} {
			link := `<a href="/en/console/` + path + `">`
			if contains(page.body[bytes.Index(page.body, []byte(`id="to-do"`)):], link) != slices.Contains(undone, name) {
				t.Errorf("with %v undone, the step %s: %s", undone, name, page.body)
			}
		}
	}
	for _, words := range []string{
		"A company is a part", "A key is a secret text", "A hash (SHA-256) is", "A webhook is a message",
	} {
		if n := strings.Count(string(owner.visit("/en/console").body), words); n != 1 {
			t.Errorf("the first page says %d times %q", n, words)
		}
	}
	steps(owner, "2 of 6", "record", "webhook", "passkey", "owner")
	steps(reader, "0 of 1", "passkey")
	owner.visit("/en/console/records").says(http.StatusOK, "This company has no versions yet", "A hash (SHA-256) is")
	s.registered("a", 1, "one")
	steps(reader, "0 of 1", "passkey")
	s.post(integrity+"/webhooks", body{"url": "https://hooks.example/"}).is(http.StatusCreated)
	steps(owner, "4 of 6", "passkey", "owner")
	s.added("second@example.com", domain.Owner)
	steps(owner, "5 of 6", "passkey")
	s.owner(fmt.Sprintf("UPDATE api_keys SET revoked_at = now() WHERE shard = %d", s.org.ID.Shard()))
	steps(owner, "4 of 6", "key", "passkey")
	owner.visit("/en/console/keys").says(http.StatusOK, "A key is a secret text", "No key works")
	s.owner("UPDATE api_keys SET revoked_at = NULL")
	s.newAuthenticator()
	if page := owner.visit("/en/console"); contains(page.body, "to-do") {
		t.Errorf("all steps are done: %s", page.body)
	}
}
