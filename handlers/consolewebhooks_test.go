package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
	"integrityledger/projections/queue/webhooks"
)

const webhooksPath = "/en/console/webhooks"

var (
	shownWebhook  = regexp.MustCompile(`whk_[0-9a-z]{26}`)
	shownSecret   = regexp.MustCompile(`whsec_[0-9A-Za-z+/=_-]+`)
	shownDelivery = regexp.MustCompile(`dlv_[0-9a-z]{26}`)
)

// An owner creates a destination, authorizes it, sees its secret once, tests it, replays events to it and deletes it.
// Members with other roles see none of this, and destinations of other organizations are never confirmed.
func TestConsoleWebhooks(t *testing.T) {
	s := openConsole(t)
	must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Analyst})
	p, analyst := s.signedIn(s.org.Email), s.signedIn("ana@example.com")
	second := s.Company(t, s.org, "company-2")
	p.visit(webhooksPath).says(http.StatusOK, "A webhook is a message", "There is no destination")
	p.visit(webhooksPath+"/new").says(http.StatusOK, "company-1", "company-2", "integrity.registered", "An https URL that")
	reach := *s
	for words, policy := range map[string]webhooks.EgressPolicy{
		"in this demo, an http or https URL of": {Loopback: true}, "to every address, also unencrypted": {Insecure: true},
	} {
		reach.service = s.second(options{config: func(c *handlers.Config) { c.Egress = policy }})
		(&guest{&reach, p.cookies}).visit(webhooksPath+"/new").says(http.StatusOK, words)
	}

	fill := func(fields ...string) url.Values {
		values := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			values.Add(fields[i], fields[i+1])
		}
		return values
	}
	submit := func(path string, fields ...string) answer { return p.do(http.MethodPost, path, fill(fields...)) }
	for words, fields := range map[string][]string{
		"Choose at least one event": {"url", "https://receiver.example/hook", "description", "typed before"},
		"Enter an https URL": {
			"url", "https://127.0.0.1/", "types", "integrity.revoked", "description", "typed before",
		},
		"may have at most 200": {
			"url", "https://receiver.example/", "types", "integrity.revoked", "description",
			"typed before" + strings.Repeat("x", 200),
		},
		"Enter an https URL of a re": {"url", "javascript:x", "types", "integrity.revoked", "description", "typed before"},
	} {
		submit(webhooksPath, fields...).says(http.StatusUnprocessableEntity, words, "typed before", `role="alert"`)
	}
	made := submit(webhooksPath, "url", "https://receiver.example/hook", "description", "billing", "types",
		"integrity.registered", "types", "integrity.revoked",
		"company", s.org.Company.ID.String())
	secret, id := shownSecret.FindString(string(
		made.says(http.StatusOK, "shown once").body,
	)), shownWebhook.FindString(string(made.body))
	if secret == "" || id == "" || contains(made.body, "could not be authorized") {
		t.Fatalf("%s", made.body)
	}
	page := webhooksPath + "/" + id
	p.visit(webhooksPath).says(http.StatusOK, "https://receiver.example/hook", "billing", "active")
	if shown := p.visit(page).says(
		http.StatusOK, "billing", "There are no deliveries", "company-2", "cannot be shown again. If you do not have it, rotate it.",
	); contains(shown.body, secret) || strings.Contains(s.log.String(), secret) {
		t.Error("a secret is shown a second time")
	}
	equal(t, "as the API shows it", s.get(hooks + "/" + id).is(http.StatusOK)["authorizedCompanies"], 1)

	// Only companies that the page has shown are changed.
	ids := map[bool]string{false: s.org.Company.ID.String(), true: second.ID.String()}
	submit(
		page+"/companies", "shown", ids[false], "shown", ids[true], "company", ids[true],
	).leads(page + "?said=webhook-companies#companies")
	submit(
		page+"/companies", "shown", ids[true], "company", ids[true], "company", ids[false],
	).leads(page + "?said=webhook-companies#companies")
	for enabled, company := range ids {
		access := read[wire.WebhooksAccess](s.get(integrity+"/companies/"+company+"/webhooks"), http.StatusOK).Webhooks
		equal(t, "authorized", access[0].Enabled, enabled)
	}
	submit(page+"/companies", "shown", ids[false], "company", ids[false]).leads(page + "?said=webhook-companies#companies")
	if contains(p.visit(page).body, "receives only tests") {
		t.Error("an authorized destination is said to receive nothing")
	}

	submit(page, "url", "", "types", "integrity.revoked").says(http.StatusUnprocessableEntity, "Enter an https URL")
	submit(page, "url", "https://other.example/", "types", "integrity.registered").leads(
		page + "?said=webhook-changed#change",
	)
	equal(t, "changed", s.get(hooks + "/" + id).is(http.StatusOK)["url"], "https://other.example/")

	p.visit(page+"/rotate").says(http.StatusOK, "24 hours")
	rotated := submit(page+"/rotate", "hours", "1").says(http.StatusOK, "shown once")
	if now := shownSecret.FindString(string(rotated.body)); now == "" || now == secret ||
		contains(p.visit(page).body, now) {
		t.Errorf("the new secret: %s", rotated.body)
	}
	p.visit(page).says(http.StatusOK, "The previous secret still signs until")

	submit(page + "/test").leads(page + "?said=test#deliveries")
	p.visit(page+"?said=test").says(http.StatusOK, "The test is on its way", `role="status"`)
	delivery := shownDelivery.FindString(string(
		p.visit(page+"?status=pending").says(http.StatusOK, "webhook.test", `title="pending"`).body,
	))
	p.visit(page+"?status=delivered").says(http.StatusOK, "There are no deliveries")

	// The page of a delivery shows the body that the service sent and the answer, even if a hostile receiver chose it.
	p.visit(page+"/deliveries/"+delivery).says(http.StatusOK, "&#34;recordStatus&#34;:&#34;superseded&#34;", "No response to")
	s.owner(`UPDATE webhook_deliveries SET response_status = 500, took_ms = 42, attempts = 1,
		answer = '\x3c623e00ff0d0ae280ae'`) // <b>, NUL, no UTF-8, a line break, right to left
	p.visit(page+"/deliveries/"+delivery).says(
		http.StatusOK, "<dd>500</dd>", "<dd>42 ms</dd>", "<code>&lt;b&gt;\ufffd\ufffd\n\ufffd</code>",
	)
	for _, reason := range []string{"CONNECTION_FAILED", "DNS_FAILED", "TLS_FAILED", "TIMEOUT", "HTTP_STATUS", "SECRET_UNREADABLE"} {
		s.owner(`UPDATE webhook_deliveries SET reason = '` + reason + `'`)
		for _, path := range []string{page, page + "/deliveries/" + delivery} {
			p.visit(path).says(http.StatusOK, "<code>"+reason+`</code><br><span class="hint">`)
		}
	}
	s.owner(`UPDATE webhook_deliveries SET reason = ''`)
	analyst.visit(page + "/deliveries/" + delivery).says(http.StatusForbidden)
	p.visit(page + "/deliveries/dlv_x").says(http.StatusNotFound)
	submit(page + "/deliveries/" + delivery + "/redeliver").leads(page + "?said=redelivered#deliveries")
	submit(page + "/deliveries/dlv_x/redeliver").says(http.StatusNotFound)

	// The events since it was disabled are counted first.
	submit(page+"/enabled", "enabled", "false").leads(page)
	s.post(integrity+"/records", declaration("d-1", 1, "one")).is(http.StatusCreated)
	submit(page+"/test").says(http.StatusConflict, "disabled", `role="alert"`)
	p.visit(page+"/replay?fromSequence=1").says(http.StatusConflict, `role="alert"`)
	submit(page+"/enabled", "enabled", "true").leads(page)
	p.visit(page+"/replay").says(http.StatusOK, "Count", `value="1"`)
	p.visit(page+"/replay?fromSequence=1&toSequence=&companyReference=").says(http.StatusOK, "Missing deliveries: 1")
	equal(
		t, "a count queues nothing", len(s.get(hooks + "/" + id + "/deliveries").is(http.StatusOK)["deliveries"].([]any)), 1,
	)
	for words, query := range map[string]string{
		"an integer of at least 1": "fromSequence=x", "not below the first": "fromSequence=5&toSequence=4",
		"reference of a company": "fromSequence=1&companyReference=company-9",
	} {
		p.visit(page+"/replay?"+query).says(http.StatusUnprocessableEntity, words)
	}
	submit(
		page+"/replay", "fromSequence", "1", "toSequence", "", "companyReference", "company-1",
	).leads(page + "?said=replayed#deliveries")
	p.visit(page).says(http.StatusOK, "integrity.registered")
	p.visit(page+"/replay?fromSequence="+strconv.Itoa(1)).says(http.StatusOK, "Nothing is missing")

	// Other roles, and other organizations.
	for _, path := range []string{
		"", "/new", "/" + id, "/" + id + "/deliveries", "/" + id + "/rotate", "/" + id + "/delete", "/" + id + "/replay",
	} {
		analyst.visit(webhooksPath + path).says(http.StatusForbidden)
	}
	if contains(analyst.visit("/en/console").says(http.StatusOK).body, webhooksPath) {
		t.Error("the navigation leads to a page that is refused")
	}
	other := s.Organization(t, 1, domain.InternalPlan)
	theirs := s.send(
		http.MethodPost, hooks, other.Secret, body{"url": "https://theirs.example/"},
	).is(http.StatusCreated)["id"].(string)
	for _, path := range []string{"", "/companies", "/enabled", "/rotate", "/delete", "/test", "/replay"} {
		analyst.press(page+path, "enabled", "false").says(http.StatusForbidden)
		submit(
			webhooksPath+"/"+theirs+path, "url", "https://other.example/", "types", "integrity.revoked", "enabled", "true",
			"hours", "1", "fromSequence", "1",
		).says(http.StatusNotFound)
	}
	for _, path := range []string{"", "/rotate", "/delete", "/replay", "/replay?fromSequence=1"} {
		p.visit(webhooksPath + "/" + theirs + path).says(http.StatusNotFound)
	}
	if a := p.do(
		http.MethodGet, webhooksPath+"/"+theirs+"/deliveries", nil, "Accept", "application/json",
	); a.status != http.StatusNotFound {
		t.Errorf("another organization's deliveries: %d %s", a.status, a.body)
	}
	foreign := submit(
		webhooksPath, "url", "https://receiver.example/", "types", "integrity.revoked", "company", other.Company.ID.String(),
	).says(http.StatusOK, "could not be authorized")
	unheard := webhooksPath + "/" + shownWebhook.FindString(string(foreign.body))
	p.visit(unheard).says(http.StatusOK, "receives only tests", `href="#companies"`)
	submit(unheard + "/delete").leads(webhooksPath)

	p.visit(page+"/delete").says(http.StatusOK, "cannot be undone", "https://other.example/")
	submit(page + "/delete").leads(webhooksPath)
	p.visit(page).says(http.StatusNotFound)
	p.visit("/console/webhooks").says(http.StatusOK, "No hay ningún destino")
	s.Audit(t)
}

