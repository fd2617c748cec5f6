package handlers_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
)

// openDocuments opens a site under the host name that browsers use.
func openDocuments(t *testing.T) *site {
	t.Helper()
	w := openSite(t)
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	w.config.BaseURL = w.URL
	w.use(handlers.New(w.config))
	return w
}

// signsIn uses a link of the operator.
func (p *tab) signsIn(prefix string) {
	p.T.Helper()
	p.open(prefix + "/console/link/" + p.site.operatorLink(p.site.org.Key.Member))
	p.click("main form button")
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page=""]`)))
}

// A person takes a document from its file to a revoked certificate. A file other than the version's never leaves the
// browser, and no page has a fault that axe finds or needs horizontal scrolling.
func TestDocumentsInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	p := w.tab()
	p.signsIn("")
	content := "the file of the version\u202e" // which a detector finds
	p.open("/console/documents")
	p.looks("console-documents")
	p.click(`a[href$="/documents/new"]`)
	p.on("document-new")
	p.until(`!document.querySelector("#upload .actions button").disabled`)
	p.do(chromedp.SendKeys(chromedp.CSS("#title"), "<b>Ñandú"))
	p.click("#upload .actions button") // without a file
	p.do(chromedp.WaitVisible(chromedp.CSS("#file-error")))
	p.looks("console-document-new")
	p.choose(file(t, "a.txt", content))
	p.click("#upload .actions button")
	p.on("document")
	p.looks("console-document")
	p.open("/console/documents")
	p.looks("console-documents-one")
	p.click(`tbody a`)
	p.on("document")
	p.click(`a[href$="/review"]`)
	p.on("document-review")
	p.until(`!document.querySelector("#review .actions button").disabled`)
	w.quiet()
	p.choose(file(t, "b.txt", content+" "))
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="other"]`)))
	p.click("#outcome-accepted")
	p.do(chromedp.SendKeys(chromedp.CSS("#statement"), "Leído."))
	p.click("#consent")
	p.click("#review .actions button")
	p.looks("console-document-review")
	if requests, sent := w.received(); len(requests) > 0 || bytes.Contains(sent, []byte("the file of")) {
		t.Errorf("another file than the version's has left the browser: %v", requests)
	}
	p.choose(file(t, "a.txt", content))
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="same"]`)))
	p.click("#review .actions button")
	p.on("document")
	p.click(`a[href$="/approve"]`)
	p.on("document-approve")
	p.looks("console-document-approve")
	p.do(chromedp.SendKeys(chromedp.CSS("#statement"), "Aprobado."))
	p.click("#consent")
	p.click("#approve .actions button")
	p.on("document")
	p.click(`a[href$="/certify"]`)
	p.on("document-certify")
	shown := func(name string) bool {
		return eval[bool](p, `document.querySelector("[data-public='`+name+`']").checkVisibility()`)
	}
	if shown("title") || shown("organization") {
		t.Error("words are shown as public that nobody has ticked")
	}
	p.click("#title-public")
	if !shown("title") || shown("organization") {
		t.Error("what is ticked is not what is shown as public")
	}
	p.click("#consent")
	p.looks("console-document-certify")
	p.click("#certify .actions button")
	p.on("document")
	p.looks("console-document-certified")
	page := eval[string](p, `location.pathname`)
	p.click(`a[href*="/certificates/"]:not(.button)`)
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-kind="certificate"]`)))
	if text := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(text, "<b>Ñandú") {
		t.Errorf("the public page: %s", text)
	}
	p.open(page)
	p.on("document")
	p.click(`a[href$="/revoke"]`)
	p.on("document-revoke")
	p.looks("console-document-revoke")
	p.do(chromedp.SendKeys(chromedp.CSS("#reason"), "Otro archivo."))
	p.click("#revoke .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="document"] .state[data-state="revoked"]`)))
	p.looks("console-document-revoked")
	p.click(`a[href$="/new"]`)
	p.on("document-version")
	p.looks("console-document-version")
	if complaints, foreign := p.Complaints(), p.Foreign(); len(complaints) > 0 || len(foreign) > 0 {
		t.Errorf("in the console: %v; requests for %v", complaints, foreign)
	}
	w.Audit(t)
}

