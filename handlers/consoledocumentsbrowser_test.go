package handlers_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"integrityledger/handlers"
)

// A person takes a document from its file to a certificate that is revoked, in both languages. Another file than the
// version's never leaves the browser, and no page has a fault that axe finds or needs scrolling sideways.
func TestDocumentsInTheBrowser(t *testing.T) {
	w := openSite(t)
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	config := w.config
	config.BaseURL = w.URL
	w.use(handlers.New(config))
	axe := axeScript(t)
	for prefix, scheme := range map[string]string{"": "light", "/en": "dark"} {
		p := w.tab()
		on := func(name string) {
			t.Helper()
			p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="` + name + `"]`)))
		}
		looks := func(name string) {
			t.Helper()
			p.looks(axe, scheme, name, prefix)
		}
		p.open(prefix + "/console/link/" + w.operatorLink(w.org.Key.Member))
		p.click("main form button")
		on("")
		content := "the file of " + prefix + "\u202e" // which a detector finds
		p.open(prefix + "/console/documents")
		looks("documents")
		p.click(`a[href$="/documents/new"]`)
		on("document-new")
		p.until(`!document.querySelector("#upload .actions button").disabled`)
		p.do(chromedp.SendKeys(chromedp.CSS("#title"), "<b>Ñandú"))
		p.click("#upload .actions button") // without a file
		p.do(chromedp.WaitVisible(chromedp.CSS("#file-error")))
		looks("document-new")
		p.choose(file(t, "a.txt", content))
		p.click("#upload .actions button")
		on("document")
		looks("document")
		p.open(prefix + "/console/documents")
		looks("documents-one")
		p.click(`tbody a`)
		on("document")
		p.click(`a[href$="/review"]`)
		on("document-review")
		p.until(`!document.querySelector("#review .actions button").disabled`)
		w.quiet()
		p.choose(file(t, "b.txt", content+" "))
		p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="other"]`)))
		p.click("#outcome-accepted")
		p.do(chromedp.SendKeys(chromedp.CSS("#statement"), "Leído."))
		p.click("#consent")
		p.click("#review .actions button")
		looks("document-review")
		if requests, sent := w.received(); len(requests) > 0 || bytes.Contains(sent, []byte("the file of")) {
			t.Errorf("another file than the version's has left the browser: %v", requests)
		}
		p.choose(file(t, "a.txt", content))
		p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="same"]`)))
		p.click("#review .actions button")
		on("document")
		p.click(`a[href$="/approve"]`)
		on("document-approve")
		looks("document-approve")
		p.do(chromedp.SendKeys(chromedp.CSS("#statement"), "Aprobado."))
		p.click("#consent")
		p.click("#approve .actions button")
		on("document")
		p.click(`a[href$="/certify"]`)
		on("document-certify")
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
		looks("document-certify")
		p.click("#certify .actions button")
		on("document")
		looks("document-certified")
		page := eval[string](p, `location.pathname`)
		p.click(`a[href*="/certificates/"]:not(.button)`)
		p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-kind="certificate"]`)))
		if text := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(text, "<b>Ñandú") {
			t.Errorf("the public page: %s", text)
		}
		p.open(page)
		on("document")
		p.click(`a[href$="/revoke"]`)
		on("document-revoke")
		looks("document-revoke")
		p.do(chromedp.SendKeys(chromedp.CSS("#reason"), "Otro archivo."))
		p.click("#revoke .actions button")
		p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="document"] .state[data-state="revoked"]`)))
		looks("document-revoked")
		p.click(`a[href$="/new"]`)
		on("document-version")
		looks("document-version")
		if complaints, foreign := p.Complaints(), p.Foreign(); len(complaints) > 0 || len(foreign) > 0 {
			t.Errorf("in the console: %v; requests for %v", complaints, foreign)
		}
	}
	w.Audit(t)
}
