package handlers_test

import (
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

var (
	keyText = regexp.MustCompile(`<pre><code>(i[a-z]*_[^<]+)</code>`)
	keyPath = regexp.MustCompile(`/en/console/keys/(key_[0-9a-z]{26})"`)
)

// A key is created, changed, rotated and revoked on its pages. Only the answer to its creation contains its text, and
// the key works with the requested properties.
func TestConsoleKeys(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	store := s.Store(t)
	const page = "/en/console/keys"
	p.visit(page).says(http.StatusOK, s.org.Key.ID.String(), "operator", "integrity:write", "never")
	p.visit("/console/keys").says(http.StatusOK, "Claves", "activa")
	p.visit(page+"/new").says(http.StatusOK, "organization:admin", "reserves links", `value="company-1"`)

	// Every scope is offered once. The scopes for registering come first.
	form := string(p.visit(page + "/new").body)
	var offered []string
	for _, found := range regexp.MustCompile(`name="scopes" value="([^"]+)"`).FindAllStringSubmatch(form, -1) {
		offered = append(offered, found[1])
	}
	var all []string
	for _, scope := range domain.Scopes() {
		all = append(all, string(scope))
	}
	if slices.Sort(all); !slices.Equal(slices.Sorted(slices.Values(offered)), all) || offered[0] != "integrity:read" ||
		offered[1] != "integrity:write" {
		t.Errorf("offered are %v", offered)
	}

	// A problem is shown next to its field, and the input remains.
	shown := p.sendForm(
		page+"/new", "name", "worker", "scopes", "integrity:read", "companies", "company-1", "networks", "here",
		"maxVersionStep", "0", "expiresAt", "2020-01-01",
	).
		says(
			http.StatusUnprocessableEntity, `id="networks-error"`, `value="worker"`, `value="integrity:read" checked`,
			`value="company-1" checked`, ">here<", `value="2020-01-01"`,
		)
	if keyText.Match(shown.body) {
		t.Error("a refused form has made a key")
	}
	for field, form := range map[string][]string{
		"name": {"scopes", "integrity:read"}, "scopes": {"name", "x"},
		"companies":      {"name", "x", "scopes", "integrity:read", "companies", "unknown"},
		"source":         {"name", "x", "scopes", "integrity:read", "source", "a b"},
		"maxVersionStep": {"name", "x", "scopes", "integrity:read", "maxVersionStep", "0"},
		"expiresAt":      {"name", "x", "scopes", "verify:read", "expiresAt", "2020-01-01"},
	} {
		p.sendForm(page+"/new", form...).says(http.StatusUnprocessableEntity, `id="`+field+`-error" role="alert"`)
	}

	last := s.Now().AddDate(0, 2, 0).UTC().Format(time.DateOnly)
	made := p.sendForm(page+"/new", "name", "worker", "scopes", "integrity:read", "scopes", "integrity:write",
		"companies", "company-1",
		"source", "billing", "networks", "127.0.0.1\r\n::1/128", "maxVersionStep", "3", "expiresAt", last).says(
		http.StatusOK, "shows the key once", "curl", "Scopes: <code>integrity:read</code> <code>integrity:write</code>",
		"Companies: <code>company-1</code>", "cannot be changed later", `/developers" target="_blank"`,
	)
	text := string(keyText.FindSubmatch(made.body)[1])
	id, err := domain.ParseID[domain.KeyID](string(keyPath.FindSubmatch(made.body)[1]))
	check(t, err)
	read := func() domain.APIKey {
		t.Helper()
		key, err := store.KeyOf(t.Context(), s.org.ID, id)
		check(t, err)
		return key.APIKey
	}
	key := read()
	if !slices.Equal(key.Scopes, []domain.Scope{domain.IntegrityRead, domain.IntegrityWrite}) ||
		key.Member != s.org.Key.Member || key.CreatedBy != domain.MemberActor(s.org.Key.Member) ||
		*key.Source != "billing" || len(key.AllNetworks()) != 2 || *key.MaxVersionStep != 3 ||
		key.ExpiresAt.Format(time.DateOnly) != s.Now().AddDate(0, 2, 1).UTC().Format(time.DateOnly) {
		t.Errorf("the key is %+v", key)
	}
	s.send(http.MethodGet, integrity+"/changes?companyReference=company-1", text, nil).is(http.StatusOK)
	own := page + "/" + id.String()
	p.visit(own).says(http.StatusOK, "cannot be shown again. If you do not have it, rotate the key")
	p.visit(strings.TrimPrefix(own, "/en")).says(http.StatusOK, "no se puede volver a mostrar. Si no lo tiene, renueve la clave")
	for _, path := range []string{page, own, own + "/revoke", own + "/rotate"} {
		if a := p.visit(path).says(http.StatusOK, "worker"); contains(a.body, text) {
			t.Errorf("%s shows the key again", path)
		}
	}

	// The last use is shown to the minute, as it is stored, and never before the creation of the key.
	s.owner("INSERT INTO api_key_uses (shard, key_id, last_used_at) SELECT shard, key_id, date_trunc('minute', created_at) " +
		"FROM api_keys ON CONFLICT (shard, key_id) DO UPDATE SET last_used_at = excluded.last_used_at")
	shortly := key.CreatedAt.UTC().Format("15:04") + " UTC"
	for _, path := range []string{page, own} {
		p.visit(path).says(
			http.StatusOK, `<time datetime="`+evidence.FormatTime(key.CreatedAt)+`" title="`, shortly+`" data-minute>`,
			"exact to the minute",
		)
	}
	p.visit(page+"/new").says(http.StatusOK, "Only register versions", `data-ticks="integrity:write"`)

	// The name can change, and the key can only be made to end earlier.
	p.press(own+"/rename", "name", "other").leads(own + "?said=key-name")
	p.press(own+"/rename", "name", " ").says(http.StatusUnprocessableEntity, `id="name-error"`)
	p.press(
		own+"/end", "expiresAt", s.Now().AddDate(0, 3, 0).UTC().Format(time.DateOnly),
	).says(http.StatusUnprocessableEntity, `id="expiresAt-error"`)
	p.press(own+"/end", "expiresAt", "").says(http.StatusUnprocessableEntity, `id="expiresAt-error"`)
	p.press(
		own+"/end", "expiresAt", s.Now().AddDate(0, 0, 7).UTC().Format(time.DateOnly),
	).leads(own + "?said=key-expiresAt")
	p.visit(own).says(http.StatusOK, "other", "expires soon", "127.0.0.1/32", "billing", s.org.Email)

	// The successor has the properties of the former key, which keeps working during the overlap.
	p.press(own+"/rotate", "overlap", "5").says(http.StatusUnprocessableEntity, `id="overlap-error"`)
	rotated := p.press(own+"/rotate", "overlap", "1", "copyGrants", "on").says(http.StatusOK, "previous key works until")
	successor := string(keyText.FindSubmatch(rotated.body)[1])
	for _, works := range []string{text, successor} {
		s.send(http.MethodGet, integrity+"/changes?companyReference=company-1", works, nil).is(http.StatusOK)
	}
	if left := read().ExpiresAt.Sub(s.Now()); left > time.Hour {
		t.Errorf("the former key has %s left", left)
	}

	for path, words := range map[string][2]string{
		"/en/console/keys": {"replaces key <a href=\"" + own + `">`, "; works until <time"},
		"/console/keys":    {"sustituye a la clave <a href=\"" + strings.TrimPrefix(own, "/en") + `">`, "; funciona hasta el <time"},
		own:                {"replaced by key <a", "; works until <time"},
	} {
		p.visit(path).says(http.StatusOK, words[0], words[1])
	}
	p.visit(page+"/"+string(keyPath.FindSubmatch(rotated.body)[1])).says(http.StatusOK, "replaces key <a href=\""+own+`">`)

	// No earlier day is possible for a key that ends within the day.
	today := read().ExpiresAt.UTC().Format(time.DateOnly) == s.Now().UTC().Format(time.DateOnly)
	if a := p.visit(own); contains(a.body, "expires before the end of the present day") != today ||
		contains(a.body, `id="expiresAt"`) == today {
		t.Errorf("the form of the last day: %s", a.body)
	}
	p.visit(page+"/"+string(keyPath.FindSubmatch(rotated.body)[1])).says(http.StatusOK, `id="expiresAt"`, ` min="`+s.Now().UTC().Format(time.DateOnly)+`"`)

	p.visit(own+"/revoke").says(http.StatusOK, "401", "cannot be undone", "other")
	p.press(own + "/revoke").leads(own + "?said=key-revoked")
	if a := p.visit(own+"?said=key-revoked").says(http.StatusOK, "The key was revoked"); contains(a.body, "cannot be shown") {
		t.Errorf("the page of a revoked key speaks of its text: %s", a.body)
	}
	s.send(
		http.MethodGet, integrity+"/changes?companyReference=company-1", text, nil,
	).refuses(http.StatusUnauthorized, domain.InvalidKey)
	if a := p.visit(page); contains(a.body, `<th scope="row"><a href="`+own) || !contains(a.body, "other") {
		t.Errorf("the keys that work: %s", a.body)
	}
	p.visit(page+"?all").says(http.StatusOK, id.String(), "revoked")
	// What is refused is not offered, and a refused form is answered by a page of the console.
	for _, step := range []string{"/rotate", "/revoke"} {
		p.visit(own + step).leads(own)
		if contains(p.visit(own).body, own+step) {
			t.Errorf("%s is offered for a revoked key", step)
		}
	}
	refused := p.press(own+"/rotate", "overlap", "1").says(
		http.StatusConflict, "This was not done", "This key has ended already", `aria-label="Console"`, "INVALID_STATE",
		`class="button" href="/en/console"`,
	)
	if contains(refused.body, "compared") {
		t.Errorf("a refused form speaks of comparisons: %s", refused.body)
	}
	p.press("/console/keys/"+id.String()+"/rotate", "overlap", "1").says(http.StatusConflict, "No se ha hecho", "Esta clave")
	p.visit(page+"/key_x").says(http.StatusNotFound, "This page cannot be shown", `aria-label="Console"`)

	// Creating and rotating a key need a recent proof of identity, which is requested before any input.
	s.skew.Add(int64(5*time.Minute + time.Second))
	before := len(s.Events(t, s.org.ID.Shard()))
	proof := "/en/console/prove?to="
	p.visit(page + "/new").leads(proof + url.QueryEscape(page+"/new"))
	p.sendForm(page+"/new", "name", "x", "scopes", "integrity:read").leads(proof + url.QueryEscape("/en/console"))
	former := page + "/" + s.org.Key.ID.String() + "/rotate"
	p.visit(former).leads(proof + url.QueryEscape(former))
	p.press(former, "overlap", "1").leads(proof + url.QueryEscape("/en/console"))
	if n := len(s.Events(t, s.org.ID.Shard())) - before; n != 0 {
		t.Errorf("%d events without a proof", n)
	}
	s.Audit(t)
}

// The pages warn about a working key that has no company, or scopes that its member's role no longer allows.
func TestKeysThatCannotWork(t *testing.T) {
	s := openConsole(t)
	const page, alone, beyond = "/en/console/keys", "This key may not use any company", "does not allow these scopes"
	owner := s.signedIn(s.org.Email)
	manager, admin := s.added("admin@example.com", domain.Admin)
	made := manager.sendForm(
		page+"/new", "name", "worker", "scopes", "integrity:write", "scopes", "organization:admin", "withoutCompany", "on",
	).says(http.StatusOK, alone, `href="/en/console/companies#access"`)
	own := page + "/" + string(keyPath.FindSubmatch(made.body)[1])
	owner.visit(page).says(http.StatusOK, "without a company")
	if a := owner.visit(own).says(http.StatusOK, alone); contains(a.body, beyond) {
		t.Errorf("the role allows the scopes: %s", a.body)
	}
	id, err := domain.ParseID[domain.KeyID](path.Base(own))
	check(t, err)
	must(s.service, &domain.SetAccess{Origin: s.org.Operator(), Company: s.org.Company.ID, Key: id, Enabled: true})
	analyst := domain.Analyst
	must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: admin.ID, Role: &analyst})
	owner.visit(page).says(http.StatusOK, "scopes beyond its member&#39;s role")
	if a := owner.visit(own).says(http.StatusOK); contains(a.body, own+"/rotate") || !contains(a.body, own+"/revoke") {
		t.Errorf("the steps of a key that cannot be rotated: %s", a.body)
	}
	if a := owner.visit(own).says(http.StatusOK, beyond+". Requests that need them are refused: <code>organization:admin</code> </p>"); contains(
		a.body, alone,
	) {
		t.Errorf("the key has a company: %s", a.body)
	}
	must(s.service, &domain.ChangeMember{Origin: s.org.Operator(), Member: admin.ID, Status: new(domain.MemberEnded)})
	if a := owner.visit(own).says(http.StatusOK, "its member is not active", "cannot be rotated"); contains(
		a.body, own+"/rotate",
	) {
		t.Errorf("the key of an ended member can be rotated: %s", a.body)
	}
	owner.visit(own + "/rotate").leads(own)
	for scopes, without := range map[string][]string{"integrity:read": {"withoutCompany", "on"}, "verify:read": nil} {
		a := owner.sendForm(page+"/new", append(without, "name", "x", "scopes", scopes)...).says(http.StatusOK)
		if contains(a.body, alone) != (without != nil) {
			t.Errorf("%s without a company: %s", scopes, a.body)
		}
	}
}