// While a delivery is pending, the page's script requests the current rows. These requests do not extend the session.
func TestFollowedDeliveries(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	page := webhooksPath + "/" + s.post(
		hooks, body{"url": "https://receiver.example/"},
	).is(http.StatusCreated)["id"].(string)
	ask := func(query string) (a answer, rows string, pending bool) {
		t.Helper()
		var got struct {
			Data struct {
				Rows    string
				Pending bool
			}
		}
		a = p.do(http.MethodGet, page+"/deliveries"+query, nil, "Accept", "application/json")
		check(t, json.Unmarshal(a.body, &got))
		return a, got.Data.Rows, got.Data.Pending
	}
	if contains(p.visit(page).says(http.StatusOK).body, "data-now") {
		t.Error("a page without deliveries is followed")
	}
	p.press(page + "/test").leads(page + "?said=test#deliveries")
	shown := p.visit(page).says(http.StatusOK, `data-now="`+page+`/deliveries?"`, "consolewebhooks.")
	s.skew.Add(int64(29 * time.Minute))
	a, rows, pending := ask("")
	if !pending || !strings.Contains(rows, "webhook.test") || !contains(shown.body, rows) {
		t.Errorf("%d: %s", a.status, a.body)
	}
	if a, rows, pending := ask("?status=delivered"); pending || rows != "" {
		t.Errorf("of those delivered: %s", a.body)
	}
	s.skew.Add(int64(2 * time.Minute))
	if a, _, _ := ask(""); a.status != http.StatusUnauthorized {
		t.Errorf("after half an hour: %d %s", a.status, a.body)
	}
}

// The page that refuses a test names the limit and who shares it.
func TestConsoleNamesTheLimitOfWebhookTests(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	id, _ := s.webhook("https://receiver.example/hook")
	s.freshMinute()
	page := webhooksPath + "/" + id
	for range 10 {
		p.press(page + "/test").leads(page + "?said=test#deliveries")
	}
	p.press(page+"/test").says(
		http.StatusTooManyRequests, "Too many tests or redeliveries in a minute", "all its keys and console sessions share",
	)
}
