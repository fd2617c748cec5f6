package handlers_test

import (
	"net/http"
	"strings"
	"testing"

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
	config.LinkMailer, config.SignUp = box.mailer(t, &config), true
	w.use(handlers.New(config))
	w.registered("a", 1, "one")
	viewer := must(w.service, &domain.AddMember{Origin: w.org.Operator(), Email: "viewer@example.com", Role: domain.Viewer}).Outcome
	most := int32(60000)
	must(w.service, &domain.ChangePlan{Origin: w.org.Operator(), Plan: "gratis", PerMinute: &most})
	hook := w.post(integrity+"/webhooks", body{"url": "https://hooks.example/fails"}).is(http.StatusCreated)["id"].(string)
	w.monthUsed(2900, 10000)
	w.failing(hook)
	axe := axeScript(t)
	for prefix, words := range map[string]struct{ scheme, title, mine string }{
		"":    {"light", "Resumen", "portátil"},
		"/en": {"dark", "Overview", "laptop"},
	} {
		p := w.tab()
		p.Authenticator()
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
		p.click(`a[href$="/console/sign-up"]`)
		on("sign-up")
		looks("sign-up")
		p.do(chromedp.SendKeys(chromedp.CSS("#sign-up #email"), "new"+words.scheme+"@example.com"))
		p.click("#sign-up button")
		on("sign-up-sent")
		looks("sign-up-sent")
		link := <-box.mails
		p.open(strings.TrimPrefix(link.SignIn.URL, w.URL))
		on("organization-new")
		looks("organization-new")
		p.do(chromedp.SendKeys(chromedp.CSS("#organization #name"), " "))
		p.click("#organization button")
		p.do(chromedp.WaitVisible(chromedp.CSS("#name-error")))
		looks("organization-wrong")
		p.do(chromedp.SendKeys(chromedp.CSS("#organization #name"), words.mine))
		p.click("#organization button")
		on("")
		looks("overview-new")
		p.click(".account button")
		on("sign-in")
		p.do(chromedp.SendKeys(chromedp.CSS("#email"), w.org.Email))
		p.click(`form[action$="/console/sign-in"] button`)
		on("sent")
		looks("sent")
		link = <-box.mails
		p.open(strings.TrimPrefix(link.SignIn.URL, w.URL))
		p.click("main form button")
		on("")
		if title := run(p, chromedp.Text(chromedp.CSS("h1"))); title != words.title {
			t.Errorf("%s: %s", words.title, title)
		}
		looks("overview")
		p.open(prefix + "/console/history")
		looks("history")
		p.window(360, 640)
		if !eval[bool](p, `document.querySelector("#events").scrollWidth <= document.querySelector("#events").clientWidth`) {
			t.Error("ids of the history run off a narrow screen")
		}
		p.window(1280, 900)
		p.click("#follow")
		p.do(chromedp.WaitVisible(chromedp.CSS(`#follow[aria-pressed="true"]`)))
		followed := w.registered("followed-"+words.scheme, 1, "x")
		soon := func() { eval[bool](p, `document.dispatchEvent(new Event("visibilitychange"))`) }
		soon()
		p.until(`document.querySelector("#events tbody tr")?.textContent.includes("` + followed + `")`)
		p.until(`/: 1$/.test(document.querySelector("#following [role=status]").textContent)`)
		looks("followed")
		w.owner("UPDATE console_sessions SET expires_at = expires_at - interval '1 day'")
		soon()
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-ended]")), chromedp.WaitVisible(chromedp.CSS(`#follow[aria-pressed="false"]`)))
		looks("follow-ended")
		w.owner("UPDATE console_sessions SET expires_at = expires_at + interval '1 day'")
		p.open(prefix + "/console/keys/new")
		looks("key-new")
		p.do(chromedp.SendKeys(chromedp.CSS("#name"), words.mine))
		eval[bool](p, `document.querySelector("[data-ticks-group]").click() === undefined`)
		p.until(`document.querySelectorAll("[name=scopes]:checked").length === 8`)
		eval[bool](p, `document.querySelector('[data-ticks="integrity:read"]').click() === undefined`)
		p.until(`document.querySelectorAll("[name=scopes]:checked").length === 1 && /: integrity:read$/.test(document.querySelector("[data-ticked]").textContent)`)
		p.click(`[for="company-company-1"]`)
		p.click("form.fields > .actions button")
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
		p.do(chromedp.WaitVisible(chromedp.CSS("#access ~ [data-done]")))
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
		p.do(chromedp.WaitVisible(chromedp.CSS("#your-file")), chromedp.WaitVisible(chromedp.CSS(`[data-copy="#link"]`)))
		looks("record")
		p.click(`a[href$="/revoke"]`)
		on("revoke")
		looks("revoke")
		p.open(prefix + "/console/webhooks/new")
		looks("webhook-new")
		p.do(chromedp.SendKeys(chromedp.CSS("#url"), "https://127.0.0.1/hook"))
		p.click("main form button")
		p.do(chromedp.WaitVisible(chromedp.CSS("#url-error code")))
		looks("webhook-wrong")
		p.open(prefix + "/console/webhooks/new")
		p.do(chromedp.SendKeys(chromedp.CSS("#url"), "https://receiver.example/hook"))
		p.click("main form button")
		on("webhook-secret")
		looks("webhook-secret")
		p.click("main .actions a")
		on("webhook")
		p.click(`form[action$="/test"] button`)
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-done]")))
		p.until(`location.search === ""`)
		shown := eval[string](p, `location.pathname.split("/").at(-1)`)
		w.post(hooks+"/"+shown+"/test", body{}).is(http.StatusAccepted)
		p.until(`document.querySelectorAll("#rows tr").length === 2 && document.querySelector("#told").textContent.includes("webhook.test")`)
		p.window(320, 640)
		if right := eval[float64](p, `Math.max(...[...document.querySelectorAll("#rows [data-result], #rows button")].map(e => e.getBoundingClientRect().right))`); right > 320 {
			t.Errorf("on a phone the result of a delivery ends at %v", right)
		}
		p.window(1280, 900)
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
		p.do(chromedp.WaitVisible(chromedp.CSS(`[aria-labelledby="passkeys"] tbody th`)), chromedp.WaitVisible(chromedp.CSS("[data-done]")))
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
		for _, complaint := range p.Complaints() { // the browser itself names each answer that refuses, and what it clears
			if !strings.Contains(complaint, "the server responded with a status of 409") && !strings.Contains(complaint, "status of 401") && !strings.Contains(complaint, "status of 422") && !strings.Contains(complaint, "Clear-Site-Data") {
				t.Errorf("in the console: %s", complaint)
			}
		}
		if foreign := p.Foreign(); len(foreign) > 0 {
			t.Errorf("requests for %v", foreign)
		}
	}
	w.Audit(t)
}

// looks requires that axe finds no fault with the page, and that it needs no scrolling sideways at 320 CSS pixels.
func (p *tab) looks(axe, scheme, name, prefix string) {
	p.T.Helper()
	p.accessible(axe, scheme)
	p.shot("console-" + name + prefix)
	p.window(320, 640)
	if width := eval[int](p, `document.documentElement.scrollWidth`); width > 320 {
		p.T.Errorf("%s%s is %d pixels wide: %s", prefix, name, width, eval[string](p,
			`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 321 && !e.closest(".scroll")).slice(0, 3).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
	}
	p.window(1280, 900)
}
