package handlers_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/bundle"
	"integrityledger/eventstore/pgtest"
)

const historyPage = "/en/console/history"

var newEvents = regexp.MustCompile(`data-new="([^"]+)"`)

// follow returns the address at which a page of the history requests new events.
func (p *guest) follow(query string) string {
	p.t.Helper()
	page := p.visit(historyPage+query).says(
		http.StatusOK, `id="follow"`, `aria-pressed="false"`, `data-following="Following`,
	)
	return html.UnescapeString(string(newEvents.FindSubmatch(page.body)[1]))
}

type followed struct {
	After int64
	Rows  string
	Older *int64
}

// ask requests new events like the page's script.
func (p *guest) ask(path string) (a answer, data followed) {
	p.t.Helper()
	a = p.do(http.MethodGet, path, nil, "Accept", "application/json")
	if a.status == http.StatusOK {
		check(p.t, json.Unmarshal(a.body, &struct{ Data *followed }{&data}))
	}
	return a, data
}

// Each new event is answered once, with the page's filter. If there are more events than a page has, the newest are
// answered with the place of the others.
func TestFollowedHistory(t *testing.T) {
	s := openConsole(t)
	reader, _ := s.added("viewer@example.com", domain.Viewer)
	path := reader.follow("")
	reader.nothingNew(path)
	s.registered("a", 1, "one")
	a, data := reader.ask(path)
	if a.status != http.StatusOK || strings.Count(data.Rows, "<tr") != 1 ||
		!strings.Contains(data.Rows, "integrity.registered") || data.Older != nil {
		t.Fatalf("%d %+v", a.status, data)
	}
	next := fmt.Sprintf("%s/new?after=%d", historyPage, data.After)
	reader.nothingNew(next)

	// A filter skips other events for good.
	companies := reader.follow("?action=company.created")
	s.registered("b", 1, "two")
	if _, data = reader.ask(companies); data.Rows != "" || data.Older != nil {
		t.Errorf("of companies: %+v", data)
	}
	reader.nothingNew(fmt.Sprintf("%s/new?action=company.created&after=%d", historyPage, data.After))
	must(s.service, &domain.CreateCompany{Origin: s.org.Operator(), Reference: "second"})
	if _, data = reader.ask(companies); strings.Count(data.Rows, "<tr") != 1 ||
		!strings.Contains(data.Rows, "company.created") {
		t.Errorf("of companies: %+v", data)
	}

	items := make([]body, 60)
	for i := range items {
		items[i] = declaration(fmt.Sprintf("document-%d", i), 1, "x")
	}
	s.post(integrity+"/records/batch", body{"declarations": items}).is(http.StatusOK)
	_, data = reader.ask(next)
	if strings.Count(data.Rows, "<tr") != 50 || data.Older == nil ||
		!strings.Contains(data.Rows, fmt.Sprintf(`data-sequence="%d"`, *data.Older)) {
		t.Fatalf("of many: %+v", data)
	}
	if page := reader.visit(fmt.Sprintf("%s?before=%d", historyPage, *data.Older)).says(
		http.StatusOK, "company.created",
	); contains(page.body, `id="follow"`) {
		t.Error("a page that does not show the newest is followed")
	}

	for _, wrong := range []string{"", "?after=", "?after=x", "?after=-1", "?after=1&after=2"} {
		if a, _ := reader.ask(historyPage + "/new" + wrong); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d", wrong, a.status)
		}
	}
	other := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	must(s.service, &domain.AddMember{Origin: other.Operator(), Email: "stranger@example.com", Role: domain.Viewer})
	if _, data := s.signedIn("stranger@example.com").ask(
		historyPage + "/new?after=0",
	); strings.Contains(data.Rows, "integrity.registered") || data.Rows == "" {
		t.Errorf("another organization: %+v", data)
	}
}

func (p *guest) nothingNew(path string) {
	p.t.Helper()
	if a, _ := p.ask(path); a.status != http.StatusNoContent {
		p.t.Errorf("%s: %d %s", path, a.status, a.body)
	}
}

