package handlers_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
)

// matrix is the form of a key's cells, which are all ticked or, if they were ticked before, all unticked.
func matrix(companies []domain.Company, key domain.KeyID, ticked bool) []string {
	fields := []string{"key", key.String()}
	name := map[bool]string{true: "cell", false: "was"}[ticked]
	for i, company := range companies {
		fields = append(fields, "company", company.ID.String(), name, fmt.Sprintf("%d.0", i))
	}
	return fields
}

// manyCompanies creates n companies.
func (s *service) manyCompanies(n int) (list []domain.Company) {
	s.t.Helper()
	for i := range n {
		list = append(list, s.Company(s.t, s.org, fmt.Sprintf("many-%d", i)))
	}
	return list
}

// Each change in the console counts in the organization's minute. A form is saved as a whole or not at all, except for
// the access it takes away. Revocations and removals are counted and never refused.
func TestConsoleTakesOfTheMinute(t *testing.T) {
	s := openConsoleWith(t, options{plan: "gratis"})
	const access = "/en/console/companies/access"
	companies, p := s.manyCompanies(26), s.signedIn(s.org.Email)
	other, _ := s.Key(t, s.org, domain.IntegrityRead)
	granted := "SELECT count(*) FROM grants WHERE shard = $1 AND enabled AND company_id IN (SELECT company_id FROM " +
		"companies WHERE shard = $1 AND organization_id = $2)"
	s.freshMinute()
	before, first := s.sequence(), s.number(granted)

	large := append(matrix(companies[:25], other.ID, true), "key", s.org.Key.ID.String(), "cell", "0.1") // 26 cells of 50
	for _, form := range [][]string{large, matrix(companies, other.ID, true)} {
		p.sendForm(access, form...).says(http.StatusUnprocessableEntity, "Too many cells at once",
			"&#34;Keys and companies&#34;", "<strong>25</strong>")
		p.sendForm("/console/companies/access", form...).says(http.StatusUnprocessableEntity, "Demasiadas casillas a la vez",
			"«Claves y empresas»", "<strong>25</strong>")
	}
	plain := p.do(http.MethodPost, access, map[string][]string{"key": {other.ID.String()}, "company": idsOf(companies),
		"cell": {"0.0"}}, "Accept", "application/json")
	if got := pointers(plain.refuses(http.StatusUnprocessableEntity,
		domain.InvalidData)); got != "/cell LENGTH" || !contains(plain.body, "at most 25") {
		t.Errorf("%s: %s", got, plain.body)
	}
	if after := s.sequence(); after != before {
		t.Fatalf("a form that is too large made %d events", after-before)
	}
	p.sendForm(access, matrix(companies[:25], other.ID, true)...).leads("/en/console/companies?said=access#access")

	s.skew.Add(int64(20 * time.Second))
	refused := p.sendForm(access, matrix(companies[20:], other.ID, true)...).says(http.StatusTooManyRequests,
		"Too many changes in a minute", "<strong>30</strong>", "You can continue from")
	if got := refused.header.Get("Retry-After"); got != "40" {
		t.Errorf("Retry-After %s, want 40", got)
	}
	p.sendForm("/console/companies/access", matrix(companies[20:], other.ID, true)...).says(http.StatusTooManyRequests,
		"Demasiados cambios en un minuto", "<strong>30</strong>", "Puede seguir")
	p.press("/en/console/keys/"+other.ID.String()+"/rename", "name", "new").says(http.StatusTooManyRequests,
		"Too many changes in a minute")
	p.press("/en/console/companies", "reference", "later").says(http.StatusTooManyRequests, "Too many changes in a minute")
	p.press("/en/console/members", "email", "new@example.com", "role", "viewer").says(http.StatusTooManyRequests,
		"Too many changes in a minute")
	p.press("/en/console/webhooks", "url", "https://hooks.example/x", "types",
		"integrity.registered").says(http.StatusTooManyRequests, "Too many changes in a minute")
	s.get(integrity+"/usage").refuses(http.StatusTooManyRequests, domain.RateLimited)
	if got := s.number(granted) - first; got != 25 {
		t.Errorf("%d grants, want 25", got)
	}

	// Three cells are unticked and one is ticked: only the three are saved.
	mixed := append(matrix(companies[:3], other.ID, false), "company", companies[25].ID.String(), "cell", "3.0")
	p.sendForm(access, mixed...).says(http.StatusTooManyRequests, "Too many changes in a minute")
	if got := s.number(granted) - first; got != 22 {
		t.Errorf("%d grants after three were taken back, want 22", got)
	}
	p.sendForm(access, matrix(companies[3:20], other.ID, false)...).leads("/en/console/companies?said=access#access")
	p.press("/en/console/companies/many-0/close").leads("/en/console/companies")
	p.press("/en/console/companies/many-0/open").says(http.StatusTooManyRequests)
	p.press("/en/console/keys/" + other.ID.String() + "/revoke").leads(
		"/en/console/keys/" + other.ID.String() + "?said=key-revoked",
	)

	s.skew.Add(int64(40 * time.Second))
	p.press("/en/console/companies/many-0/open").leads("/en/console/companies")
	s.Audit(t)
}