// The form of a key leads to a company that can be selected, and makes no key that needs a company without one, unless
// the person has said so. It selects none by itself: a key that needs none would see more than it has to.
func TestKeyFormLeadsToACompany(t *testing.T) {
	s := openConsole(t)
	const page, chosen, first = "/en/console/keys/new", `value="company-1" checked`, "A company comes first"
	const closed = "No company is active"
	p := s.signedIn(s.org.Email)
	shown := func(p *guest, has string, lacks ...string) {
		t.Helper()
		a := p.visit(page).says(http.StatusOK, has)
		for _, words := range append(lacks, chosen) {
			if contains(a.body, words) {
				t.Errorf("the form has %q: %s", words, a.body)
			}
		}
	}
	refused := func(p *guest, name, words string, form ...string) {
		t.Helper()
		keys := s.count("api_keys")
		a := p.sendForm(page, append(form, "name", "worker")...).says(
			http.StatusUnprocessableEntity, `id="`+name+`-error" role="alert"`, `aria-describedby="`+name+`-error"`, words,
		)
		if s.count("api_keys") != keys || contains(a.body, chosen) != slices.Contains(form, "company-1") {
			t.Errorf("refused with %v: %s", form, a.body)
		}
	}
	shown(p, `value="company-1"`, first, closed)
	refused(p, "withoutCompany", "Select at least one", "scopes", "integrity:write")
	for _, scope := range []string{"integrity:write", "audit:read"} {
		refused(
			p, "eitherCompany", "not both", "scopes", scope, "companies", "company-1", "withoutCompany", "on",
		)
	}
	p.press("/en/console/companies", "reference", "second")
	shown(p, `value="second"`, first, closed)
	refused(p, "withoutCompany", "Select at least one", "scopes", "integrity:write")

	// With no active company, the form leads to the page of companies, where one can be reopened.
	for _, company := range []string{"company-1", "second"} {
		p.press("/en/console/companies/" + company + "/close")
	}
	shown(p, closed, `name="companies"`, first, "leads back")
	p.visit(page).says(http.StatusOK, `Reopen one`, `<a href="/en/console/companies">`)
	p.visit(strings.TrimPrefix(page, "/en")).says(http.StatusOK, "Reabra una")
	refused(p, "noCompany", "on the Companies page", "scopes", "integrity:write")
	made := p.sendForm(page, "name", "reader", "scopes", "integrity:read", "withoutCompany", "on").says(http.StatusOK)
	key, reader := string(keyPath.FindSubmatch(made.body)[1]), string(keyText.FindSubmatch(made.body)[1])
	p.press(
		"/en/console/companies/access", "company", s.org.Company.ID.String(), "key", key, "cell", "0.0",
	).says(http.StatusSeeOther)
	s.send(http.MethodGet, integrity+"/changes?companyReference=company-1", reader, nil).is(http.StatusOK)

	// The page of the first company leads back.
	o := domain.NewOrganizationID(s.Now(), 1)
	origin := domain.Origin{Organization: o, Actor: domain.OperatorActor, RequestID: "test"}
	s.Must(t, &domain.CreateOrganization{Origin: origin, Name: "Example", Plan: domain.InternalPlan, Internal: true})
	s.Must(t, &domain.AddMember{Origin: origin, Email: "empty@example.com", Role: domain.Owner})
	empty := s.signedIn("empty@example.com")
	shown(empty, first, `name="companies"`, closed)
	empty.visit(page).says(http.StatusOK, `its page leads back here. <a href="/en/console/companies">`)
	empty.visit(strings.TrimPrefix(page, "/en")).says(http.StatusOK, "Antes hace falta una empresa")
	refused(empty, "noCompany", "on the Companies page", "scopes", "integrity:read")
	p.visit("/en/console/companies?said=company").says(http.StatusOK, `href="`+page+`"`)
	p.sendForm(page, "name", "auditor", "scopes", "audit:read").says(http.StatusOK, "shows the key once")
	s.Audit(t)
}

