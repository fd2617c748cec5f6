package handlers_test

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/web"
)

const newRecord = "/en/console/records/new"

// fieldsOfForm returns the hidden fields of the form that a page sends to a path, as press takes them.
func fieldsOfForm(t *testing.T, a answer, action string) (fields []string) {
	t.Helper()
	_, form, found := strings.Cut(string(a.body), `action="`+action+`"`)
	if !found {
		t.Fatalf("no form for %s: %s", action, a.body)
	}
	form, _, _ = strings.Cut(form, "</form>")
	for _, f := range regexp.MustCompile(`type="hidden" name="([^"]+)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
		fields = append(fields, f[1], strings.ReplaceAll(f[2], "&#43;", "+"))
	}
	return fields
}

// A person reserves a version, puts its code on paper, and registers its file; pressing a button twice does it once.
// The source, the version, the type and the time have defaults.
func TestConsoleRegistersReservedFile(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	p.visit("/en/console").says(http.StatusOK, `href="`+newRecord+`"`)
	p.visit("/en/console/records").says(http.StatusOK, `href="`+newRecord+`"`)
	p.visit(newRecord).says(http.StatusOK, "not finished yet", "finished file", "No reservation is waiting")
	reserve := newRecord + "/reservation"
	p.visit(reserve).says(http.StatusOK, `<option value="company-1">`)
	form := []string{"companyReference", "company-1", "documentReference", " F-2026-0042 ", "version", "", "source", ""}
	page := p.press(reserve, form...).header.Get("Location")
	p.press(reserve, form...).leads(page)
	id := strings.Split(page, "/")[4]
	waiting := p.visit(page).says(
		http.StatusOK, `download="stamp-F-2026-0042-v1-large.png"`, `download="qr-F-2026-0042-v1.svg"`, baseURL+"/integrity/"+id, "F-2026-0042", "The reservation waits until", "qr.png", "stamp-large.png",
	)
	p.visit(newRecord).says(http.StatusOK, page, "F-2026-0042", "company-1 · console")
	equal(t, "on the public page", s.compared(id, "").Result, "REGISTRATION_PENDING")

	sha := hash("the file with its code")
	toFile := newRecord + "/file"
	file := append(fieldsOfForm(t, waiting, toFile), "sha256", strings.ToUpper(sha), "sizeBytes", "22", "mimeType", "",
		"generatedAt", "")
	confirm := p.declares(file...).says(
		http.StatusOK, "declares:", sha, "F-2026-0042", "application/octet-stream", "22 bytes", "company-1", "console",
	)
	if s.count("versions WHERE record_id IS NOT NULL") != 0 {
		t.Fatal("the page before the registration has registered it")
	}
	declare := newRecord + "/declaration"
	declared := fieldsOfForm(t, confirm, declare)
	link := "/en/console/records/" + id + "/link"
	p.changes(declared...).says(http.StatusOK, `value="`+sha+`"`, "Put the code")
	p.press(declare, declared...).leads(link + "?said=registered")
	p.press(declare, declared...).leads(link + "?said=registered")
	p.visit(link+"?said=registered").says(
		http.StatusOK, "The file is registered", `id="link">`+baseURL+"/integrity/"+id, "mailto:?subject=Check",
		"integrity%2F"+id, "was not changed", "/evidence", "/receipt", `href="/en/integrity/`+id+`"`,
	)
	p.visit(link).says(http.StatusOK, "If you put the code of the reservation")
	p.visit("/en/console/records/"+id).says(http.StatusOK, "A member of your organization declared this")
	record := s.get(integrity + "/records/" + id).is(http.StatusOK)
	for name, want := range map[string]any{
		"sha256": sha, "source": "console", "version": 1.0, "mimeType": "application/octet-stream", "sizeBytes": 22.0,
	} {
		equal(t, name, record[name], want)
	}
	equal(t, "compared", s.compared(id, "the file with its code").Result, "MATCH_CURRENT")
	for _, path := range []string{page, "/en/console/records/" + id + "/release"} {
		p.visit(path)
	}
	p.visit(page).leads(link + "?said=known")
	p.press("/en/console/records/" + id + "/release").leads(page)
	p.press(reserve, append([]string{}, "companyReference", "company-1", "documentReference", "F-2026-0042", "version",
		"1")...).leads(link + "?said=known")
	p.visit(newRecord).says(http.StatusOK, "No reservation is waiting")

	// The next version of a known reference is the default, and a file that is known already is named.
	next := p.declares("companyReference", "company-1", "documentReference", "F-2026-0042", "sha256", sha,
		"sizeBytes", "22").says(http.StatusOK, "already registered", `name="version" value="2"`)
	changed := fieldsOfForm(t, next, declare)
	p.press(declare, changed...)
	for i := range changed {
		if changed[i] == "sha256" {
			changed[i+1] = hash("another")
		}
	}
	p.press(declare, changed...).says(http.StatusConflict, `role="alert"`)
	s.Audit(t)
}

// declares fills in the form of a finished file and follows the browser to the page of the declaration.
func (p *guest) declares(form ...string) answer {
	p.t.Helper()
	a := p.press(newRecord+"/file", form...)
	if a.status == http.StatusSeeOther {
		return p.visit(a.header.Get("Location"))
	}
	return a
}

// changes presses "Change something" on the page of a declaration.
func (p *guest) changes(form ...string) answer {
	p.t.Helper()
	query := url.Values{}
	for i := 0; i < len(form); i += 2 {
		query.Set(form[i], form[i+1])
	}
	return p.visit(newRecord + "/file?" + query.Encode())
}

// Two people use one reservation: the page tells the second that another file is registered, and warns before a file takes
// the code of another document.
func TestConsoleTellsApartWhoHoldsAReservation(t *testing.T) {
	s := openConsole(t)
	ana := s.signedIn(s.org.Email)
	ben, _ := s.added("ben@example.com", domain.Analyst)
	form := []string{"companyReference", "company-1", "documentReference", "F-1"}
	page := ana.press(newRecord+"/reservation", form...).header.Get("Location")
	id := strings.Split(page, "/")[4]
	declare := newRecord + "/declaration"
	confirm := func(g *guest, content string, more ...string) answer {
		return g.declares(append(append(form, "sha256", hash(content), "sizeBytes", "5"), more...)...).says(http.StatusOK)
	}
	named := confirm(ana, "ana's", "version", "1", "reservationId", id)
	if strings.Contains(string(named.body), "This version is reserved") {
		t.Error("the page warns of the reservation that the form names")
	}
	taken := confirm(ben, "ben's").says(http.StatusOK, "This version is reserved", `href="`+page+`"`)
	ben.press(declare, fieldsOfForm(t, taken, declare)...).leads("/en/console/records/" + id + "/link?said=registered")
	ana.press(declare, fieldsOfForm(t, named, declare)...).says(
		http.StatusConflict, `role="alert"`, "<h1>This version is already registered</h1>", "Yours is not registered",
		`href="/en/console/records/`+id+`"`,
	)
	ana.visit("/en/console/records/"+id+"/link").says(http.StatusOK, hash("ben's"))
	confirm(ana, "ana's").says(http.StatusOK, `name="version" value="2"`, "Recipients of a lower version")
	equal(t, "the registered file", s.compared(id, "ana's").Result, "HASH_MISMATCH")
	s.Audit(t)
}

// The drawings are files for paper: SVG without fonts, and PNG at 300 dots per inch. cmd/lab/judges reads their codes.
func TestConsoleDrawsCodes(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	id := s.reserved("d-1", 1)
	registered := s.registered("d-2", 1, "one")
	other := s.Organization(t, 1, domain.InternalPlan)
	theirs := s.send(http.MethodPost, integrity+"/reservations", other.Secret, version("d-3", 1)).
		is(http.StatusCreated)["publicId"].(string)
	names := map[string]string{id: "-d-1-v1", registered: "-d-2-v1"}
	draw := func(language, id, file string) answer {
		return p.visit(language + "/console/records/" + id + "/code/" + file)
	}
	for _, id := range []string{id, registered} {
		var sizes []int
		for _, file := range []string{"qr.png", "qr-large.png", "stamp.png", "stamp-large.png"} {
			a := draw("/en", id, file).says(http.StatusOK)
			picture, err := png.Decode(bytes.NewReader(a.body))
			check(t, err)
			sizes = append(sizes, picture.Bounds().Dx())
			if at := bytes.Index(a.body, []byte("pHYs")); at != 37 || !bytes.Equal(a.body[at+4:at+13],
				[]byte{0, 0, 0x2e, 0x23, 0, 0, 0x2e, 0x23, 1}) {
				t.Errorf("%s has no 300 dots per inch", file)
			}
			for x := range picture.Bounds().Dx() {
				if r, _, _, _ := picture.At(x, web.SmallModule*4-1).RGBA(); r != 0xffff {
					t.Fatalf("%s has no quiet zone", file)
				}
			}
			equal(t, "its name", a.header.Get("Content-Disposition"), `inline; filename="`+
				strings.TrimSuffix(strings.Split(file, ".")[0], "-large")+names[id]+`.png"`)
		}
		if sizes[1] != 2*sizes[0] || sizes[3] != 2*sizes[2] || sizes[2] <= sizes[0] {
			t.Errorf("the drawings are %v wide", sizes)
		}
		for _, file := range []string{"qr.svg", "stamp.svg"} {
			a := draw("/en", id, file).says(http.StatusOK, `width="`)
			check(t, xml.Unmarshal(a.body, new(struct{})))
			if contains(a.body, "<text") || contains(a.body, "font") {
				t.Errorf("%s needs a font", file)
			}
		}
	}
	if bytes.Equal(draw("", id, "stamp.svg").body, draw("/en", id, "stamp.svg").body) {
		t.Error("the stamp is the same in both languages")
	}
	for _, file := range []string{"qr.gif", "qr", "seal.png", "qr-huge.png", "stamp-large.svg.png"} {
		draw("/en", id, file).says(http.StatusNotFound)
	}
	for _, id := range []string{theirs, "x"} {
		draw("/en", id, "qr.png").says(http.StatusNotFound)
		for _, path := range []string{"/file", "/link", "/release"} {
			p.visit("/en/console/records/" + id + path).says(http.StatusNotFound)
		}
		p.press("/en/console/records/" + id + "/release").says(http.StatusNotFound)
	}
	s.Audit(t)
}

