package handlers_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

const documentsPath = "/en/console/documents"

var shownCertificate = regexp.MustCompile(`/en/certificates/([0-9A-Za-z_-]+)"`)

// uploads sends metadata and a file like the page's script.
func (p *guest) uploads(path string, metadata body, content string, header ...string) answer {
	p.t.Helper()
	text, kind := form(metadata, "a.txt", "text/plain", content)
	r := p.request(http.MethodPost, path, "", strings.NewReader(text))
	for name, value := range p.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i, lines := 0, append([]string{
		"Content-Type", kind, "Accept", "application/json", "Sec-Fetch-Site", "same-origin",
	}, header...); i < len(lines); i += 2 {
		r.Header.Set(lines[i], lines[i+1])
	}
	return p.plainly(r)
}

// goesOn returns the page to which an upload leads.
func (a answer) goesOn() string {
	a.t.Helper()
	return a.is(http.StatusCreated)["location"].(string)
}

// member is a browser in which a new member with a role has signed in.
func (c *consoleService) member(role domain.Role) *guest {
	c.t.Helper()
	address := string(role) + "@example.com"
	must(c.service, &domain.AddMember{Origin: c.org.Operator(), Email: address, Role: role})
	return c.signedIn(address)
}

// People take a document from its file to a revoked certificate, each role with its own steps. A refused page keeps the
// input, and documents of other organizations are never confirmed.
func TestConsoleDocuments(t *testing.T) {
	s := openConsole(t)
	owner, analyst, reviewer, viewer := s.signedIn(s.org.Email), s.member(domain.Analyst), s.member(domain.Reviewer),
		s.member(domain.Viewer)
	analyst.visit(documentsPath).says(
		http.StatusOK, "There are no documents yet", "Upload the first one", documentsPath+"/new",
	)
	if page := viewer.visit(documentsPath).says(
		http.StatusOK, "Owners, admins and analysts",
	); contains(page.body, "/new") {
		t.Error("a viewer is offered an upload")
	}
	const content = "Hello"
	title := body{"title": "Contract"}
	for _, p := range []*guest{reviewer, viewer} {
		p.visit(documentsPath + "/new").says(http.StatusForbidden)
		p.uploads(documentsPath+"/uploads", title, content).refuses(http.StatusForbidden, domain.RoleRequired)
	}
	analyst.visit(documentsPath+"/new").says(http.StatusOK, `id="upload"`, `maxlength="200"`)
	analyst.uploads(documentsPath+"/uploads", body{"title": " "}, content).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)
	version := analyst.uploads(documentsPath+"/uploads", title, content).goesOn()
	id := version[strings.LastIndex(version, "/")+1:]
	if claimed := s.number(
		"SELECT count(*) FROM idempotency_keys WHERE shard = $1 AND organization_id = $2",
	); claimed != 0 {
		t.Errorf("%d claims without a key", claimed)
	}
	if n := s.number(
		"SELECT coalesce(sum(used), 0) FROM request_usage WHERE shard = $1 AND organization_id = $2",
	); n != 0 {
		t.Errorf("clicks have taken %d requests of the month", n)
	}
	document := regexp.MustCompile(documentsPath + `/(art_[0-9a-z]+)/new`).FindStringSubmatch(
		string(analyst.visit(version).body),
	)[1]
	viewer.visit(documentsPath).says(http.StatusOK, "Contract", "to be reviewed", documentsPath+"/"+document)
	shown := viewer.visit(documentsPath+"/"+document).says(http.StatusOK, "Contract", hash(content), "5 bytes",
		"not kept", "a.txt", "Whether the document is authentic",
		"Type of the content", "The same file in another version", "No other version of an artifact", `lang="en"`)
	for _, step := range []string{"/review", "/approve", "/certify", "/new"} {
		if contains(shown.body, step+`"`) {
			t.Errorf("a viewer is offered %s", step)
		}
	}

	reviews := documentsPath + "/" + document + "/reviews"
	word := reviewOf(id, "accepted")
	for _, p := range []*guest{analyst, viewer} {
		p.visit(version + "/review").says(http.StatusForbidden)
		p.uploads(reviews, word, content).refuses(http.StatusForbidden, domain.RoleRequired)
	}
	owner.visit(version + "/approve").leads(version) // there is no review yet
	reviewer.visit(version+"/review").says(http.StatusOK, `id="review"`, `data-sha256="`+hash(content)+`"`)
	reviewer.uploads(reviews, word, content+" ").refuses(http.StatusUnprocessableEntity, domain.FileDoesNotMatchVersion)
	reviewer.uploads(
		reviews, word.with(body{"acceptResponsibility": false}), content,
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	equal(
		t, "after a review", reviewer.uploads(reviews, word.with(body{"outcome": "changes_requested"}), content).goesOn(),
		version,
	)
	owner.visit(version).says(http.StatusOK, "changes requested", "cannot be approved")
	owner.visit(documentsPath).says(http.StatusOK, `data-state="changes_requested"`)
	owner.visit(version + "/approve").leads(version)
	owner.press(version+"/approve", "statement", "Approved.", "consent", "on").leads(version)
	reviewer.uploads(reviews, word, content).goesOn()

	reviewer.visit(version + "/approve").says(http.StatusForbidden)
	reviewer.press(version+"/approve", "statement", "Approved.", "consent", "on").says(http.StatusForbidden)
	owner.visit(version+"/approve").says(http.StatusOK, `id="approve"`, "cannot be undone")
	owner.press(version+"/approve", "statement", "as it was typed").says(
		http.StatusUnprocessableEntity, "as it was typed", "Select this", `role="alert"`,
	)
	owner.press(
		version+"/approve", "statement", strings.Repeat("ü", 2001), "consent", "on",
	).says(http.StatusUnprocessableEntity, "Enter 1 to 2000 characters", "üüü", " checked")
	owner.press(version+"/approve", "statement", "Approved.", "consent", "on").leads(version)
	owner.press(version+"/approve", "statement", "Again.", "consent", "on").leads(version)
	owner.visit(version + "/review").leads(version) // approved, so that no review may follow

	other := s.Organization(t, 1, domain.InternalPlan)
	theirs := work(s.upload(certificationAction+"/artifacts", other.Secret, body{"title": "Theirs"}, "a.txt",
		"text/plain", content), content)
	theirDocument, theirVersion := documentsPath+"/"+theirs.artifact, documentsPath+"/versions/"+theirs.version
	for _, path := range []string{
		theirDocument, theirDocument + "/new", documentsPath + "/x", theirVersion, theirVersion + "/review",
		theirVersion + "/approve", theirVersion + "/certify", documentsPath + "/versions/x",
	} {
		owner.visit(path).says(http.StatusNotFound)
	}
	owner.uploads(theirDocument+"/versions", title, content).refuses(http.StatusNotFound, domain.NotFound)
	owner.uploads(theirDocument+"/reviews", reviewOf(theirs.version, "accepted"), content).refuses(http.StatusNotFound,
		domain.NotFound)
	owner.uploads(reviews, reviewOf(theirs.version, "accepted"), content).refuses(http.StatusUnprocessableEntity,
		domain.InvalidData)
	for _, step := range []string{"/approve", "/certify"} {
		owner.press(theirVersion+step, "statement", "x", "consent", "on").says(http.StatusNotFound)
	}

	// The form of a certificate first shows the published texts, and opening it needs a recent proof of identity.
	reviewer.visit(version + "/certify").says(http.StatusForbidden)
	reviewer.press(version+"/certify", "consent", "on").says(http.StatusForbidden)
	s.skew.Add(int64(5*time.Minute + time.Second))
	if a := owner.visit(version + "/certify"); a.status != http.StatusSeeOther ||
		!strings.HasPrefix(a.header.Get("Location"), "/en/console/prove") {
		t.Errorf("without a recent proof: %d %s", a.status, a.header.Get("Location"))
	}
	owner.press(version+"/certify", "title-public", "on", "consent", "on").says(
		http.StatusForbidden, `name="title-public" checked`, `href="/en/console/prove?to=`, `target="_blank"`,
	)
	owner = s.member(domain.Admin)
	owner.visit(version+"/certify").says(
		http.StatusOK, `id="certify"`, "Visible to anyone with the link", `data-public="title"`, "Contract",
		`data-public="organization"`, "Example", hash(content), s.Installation.Issuer,
	)
	owner.press(version+"/certify", "title-public", "on").says(
		http.StatusUnprocessableEntity, `name="title-public" checked`, "Select this",
	)
	owner.press(version+"/certify", "title-public", "on", "consent", "on").leads(version)
	owner.press(version+"/certify", "organization-public", "on", "consent", "on").leads(version)
	certified := viewer.visit(version).says(
		http.StatusOK, "certificate issued", "Download the signed certificate", "Approved.", "Read in full.",
	)
	found := shownCertificate.FindStringSubmatch(string(certified.body))
	if found == nil {
		t.Fatalf("no certificate: %s", certified.body)
	}
	public := found[1]
	answered := read[wire.PublicVerification](
		s.public(certificationAction+"/certificates/"+public+"/verify"), http.StatusOK).Certificate
	equal(t, "in public", []any{answered.Title, answered.OrganizationName}, []any{"Contract", nil})
	certificate := documentsPath + "/certificates/" + public
	a := viewer.visit(certificate + "/download")
	var signed evidence.Signed
	check(t, json.Unmarshal(a.body, &signed))
	if _, finding := evidence.VerifyCertificate(
		s.Trusted, signed.KeyID, []byte(signed.Payload), signed.Signature,
	); finding != evidence.Valid || !strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the download is %s, %v", finding, a.header)
	}

	viewer.visit(certificate + "/revoke").says(http.StatusForbidden)
	viewer.press(certificate+"/revoke", "reason", "x").says(http.StatusForbidden)
	for _, unknown := range []string{"x", public[:len(public)-1] + "x"} {
		owner.visit(documentsPath + "/certificates/" + unknown + "/revoke").says(http.StatusNotFound)
		owner.press(documentsPath+"/certificates/"+unknown+"/revoke", "reason", "x").says(http.StatusNotFound)
		owner.visit(documentsPath + "/certificates/" + unknown + "/download").says(http.StatusNotFound)
	}
	owner.visit(certificate+"/revoke").says(http.StatusOK, `id="revoke"`, "cannot be undone", "What will happen")
	owner.press(certificate+"/revoke", "reason", " ").says(http.StatusUnprocessableEntity, "1 to 500 characters")
	// If the proof gets too old while the reason is typed, the page keeps the reason.
	s.skew.Add(int64(5*time.Minute + time.Second))
	owner.press(certificate+"/revoke", "reason", "typed in vain").says(
		http.StatusForbidden, "typed in vain</textarea>",
		`href="/en/console/prove?to=%2Fen%2Fconsole%2Fprove%2Fdone"`,
	)
	owner = s.signedIn("admin@example.com")
	owner.press(certificate+"/revoke", "reason", "two\r\nlines").leads(version)
	for range 2 { // the same request twice
		owner.do(http.MethodPost, certificate+"/revoke", url.Values{"reason": {"again"}}, idempotencyKey, "k").leads(version)
	}
	owner.visit(certificate + "/revoke").leads(version)
	owner.visit(version).says(http.StatusOK, "certificate revoked")
	owner.visit(documentsPath).says(http.StatusOK, `data-state="revoked"`)
	equal(t, "reasons", []int64{s.texts("two\nlines"), s.texts("again")}, []int64{1, 0})

	// A later version may have another title.
	analyst.visit(documentsPath+"/"+document+"/new").says(
		http.StatusOK, `value="Contract"`, documentsPath+"/"+document+"/versions",
	)
	later := analyst.uploads(
		documentsPath+"/"+document+"/versions", body{"title": "Contract, signed"}, content+"!",
	).goesOn()
	viewer.visit(documentsPath+"/"+document).says(
		http.StatusOK, "Contract, signed", version, later, hash(content), hash(content+"!"),
	)
	if page := viewer.visit(later).says(http.StatusOK, `data-state="revoked"`); contains(page.body, "Read in full.") {
		t.Error("the page of a version has what was said of another")
	}
	if page := viewer.visit(documentsPath).says(http.StatusOK, "Contract, signed"); contains(page.body, "Theirs") {
		t.Error("another organization's document is listed")
	}
	s.Audit(t)
}

