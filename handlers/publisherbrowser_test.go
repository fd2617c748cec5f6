package handlers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/handlers"
	"integrityledger/projections/queue/publishers"
)

// An owner adds a domain with the keyboard, copies the record, asks for checks and publishes a name, in both languages.
// A recipient then sees both beside a match, and neither beside a mismatch. No page has a fault that axe finds or needs
// horizontal scrolling.
func TestPublisherInTheBrowser(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ prefix, proven, line, words string }{
		{"", "Verificado.", "La organización que declaró el archivo registrado controla transportes.example (comprobado el ", "En sus propias palabras, sin verificar: «Transportes García SL»."},
		{"/en", "Proven.", "The organization that declared the registered file controls transportes.example (checked on ", "In its own words, not verified: “Transportes García SL”."},
	} {
		t.Run("language"+strings.ReplaceAll(c.prefix, "/", " "), func(t *testing.T) {
			dns := peertest.ServeDNS(t)
			w := openSite(t)
			w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
			w.config.BaseURL = w.URL
			checking(dns)(&w.config)
			w.use(handlers.New(w.config))
			id := w.registered("a", 1, "one")
			p := w.tab()
			p.signsIn(c.prefix)
			p.open(c.prefix + "/console/publisher")
			p.on("publisher")
			p.looks("console-publisher-new" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.do(chromedp.Focus(chromedp.CSS("#domain")), chromedp.KeyEvent("transportes"+kb.Enter))
			p.do(chromedp.WaitVisible(chromedp.CSS("#domain-error")))
			p.looks("console-publisher-wrong" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.do(chromedp.Focus(chromedp.CSS("#domain")), chromedp.KeyEvent(kb.End+".example"+kb.Enter))
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-state="waiting"]`)))
			p.do(chromedp.WaitVisible(chromedp.CSS(".sample .copy")))
			if n := eval[int](p, `document.querySelectorAll(".sample .copy").length`); n != 4 {
				t.Errorf("%d samples can be copied", n)
			}
			p.looks("console-publisher-waiting" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.click(`form[action$="/check"] button`)
			p.do(chromedp.WaitVisible(chromedp.CSS(".facts dd")))
			w.proof(dns, "transportes.example")
			p.click(`form[action$="/check"] button`)
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-state] ~ .error`)))
			p.looks("console-publisher-soon" + strings.ReplaceAll(c.prefix, "/", "-"))
			w.skew.Add(int64(publishers.AskEvery))
			p.click(`form[action$="/check"] button`)
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-state="proven"]`)))
			p.do(chromedp.SendKeys(chromedp.CSS("#publisher-name"), "Transportes García SL"))
			p.click(`[name="noPrivatePerson"]`)
			p.click(`form[action$="/publisher/name"] button`)
			p.do(chromedp.WaitVisible(chromedp.CSS(`form[action$="/name/withdraw"]`)))
			text := func(within string) string {
				return eval[string](p, `[...document.querySelectorAll("`+within+` .publisher > p")].map(e => e.textContent).join(" ")`)
			}
			if shown := text("main"); !strings.Contains(shown, c.line) || !strings.Contains(shown, c.words) {
				t.Errorf("the preview says %s", shown)
			}
			if state := eval[string](p, `document.querySelector("[data-state] strong").textContent`); state != c.proven {
				t.Errorf("the state is %s", state)
			}
			p.looks("console-publisher" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.window(375, 812)
			p.shot("console-publisher-phone" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.window(1280, 900)

			path := "/integrity/" + id
			if c.prefix == "" {
				path += "?lang=es"
			}
			p.open(c.prefix + path)
			p.choose(file(t, "a.txt", "one"))
			p.do(chromedp.WaitVisible(chromedp.CSS(`#result [data-result="MATCH_CURRENT"]`)))
			if shown := text("#result"); !strings.Contains(shown, c.line) || !strings.Contains(shown, c.words) {
				t.Errorf("a match says %s", shown)
			}
			p.looks("publisher-match" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.window(375, 812)
			p.shot("publisher-match-phone" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.choose(file(t, "b.txt", "two"))
			p.do(chromedp.WaitVisible(chromedp.CSS(`#result [data-result="HASH_MISMATCH"]`)))
			if shown := text("#result"); shown != "" {
				t.Errorf("a mismatch says %s", shown)
			}
			p.looks("publisher-mismatch" + strings.ReplaceAll(c.prefix, "/", "-"))
			p.window(1280, 900)
			p.open(c.prefix + "/console/publisher")
			p.click(`form[action$="/remove"] button`)
			p.do(chromedp.WaitVisible(chromedp.CSS("main:not(:has([data-state])) .said")))
			w.page(c.prefix + path).is200()
			if a := w.page(c.prefix + path); a.status != http.StatusOK || contains(a.body, "transportes") {
				t.Errorf("a removed domain is shown: %d", a.status)
			}
		})
	}
}