// Only roles that may register see and use the pages. A refusal is explained beside the form, which keeps its input.
func TestConsoleRefusesRegistrations(t *testing.T) {
	s := openConsole(t)
	roles := map[domain.Role]bool{
		domain.Owner: true, domain.Admin: true, domain.Analyst: true, domain.Reviewer: false, domain.Viewer: false,
	}
	reserve, toFile, declare := newRecord+"/reservation", newRecord+"/file", newRecord+"/declaration"
	id := s.reserved("waits", 1)
	for role, may := range roles {
		address := string(role) + "@example.com"
		must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: address, Role: role})
		p := s.signedIn(address)
		if shown := contains(p.visit("/en/console/records").body, newRecord); shown != may {
			t.Errorf("a %s is shown the button: %t", role, shown)
		}
		if shown := contains(p.visit("/en/console").body, newRecord); shown != may {
			t.Errorf("a %s is shown the button on the overview: %t", role, shown)
		}
		form := []string{"companyReference", "company-1", "documentReference", "of-" + string(role)}
		file := append(form, "source", "console", "version", "1", "sha256", hash(address), "sizeBytes", "1", "mimeType",
			"text/plain", "generatedAt", "2026-11-29T10:00:00Z")
		want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[may]
		for _, page := range []string{newRecord, reserve, toFile, "/en/console/records/" + id + "/file"} {
			p.visit(page).says(want)
		}
		p.declares(file...).says(want)
		if !may {
			p.press(reserve, form...).says(http.StatusForbidden)
			p.press(declare, file...).says(http.StatusForbidden)
			p.press("/en/console/records/" + id + "/release").says(http.StatusForbidden)
			continue
		}
		link := p.press(declare, file...).header.Get("Location")
		query := url.Values{}
		for i := 0; i < len(file); i += 2 {
			query.Set(file[i], file[i+1])
		}
		for _, back := range []string{declare, toFile} { // the browser's Back
			p.visit(back + "?" + query.Encode()).leads(strings.Replace(link, "registered", "known", 1))
		}
		query.Set("sha256", hash("another file"))
		p.visit(declare + "?" + query.Encode()).says(http.StatusConflict)
		p.visit("/en/console/records?find=of-" + string(role)).says(http.StatusSeeOther)
	}
	p := s.signedIn(s.org.Email)
	p.do(http.MethodPost, declare, url.Values{}, "Sec-Fetch-Site", "cross-site").says(http.StatusForbidden)

	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		path, words string
		status      int
		form        []string
	}{
		{reserve, "Enter a reference of at most 128", 422, []string{"companyReference", "company-1", "documentReference", long}},
		{reserve, `value="` + long + `"`, 422, []string{"companyReference", "company-1", "documentReference", long}},
		{reserve, "Choose a company", 422, []string{"companyReference", "", "documentReference", "d"}},
		{reserve, "Choose a company", 422, []string{"companyReference", "company-9", "documentReference", "d"}},
		{reserve, "whole number", 422, []string{"companyReference", "company-1", "documentReference", "d", "version", "two"}},
		{reserve, "Enter a source", 422, []string{"companyReference", "company-1", "documentReference", "d", "source", "a b"}},
		{toFile, "Choose the file, or paste", 422, []string{"companyReference", "company-1", "documentReference", "d"}},
		{toFile, "size of the file", 422, []string{"companyReference", "company-1", "documentReference", "d", "sha256", hash("x")}},
		{toFile, "Enter a type", 422, []string{"companyReference", "company-1", "documentReference", "d", "mimeType", "pdf"}},
		{toFile, "Enter a time", 422, []string{"companyReference", "company-1", "documentReference", "d", "generatedAt", "now"}},
		{reserve, "", 422, []string{"companyReference", "company-1", "documentReference", "d\x00"}},
		{declare, "", 422, []string{"companyReference", "company-1", "documentReference", "d"}},
	} {
		a := p.press(c.path, c.form...)
		if a.status != c.status || !contains(a.body, c.words) || c.words != "" && !contains(a.body, `role="alert"`) {
			t.Errorf("%s %v: %d, without %q: %s", c.path, c.form, a.status, c.words, a.body)
		}
	}

	// The address of a declaration registers nothing, and shows only what the form would accept.
	p.visit(declare).leads(toFile)
	p.visit(declare + "?companyReference=company-1&documentReference=d%00").says(http.StatusUnprocessableEntity)
	p.visit(declare+"?companyReference=company-1&documentReference=d&source=console&version=1&sha256="+hash("x")+
		"&sizeBytes=many&mimeType=text/plain&generatedAt=2026-11-29T10:00:00Z").says(
		http.StatusUnprocessableEntity, "size of the file", `value="`+hash("x")+`"`,
	)

	// A closed company is offered no more, and takes only what was reserved before.
	page := p.press(reserve, "companyReference", "company-1", "documentReference", "before").header.Get("Location")
	company := must(s.service, &domain.CreateCompany{Origin: s.org.Operator(), Reference: "company-1"}).Outcome
	closed := domain.SetCompanyStatus{Origin: s.org.Operator(), Company: company.ID, Status: domain.CompanyClosedStatus}
	must(s.service, &closed)
	p.visit(reserve).says(http.StatusOK, "has no open company", `href="/en/console/companies"`)
	p.press(reserve, "companyReference", "company-1", "documentReference", "after").says(http.StatusForbidden)
	analyst := s.signedIn("analyst@example.com")
	analyst.visit(toFile).says(http.StatusOK, "Ask an owner or admin")
	before := append(fieldsOfForm(t, p.visit(page), toFile), "sha256", hash("before"), "sizeBytes", "6")
	p.press(declare, fieldsOfForm(t, p.declares(before...), declare)...).leads(
		strings.Replace(page, "/file", "/link?said=registered", 1),
	)
	closed.Status = domain.CompanyActive
	must(s.service, &closed)

	// A released or expired reservation keeps its link, and can be renewed.
	page = p.press(reserve, "companyReference", "company-1", "documentReference", "later").header.Get("Location")
	release := strings.Replace(page, "/file", "/release", 1)
	p.visit(release).says(http.StatusOK, "no longer counts as pending")
	for range 2 {
		p.press(release).leads(newRecord + "?said=released")
	}
	p.visit(release).leads(page + "?said=released")
	shown := p.visit(page).says(
		http.StatusOK, "<h1>Released reservation</h1>", `The reservation was released on <time datetime="`+s.Now().UTC().Format(time.DateOnly),
		"renew the reservation: you get the same link", "<details class=\"card\"><summary>",
	)
	for _, path := range []string{page, strings.TrimPrefix(page, "/en")} {
		a := p.visit(path).says(http.StatusOK, `/console/records/new/reservation"`)
		for _, usable := range []string{"/code/", `id="link"`, "download="} {
			if contains(a.body, usable) {
				t.Errorf("%s of a released reservation offers %s: %s", path, usable, a.body)
			}
		}
	}
	link := url.QueryEscape(baseURL + "/integrity/" + strings.Split(page, "/")[4])
	if a := p.visit("/en/console/records?find="+link).says(http.StatusOK, `Released reservation: <a href="`+page); contains(
		a.body, "waits for its file",
	) {
		t.Errorf("a released reservation is found as a pending one: %s", a.body)
	}
	p.visit(strings.TrimPrefix(page, "/en")).says(http.StatusOK, "<h1>Reserva liberada</h1>", "La reserva se liberó el <time")
	p.press(toFile, append(fieldsOfForm(t, shown, toFile), "sha256", "x")...).says(
		http.StatusUnprocessableEntity, "<details class=\"card\" open>", `id="sha256-error"`,
	)
	p.press(reserve, fieldsOfForm(t, shown, reserve)...).leads(page)
	p.visit(page).says(http.StatusOK, "The reservation waits until")
	s.skew.Add(int64(domain.ReservationLife + time.Hour))
	p = s.signedIn(s.org.Email)
	p.visit(page).says(http.StatusOK, "<h1>Expired reservation</h1>", "The reservation has expired", "/code/qr.svg")
	p.press(reserve, fieldsOfForm(t, p.visit(page), reserve)...).leads(page)
	p.visit(newRecord).says(http.StatusOK, page)
	s.post(integrity+"/reservations", version("waits", 1)).is(http.StatusOK)
	if contains(p.visit(newRecord).body, id) {
		t.Error("a reservation of a program is listed among those of people")
	}
	p.visit(newRecord+"?all").says(http.StatusOK, id)
	s.Audit(t)
}

