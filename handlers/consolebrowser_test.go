package handlers_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/projections/queue"
)

// A person signs in by mail, finds a file's record, makes a webhook destination, adds a passkey, signs out, signs in with the
// passkey and removes it, in both languages. No page has a fault that axe finds, needs scrolling sideways at 320 CSS pixels,
// or says anything to the console.
func TestConsoleInTheBrowser(t *testing.T) {
	w := openSite(t)
	box := &consoleService{service: w.service, mails: make(chan queue.Mail, 16)}
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1) // authenticators sign for names
	config := w.config
	config.BaseURL = w.URL
	config.LinkMailer = box.mailer(t, &config)
	w.use(handlers.New(config))
	w.registered("a", 1, "one")
	viewer := must(w.service, &domain.AddMember{Origin: w.org.Operator(), Email: "viewer@example.com", Role: domain.Viewer}).Outcome
	axe := axeScript(t)
	for prefix, words := range map[string]struct{ scheme, title, mine string }{
		"":    {"light", "Resumen", "portátil"},
		"/en": {"dark", "Overview", "laptop"},
	} {
		p := w.tab()
		complaints := p.complaints()
		call(p, webauthn.Enable, webauthn.EnableParams{})
		call(p, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true,
			IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
		on := func(name string) {
			t.Helper()
			p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="` + name + `"]`)))
		}
		looks := func(name string) {
			t.Helper()
			p.looks(axe, words.scheme, name, prefix)
		}
		p.open(prefix + "/console")
		on("sign-in")
		looks("sign-in")
		p.do(chromedp.SendKeys(chromedp.CSS("#email"), w.org.Email))
		p.click(`form[action$="/console/sign-in"] button`)
		on("sent")
		looks("sent")
		link := <-box.mails
		p.open(strings.TrimPrefix(link.SignIn.URL, w.URL))
		p.click("main form button")
		on("")
		if title := run(p, chromedp.Text(chromedp.CSS("h1"))); title != words.title {
			t.Errorf("%s: %s", words.title, title)
		}
		looks("overview")
		p.open(prefix + "/console/history")
		looks("history")
		p.open(prefix + "/console/keys/new")
		looks("key-new")
		p.do(chromedp.SendKeys(chromedp.CSS("#name"), words.mine))
		p.click(`[for="scope-integrity:read"]`)
		p.click(`[for="company-company-1"]`)
		p.click("form.fields button")
		p.do(chromedp.WaitVisible(chromedp.CSS(".copyable .copy")))
		looks("key-made")
		p.open(prefix + "/console/keys")
		looks("keys")
		p.click("tbody tr:last-child a")
		p.do(chromedp.WaitVisible(chromedp.CSS("#expiresAt")))
		looks("key")
		p.open(prefix + "/console/companies")
		looks("companies")
		p.do(chromedp.WaitVisible(chromedp.CSS(".matrix tr:first-child td:last-child [checked]")))
		p.click(".matrix tbody tr:first-child td:last-child label")
		p.click("form:has(.matrix) .actions button")
		p.do(chromedp.WaitVisible(chromedp.CSS(".matrix tbody tr:first-child td:last-child input:not([checked])")))
		p.open(prefix + "/console/members")
		looks("members")
		p.click(`th[scope="row"] a`)
		on("member")
		looks("member")
		p.open(prefix + "/console/members/" + viewer.ID.String())
		looks("viewer")
		p.click(`a[href$="/disable"]`)
		on("member-disable")
		looks("member-disable")
		p.click("main form button")
		on("member")
		p.click(`form[action$="/enable"] button`)
		p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="member"] a[href$="/disable"]`)))
		p.open(prefix + "/console/plan")
		looks("plan")
		p.open(prefix + "/console/records")
		looks("records")
		p.choose(file(t, "a.txt", "one"))
		on("record")
		looks("record")
		p.click(`a[href$="/revoke"]`)
		on("revoke")
		looks("revoke")
		p.open(prefix + "/console/webhooks/new")
		looks("webhook-new")
		p.do(chromedp.SendKeys(chromedp.CSS("#url"), "https://receiver.example/hook"))
		p.click("main form button")
		on("webhook-secret")
		looks("webhook-secret")
		p.click("main .actions a")
		on("webhook")
		p.click(`form[action$="/test"] button`)
		p.do(chromedp.WaitVisible(chromedp.CSS(`#deliveries ~ .scroll tbody`)))
		looks("webhook")
		p.click(`a[href$="/replay"]`)
		on("replay")
		p.click("main form button")
		p.do(chromedp.WaitVisible(chromedp.CSS("#count")))
		looks("replay")
		p.open(prefix + "/console/webhooks")
		looks("webhooks")

		p.open(prefix + "/console/security")
		p.do(chromedp.WaitVisible(chromedp.CSS("#name")))
		p.do(chromedp.SendKeys(chromedp.CSS("#name"), words.mine))
		p.click("[data-new-passkey] button")
		p.do(chromedp.WaitVisible(chromedp.CSS(`[aria-labelledby="passkeys"] tbody th`)))
		looks("security")
		p.open(prefix + "/console/prove?to=" + prefix + "/console/security")
		looks("prove")
		p.click("[data-passkey]")
		on("security")

		p.click(".account button")
		on("sign-in")
		p.do(chromedp.NavigateBack())
		on("sign-in") // what was shown before is shown no more
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-passkey]")))
		p.click("[data-passkey]")
		on("")
		p.open(prefix + "/console/security")
		if shown := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(shown, words.mine) {
			t.Errorf("the passkey that was used: %s", shown)
		}

		// A copy of the authenticator has a counter that is behind.
		w.owner("UPDATE passkey_uses SET sign_count = 1000")
		p.click(".account button")
		on("sign-in")
		p.click("[data-passkey]")
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-failed]")))
		w.logged("its counter has not grown")
		w.owner("UPDATE passkey_uses SET sign_count = 1")
		p.click("[data-passkey]")
		on("")

		p.open(prefix + "/console/security")
		p.click(`[aria-labelledby="passkeys"] td button`)
		p.do(chromedp.WaitVisible(chromedp.CSS(`main:not(:has([aria-labelledby="passkeys"])) #name`)))
		p.click(".account button")
		on("sign-in")
		p.click("[data-passkey]")
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-failed]")))
		p.mu.Lock()
		for _, complaint := range *complaints { // the browser itself names each answer that refuses, and what it clears
			if !strings.Contains(complaint, "the server responded with a status of 409") && !strings.Contains(complaint, "Clear-Site-Data") {
				t.Errorf("in the console: %s", complaint)
			}
		}
		if len(p.foreign) > 0 {
			t.Errorf("requests for %v", p.foreign)
		}
		p.mu.Unlock()
	}
	w.Audit(t)
}

// looks requires that axe finds no fault with the page, and that it needs no scrolling sideways at 320 CSS pixels.
func (p *tab) looks(axe, scheme, name, prefix string) {
	p.t.Helper()
	p.accessible(axe, scheme)
	p.shot("console-" + name + prefix)
	p.window(320, 640)
	if width := eval[int](p, `document.documentElement.scrollWidth`); width > 320 {
		p.t.Errorf("%s%s is %d pixels wide: %s", prefix, name, width, eval[string](p,
			`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 321 && !e.closest(".scroll")).slice(0, 3).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
	}
	p.window(1280, 900)
}