func idsOf(companies []domain.Company) (ids []string) {
	for _, c := range companies {
		ids = append(ids, c.ID.String())
	}
	return ids
}

// The form of a destination may name at most as many companies as a form may change.
func TestConsoleWebhookCompaniesAreBounded(t *testing.T) {
	s := openConsole(t)
	companies, p := s.manyCompanies(26), s.signedIn(s.org.Email)
	fields := []string{"url", "https://hooks.example/x", "types", "integrity.registered"}
	for _, id := range idsOf(companies) {
		fields = append(fields, "company", id)
	}
	before := s.sequence()
	p.sendForm("/en/console/webhooks", fields...).says(http.StatusUnprocessableEntity, "Too many companies at once",
		"<strong>25</strong>")
	if s.sequence() != before {
		t.Error("a destination was made of a form that was refused")
	}
	id := s.post(integrity+"/webhooks", body{"url": "https://hooks.example/x"}).is(http.StatusCreated)["id"].(string)
	fields = nil
	for _, id := range idsOf(companies) {
		fields = append(fields, "shown", id, "company", id)
	}
	p.sendForm("/console/webhooks/"+id+"/companies", fields...).says(http.StatusUnprocessableEntity,
		"Demasiadas empresas a la vez", "<strong>25</strong>")
	p.sendForm("/en/console/webhooks/"+id+"/companies",
		fields[:4*25]...).leads("/en/console/webhooks/" + id + "?said=webhook-companies#companies")
	if got := s.sequence() - before; got != 26 {
		t.Errorf("%d events, want 26", got)
	}
}