// An error is corrected by a new version, whose form has the references already. The page with the link says that a record
// is not the current one, and offers no letter with the link of a revoked one.
func TestConsoleCorrectsRecord(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	declare := newRecord + "/declaration"
	first := s.registered("F-7", 1, "with an error")
	page := recordsPath + "/" + first
	p.visit(page).says(http.StatusOK, `href="`+page+`/correct"`, "Register a corrected version", "The origin system declared")
	if contains(p.visit(page+"/link").body, "code of the reservation") {
		t.Error("the page speaks of a reservation of a version that was never reserved")
	}
	p.visit(page+"/revoke").says(http.StatusOK, `href="`+page+`/correct"`)
	form := p.visit(page+"/correct").says(
		http.StatusOK, `value="F-7"`, `value="billing"`, `id="version" name="version" inputmode="numeric" maxlength="10" `+
			`autocomplete="off" value=""`, "the next version of this document", `href="`+page+`"`,
	)
	if !contains(form.body, `<option value="company-1"`) {
		t.Errorf("the company is not filled in: %s", form.body)
	}
	p.visit(recordsPath + "/" + s.reserved("F-8", 1) + "/correct").says(http.StatusNotFound)
	confirm := p.declares("companyReference", "company-1", "source", "billing", "documentReference", "F-7", "sha256",
		hash("corrected"), "sizeBytes", "9").says(
		http.StatusOK, `name="version" value="2"`, "you can register a corrected version, or revoke it",
	)
	second := p.press(declare, fieldsOfForm(t, confirm, declare)...).header.Get("Location")
	for path, words := range map[string][2]string{
		page + "/link": {"This version is not the current one", "Do not send this link"}, second: {"mailto:", `id="not-current"`},
	} {
		if a := p.visit(path).says(http.StatusOK, words[0]); contains(a.body, words[1]) {
			t.Errorf("%s says %s", path, words[1])
		}
	}
	p.press(page + "/revoke")
	link := p.visit(page+"/link").says(http.StatusOK, "Do not send this link")
	for _, words := range []string{"mailto:", "Put this link", "covering letter", "code/qr.svg", "What your recipient"} {
		if contains(link.body, words) {
			t.Errorf("a letter for a revoked record: %s", words)
		}
	}
	s.Audit(t)
}

