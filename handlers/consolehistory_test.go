package handlers_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain"
)

const historyPage = "/en/console/history"

var newEvents = regexp.MustCompile(`data-new="([^"]+)"`)

// follow is the address at which a page of the history asks for what is new.
func (p *guest) follow(query string) string {
	p.t.Helper()
	page := p.visit(historyPage+query).says(http.StatusOK, `id="follow"`, `aria-pressed="false"`)
	return html.UnescapeString(string(newEvents.FindSubmatch(page.body)[1]))
}

type followed struct {
	After int64
	Rows  string
	Older *int64
}

// ask asks it as the page's script does.
func (p *guest) ask(path string) (a answer, data followed) {
	p.t.Helper()
	a = p.do(http.MethodGet, path, nil, "Accept", "application/json")
	if a.status == http.StatusOK {
		check(p.t, json.Unmarshal(a.body, &struct{ Data *followed }{&data}))
	}
	return a, data
}

// What happens is answered once, with the filter of the page; of more than a page has, the newest, and where the others are.
func TestFollowedHistory(t *testing.T) {
	s := openConsole(t)
	reader, _ := s.added("viewer@example.com", domain.Viewer)
	path := reader.follow("")
	reader.nothingNew(path)
	s.registered("a", 1, "one")
	a, data := reader.ask(path)
	if a.status != http.StatusOK || strings.Count(data.Rows, "<tr") != 1 || !strings.Contains(data.Rows, "integrity.registered") || data.Older != nil {
		t.Fatalf("%d %+v", a.status, data)
	}
	next := fmt.Sprintf("%s/new?after=%d", historyPage, data.After)
	reader.nothingNew(next)

	// With a filter, what does not match is passed over for good.
	companies := reader.follow("?action=company.created")
	s.registered("b", 1, "two")
	if _, data = reader.ask(companies); data.Rows != "" || data.Older != nil {
		t.Errorf("of companies: %+v", data)
	}
	reader.nothingNew(fmt.Sprintf("%s/new?action=company.created&after=%d", historyPage, data.After))
	must(s.service, &domain.CreateCompany{Origin: s.org.Operator(), Reference: "second"})
	if _, data = reader.ask(companies); strings.Count(data.Rows, "<tr") != 1 || !strings.Contains(data.Rows, "company.created") {
		t.Errorf("of companies: %+v", data)
	}

	items := make([]body, 60)
	for i := range items {
		items[i] = declaration(fmt.Sprintf("document-%d", i), 1, "x")
	}
	s.post(integrity+"/records/batch", body{"declarations": items}).is(http.StatusOK)
	_, data = reader.ask(next)
	if strings.Count(data.Rows, "<tr") != 50 || data.Older == nil || !strings.Contains(data.Rows, fmt.Sprintf(`data-sequence="%d"`, *data.Older)) {
		t.Fatalf("of many: %+v", data)
	}
	if page := reader.visit(fmt.Sprintf("%s?before=%d", historyPage, *data.Older)).says(http.StatusOK, "company.created"); contains(page.body, `id="follow"`) {
		t.Error("a page that does not show the newest is followed")
	}

	for _, wrong := range []string{"", "?after=", "?after=x", "?after=-1", "?after=1&after=2"} {
		if a, _ := reader.ask(historyPage + "/new" + wrong); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d", wrong, a.status)
		}
	}
	other := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	must(s.service, &domain.AddMember{Origin: other.Operator(), Email: "stranger@example.com", Role: domain.Viewer})
	if _, data := s.signedIn("stranger@example.com").ask(historyPage + "/new?after=0"); strings.Contains(data.Rows, "integrity.registered") || data.Rows == "" {
		t.Errorf("another organization: %+v", data)
	}
}

func (p *guest) nothingNew(path string) {
	p.t.Helper()
	if a, _ := p.ask(path); a.status != http.StatusNoContent {
		p.t.Errorf("%s: %d %s", path, a.status, a.body)
	}
}

// A page that is left open asks for ever: it costs the look at the session alone, and the session ends as if nobody asked.
func TestFollowingIsNoUse(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	path := p.follow("")
	s.skew.Add(int64(29 * time.Minute))
	p.nothingNew(path)
	s.skew.Add(int64(2 * time.Minute))
	if a, _ := p.ask(path); a.status != http.StatusUnauthorized || !contains(a.body, `"location":"/en/console/sign-in"`) {
		t.Errorf("after half an hour: %d %s", a.status, a.body)
	}
	p.visit(historyPage).leads("/en/console/sign-in")

	pgtest.OneServer(t, "its tables cannot be renamed")
	p = s.signedIn(s.org.Email)
	path = p.follow("")
	s.owner("ALTER TABLE events RENAME TO away")
	defer s.owner("ALTER TABLE away RENAME TO events")
	p.nothingNew(path)
}

// Those who manage members see who has acted, by address.
func TestHistoryNamesActors(t *testing.T) {
	s := openConsole(t)
	manager, admin := s.added("admin@example.com", domain.Admin)
	reader, _ := s.added("viewer@example.com", domain.Viewer)
	manager.press("/en/console/companies", "reference", "second")
	s.signedIn(s.org.Email).visit(historyPage).says(http.StatusOK, "<td>"+admin.Email+"</td>")
	if page := reader.visit(historyPage).says(http.StatusOK, admin.ID.String()); contains(page.body, admin.Email) {
		t.Error("a viewer sees the address of another member")
	}
	s.owner("UPDATE texts SET body = NULL WHERE body = '" + admin.Email + "'")
	s.signedIn(s.org.Email).visit(historyPage).says(http.StatusOK, "<td><code>"+admin.ID.String())
}