// A repeated upload leads to the page of the first one, and nothing is registered twice.
func TestConsoleUploadOnce(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	count := func() int64 {
		return s.number("SELECT count(*) FROM artifact_versions WHERE shard = $1 AND organization_id = $2")
	}
	first := p.uploads(documentsPath+"/uploads", body{"title": "a"}, "one", idempotencyKey, "k").goesOn()
	equal(
		t, "a repetition", p.uploads(documentsPath+"/uploads", body{"title": "a"}, "one", idempotencyKey, "k").goesOn(),
		first,
	)
	p.uploads(
		documentsPath+"/uploads", body{"title": "a"}, "two", idempotencyKey, "k",
	).refuses(http.StatusUnprocessableEntity, domain.IdempotencyKeyReused)
	if n := count(); n != 1 {
		t.Errorf("%d versions", n)
	}
	for what, header := range map[string][]string{
		"another site":   {"Sec-Fetch-Site", "cross-site"},
		"another origin": {"Sec-Fetch-Site", "", "Origin", "https://elsewhere.example"},
	} {
		if a := p.uploads(documentsPath+"/uploads", body{"title": "a"}, "three",
			header...); a.status != http.StatusForbidden || count() != 1 {
			t.Errorf("%s: %d, %d versions", what, a.status, count())
		}
	}
}

