package handlers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/browsertest"
	"integrityledger/projections/queue"
)

// A person signs in by mail, finds a file's record, creates a webhook destination, adds a passkey, signs out, signs in
// with the passkey and removes it. No page has a fault that axe finds, needs horizontal scrolling at 320 CSS pixels, or
// writes to the browser's console. TestConsoleStory of cmd/integrity covers both languages.
func TestConsoleInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	box := &consoleService{service: w.service, mails: make(chan queue.Mail, 16)}
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1) // authenticators sign for names
	config := w.config
	config.BaseURL = w.URL
	config.LinkMailer, config.SignUp = box.mailer(t, &config), true
	w.use(handlers.New(config))
	w.registered("a", 1, "one")
	viewer := must(
		w.service, &domain.AddMember{Origin: w.org.Operator(), Email: "viewer@example.com", Role: domain.Viewer},
	).Outcome
	most := int32(60000)
	must(w.service, &domain.ChangePlan{Origin: w.org.Operator(), Plan: "gratis", PerMinute: &most})
	hook := w.post(integrity+"/webhooks", body{"url": "https://hooks.example/fails"}).is(http.StatusCreated)["id"].(string)
	w.monthUsed(2900, 10000)
	w.failing(hook)
	p := w.tab()
	p.Authenticator()
	p.open("/console")
	p.on("sign-in")
	p.looks("console-sign-in")
	p.click(`a[href$="/console/sign-up"]`)
	p.on("sign-up")
	p.looks("console-sign-up")
	p.do(chromedp.SendKeys(chromedp.CSS("#sign-up #email"), "new@example.com"))
	p.click("#sign-up button")
	p.on("sign-up-sent")
	p.looks("console-sign-up-sent")
	link := box.mail()
	p.open(strings.TrimPrefix(link.SignIn.URL, w.URL))
	p.on("organization-new")
	p.looks("console-organization-new")
	p.do(chromedp.SendKeys(chromedp.CSS("#organization #name"), " "))
	p.click("#organization button")
	p.do(chromedp.WaitVisible(chromedp.CSS("#name-error")))
	p.looks("console-organization-wrong")
	p.do(chromedp.SendKeys(chromedp.CSS("#organization #name"), "portátil"))
	p.click("#organization button")
	p.on("")
	p.looks("console-overview-new")
	p.click(".account button")
	p.on("sign-in")
	p.do(chromedp.SendKeys(chromedp.CSS("#email"), w.org.Email))
	p.click(`form[action$="/console/sign-in"] button`)
	p.on("sent")
	p.looks("console-sent")
	link = box.mail()
	p.open(strings.TrimPrefix(link.SignIn.URL, w.URL))
	p.click("main form button")
	p.on("")
	if title := run(p, chromedp.Text(chromedp.CSS("h1"))); title != "Resumen" {
		t.Errorf("the overview is titled %s", title)
	}
	p.looks("console-overview")
	if menu := eval[string](p, `[...document.querySelectorAll("#menu > p, #menu a")].map(e => e.textContent).join(" ")`); menu !=
		"Libro de registros Resumen Registros Certificación Integración Claves Empresas Webhooks "+
			"Organización Miembros Su nombre y sus dominios Historial Plan y consumo Seguridad" {
		t.Errorf("the navigation is %s", menu)
	}
	p.window(320, 640)
	if eval[bool](p, `document.querySelector("#menu").checkVisibility()`) {
		t.Error("on a phone the menu is open")
	}
	p.click("[popovertarget]")
	p.do(chromedp.WaitVisible(chromedp.CSS("#menu .account button")))
	p.accessible("light")
	p.shot("console-menu")
	p.window(320, 640)
	p.click(".close")
	p.do(chromedp.WaitNotVisible(chromedp.CSS("#menu")))
	eval[bool](p, `document.querySelector("[popovertarget]").focus() === undefined`)
	press := func(keys ...string) { p.do(chromedp.KeyEvent(strings.Join(keys, ""))) }
	press(kb.Enter)
	p.do(chromedp.WaitVisible(chromedp.CSS("#menu")))
	press(kb.Escape)
	p.do(chromedp.WaitNotVisible(chromedp.CSS("#menu")))
	press(kb.Enter, kb.Tab, kb.Tab, kb.Tab, kb.Enter) // past the button that closes the menu and the present page
	p.on("records")
	p.window(1280, 900)
	p.open("/console/history")
	p.looks("console-history")
	p.window(360, 640)
	if !eval[bool](p, `document.querySelector("#events").scrollWidth <= document.querySelector("#events").clientWidth`) {
		t.Error("ids of the history run off a narrow screen")
	}
	p.window(1280, 900)
	browsertest.Call(p.Tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	p.open("/en/console/history")
	p.until(`/^\d+ \w{3} \d{4}, \d\d:\d\d:\d\d GMT\+9$/.test(document.querySelector("#events time").textContent)`)
	browsertest.Call(p.Tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{})
	p.open("/console/history")
	p.until(`/^\d+ \w{3} \d{4}, \d+:\d\d:\d\d UTC$/.test(document.querySelector("#events time").textContent)`)
	p.click("#follow")
	p.do(chromedp.WaitVisible(chromedp.CSS(`#follow[aria-pressed="true"]`)))
	followed := w.registered("followed", 1, "x")
	soon := func() { eval[bool](p, `document.dispatchEvent(new Event("visibilitychange"))`) }
	soon()
	p.until(`document.querySelector("#events tbody tr")?.innerHTML.includes("` + followed + `")`)
	p.until(`/: 1$/.test(document.querySelector("#following [role=status]").textContent)`)
	p.looks("console-followed")
	w.owner("UPDATE console_sessions SET expires_at = now() - interval '1 day'")
	soon()
	p.do(
		chromedp.WaitVisible(chromedp.CSS("[data-ended]")),
		chromedp.WaitVisible(chromedp.CSS(`#follow[aria-pressed="false"]`)),
	)
	p.looks("console-follow-ended")
	w.owner("UPDATE console_sessions SET expires_at = now() + interval '1 day'")
	p.open("/console/keys/new")
	p.looks("console-key-new")
	p.do(chromedp.SendKeys(chromedp.CSS("#name"), "portátil"))
	eval[bool](p, `document.querySelector("[data-ticks-group]").click() === undefined`)
	p.until(`document.querySelectorAll("[name=scopes]:checked").length === 8`)
	eval[bool](p, `document.querySelector('[data-ticks="integrity:read"]').click() === undefined`)
	p.until(
		`document.querySelectorAll("[name=scopes]:checked").length === 1 && /: integrity:read$/.test(document.querySelector("[data-ticked]").textContent)`,
	)
	p.do(chromedp.WaitVisible(chromedp.CSS(`#company-company-1:checked`))) // the only company is chosen already
	p.click("form.fields > .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS(".sample .copy")))
	p.looks("console-key-made")
	p.open("/console/keys")
	p.looks("console-keys")
	if broken := eval[[]string](p, `[...document.querySelectorAll("td.address")].filter(e => {
		const text = document.createRange()
		text.selectNodeContents(e)
		return e.textContent === "operador" && text.getClientRects().length > 1
	}).map(e => e.outerHTML)`); len(broken) > 0 {
		t.Errorf("a word is broken in a table that is 1280 pixels wide: %s", broken)
	}
	p.click("tbody tr:last-child a")
	p.do(chromedp.WaitVisible(chromedp.CSS("#expiresAt")))
	p.looks("console-key")
	p.open("/console/companies")
	p.looks("console-companies")
	p.do(chromedp.WaitVisible(chromedp.CSS(".matrix tr:first-child td:last-child [checked]")))
	p.click(".matrix tbody tr:first-child td:last-child label")
	p.click("form:has(.matrix) .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS("#access ~ [data-done]")))
	p.do(chromedp.WaitVisible(chromedp.CSS(".matrix tbody tr:first-child td:last-child input:not([checked])")))
	p.open("/console/members")
	p.looks("console-members")
	p.click(`th[scope="row"] a`)
	p.on("member")
	p.looks("console-member")
	p.open("/console/members/" + viewer.ID.String())
	p.looks("console-viewer")
	p.click(`a[href$="/disable"]`)
	p.on("member-disable")
	p.looks("console-member-disable")
	p.click("main form button")
	p.on("member")
	p.click(`form[action$="/enable"] button`)
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="member"] a[href$="/disable"]`)))
	p.open("/console/history?author=" + viewer.ID.String())
	p.looks("console-history-author")
	p.open("/console/keys/key_x")
	p.looks("console-not-shown")
	p.open("/console/prove/done")
	p.looks("console-proved")
	p.open("/console/plan")
	p.looks("console-plan")
	p.open("/console/records")
	p.looks("console-records")
	p.choose(file(t, "a.txt", "one"))
	p.on("record")
	p.do(chromedp.WaitVisible(chromedp.CSS("#your-file")), chromedp.WaitVisible(chromedp.CSS(`[data-copy="#link"]`)))
	p.looks("console-record")
	p.click(`a[href$="/revoke"]`)
	p.on("revoke")
	p.looks("console-revoke")
	p.open("/console/webhooks/new")
	p.looks("console-webhook-new")
	p.do(chromedp.SendKeys(chromedp.CSS("#url"), "https://127.0.0.1/hook"))
	p.click("main form button")
	p.do(chromedp.WaitVisible(chromedp.CSS("#url-error code")))
	p.looks("console-webhook-wrong")
	p.open("/console/webhooks/new")
	p.do(chromedp.SendKeys(chromedp.CSS("#url"), "https://receiver.example/hook"))
	p.click("main form button")
	p.on("webhook-secret")
	p.looks("console-webhook-secret")
	p.click("main .actions a")
	p.on("webhook")
	p.click(`form[action$="/test"] button`)
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-done]")))
	p.until(`location.search === ""`)
	shown := eval[string](p, `location.pathname.split("/").at(-1)`)
	w.post(hooks+"/"+shown+"/test", body{}).is(http.StatusAccepted)
	p.until(
		`document.querySelectorAll("#rows tr").length === 2 && document.querySelector("#told").textContent.includes("webhook.test")`,
	)
	p.window(320, 640)
	if right := eval[float64](
		p,
		`Math.max(...[...document.querySelectorAll("#rows [data-result], #rows button")].map(e => e.getBoundingClientRect().right))`,
	); right > 320 {
		t.Errorf("on a phone the result of a delivery ends at %v", right)
	}
	p.window(1280, 900)
	p.looks("console-webhook")
	p.click("#rows th a")
	p.on("delivery")
	p.looks("console-delivery")
	p.do(chromedp.NavigateBack())
	p.on("webhook")
	p.click(`a[href$="/replay"]`)
	p.on("replay")
	p.click("main form button")
	p.do(chromedp.WaitVisible(chromedp.CSS("#count")))
	p.looks("console-replay")
	p.open("/console/webhooks")
	p.looks("console-webhooks")

	for _, path := range []string{
		"", "/history", "/keys/new", "/keys", "/companies", "/members", "/plan", "/webhooks", "/records", "/records/new",
		"/records/new/file", "/records/new/reservation", "/security", "/prove", "/documents/new", "/publisher",
	} {
		p.Still("/console" + path)
	}
	p.open("/console/security")
	p.do(chromedp.WaitVisible(chromedp.CSS("#name")))
	p.do(chromedp.SendKeys(chromedp.CSS("#name"), "portátil"))
	p.click("[data-new-passkey] button")
	p.do(
		chromedp.WaitVisible(chromedp.CSS(`[aria-labelledby="passkeys"] tbody th`)),
		chromedp.WaitVisible(chromedp.CSS("[data-done]")),
	)
	p.looks("console-security")
	p.do(chromedp.SendKeys(chromedp.CSS("#name"), "otra"))
	p.click("[data-new-passkey] button")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-exists]")), chromedp.WaitNotVisible(chromedp.CSS("[data-done]")))
	p.open("/console/prove?to=/console/security")
	p.looks("console-prove")
	p.click("[data-passkey]")
	p.on("security")

	p.click(".account button")
	p.on("sign-in")
	p.do(chromedp.NavigateBack())
	p.on("sign-in") // the content shown before is gone
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-passkey]")))
	p.click("[data-passkey]")
	p.on("")
	p.open("/console/security")
	if shown := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(shown, "portátil") {
		t.Errorf("the passkey that was used: %s", shown)
	}

	// The counter of a copied authenticator is behind.
	w.owner("UPDATE passkey_uses SET sign_count = 1000")
	p.click(".account button")
	p.on("sign-in")
	p.click("[data-passkey]")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-failed]")))
	w.logged("its counter has not grown")
	w.owner("UPDATE passkey_uses SET sign_count = 1")
	p.click("[data-passkey]")
	p.on("")

	p.open("/console/security")
	p.click(`[aria-labelledby="passkeys"] td a.danger`)
	p.on("passkey-remove")
	p.looks("console-passkey-remove")
	p.click("main form button")
	p.on("security")
	p.do(chromedp.WaitVisible(chromedp.CSS(`main:not(:has([aria-labelledby="passkeys"])) #name`)))
	p.click(".account button")
	p.on("sign-in")
	if eval[bool](p, `document.querySelector("[data-passkey]") !== null`) {
		t.Error("a passkey is offered after the last one was removed")
	}
	box.newAuthenticator() // elsewhere, so that a passkey is offered again; the removed one is refused
	w.skew.Add(int64(6 * time.Second))
	p.open("/console/sign-in")
	p.click("details summary")
	p.click("[data-passkey]")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-unknown]")))
	for _, complaint := range p.Complaints() { // the browser itself reports refusals and cleared data
		if !strings.Contains(complaint, "the server responded with a status of 409") &&
			!strings.Contains(complaint, "status of 401") && !strings.Contains(complaint, "status of 404") && !strings.Contains(complaint, "status of 422") &&
			!strings.Contains(complaint, "Clear-Site-Data") {
			t.Errorf("in the console: %s", complaint)
		}
	}
	if foreign := p.Foreign(); len(foreign) > 0 {
		t.Errorf("requests for %v", foreign)
	}
	w.Audit(t)
}