// The focus goes to the first wrong field of the form, and to no other.
func TestKeyFormFocus(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	focused := regexp.MustCompile(`id="([^"]+)"[^>]* autofocus`)
	fields := [][]string{
		{"name", "name", ""}, {"scopes-error", "scopes", "unknown"}, {"eitherCompany-error", "withoutCompany", "on"},
		{"expiresAt", "expiresAt", "soon"}, {"source", "source", "a b"}, {"networks", "networks", "here"},
		{"maxVersionStep", "maxVersionStep", "0"},
	}
	for i := range fields {
		form := []string{"companies", "company-1"}
		if i > 0 {
			form = append(form, "name", "worker")
		}
		if i > 1 {
			form = append(form, "scopes", "integrity:read")
		}
		for _, wrong := range fields[i:] {
			form = append(form, wrong[1:]...)
		}
		a := p.sendForm("/en/console/keys/new", form...).says(http.StatusUnprocessableEntity)
		found := focused.FindAllSubmatch(a.body, -1)
		if len(found) != 1 || string(found[0][1]) != fields[i][0] || strings.Count(string(a.body), " autofocus") != 1 {
			t.Errorf("%v has the focus on %q", form, found)
		}
	}
}

// The script selects the only company while a chosen scope needs one, and leaves a person's own choice alone.
func TestKeyFormSelectsTheOnlyCompany(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	p := w.tab()
	p.signsIn("")
	const company = "#company-company-1"
	p.open("/en/console/keys/new")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-presets]:not(.waiting)")))
	steps := func(selected bool, clicks ...string) {
		t.Helper()
		for _, selector := range clicks {
			eval[bool](p, "document.querySelector(`"+selector+"`).click() === undefined")
		}
		if eval[bool](p, "document.querySelector(`"+company+"`).checked") != selected {
			t.Errorf("after %v the company is selected: %t", clicks, !selected)
		}
	}
	const read, revoke, audit = `[value="integrity:read"]`, `[value="integrity:revoke"]`, `[value="audit:read"]`
	const preset, certify, without = `[data-ticks="integrity:write"]`, "[data-ticks-group]", "#withoutCompany"
	steps(false)
	steps(false, audit)
	steps(true, read)
	steps(true, revoke, read)
	steps(false, revoke)
	steps(true, preset)
	steps(false, certify)
	steps(true, preset)
	steps(false, without) // both would be refused
	steps(true, without)
	steps(false, company) // by the person, whatever other scope is chosen
	steps(false, revoke)
	steps(true, certify, company)
	steps(true, preset, certify)

	// With several, the person selects.
	w.Company(t, w.org, "second")
	p.open("/en/console/keys/new")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-presets]:not(.waiting)")))
	steps(false, preset)
}

