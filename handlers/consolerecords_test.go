package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/handlers/action"
)

const recordsPath = "/en/console/records"

// A member finds every record of the organization by each of its names, whatever the grants of keys, and no record of
// another organization. Revoking a record for good needs a recent proof of identity and a role that allows it.
func TestConsoleRecords(t *testing.T) {
	s := openConsole(t)
	must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "ana@example.com", Role: domain.Viewer})
	p, viewer := s.signedIn(s.org.Email), s.signedIn("ana@example.com")
	p.visit(recordsPath).says(http.StatusOK, "Search", "This company has no versions yet")
	register := func(key string, d body) string {
		return s.send(http.MethodPost, integrity+"/records", key, d).is(http.StatusCreated)["publicId"].(string)
	}
	first := register(s.org.Secret, declaration("d-1", 1, "one"))
	second := register(s.org.Secret, declaration("d-1", 2, "two"))
	company := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, company.ID, true)
	ungranted := register(
		s.org.Secret, declaration("d-2", 1, "other").with(body{"companyReference": "company-2", "source": "erp"}),
	)
	s.Grant(t, s.org, s.org.Key.ID, company.ID, false)
	other := s.Organization(t, 1, domain.InternalPlan)
	theirs := register(other.Secret, declaration("d-9", 1, "theirs"))

	find := func(text string) answer { return viewer.visit(recordsPath + "?find=" + url.QueryEscape(text)) }
	for text, id := range map[string]string{
		first: first, baseURL + "/integrity/" + second + "?sha256=x": second,
		" " + strings.ToUpper(hash("two")) + " ": second + "?sha256=" + hash("two"), "d-1": second, "d-2": ungranted,
		baseURL + "/en/integrity/" + ungranted + "#top":                        ungranted,
		"Please look at " + strings.ToUpper(baseURL+"/integrity/"+first) + ".": first,
	} {
		find(text).leads(recordsPath + "/" + id)
	}
	for _, text := range []string{
		theirs, hash("theirs"), "d-9", hash("nothing"), "?", "<script>", strings.Repeat("x", 2000),
	} {
		find(text).says(http.StatusOK, "No record of the organization has it")
	}
	third := register(s.org.Secret, declaration("d-1", 1, "one").with(body{"source": "erp"}))
	if page := find(hash("one")).says(http.StatusOK, first, third, "superseded", "current"); contains(page.body, second) {
		t.Error("a search shows a record of another hash")
	}
	find("d-1").says(http.StatusOK, second, third)

	list := func(query string) answer { return viewer.visit(recordsPath + "?" + query) }
	if page := list("companyReference=company-1&status=superseded").says(http.StatusOK, first); contains(page.body, third) {
		t.Error("the filter of the status is not kept")
	}
	today := s.Now().UTC().Format(time.DateOnly)
	list("companyReference=company-1&source=erp&receivedFrom="+today+"&receivedTo="+today).says(http.StatusOK, third)
	list("companyReference=company-2").says(http.StatusOK, ungranted)
	for query, words := range map[string]string{
		"companyReference=company-9":                                               "no company with this reference",
		"companyReference=company-1&documentReference=d-1":                         "A document needs a source",
		"companyReference=company-1&source=-":                                      `value="-"`,
		"companyReference=company-1&receivedFrom=soon":                             "a date such as",
		"companyReference=company-1&receivedFrom=2026-11-03&receivedTo=2026-11-01": "not before the first one",
	} {
		if a := list(query); a.status < 400 || a.status >= 500 || !contains(a.body, words) ||
			!contains(a.body, `role="alert"`) {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}

	list("companyReference=company-2&source=none").says(http.StatusOK, "No record matches")
	s.Company(t, s.org, "a-company")
	list("companyReference=a-company").says(http.StatusOK, "This company has no versions yet")
	list("").says(http.StatusOK, third, `value="company-1"`)

	overview := viewer.visit("/en/console").says(
		http.StatusOK, `/records/`+first+`">d-1</a>`, `/records/`+ungranted+`">d-2</a>`, "company-2 · erp", "superseded",
	)
	if contains(overview.body, "d-9") || contains(overview.body, theirs) {
		t.Error("the overview shows another organization's record")
	}

	page := recordsPath + "/" + first
	yours := func(query string) bool {
		return contains(
			viewer.visit(page+query).says(http.StatusOK, `id="link">`+baseURL+"/integrity/"+first+"<").body,
			"This is your file",
		)
	}
	if !yours("?sha256="+hash("one")) || yours("") || yours("?sha256="+hash("two")) || yours("?sha256=") {
		t.Error("a record's page says of another file that it is this one, or not of this one")
	}
	if shown := viewer.visit(page).says(
		http.StatusOK, hash("one"), "Version 2", second, "superseded", "by version 2",
	); contains(shown.body, page+"/revoke") {
		t.Error("a viewer is offered a revocation")
	} else if contains(shown.body, "/correct") {
		t.Error("a viewer is offered a corrected version")
	}
	viewer.visit(page+"/tlog-proof").says(http.StatusConflict, "This page cannot be shown")
	s.integrate()
	viewer.visit(page).says(http.StatusOK, `href="`+page+`/tlog-proof"`, "For auditors")
	private, _ := proofsOf(first)
	proof := viewer.visit(page + "/tlog-proof")
	equal(t, "proof", string(proof.body), string(s.get(private).body))
	equal(t, "its name", proof.header.Get("Content-Disposition"), `attachment; filename="`+first+`.tlog-proof"`)
	s.hold()
	a := viewer.visit(page + "/evidence")
	equal(t, "evidence", string(a.body), string(s.get(integrity+"/records/"+first+"/evidence").body))
	equal(t, "its name", a.header.Get("Content-Disposition"), `attachment; filename=evidence-d-1-v1.json`)
	viewer.visit(page).says(http.StatusOK, page+`/evidence" download`)
	keys := *s.keys.Load()
	trusted, err := keys.Trusted.PutAuthority(stamptest.New(t, "alpha").Pinned())
	check(t, err)
	s.keys.Store(&action.Keys{Signer: keys.Signer, Trusted: trusted})
	viewer.visit(page).says(http.StatusOK, page+`/evidence?timestamps=true" download`)

	reserved := s.reserved("reserved", 1)
	waits := recordsPath + "/" + reserved + "/file"
	for _, text := range []string{"reserved", reserved, baseURL + "/integrity/" + reserved} {
		p.visit(recordsPath+"?find="+url.QueryEscape(text)).says(http.StatusOK, "waits for its file", `href="`+waits+`"`)
	}
	p.visit(recordsPath+"?find=nothing").says(http.StatusOK, `href="/en/console/records/new#waiting"`)
	if page := find("reserved"); contains(page.body, waits) || contains(page.body, "#waiting") {
		t.Error("a viewer is led to a page that the role may not see")
	}
	for _, path := range []string{"", "/evidence", "/tlog-proof", "/revoke"} {
		for _, id := range []string{theirs, "x", reserved} {
			p.visit(recordsPath + "/" + id + path).says(http.StatusNotFound)
		}
	}
	p.press(recordsPath + "/" + theirs + "/revoke").says(http.StatusNotFound)
	viewer.visit(page + "/revoke").says(http.StatusForbidden)
	viewer.press(page + "/revoke").says(http.StatusForbidden)

	p.visit(page+"/revoke").says(http.StatusOK, "What will happen", "cannot be undone")
	p.press(page+"/revoke", "reason", strings.Repeat("ü", 501)).says(
		http.StatusUnprocessableEntity, "at most 500 characters", "üüü",
	)
	s.skew.Add(int64(5*time.Minute + time.Second))
	prove := "/en/console/prove?to=" + url.QueryEscape(page+"/revoke")
	p.visit(page + "/revoke").leads(prove)
	p.press(page+"/revoke", "reason", "typed in vain").says(
		http.StatusForbidden, "typed in vain</textarea>",
		`href="/en/console/prove?to=`+url.QueryEscape("/en/console/prove/done")+`"`,
	)
	equal(t, "before a proof", s.get(integrity + "/records/" + first).is(http.StatusOK)["status"], "superseded")
	p.press("/en/console/sign-in", "email", s.org.Email)
	p.press(s.mailed(), "organization", s.org.ID.String()).leads("/en/console")
	p.press(page+"/revoke", "reason", "two\r\n<lines>").leads(page + "?said=revoked")
	p.press(page + "/revoke").leads(page + "?said=revoked")
	p.visit(page + "/revoke").leads(page)
	p.visit(page+"?said=revoked").says(http.StatusOK, "The record is revoked", `role="status"`)
	viewer = s.signedIn("ana@example.com")
	for _, path := range []string{page, "/en/console/history?action=integrity.revoked"} {
		viewer.visit(path).says(http.StatusOK, "revoked", "two\n&lt;lines&gt;")
	}
	equal(t, "after it", s.get(integrity + "/records/" + first).is(http.StatusOK)["status"], "revoked")
	p.press(recordsPath + "/" + ungranted + "/revoke").leads(recordsPath + "/" + ungranted + "?said=revoked")
	if contains(p.visit(recordsPath+"/"+ungranted).body, "Reason for the revocation") {
		t.Error("a revocation without a reason shows one")
	}
	if n := s.texts("two\n<lines>"); n != 1 {
		t.Errorf("%d reasons", n)
	}
	s.Audit(t)
}