// passkeyShapes are replacements that password managers make for the browser's own passkey functions, and functions
// that older browsers lack.
var passkeyShapes = map[string]string{
	"toJSON throws": `PublicKeyCredential.prototype.toJSON = () => { throw new TypeError("Illegal invocation"); };`,
	"nothing of JSON": `delete PublicKeyCredential.prototype.toJSON;
		delete PublicKeyCredential.parseCreationOptionsFromJSON;
		delete PublicKeyCredential.parseRequestOptionsFromJSON;`,
	"options cannot be parsed": `PublicKeyCredential.parseCreationOptionsFromJSON = PublicKeyCredential.parseRequestOptionsFromJSON =
		() => { throw new TypeError("Illegal invocation"); };`,
	"objects of their own": `for (const method of ["create", "get"]) {
		const own = navigator.credentials[method].bind(navigator.credentials);
		navigator.credentials[method] = async (options) => {
			const {id, rawId, type, response} = await own(options);
			const copied = {};
			for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
				if (response[name]) {
					copied[name] = new Uint8Array(response[name]);
				}
			}
			return Object.create(PublicKeyCredential.prototype, {id: {value: id}, rawId: {value: rawId}, type: {value: type}, response: {value: copied}});
		};
	}`,
}

// A passkey can be added and used to sign in, even if an extension stands between the page and the browser.
func TestPasskeysBesideExtensions(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	box := &consoleService{service: w.service, mails: make(chan queue.Mail, 16)}
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	config := w.config
	config.BaseURL = w.URL
	config.LinkMailer = box.mailer(t, &config)
	w.use(handlers.New(config))
	for name, script := range passkeyShapes {
		p := w.tab()
		browsertest.Call(
			p.Tab, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script},
		)
		p.Authenticator()
		p.open("/console/sign-in")
		p.do(chromedp.SendKeys(chromedp.CSS("#email"), w.org.Email))
		p.click(`form[action$="/console/sign-in"] button`)
		p.on("sent")
		link := box.mail()
		p.open(strings.TrimPrefix(link.SignIn.URL, w.URL))
		p.click("main form button")
		p.on("")
		p.open("/console/security")
		p.do(chromedp.WaitVisible(chromedp.CSS("#name")), chromedp.SendKeys(chromedp.CSS("#name"), name))
		p.click("[data-new-passkey] button")
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-done], [data-failed]")))
		if shown := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(shown, name) {
			t.Errorf("%s: no passkey was added: %s", name, shown)
			continue
		}
		p.click(".account button")
		p.on("sign-in")
		p.click("[data-passkey]")
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-failed], .account")))
		if eval[bool](p, `document.querySelector(".account") === null`) {
			t.Errorf("%s: the passkey does not sign in", name)
			continue
		}
		p.click(".account button")
		p.on("sign-in")
	}
	w.Audit(t)
}