// Only owners and admins see the keys of their organization. An admin cannot rotate an owner's key and is not offered
// scopes that the role does not allow.
func TestConsoleKeysRefuse(t *testing.T) {
	s := openConsole(t)
	other := s.Organization(t, 2, domain.InternalPlan)
	const page = "/en/console/keys"
	own, foreign := page+"/"+s.org.Key.ID.String(), page+"/"+other.Key.ID.String()
	admin, viewer := s.as(domain.Admin), s.as(domain.Viewer)
	before := len(s.Events(t, s.org.ID.Shard())) + len(s.Events(t, other.ID.Shard()))
	admin.press(own+"/rotate", "overlap", "1").says(http.StatusForbidden)
	for _, path := range []string{"", "/rotate", "/revoke"} {
		admin.visit(foreign + path).says(http.StatusNotFound)
		viewer.visit(own + path).says(http.StatusForbidden)
	}
	for _, path := range []string{"/rename", "/end", "/rotate", "/revoke"} {
		form := []string{"name", "x", "overlap", "0", "expiresAt", s.Now().AddDate(0, 1, 0).UTC().Format(time.DateOnly)}
		admin.press(foreign+path, form...).says(http.StatusNotFound)
		viewer.press(own+path, form...).says(http.StatusForbidden)
	}
	for _, path := range []string{page, page + "/new"} {
		viewer.visit(path).says(http.StatusForbidden)
	}
	viewer.sendForm(page+"/new", "name", "x", "scopes", "integrity:read").says(http.StatusForbidden)
	if a := viewer.visit("/en/console"); strings.Contains(string(a.body), `"`+page+`"`) {
		t.Error("a viewer's menu has the page of keys")
	}
	if n := len(s.Events(t, s.org.ID.Shard())) + len(s.Events(t, other.ID.Shard())) - before; n != 0 {
		t.Errorf("%d events by those who may not", n)
	}
}