// All administrative events of a day count against the limit of the plan, whichever face they come from. After the
// limit is reached, revoking, disabling and removing still work and count, but cannot be repeated without end.
func TestAdministrativeEventsOfADay(t *testing.T) {
	const most = 8
	plans := parsePlans(t, fmt.Sprintf(`{"gratis": {"perMinute": 1000, "administrativeEventsPerDay": %d}}`, most))
	s := openConsoleWith(t, options{plan: "gratis", plans: plans})
	other := s.second(options{plans: plans})
	s.SecondOwner(t, s.org)
	s.hold()
	s.at(s.Now().Truncate(24 * time.Hour).Add(47*time.Hour + 59*time.Minute)) // a minute before midnight
	p := s.signedIn(s.org.Email)
	limit := func() wire.MonthlyLimit {
		return read[wire.FullOrganization](s.get("/api/v1/organization"), http.StatusOK).Limits.AdministrativeEvents
	}
	used := func(want int64) {
		t.Helper()
		if got := s.number("SELECT used FROM administrative_usage WHERE shard = $1 AND organization_id = $2"); got != want {
			t.Errorf("the day has %d events, want %d", got, want)
		}
	}
	midnight := s.Now().Add(time.Minute).Format("2006-01-02T15:04:05Z")
	equal(t, "before", limit(), wire.MonthlyLimit{Quota: quotaOf(most, 0), ResetsAt: midnight})

	company := s.post(integrity+"/companies", body{"reference": "a"}).is(http.StatusCreated)["id"].(string)
	made := s.post("/api/v1/organization/keys", body{"name": "n", "scopes": []string{"integrity:read"},
		"companies": []string{"a"}}).is(http.StatusCreated) // two
	key := made["id"].(string)
	webhook := other.post(integrity+"/webhooks",
		body{"url": "https://hooks.example/x"}).is(http.StatusCreated)["id"].(string)
	p.press("/en/console/companies", "reference", "b").leads("/en/console/companies?said=company")
	member := s.post("/api/v1/organization/members", body{"email": "new@example.com",
		"role": "viewer"}).is(http.StatusCreated)["id"].(string)
	access := integrity + "/companies/" + company + "/access"
	s.post(access, body{"keyId": s.org.Key.ID.String(), "enabled": true}).is(http.StatusOK)
	s.post(integrity+"/companies", body{"reference": "a"}).is(http.StatusOK) // no event
	used(7)
	s.post(integrity+"/companies/"+company+"/webhooks", body{"webhookId": webhook, "enabled": true}).is(http.StatusOK)
	equal(t, "used up", limit(), wire.MonthlyLimit{Quota: quotaOf(most, most), ResetsAt: midnight})

	refusals := 0
	for _, a := range []answer{
		s.post(integrity+"/companies", body{"reference": "c"}),
		other.post("/api/v1/organization/keys", body{"name": "n", "scopes": []string{"integrity:read"}}),
		s.send(http.MethodPatch, "/api/v1/organization/keys/"+key, s.org.Secret, body{"name": "m"}),
		s.send(http.MethodPost, "/api/v1/organization/keys/"+key+"/rotate", s.org.Secret, nil),
		s.send(http.MethodPatch, "/api/v1/organization/members/"+member, s.org.Secret, body{"role": "analyst"}),
		s.send(http.MethodPatch, integrity+"/webhooks/"+webhook, s.org.Secret, body{"description": "d"}),
		s.post(access, body{"keyId": s.org.Key.ID.String(), "enabled": true}),
	} {
		e := a.refuses(http.StatusTooManyRequests, domain.RateLimited)
		if wait := a.header.Get("Retry-After"); wait != "60" || !strings.Contains(e.Detail, strconv.Itoa(most)) {
			t.Errorf("Retry-After %s: %s", wait, e.Detail)
		}
		refusals++
	}
	p.press("/en/console/companies", "reference", "c").says(http.StatusTooManyRequests, "Too many changes in a day",
		"<strong>8</strong>", "You can continue from", "0:00")
	p.press("/console/keys/"+key+"/rename", "name", "x").says(http.StatusTooManyRequests, "Demasiados cambios en un día",
		"<strong>8</strong>")
	p.press("/en/console/members", "email", "later@example.com", "role", "viewer").says(http.StatusTooManyRequests,
		"Too many changes in a day")
	p.press("/en/console/webhooks/"+webhook, "url", "https://hooks.example/y", "types",
		"integrity.registered").says(http.StatusTooManyRequests, "Too many changes in a day")
	p.visit("/en/console/plan").says(http.StatusOK, "Administrative changes", "<strong>8</strong> of 8",
		`aria-label="Administrative changes: 100%"`)
	used(most)

	// Registrations are not administrative.
	s.registered("a", 1, "one")

	// Taking away is never refused, and counts.
	s.post(access, body{"keyId": s.org.Key.ID.String(), "enabled": false}).is(http.StatusOK)
	s.post(access, body{"keyId": s.org.Key.ID.String(), "enabled": false}).refuses(http.StatusTooManyRequests,
		domain.RateLimited)
	toWebhook := integrity + "/companies/" + company + "/webhooks"
	s.post(toWebhook, body{"webhookId": webhook, "enabled": false}).is(http.StatusOK)
	s.post(toWebhook, body{"webhookId": webhook, "enabled": false}).refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.send(http.MethodPatch, integrity+"/companies/"+company, s.org.Secret, body{"status": "closed"}).is(http.StatusOK)
	s.send(http.MethodPatch, integrity+"/companies/"+company, s.org.Secret,
		body{"status": "active"}).refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.send(http.MethodPatch, integrity+"/webhooks/"+webhook, s.org.Secret, body{"enabled": false}).is(http.StatusOK)
	s.send(http.MethodPatch, integrity+"/webhooks/"+webhook, s.org.Secret,
		body{"enabled": true}).refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.send(http.MethodDelete, integrity+"/webhooks/"+webhook, s.org.Secret,
		nil).is(http.StatusOK) // two events, one for the erasure of its address
	s.send(http.MethodDelete, "/api/v1/organization/members/"+member, s.org.Secret, nil).is(http.StatusOK)
	p.press("/en/console/keys/" + key + "/revoke").leads("/en/console/keys/" + key + "?said=key-revoked")
	used(most + 8)
	equal(t, "beyond", limit().Remaining, 0)

	// On the next day the same request succeeds.
	s.skew.Add(int64(time.Minute))
	equal(t, "the next day", limit().Used, 0)
	s.post(integrity+"/companies", body{"reference": "c"}).is(http.StatusCreated)
	equal(t, "the next day", limit().Used, 1)
	s.Audit(t)
}