// A page that is left open polls without end. Each request only reads the session, and the session ends as if there
// were no requests.
func TestFollowingIsNoUse(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	path := p.follow("")
	s.skew.Add(int64(29 * time.Minute))
	p.nothingNew(path)
	s.skew.Add(int64(2 * time.Minute))
	if a, _ := p.ask(path); a.status != http.StatusUnauthorized || !contains(a.body, `"location":"`+sessionEnded+`"`) {
		t.Errorf("after half an hour: %d %s", a.status, a.body)
	}
	p.visit(historyPage).leads(sessionEnded)

	pgtest.OneServer(t, "its tables cannot be renamed")
	p = s.signedIn(s.org.Email)
	path = p.follow("")
	s.owner("ALTER TABLE events RENAME TO away")
	defer s.owner("ALTER TABLE away RENAME TO events")
	p.nothingNew(path)
}

// Members who manage members see the addresses of actors.
func TestHistoryNamesActors(t *testing.T) {
	s := openConsole(t)
	manager, admin := s.added("admin@example.com", domain.Admin)
	reader, _ := s.added("viewer@example.com", domain.Viewer)
	manager.press("/en/console/companies", "reference", "second")
	s.signedIn(s.org.Email).visit(historyPage).says(
		http.StatusOK, `<a href="/en/console/members/`+admin.ID.String()+`">`+admin.Email+"</a>",
	)
	if page := reader.visit(historyPage).says(http.StatusOK, admin.ID.String()); contains(page.body, admin.Email) ||
		contains(page.body, "/members/") {
		t.Error("a viewer sees the address of another member")
	}
	s.owner("UPDATE texts SET body = NULL WHERE body = '" + admin.Email + "'")
	s.signedIn(s.org.Email).visit(historyPage).says(http.StatusOK, "<code>"+admin.ID.String()+"</code></a>")
}

// A passkey has the name that its owner gave it, also once it is removed, until the name is erased. Only people who
// manage members see it.
func TestHistoryNamesPasskeys(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	reader, _ := s.added("viewer@example.com", domain.Viewer)
	id := s.passkeyNamed("office laptop").ID.String()
	owner.press("/en/console/security/passkeys/" + id + "/remove").says(http.StatusSeeOther)
	named := `<bdi title="` + id + `">office laptop</bdi>`
	if page := owner.visit(historyPage).says(http.StatusOK); strings.Count(string(page.body), named) != 2 {
		t.Errorf("of a passkey that was added and removed: %s", page.body)
	}
	if page := reader.visit(historyPage).says(http.StatusOK, id); contains(page.body, "office laptop") {
		t.Error("a viewer sees the name of another member's passkey")
	}
	s.owner("UPDATE texts SET body = NULL WHERE body = 'office laptop'")
	owner.visit(historyPage).says(http.StatusOK, "<code>"+id+"</code>")
}

// The column of actors tells a key from a person, names the member who accepted an invitation beside the service that
// recorded it, and the page explains the operator and the service.
func TestHistoryTellsKeysFromPeople(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	name := "demo admin"
	must(s.service, &domain.ChangeKey{Origin: s.org.Operator(), Key: s.org.Key.ID, Name: &name})
	s.registered("a", 1, "one")
	page := "/keys/" + s.org.Key.ID.String() + `">demo admin</a>`
	for path, words := range map[string][]string{
		historyPage: {
			`">key <a href="/en/console` + page, "the operator runs the installation", "the service is the program",
		},
		strings.TrimPrefix(historyPage, "/en"): {
			`">clave <a href="/console` + page, "el operador administra la instalación", "el servicio es el propio programa",
		},
	} {
		owner.visit(path).says(http.StatusOK, words...)
	}
	invited := owner.press(membersPage, "email", "third@example.com", "role", "viewer").says(http.StatusOK)
	joined := s.memberCalled("third@example.com").String()
	s.guest().press(string(invitationLink.Find(invited.body))).says(http.StatusSeeOther)
	owner.visit(historyPage+"?action=member.joined").says(
		http.StatusOK, `data-label="By"><a href="/en/console/members/`+joined+`">third@example.com</a>`,
		` <span class="hint">(service)</span>`,
	)
}