// A version that the person left empty follows the reference, also after "Change something". A version that is taken is
// refused before it is confirmed, in words, at the top of the form.
func TestConsoleVersionFollowsReference(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	toFile, declare := newRecord+"/file", newRecord+"/declaration"
	for v := range int32(2) {
		s.post(integrity+"/records", declaration("old", int(v)+1, "file "+string('0'+v)).with(body{"source": "console"})).
			is(http.StatusCreated)
	}
	form := func(reference string, more ...string) []string {
		return append([]string{"companyReference", "company-1", "documentReference", reference, "sha256", hash("mine"),
			"sizeBytes", "4"}, more...)
	}
	confirm := p.declares(form("old")...).says(http.StatusOK, `name="version" value="3"`)
	declared := fieldsOfForm(t, confirm, declare)
	changed := p.changes(declared...).says(http.StatusOK, `name="documentReference"`)
	if contains(changed.body, `value="3"`) {
		t.Error("the version of the former reference is frozen")
	}
	p.declares(form("new")...).says(http.StatusOK, `name="version" value="1"`)

	// A typed version stays.
	typed := p.declares(form("new", "version", "5")...).says(http.StatusOK, `name="version" value="5"`)
	p.changes(fieldsOfForm(t, typed, declare)...).says(http.StatusOK, `value="5"`)

	taken := "This version of the document is already registered"
	refused := p.declares(form("old", "version", "1")...).says(
		http.StatusConflict, taken, "leave the version empty", `id="problem"`, `<a href="#version">`,
	)
	if at := bytes.Index(refused.body, []byte(taken)); at > bytes.Index(refused.body, []byte("<form method=\"post\" action=\""+toFile)) {
		t.Error("the problem is below the form")
	}
	known := p.declares("companyReference", "company-1", "documentReference", "old", "version", "1", "sha256",
		hash("file 0"), "sizeBytes", "6")
	if to := known.header.Get("Location"); known.status != http.StatusSeeOther || !strings.HasSuffix(to, "/link?said=known") {
		t.Errorf("a version that is registered: %d to %q", known.status, to)
	}

	// Another person takes the version between the confirmation and the registration.
	s.post(integrity+"/records", declaration("old", 3, "theirs").with(body{"source": "console"})).is(http.StatusCreated)
	late := p.press(declare, declared...).says(http.StatusConflict, taken, hash("mine"))
	if contains(late.body, `value="3"`) {
		t.Error("the form keeps a version that is taken")
	}
	s.Audit(t)
}