// A command with more events than the daily allowance needs a whole day, but is not refused on every day.
func TestAdministrativeCommandBeyondTheDay(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t,
		`{"gratis": {"perMinute": 1000, "administrativeEventsPerDay": 3}}`)})
	s.freshMinute()
	var references []string
	for _, c := range s.manyCompanies(5) {
		references = append(references, c.Reference)
	}
	create := func() answer {
		return s.post("/api/v1/organization/keys", body{"name": "n", "scopes": []string{"integrity:read"},
			"companies": references})
	}
	create().is(http.StatusCreated)
	create().refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.skew.Add(int64(24 * time.Hour))
	create().is(http.StatusCreated)
}

// Over the API and MCP, a command that takes something away is executed even in a used-up minute, and counts in it. All
// other requests are refused, also at the same endpoints, and the number of vain attempts by an address is limited.
func TestTakingAwayPassesTheMinute(t *testing.T) {
	const perMinute = 60
	s := open(t, options{plan: "gratis", plans: parsePlans(t, fmt.Sprintf(`{"gratis": {"perMinute": %d}}`, perMinute)),
		config: func(c *handlers.Config) {
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}})
	s.freshMinute()
	from := func(address, method, path string, content any) answer {
		return s.send(method, path, s.org.Secret, content, "X-Forwarded-For", address)
	}
	revoked, withdrawn := s.registered("a", 1, "one"), s.registered("b", 1, "two")
	reserved := s.reserved("c", 1)
	company := s.post(integrity+"/companies", body{"reference": "other"}).is(http.StatusCreated)["id"].(string)
	key := s.post("/api/v1/organization/keys", body{"name": "n", "scopes": []string{"integrity:read"},
		"companies": []string{"other"}}).is(http.StatusCreated)["id"].(string)
	webhook, _ := s.webhook("https://hooks.example/x")
	s.post(integrity+"/companies/"+company+"/webhooks", body{"webhookId": webhook, "enabled": true}).is(http.StatusOK)
	invite := func(address string) string {
		return s.post("/api/v1/organization/members", body{"email": address,
			"role": "viewer"}).is(http.StatusCreated)["id"].(string)
	}
	invited, active := invite("new@example.com"), s.memberOf(s.actor("analyst@example.com", domain.Analyst)).String()
	link := s.post(links, nil).is(http.StatusCreated)["id"].(string)
	_, certificate := s.certificate("t", "text")
	access, hooks := integrity+"/companies/"+company+"/access", integrity+"/companies/"+company+"/webhooks"
	for s.get(integrity+"/usage").status != http.StatusTooManyRequests { // until the minute is used up
	}

	const keys, members = "/api/v1/organization/keys/", "/api/v1/organization/members/"
	takings := []struct {
		method, path string
		content      any
		back         any // the opposite change, which is refused
	}{
		{http.MethodPost, access, body{"keyId": key, "enabled": false}, body{"keyId": key, "enabled": true}},
		{http.MethodPost, hooks, body{"webhookId": webhook, "enabled": false}, body{"webhookId": webhook, "enabled": true}},
		{http.MethodPatch, integrity + "/webhooks/" + webhook, body{"enabled": false}, body{"enabled": true}},
		{http.MethodDelete, integrity + "/webhooks/" + webhook, nil, nil},
		{http.MethodPatch, integrity + "/companies/" + company, body{"status": "closed"}, body{"status": "active"}},
		{http.MethodDelete, keys + key, nil, nil},
		{http.MethodDelete, members + invited, nil, nil},
		{http.MethodPatch, members + active, body{"status": "disabled"}, body{"status": "active"}},
		{http.MethodDelete, members + active, nil, nil},
		{http.MethodDelete, links + "/" + link, nil, nil},
		{http.MethodDelete, integrity + "/reservations/" + reserved, nil, nil},
		{http.MethodPost, integrity + "/records/" + revoked + "/revoke", nil, nil},
		{http.MethodPost, certificationAction + "/certificates/" + certificate + "/revoke", body{"reason": "wrong"}, nil},
	}
	for i, taking := range takings {
		if a := from("192.0.2.1", taking.method, taking.path, taking.content); a.status != http.StatusOK {
			t.Errorf("%s %s: %d %s", taking.method, taking.path, a.status, a.body)
		}
		before := s.sequence()
		// Repeated, it takes nothing away.
		if taking.back != nil {
			from(fmt.Sprintf("192.0.2.%d", 100+i), taking.method, taking.path, taking.back).refuses(
				http.StatusTooManyRequests, domain.RateLimited)
		}
		from(fmt.Sprintf("192.0.2.%d", 100+i), taking.method, taking.path, taking.content).refuses(
			http.StatusTooManyRequests, domain.RateLimited)
		if s.sequence() != before {
			t.Errorf("%s %s made an event", taking.method, taking.path)
		}
	}
	if _, failed := s.tool(integrityMCP, s.org.Secret, "integrity_revoke", body{"publicId": withdrawn}); failed {
		t.Error("the tool that revokes is refused")
	}
	for _, message := range []string{request("tools/call", `{"name":"integrity_lookup","arguments":{}}`),
		request("tools/list", "{}")} {
		s.rpc(integrityMCP, s.org.Secret, message).refuses(http.StatusTooManyRequests, domain.RateLimited)
	}

	// An address may make at most 60 vain attempts in a minute, whatever they are. Other addresses are not affected.
	last, _ := s.Key(t, s.org, domain.IntegrityRead)
	for range 60 {
		from("192.0.2.99", http.MethodDelete, keys+domain.NewID[domain.KeyID](s.Now()).String(),
			nil).refuses(http.StatusTooManyRequests, domain.RateLimited)
	}
	from("192.0.2.99", http.MethodDelete, keys+last.ID.String(), nil).refuses(
		http.StatusTooManyRequests, domain.RateLimited,
	)
	from("192.0.2.98", http.MethodDelete, keys+last.ID.String(), nil).is(http.StatusOK)

	used := s.number("SELECT used FROM meters WHERE shard = $1 AND subject = $2 ORDER BY minute DESC LIMIT 1")
	if used < int64(perMinute+len(takings)) {
		t.Errorf("%d requests are counted, want all", used)
	}
	s.Audit(t)
}