// Events are shown in words. Their targets have links if the role may see them, also in rows that are loaded later.
func TestHistoryInWords(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	reader, viewer := s.added("viewer@example.com", domain.Viewer)
	path := "?after=0"
	record := s.registered("a", 1, "one")
	reserved := s.reserved("b", 1)
	made := owner.sendForm(webhooksPath, "url", "https://receiver.example/hook", "types", "integrity.registered")
	hook := shownWebhook.FindString(string(made.says(http.StatusOK).body))
	name := "Billing"
	must(s.service, &domain.ChangeKey{Origin: s.org.Operator(), Key: s.org.Key.ID, Name: &name})
	link := func(path, id, name string) string {
		return `href="/en/console/` + path + `"><bdi title="` + id + `">` + name + "</bdi></a>"
	}
	forAll := []string{
		link("records/"+record, record, "a") + ` <span class="hint">Version 1</span>`,
		link("companies", s.org.Company.ID.String(), "company-1"),
		`<bdi title="` + reserved + `">b</bdi>`,
	}
	forManagers := []string{
		link("records/"+reserved+"/file", reserved, "b") + ` <span class="hint">Version 1</span>`,
		link("keys/"+s.org.Key.ID.String(), s.org.Key.ID.String(), name),
		`href="/en/console/keys/` + s.org.Key.ID.String() + `">` + name + "</a>",
		link("members/"+viewer.ID.String(), viewer.ID.String(), viewer.Email),
		link("webhooks/"+hook, hook, "https://receiver.example/hook"),
	}
	shown := func(p *guest) string {
		t.Helper()
		page := string(
			p.visit(historyPage).says(
				http.StatusOK, "Version registered <code", "Version registered · integrity.registered</option>",
			).body,
		)
		_, data := p.ask(historyPage + "/new" + path)
		if rows := strings.TrimSpace(data.Rows); rows == "" || !strings.Contains(page, rows) {
			t.Errorf("the page does not show its rows as they are asked for later: %s", rows)
		}
		return page
	}
	managers, others := shown(owner), shown(reader)
	for _, link := range append(forAll, forManagers...) {
		if !strings.Contains(managers, link) {
			t.Errorf("an owner's page lacks %s: %s", link, managers)
		}
	}
	for i, link := range append(forAll, forManagers...) {
		if strings.Contains(others, link) != (i < len(forAll)) {
			t.Errorf("a viewer's page and %s: %s", link, others)
		}
	}
	if strings.Contains(others, name) || strings.Contains(others, "receiver.example") {
		t.Errorf("a viewer sees the name of a key or a destination: %s", others)
	}
	if strings.Contains(managers, "/records/"+reserved+`"`) {
		t.Error("a reservation leads to a record")
	}
	owner.visit("/console/history").says(
		http.StatusOK, "Versión registrada <code", "Versión registrada · integrity.registered</option>",
	)

	owner.sendForm(webhooksPath + "/" + hook + "/delete").leads(webhooksPath)
	if page := shown(owner); strings.Contains(page, "/webhooks/"+hook) {
		t.Error("a destination that was deleted is linked")
	}
}