// An upload whose session ends before its last byte arrives registers nothing. The answer names the page for signing
// in.
func TestSessionEndsDuringUpload(t *testing.T) {
	s := openConsole(t)
	analystRole, viewerRole := domain.Analyst, domain.Viewer
	text, kind := form(body{"title": "x"}, "a.txt", "text/plain", strings.Repeat("a", 500))
	must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: analystRole})
	for what, end := range map[string]func(p *guest){
		"by its owner": func(p *guest) { p.press("/en/console/security/sign-out-everywhere") },
		"by a role": func(*guest) {
			s.changeMember("ana@example.com", &viewerRole, nil)
			s.changeMember("ana@example.com", &analystRole, nil)
		},
	} {
		p := s.signedIn("ana@example.com")
		connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
		check(t, err)
		defer connection.Close()
		_, err = fmt.Fprintf(connection,
			"POST %s HTTP/1.1\r\nHost: x\r\nCookie: %s=%s\r\nSec-Fetch-Site: same-origin\r\nContent-Type: "+
				"%s\r\nContent-Length: %d\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\n\r\n",
			documentsPath+"/uploads", sessionName, p.cookies[sessionName], kind, len(text))
		check(t, err)
		answers := bufio.NewReader(connection)
		for range 2 { // 100 Continue and an empty line: the handler reads
			_, err = answers.ReadString('\n')
			check(t, err)
		}
		end(p)
		before := s.sequence()
		_, err = io.WriteString(connection, text)
		check(t, err)
		response, err := http.ReadResponse(answers, nil)
		check(t, err)
		defer response.Body.Close()
		answered, err := io.ReadAll(response.Body)
		check(t, err)
		if response.StatusCode != http.StatusUnauthorized || !contains(answered, `"location":"`+sessionEnded+`"`) ||
			s.sequence() != before {
			t.Errorf("%s: %d %s, %d events", what, response.StatusCode, answered, s.sequence()-before)
		}
		if claims := s.number(
			"SELECT count(*) FROM idempotency_keys WHERE shard = $1 AND organization_id = $2",
		); claims != 0 {
			t.Errorf("%s: %d claims stay", what, claims)
		}
	}
}

// Every detector has a name in the report, in both languages.
func TestDetectorsAreNamed(t *testing.T) {
	t.Parallel()
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	version := p.uploads("/console/documents/uploads", body{"title": "x"}, "x").goesOn()
	for _, page := range []string{version, "/en" + version} {
		shown := p.visit(page).says(http.StatusOK)
		for _, d := range append(analysis.Detectors(), analysis.Detector{ID: domain.DuplicateDetector}) {
			if contains(shown.body, "<strong>"+d.ID+"</strong>") {
				t.Errorf("%s: %s has no name", page, d.ID)
			}
		}
	}
}