// A refused reference says what is wrong with it, at the top and beside the field, in both languages.
func TestConsoleNamesWrongCharacter(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	for reference, words := range map[string][2]string{
		"2026/0117": {"cannot contain <code>/</code>: use - instead", "no puede contener <code>/</code>: use - en su lugar"},
		"F ñ":       {"cannot contain <code>ñ</code>", "no puede contener <code>ñ</code>"},
		"F 1":       {"no spaces: use - instead", "no lleva espacios: use - en su lugar"},
		"-1":        {"begins with a letter or a digit", "empieza por una letra o una cifra"},
		"":          {"Enter the document&#39;s reference", "Escriba la referencia del documento"},
		"F\u202e1":  {"cannot contain <code>U&#43;202E</code>", "no puede contener <code>U&#43;202E</code>"},
	} {
		for i, prefix := range []string{"/en", ""} {
			p.press(prefix+"/console/records/new/reservation", "companyReference", "company-1", "documentReference", reference).
				says(http.StatusUnprocessableEntity, words[i], `<a href="#document">`)
		}
	}
	s.Audit(t)
}

// What the plan does not include is refused in words, and the input stays.
func TestConsoleRegistersWithinPlan(t *testing.T) {
	s := openConsoleWith(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 10000,
		"versionsPerMonth": 1, "administrativeEventsPerDay": 10000}}`)})
	s.registered("a", 1, "one")
	p := s.signedIn(s.org.Email)
	form := []string{"companyReference", "company-1", "documentReference", "d", "source", "console", "version", "1",
		"sha256", hash("d"), "sizeBytes", "1", "mimeType", "text/plain", "generatedAt", "2026-11-29T10:00:00Z"}
	p.press(newRecord+"/declaration", form...).says(http.StatusTooManyRequests, `role="alert"`, hash("d"))
	s.Audit(t)
}