// The main words of an event say what the person did, also if its type covers several acts.
func TestHistorySaysWhatWasDone(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	_, member := s.added("second@example.com", domain.Viewer)
	const companies = "/en/console/companies"
	press := func(path string, form ...string) { p.press(path, form...).says(http.StatusSeeOther) }
	did := func(english, spanish string) {
		t.Helper()
		for path, words := range map[string]string{historyPage: english, strings.TrimPrefix(historyPage, "/en"): spanish} {
			body := string(p.visit(path).says(http.StatusOK).body)
			_, row, _ := strings.Cut(body, "<tbody>")
			row, _, _ = strings.Cut(row, "</tr>")
			if !strings.Contains(row, ">"+words+" <code") {
				t.Errorf("%s is not in the newest row: %s", words, row)
			}
		}
	}
	of := membersPage + "/" + member.ID.String()
	press(of+"/role", "role", "analyst")
	did("Member&#39;s role changed", "Rol de un miembro cambiado")
	press(of + "/disable")
	did("Member disabled", "Miembro desactivado")
	press(of+"/role", "role", "viewer")
	did("Member&#39;s role changed", "Rol de un miembro cambiado")
	press(of + "/enable")
	did("Member enabled again", "Miembro activado de nuevo")
	press(of + "/end")
	did("Membership ended", "Miembro dado de baja")
	p.press(membersPage, "email", "third@example.com", "role", "viewer").says(http.StatusOK)
	invited := membersPage + "/" + s.memberCalled("third@example.com").String()
	press(invited+"/role", "role", "analyst")
	did("Member&#39;s role changed", "Rol de un miembro cambiado")
	press(invited + "/end")
	did("Invitation withdrawn", "Invitación retirada")
	press(companies + "/company-1/close")
	did("Company closed", "Empresa cerrada")
	press(companies + "/company-1/open")
	did("Company reopened", "Empresa reabierta")
	cell := []string{"company", s.org.Company.ID.String(), "key", s.org.Key.ID.String()}
	press(companies+"/access", append(cell, "was", "0.0")...)
	did("Key may not use a company", "La clave no puede usar una empresa")
	press(companies+"/access", append(cell, "cell", "0.0")...)
	did("Key may use a company", "La clave puede usar una empresa")
	reserve := []string{newRecord + "/reservation", "companyReference", "company-1", "documentReference", "a", "version", "1"}
	press(reserve[0], reserve[1:]...)
	did("Version reserved", "Versión reservada")
	s.skew.Add(int64(time.Minute))
	press(reserve[0], reserve[1:]...)
	did("Reservation renewed", "Reserva renovada")
	p.sendForm(webhooksPath, "url", "https://receiver.example/hook", "types", "integrity.registered").says(http.StatusOK)
	hook := string(regexp.MustCompile(`/en/console/webhooks/whk_[0-9a-z]{26}`).Find(p.visit(webhooksPath).body))
	press(hook+"/enabled", "enabled", "false")
	did("Webhook destination changed: now disabled", "Destino de webhook cambiado: ahora desactivado")
	press(hook+"/enabled", "enabled", "true")
	did("Webhook destination changed: now enabled", "Destino de webhook cambiado: ahora activo")
	press(hook, "url", "https://receiver.example/hook", "description", "x", "types", "integrity.registered")
	did("Webhook destination changed", "Destino de webhook cambiado")
	shown := []string{"after", "", "shown", s.org.Company.ID.String()}
	press(hook+"/companies", append(shown, "company", s.org.Company.ID.String())...)
	did("Webhook destination gets the events of a company", "El destino de webhook recibe los eventos de una empresa")
	press(hook+"/companies", shown...)
	did("Webhook destination does not get the events of a company", "El destino de webhook no recibe los eventos de una empresa")
	if body := string(p.visit(historyPage + "?action=company.webhook_changed").body); strings.Count(body, `<span class="hint">company-1</span>`) != 2 {
		t.Errorf("the rows do not name the company: %s", body)
	}
	// What went before is looked for among a bounded number of events.
	for i := range 100 {
		if s.skew.Add(int64(time.Minute)); i%2 == 0 {
			press(hook+"/companies", append(shown, "company", s.org.Company.ID.String())...)
		} else {
			press(hook+"/companies", shown...)
		}
	}
	press(hook+"/enabled", "enabled", "false")
	did("Webhook destination changed", "Destino de webhook cambiado")
	s.Audit(t)

	// A damaged event hides no other.
	s.owner(unguard, `UPDATE events SET data = 'x' WHERE type = 'member.added' AND subject = '`+member.ID.String()+`'`)
	p.visit(historyPage+"?target="+member.ID.String()).says(http.StatusOK, "Membership ended")
}

