package handlers_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"integrityledger/domain"
)

// as signs in a new member with a role.
func (c *consoleService) as(role domain.Role) *guest {
	c.t.Helper()
	member := must(
		c.service, &domain.AddMember{Origin: c.org.Operator(), Email: string(role) + "@example.com", Role: role},
	).Outcome
	return c.signedIn(member.Email)
}

// sendForm posts a form whose fields may repeat. fields has alternating names and values.
func (p *guest) sendForm(path string, fields ...string) answer {
	p.t.Helper()
	values := map[string][]string{}
	for i := 0; i < len(fields); i += 2 {
		values[fields[i]] = append(values[fields[i]], fields[i+1])
	}
	return p.do(http.MethodPost, path, values)
}

// Companies are created, closed, reopened and granted on their page. Each action is the API's command, and saving the
// matrix changes only the cells that the person has changed.
func TestConsoleCompanies(t *testing.T) {
	s := openConsole(t)
	p, viewer := s.signedIn(s.org.Email), s.as(domain.Viewer)
	const page = "/en/console/companies"
	p.press(page, "reference", "company-2").leads(page + "?said=company")
	p.visit(page+"?said=company").says(http.StatusOK, "The company was created", `data-done`, `"/en/console/keys/new"`)
	p.visit("/console/companies?said=access").says(http.StatusOK, "Los permisos se han guardado")
	for _, none := range []string{"", "?said=", "?said=%3Cb%3E", "?said=passkey", "?said=Titles"} {
		if shown := p.visit(page + none).says(http.StatusOK); contains(shown.body, "data-done") ||
			contains(shown.body, "<b>") {
			t.Errorf("%s says that something was done", none)
		}
	}
	for typed, rule := range map[string]string{
		"": "Enter 1 to 128", "a/b": "Enter 1 to 128", "company-2": "already", domain.TestCompany: "test deliveries",
	} {
		p.press(page, "reference", typed).says(http.StatusUnprocessableEntity, rule, `value="`+typed+`"`, `role="alert"`)
	}
	p.visit(page).says(http.StatusOK, "company-1", "company-2", "Close: company-2", s.org.Key.ID.String())
	p.visit("/console/companies").says(http.StatusOK, "Empresas", "activa")
	viewer.visit(page).says(http.StatusOK, "company-2")

	p.visit(page+"/company-2/close").says(http.StatusOK, "COMPANY_CLOSED", "company-2", "at any time")
	p.press(page + "/company-2/close").leads(page)
	store := s.Store(t)
	second := func() domain.Company {
		company, err := store.CompanyByReference(t.Context(), s.org.ID, "company-2")
		check(t, err)
		return company
	}
	if second().ClosedAt == nil {
		t.Error("the company is not closed")
	}
	p.visit(page).says(http.StatusOK, "Reopen: company-2")
	p.visit(page+"/company-2/open").says(http.StatusOK, "again")
	p.press(page + "/company-2/open").leads(page)
	if second().ClosedAt != nil {
		t.Error("the company is not open")
	}

	// Another admin grants company-2 meanwhile. The form changes only company-1's cell.
	first, err := store.CompanyByReference(t.Context(), s.org.ID, "company-1")
	check(t, err)
	key := s.org.Key.ID
	p.visit(page).says(
		http.StatusOK, `name="was" value="0.0"`, `name="cell" value="0.0" checked`, `name="cell" value="1.0" aria`,
	)
	s.Grant(t, s.org, key, second().ID, true)
	before := len(s.Events(t, s.org.ID.Shard()))
	p.sendForm(
		page+"/access", "company", first.ID.String(), "key", key.String(), "was", "0.0", "cell", "0.0",
	).leads(page + "?said=access#access")
	p.sendForm(
		page+"/access?after=company-0", "company", first.ID.String(), "company", second().ID.String(), "key", key.String(),
		"was", "0.0",
	).leads(page + "?after=company-0&said=access#access")
	events := s.Events(t, s.org.ID.Shard())[before:]
	if len(events) != 1 || events[0].Type != domain.CompanyAccessChanged || events[0].Company != first.ID ||
		events[0].Actor != domain.MemberActor(s.org.Key.Member) {
		t.Errorf("events %+v", events)
	}
	p.visit(page).says(http.StatusOK, `name="cell" value="0.0" aria`, `name="cell" value="1.0" checked`)

	// A revoked key has no column.
	must(s.service, &domain.RevokeKey{Origin: s.org.Operator(), Key: key})
	if a := p.visit(page).says(http.StatusOK, "No key works"); contains(a.body, key.String()) {
		t.Error("a revoked key has a column")
	}

	// Ids of other organizations, and roles without the scope.
	other := s.Organization(t, 2, domain.InternalPlan)
	foreign := s.Company(t, other, "foreign")
	p.sendForm(
		page+"/access", "company", foreign.ID.String(), "key", key.String(), "cell", "0.0",
	).says(http.StatusNotFound)
	p.sendForm(
		page+"/access", "company", first.ID.String(), "key", other.Key.ID.String(), "cell", "0.0",
	).says(http.StatusNotFound)
	for _, path := range []string{"/foreign/close", "/foreign/open"} {
		p.visit(page + path).says(http.StatusNotFound)
		p.press(page + path).says(http.StatusNotFound)
	}
	before = len(s.Events(t, s.org.ID.Shard()))
	if shown := viewer.visit(page).says(http.StatusOK); contains(shown.body, "/close") ||
		contains(shown.body, "checkbox") {
		t.Errorf("a viewer is offered what a viewer may not: %s", shown.body)
	}
	for _, path := range []string{"", "/company-1/close", "/company-1/open", "/access"} {
		viewer.sendForm(
			page+path, "reference", "company-3", "company", first.ID.String(), "key", key.String(), "cell", "0.0",
		).says(http.StatusForbidden)
	}
	viewer.visit(page + "/company-1/close").says(http.StatusForbidden)
	if n := len(s.Events(t, s.org.ID.Shard())) - before; n != 0 {
		t.Errorf("%d events by a viewer", n)
	}
	s.Audit(t)
}

// Companies and keys have pages, and saving returns to the same page.
func TestConsoleCompaniesPages(t *testing.T) {
	s := openConsole(t)
	for i := range 26 {
		s.Company(t, s.org, "b-"+string(rune('a'+i)))
	}
	for range 12 {
		s.Key(t, s.org, domain.IntegrityRead)
	}
	p := s.signedIn(s.org.Email)
	shown := string(p.visit("/en/console/companies").says(http.StatusOK, "Next page", "Next keys", "b-y").body)
	if n := strings.Count(shown, `type="checkbox"`); n != 25*12 || strings.Contains(shown, "company-1") ||
		strings.Contains(shown, "First") {
		t.Errorf("%d cells: %s", n, shown)
	}
	next := linkTo(t, shown, "Next page")
	shown = string(p.visit(next).says(http.StatusOK, "company-1", "First page").body)
	shown = string(
		p.visit(linkTo(t, shown, "Next keys")).says(http.StatusOK, "company-1", "First page", "First keys").body,
	)
	if n := strings.Count(shown, `type="checkbox"`); n != 2 {
		t.Errorf("%d cells on the last page: %s", n, shown)
	}
}

// linkTo returns the address of a link on a page.
func linkTo(t *testing.T, page, text string) string {
	t.Helper()
	found := regexp.MustCompile(`href="([^"]+)"[^>]*>` + regexp.QuoteMeta(text) + `<`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("there is no link %s: %s", text, page)
	}
	return html.UnescapeString(found[1])
}