// lost is the writer of an answer that never arrives.
type lost struct{ http.ResponseWriter }

func (lost) WriteHeader(int)               {}
func (lost) Write(b []byte) (int, error)   { return len(b), nil }
func (l lost) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// posted makes a handler of the test serve the form that act sends.
func (w *site) posted(serve http.Handler, act func(rw http.ResponseWriter, r *http.Request)) {
	w.use(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			act(rw, r)
			panic(http.ErrAbortHandler)
		}
		serve.ServeHTTP(rw, r)
	}))
}

// A refusal is explained next to the form, and the input remains. An upload whose answer was lost is registered once,
// and a cancelled upload is not registered.
func TestUploadsRefusedInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	serve := *w.handler.Load()
	full := w.config
	full.Spool = &edge.Spool{MaxBytes: 1}
	p := w.tab()
	p.signsIn("/en")
	upload := func() {
		p.open("/en/console/documents/new")
		p.until(`!document.querySelector("#upload .actions button").disabled`)
		p.do(chromedp.SendKeys(chromedp.CSS("#title"), "Typed"))
	}
	said := func(name string, versions int64) {
		t.Helper()
		p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="` + name + `"]`)))
		title, chosen := eval[string](p, `document.querySelector("#title").value`), eval[int](
			p, `document.querySelector("#file").files.length`,
		)
		if n := w.number(
			"SELECT count(*) FROM artifact_versions WHERE shard = $1 AND organization_id = $2",
		); title != "Typed" || chosen != 1 || n != versions {
			t.Errorf("%s: the title is %q, %d files, %d versions", name, title, chosen, n)
		}
	}
	upload()
	p.choose(sparse(t, domain.MaxFileBytes+1))
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="PAYLOAD_TOO_LARGE"]`)))

	p.choose(sparse(t, 8<<20))
	w.use(handlers.New(full)) // it answers before the body has arrived
	p.click("#upload .actions button")
	said("TEMPORARILY_UNAVAILABLE", 0)

	begun, release := make(chan struct{}, 8), make(chan struct{})
	w.posted(serve, func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-release })
	p.click("#upload .actions button")
	<-begun
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-task="sending"]`)))
	p.click("[data-cancel]")
	said("cancelled", 0)
	close(release)

	p.choose(file(t, "a.txt", "content"))
	w.posted(serve, func(rw http.ResponseWriter, r *http.Request) { serve.ServeHTTP(lost{rw}, r) })
	p.click("#upload .actions button")
	said("offline", 1)
	w.use(serve)
	p.click("#upload .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="document"]`)))
	if n := w.number("SELECT count(*) FROM artifact_versions WHERE shard = $1 AND organization_id = $2"); n != 1 {
		t.Errorf("%d versions after a lost answer and a repetition", n)
	}

	upload()
	p.choose(file(t, "b.txt", "more"))
	w.owner("DELETE FROM console_sessions")
	p.click("#upload .actions button")
	said("signed-out", 1)
	w.Audit(t)
}

// A manifest matches the registered one however it is spelled: only its content counts.
func TestManifestReviewInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	manifest := body{"version": 1, "kind": domain.ManifestKind, "algorithm": "SHA-256",
		"files": []any{body{"size": 1, "path": "a/ñ.txt", "sha256": hash("x")}}}
	files := body{"title": "Files", "kind": "manifest", "manifest": manifest}
	v := work(w.post(certificationAction+"/artifacts", files), "")
	p := w.tab()
	p.signsIn("/en")
	p.open("/en/console/documents/versions/" + v.version + "/review")
	p.until(`!document.querySelector("#review .actions button").disabled`)
	spelled, err := json.MarshalIndent(manifest, "", "\t")
	check(t, err)
	p.choose(file(t, "b.json", strings.Replace(string(spelled), "a/", "b/", 1)))
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="other"]`)))
	p.choose(file(t, "a.json", string(spelled)))
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="same"]`)))
	p.click("#outcome-changes")
	p.do(chromedp.SendKeys(chromedp.CSS("#statement"), "Read."))
	p.click("#consent")
	p.click("#review .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="document"] .state[data-state="changes_requested"]`)))
}