// The history is filtered by the reference of a document, whose versions are offered if there are several.
func TestHistoryOfAReference(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	first, second := s.registered("F-1", 1, "one"), s.registered("F-1", 2, "two")
	reserved, other := s.reserved("F-2", 1), s.registered("F-3", 1, "three")
	rows := func(query string, words ...string) string {
		t.Helper()
		_, list, _ := strings.Cut(string(p.visit(historyPage+"?"+query).says(http.StatusOK, words...).body), "<tbody>")
		return list
	}
	if list := rows("target=F-2"); !strings.Contains(list, reserved) || strings.Contains(list, other) {
		t.Errorf("the history of a reservation: %s", list)
	}
	if list := rows("target=F-3"); !strings.Contains(list, other) || strings.Contains(list, reserved) {
		t.Errorf("the history of a document with one version: %s", list)
	}
	rows("target=F-1&action=integrity.registered", "Several versions have this reference",
		`?target=`+first+`&amp;action=integrity.registered">F-1, Version 1</a>`, `?target=`+second, `value="F-1"`)
	if contains(p.visit(historyPage+"?target=F-1").body, `id="unknown"`) {
		t.Error("a known reference is called unknown")
	}
	rows("target=F-9", "This is no ID of a target")
	p.visit("/console/history?target=F-1").says(http.StatusOK, "Esta referencia tiene varias versiones")
}

const exportPath = historyPage + "/export"

// auditParts holds the parts that an audit sets aside.
type auditParts map[int][]byte

func (p auditParts) Append(part int, more []byte) error {
	p[part] = append(p[part], more...)
	return nil
}
func (p auditParts) Open(part int) io.Reader { return bytes.NewReader(p[part]) }

// audited audits an exported bundle, which must be clean, and returns the report and all texts of the bundle.
func (s *service) audited(archive []byte) (report audit.Report, text string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "history.zip")
	check(s.t, os.WriteFile(path, archive, 0o600))
	b, err := bundle.Open(path)
	check(s.t, err)
	defer b.Close()
	keys, wrong, err := b.TrustedKeys()
	check(s.t, err)
	trusted, err := evidence.ParseTrustedKeys(keys)
	check(s.t, err)
	checker, err := audit.New(audit.Config{Issuer: b.Issuer, Trusted: trusted, Parts: auditParts{}})
	check(s.t, err)
	checker.Found(wrong...)
	var said strings.Builder
	check(s.t, b.Walk(func(events []audit.Event) error {
		for _, e := range events {
			said.Write(e.Data)
			for _, text := range e.Stored {
				if text.Body != nil {
					said.WriteString(*text.Body)
				}
			}
		}
		return checker.Add(events)
	}, checker.Found))
	report, err = checker.Finish(func(int) {})
	check(s.t, err)
	if report.Count > 0 {
		s.t.Errorf("the bundle is not clean: %v", report.Findings)
	}
	return report, said.String()
}

// Members who manage everything download the whole history, which proves itself. Other members and pages of other sites
// are refused.
func TestExportInTheConsole(t *testing.T) {
	s := openConsole(t)
	owner, admin := s.signedIn(s.org.Email), s.as(domain.Admin)
	other := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
	must(s.service, &domain.AddMember{Origin: other.Operator(), Email: "stranger@example.com", Role: domain.Owner})
	items := make([]body, 600) // more than a page of events
	for i := range items {
		items[i] = declaration(fmt.Sprintf("document-%d", i), 1, "x")
	}
	for some := range slices.Chunk(items, 500) {
		s.post(integrity+"/records/batch", body{"declarations": some}).is(http.StatusOK)
	}
	secret := s.post(
		integrity+"/webhooks", body{"url": "https://hooks.example/a"},
	).is(http.StatusCreated)["secret"].(string)
	for _, p := range []*guest{owner, admin} {
		page := p.visit(historyPage).says(http.StatusOK, `id="export" href="`+exportPath+`"`, "Events so far: ")
		a := p.visit(exportPath)
		if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/zip" ||
			!strings.Contains(a.header.Get("Content-Disposition"), "history-"+s.org.ID.String()) {
			t.Fatalf("%d %v", a.status, a.header)
		}
		report, said := s.audited(a.body)
		if len(report.Organizations) != 1 || report.Organizations[0].Organization != s.org.ID.String() ||
			!contains(page.body, fmt.Sprintf("Events so far: %d<", report.Events)) {
			t.Errorf("%d events of %+v", report.Events, report.Organizations)
		}
		for what, want := range map[string]bool{
			"https://hooks.example/a": true, s.org.Email: true, "document-599": true, secret: false, s.org.Secret: false,
			"stranger@example.com": false,
		} {
			if strings.Contains(said, what) != want {
				t.Errorf("the bundle says %q: %t", what, !want)
			}
		}
	}
	for _, role := range []domain.Role{domain.Viewer, domain.Analyst, domain.Reviewer} {
		p := s.as(role)
		if page := p.visit(historyPage).says(http.StatusOK); contains(page.body, exportPath) {
			t.Errorf("%s: is led to the export", role)
		}
		p.visit(exportPath).says(http.StatusForbidden)
	}
	s.guest().visit(exportPath).leads("/en/console/sign-in")
	owner.do(http.MethodGet, exportPath, nil, "Sec-Fetch-Site", "cross-site").says(http.StatusForbidden, "another site")
	for range 3 { // none keeps the place of an export
		if a := owner.do(http.MethodHead, exportPath, nil); a.status != http.StatusOK || len(a.body) > 0 {
			t.Errorf("HEAD: %d, %d bytes", a.status, len(a.body))
		}
	}
	if a := s.signedIn("stranger@example.com").visit(exportPath); a.status != http.StatusOK {
		t.Errorf("another organization: %d", a.status)
	} else if _, said := s.audited(a.body); strings.Contains(said, "hooks.example") ||
		!strings.Contains(said, "stranger@example.com") {
		t.Errorf("the bundle of another organization: %s", said)
	}
}

// paused is a client that reads nothing of an answer until it is released.
type paused struct {
	*httptest.ResponseRecorder
	begun, goOn, done chan struct{}
	once              sync.Once
	cutOff            bool
}

func (w *paused) Write(part []byte) (int, error) {
	w.once.Do(func() { close(w.begun); <-w.goOn })
	return w.ResponseRecorder.Write(part)
}

// export begins a download and waits until the first bytes would arrive.
func (p *guest) export() *paused {
	p.t.Helper()
	w := &paused{
		ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), goOn: make(chan struct{}),
		done: make(chan struct{}),
	}
	r := p.request(http.MethodGet, exportPath, "", nil)
	for name, value := range p.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	r.RemoteAddr, r.RequestURI = "127.0.0.1:1", exportPath
	go func() {
		defer close(w.done)
		defer func() { w.cutOff = recover() != nil }()
		p.http.Config.Handler.ServeHTTP(w, r)
	}()
	select {
	case <-w.begun:
	case <-w.done:
		p.t.Fatalf("nothing is downloaded: %d %s", w.Code, w.Body)
	}
	return w
}

func (w *paused) end() (whole bool) {
	close(w.goOn)
	<-w.done
	return !w.cutOff
}

// One download of an organization and two of a process run at a time. The next waits for its turn, across
// organizations.
func TestExportsAtOnce(t *testing.T) {
	s := openConsole(t)
	var people []*guest
	for i := range 4 {
		o := s.Organization(t, s.org.ID.Shard(), domain.InternalPlan)
		email := fmt.Sprintf("owner-%d@example.com", i)
		must(s.service, &domain.AddMember{Origin: o.Operator(), Email: email, Role: domain.Owner})
		people = append(people, s.signedIn(email))
	}
	waits := func(p *guest) <-chan answer {
		done, arrived := make(chan answer, 1), make(chan struct{})
		r := p.request(http.MethodGet, exportPath, "", nil)
		for name, value := range p.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		sent := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(arrived) }}
		go func() {
			a, err := p.through(p.http.Client(), r.WithContext(httptrace.WithClientTrace(r.Context(), sent)))
			check(t, err)
			done <- a
		}()
		<-arrived
		return done
	}
	first, second := people[0].export(), people[1].export()
	again, third, fourth := waits(people[0]), waits(people[2]), waits(people[3])
	for range 5 { // a refusal would be answered before these
		people[1].visit(historyPage).says(http.StatusOK)
	}
	select {
	case a := <-third:
		t.Fatalf("does not wait: %d %s", a.status, a.body)
	case a := <-fourth:
		t.Fatalf("does not wait: %d %s", a.status, a.body)
	case a := <-again:
		t.Fatalf("does not wait: %d %s", a.status, a.body)
	default:
	}
	if !first.end() {
		t.Error("the first was cut off")
	}
	for name, waited := range map[string]<-chan answer{
		"the third": third, "the fourth": fourth, "the first, again": again,
	} {
		if a := <-waited; a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if !second.end() {
		t.Error("the second was cut off")
	}
}

// Events during a download are included, so that no text is missing without its erasure.
func TestExportOfAHistoryThatGoesOn(t *testing.T) {
	s := openConsole(t)
	id := s.registered("a", 1, "one")
	s.post(integrity+"/records/"+id+"/revoke", body{"reason": "a reason"}).is(http.StatusOK)
	p := s.signedIn(s.org.Email)
	w := p.export()
	s.registered("b", 1, "two")
	var text domain.TextID
	check(t, s.Pool.QueryRow(t.Context(), "SELECT id FROM texts WHERE body = 'a reason'").Scan((*[16]byte)(&text)))
	must(s.service, &domain.EraseTexts{Origin: s.org.Operator(), Subject: s.org.ID.String(), Texts: []domain.TextID{text}})
	if !w.end() {
		t.Fatal("cut off")
	}
	if report, said := s.audited(w.Body.Bytes()); len(report.Erasures) != 1 || !strings.Contains(said, hash("two")) {
		t.Errorf("%d erasures; %s", len(report.Erasures), said)
	}
}

// A download ends with its session, and then never looks complete.
func TestExportEndsWithItsSession(t *testing.T) {
	s := openConsole(t)
	for what, end := range map[string]func(p *guest){
		"signed out": func(p *guest) { p.press("/en/console/security/sign-out-everywhere") },
		"another role": func(*guest) {
			role := domain.Viewer
			must(
				s.service,
				&domain.ChangeMember{Origin: s.org.Operator(), Member: s.memberCalled("admin@example.com"), Role: &role},
			)
		},
		"half an hour later": func(*guest) { s.skew.Add(int64(30 * time.Minute)) },
	} {
		p := s.signedIn(s.org.Email)
		if what == "another role" {
			p = s.as(domain.Admin)
		}
		w := p.export()
		other := &guest{p.consoleService, maps.Clone(p.cookies)}
		end(other)
		if w.end() {
			t.Errorf("%s: the export goes on", what)
		}
		if _, err := zip.NewReader(bytes.NewReader(w.Body.Bytes()), int64(w.Body.Len())); err == nil {
			t.Errorf("%s: what has arrived looks whole", what)
		}
	}
}

// A proof of identity during a download changes the session's token and does not end the download.
func TestExportOutlivesAProof(t *testing.T) {
	s, idp := openToProvider(t, nil)
	idp.says(map[string]any{"email": s.org.Email, "email_verified": true, "auth_time": s.Now().Unix()})
	p := s.signedIn(s.org.Email)
	w := p.export()
	before := p.cookies[sessionName]
	p.byProvider("/en/console/prove").leads("/en/console")
	if p.cookies[sessionName] == before {
		t.Fatal("the proof has kept the token")
	}
	if !w.end() {
		t.Error("cut off")
	}
}

func (s *service) memberCalled(address string) domain.MemberID {
	s.t.Helper()
	members, err := s.Store(s.t).Members(s.t.Context(), s.org.ID)
	check(s.t, err)
	return members[slices.IndexFunc(members, func(m domain.Member) bool { return m.Email == address })].ID
}

// The filter by target takes an id, a company's reference and a member's address. It says so of any other text.
func TestHistoryIsFilteredByName(t *testing.T) {
	s := openConsole(t)
	owner := s.signedIn(s.org.Email)
	must(s.service, &domain.CreateCompany{Origin: s.org.Operator(), Reference: "second"})
	viewer, _ := s.added("viewer@example.com", domain.Viewer)
	const none, rows = "This is no ID of a target", `<tr data-sequence`
	for text, events := range map[string]int{"second": 1, "viewer@example.com": 1} {
		a := owner.visit(historyPage+"?target="+text).says(http.StatusOK, `value="`+text+`"`, "Show all")
		if n := strings.Count(string(a.body), rows); n < events || n > 2 || contains(a.body, none) {
			t.Errorf("%s: %d events: %s", text, n, a.body)
		}
	}
	for _, text := range []string{"nothing", "nobody@example.com", "a%20b"} {
		a := owner.visit(historyPage+"?target="+text).says(http.StatusOK, none, `aria-invalid="true"`, "Show all")
		if contains(a.body, rows) || contains(a.body, "No event matches") {
			t.Errorf("%s: events, or their lack, that look like the answer", text)
		}
	}
	viewer.visit(historyPage+"?target="+s.org.Email).says(http.StatusOK, none)

	// An ended member is found too, and so is what a member did, also with a key.
	leaver, member := s.added("leaver@example.com", domain.Admin)
	leaver.press("/en/console/companies", "reference", "third")
	made := leaver.sendForm("/en/console/keys/new", "name", "x", "scopes", "integrity:admin").says(http.StatusOK)
	s.send(
		http.MethodPost, integrity+"/companies", string(keyText.FindSubmatch(made.body)[1]), body{"reference": "fourth"},
	).is(http.StatusCreated)
	must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: member.ID, Status: new(domain.MemberEnded)})
	owner.visit(historyPage+"?target=leaver@example.com").says(
		http.StatusOK, "<code class=\"hint\">member.changed</code><br><span class=\"hint\">Since then: admin, ended</span>",
		`value="leaver@example.com"`,
	)
	for _, text := range []string{"leaver@example.com", member.ID.String()} {
		a := owner.visit(historyPage+"?author="+text).says(http.StatusOK, "third", "fourth", `value="`+text+`"`, "Show all")
		if contains(a.body, "company-1") || contains(a.body, "member.changed</code>") {
			t.Errorf("%s did what others did: %s", text, a.body)
		}
	}
	a := owner.visit(historyPage + "?author=leaver@example.com&action=company.created&target=third").says(http.StatusOK)
	if n := strings.Count(string(a.body), rows); n != 1 || contains(a.body, none) {
		t.Errorf("%d companies of this reference: %s", n, a.body)
	}
	owner.visit(historyPage+"?author=operator").says(http.StatusOK, "company-1")
	if a := viewer.visit(historyPage+"?author="+member.ID.String()).says(http.StatusOK, "third"); contains(a.body, "fourth") {
		t.Error("a viewer learns whose key it is")
	}
	for _, text := range []string{"nobody@example.com", "a%20b"} {
		a := owner.visit(historyPage+"?author="+text).says(http.StatusOK, "No author is known", `aria-invalid="true"`)
		if contains(a.body, rows) {
			t.Errorf("%s: events that look like the answer", text)
		}
	}
	owner.visit("/en/console/members/"+member.ID.String()).says(
		http.StatusOK, historyPage+"?author="+member.ID.String(),
	)
	if a := owner.visit(historyPage).says(http.StatusOK); contains(a.body, "Show all") || contains(a.body, none) {
		t.Errorf("without a filter: %s", a.body)
	}
}
