package handlers_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"integrityledger/handlers/browsertest"
)

// A person registers files without a program, in both ways and both languages. The file never leaves the browser, a
// double click registers once, and the public page then says that the same file matches the current version.
func TestRegisterInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	p := w.tab()
	p.signsIn("")
	const content = "The bytes of the finished file never leave the browser."
	for _, prefix := range []string{"", "/en"} {
		language := strings.TrimPrefix(prefix, "/") + "-"
		p.open(prefix + "/console/records")
		p.click(`a.button[href$="/records/new"]`)
		p.on("register")
		p.looks(language + "console-register")
		for _, path := range []string{"", "/new", "/new/reservation", "/new/file"} {
			p.Still(prefix + "/console/records" + path)
		}
		for way, document := range []string{"with-code", "finished"} {
			name := language + document
			path := file(t, name+".txt", content+name)
			p.open(prefix + "/console/records/new")
			if way == 0 {
				p.click(`a[href$="/new/reservation"]`)
				p.on("register-reserve")
				p.do(chromedp.SendKeys(chromedp.CSS("#document"), "a b"+kb.Enter))
				p.do(chromedp.WaitVisible(chromedp.CSS("#document-error")))
				p.looks(language + "console-register-wrong")
				eval[string](p, `document.querySelector("#document").value = ""`)
				p.do(chromedp.SendKeys(chromedp.CSS("#document"), "d"+name+kb.Enter))
				p.on("reservation")
				p.until(`[...document.querySelectorAll(".code img")].every(i => i.complete && i.naturalWidth > 0)`)
				p.looks(language + "console-reservation")
				p.open(prefix + "/console/records/new")
				p.looks(language + "console-register-waiting")
				p.click("tbody a")
				p.on("reservation")
			} else {
				p.click(`a[href$="/new/file"]`)
				p.on("register-file")
				p.do(chromedp.SendKeys(chromedp.CSS("#document"), "d"+name))
				p.looks(language + "console-register-file")
			}
			p.do(chromedp.WaitVisible(chromedp.CSS(".drop .button")))
			w.forget()
			p.click("[data-declares] > .actions button")
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-refused="missing"]`)))
			p.choose(file(t, "empty.txt", ""))
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-refused="empty"]`)))
			p.drops(emptyFolder)
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-refused="folder"]`)))
			p.choose(path)
			p.do(chromedp.WaitVisible(chromedp.CSS("[data-hashed]")))
			p.looks(name + "-hashed")
			p.click("[data-declares] > .actions button")
			p.on("register-confirm")
			if text := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(text, hash(content+name)) ||
				!strings.Contains(text, "text/plain") || !strings.Contains(text, "d"+name) {
				t.Errorf("the declaration: %s", text)
			}
			p.looks(name + "-confirm")
			if text := run(p, chromedp.Text(chromedp.CSS("[data-file-name]"))); !strings.Contains(text, name+".txt") {
				t.Errorf("the chosen file: %s", text)
			}
			p.click(`button[formmethod="get"]`)
			p.on([]string{"reservation", "register-file"}[way])
			p.do(chromedp.WaitVisible(chromedp.CSS("[data-hashed]")))
			if text := run(p, chromedp.Text(chromedp.CSS("[data-hashed]"))); !strings.Contains(text, name+".txt") ||
				!strings.Contains(text, hash(content+name)) || eval[bool](p, `document.querySelector(".by-hand").open`) {
				t.Errorf("after something is to be changed: %s", text)
			}
			if way == 1 {
				eval[string](p, `document.querySelector("#document").value = ""`)
				p.do(chromedp.SendKeys(chromedp.CSS("#document"), "2026/1"+kb.Enter))
				p.do(chromedp.WaitVisible(chromedp.CSS("#document-error")))
				p.looks(name + "-refused")
				p.click("#problem a")
				if id := eval[string](p, "document.activeElement.id"); id != "document" {
					t.Errorf("the link of the problem leads to %q", id)
				}
				eval[string](p, `document.querySelector("#document").value = ""`)
				p.do(chromedp.SendKeys(chromedp.CSS("#document"), "d"+name))
			}
			p.click("[data-declares] > .actions button")
			p.on("register-confirm")
			if text := run(p, chromedp.Text(chromedp.CSS("[data-file-name]"))); !strings.Contains(text, name+".txt") {
				t.Errorf("the chosen file, after a change: %s", text)
			}
			eval[bool](p, `(b => b.click() ?? b.click() ?? true)(document.querySelector("#declares ~ form button"))`)
			p.on("record-link")
			p.do(chromedp.WaitVisible(chromedp.CSS(`[data-copy="#link"]`)))
			p.looks(name + "-link")
			if text := run(p, chromedp.Text(chromedp.CSS("main"))); strings.Contains(text, "Send ") ||
				strings.Contains(text, "Envíe") || eval[bool](p, `document.querySelector("[href^=mailto]") !== null`) {
				t.Errorf("a service that others cannot reach says: %s", text)
			}
			if requests, sent := w.received(); bytes.Contains(sent, []byte(content)) {
				t.Errorf("the file has left the browser: %v", requests)
			}
			p.open(eval[string](p, `document.querySelector('a[target="_blank"]').pathname`))
			p.do(chromedp.WaitVisible(chromedp.CSS("#drop .button")))
			p.choose(path)
			p.result("MATCH_CURRENT")
		}
	}
	if n := w.count("versions WHERE record_id IS NOT NULL"); n != 4 {
		t.Errorf("%d records of 4 files", n)
	}
	// Without scripts a hash can be pasted, and everything else works.
	browsertest.Call(p.Tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.open("/en/console/records/new/file")
	p.do(
		chromedp.WaitVisible(chromedp.CSS("noscript")), chromedp.Click(chromedp.CSS(".by-hand summary")),
		chromedp.SendKeys(chromedp.CSS("#document"), "pasted"), chromedp.SendKeys(chromedp.CSS("#sha256"), hash("pasted")),
		chromedp.SendKeys(chromedp.CSS("#sizeBytes"), "6"), chromedp.Click(chromedp.CSS("[data-declares] > .actions button")),
	)
	p.on("register-confirm")
	p.click("#declares ~ form button")
	p.on("record-link")
	complaints := slices.DeleteFunc(p.Complaints(), func(text string) bool { return strings.Contains(text, "status of 422") })
	if foreign := p.Foreign(); len(complaints) > 0 || len(foreign) > 0 {
		t.Errorf("in the console: %v; requests for %v", complaints, foreign)
	}
	w.Audit(t)
}

// Back never leads to the browser's own page about a form that would be sent again: a page that answers a form has the
// address of a page in the history.
func TestBackFromAnswersOfForms(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	p := w.tab()
	p.signsIn("")
	back := func(to chromedp.CSS) {
		eval[bool](p, "setTimeout(() => history.back()) > 0") // the page may not go while it is asked
		p.do(chromedp.WaitVisible(to))
	}
	for path, page := range map[string]string{
		"/records/new/reservation": "register-reserve", "/records/new/file": "register-file", "/companies": "companies",
		"/webhooks/new": "webhook-new", "/members": "members",
	} {
		p.open("/en/console" + path)
		p.on(page)
		eval[bool](p, `(f => { f.noValidate = true; for (const i of f.querySelectorAll("input:not([type=hidden])"))
			i.value = i.type === "text" ? " " : ""; return setTimeout(() => HTMLFormElement.prototype.submit.call(f)) > 0
		})(document.querySelector("main form[method=post]"))`)
		p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-answers][data-page="` + page + `"]`)))
		p.click(`nav.side a[href$="/security"]`)
		p.on("security")
		back(chromedp.CSS(`main:not([data-answers])[data-page="` + page + `"]`))
	}
	// A key's text is not: the page of the key says so, and what to do.
	p.open("/en/console/keys/new")
	p.do(chromedp.SendKeys(chromedp.CSS("#name"), "worker"))
	p.click("form.fields > .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS("#scopes-error")))
	eval[bool](p, `document.querySelector('[data-ticks="integrity:write"]').click() === undefined`)
	p.do(chromedp.WaitNotPresent(chromedp.CSS("#scopes-error"))) // it is true no longer
	p.click("form.fields > .actions button")
	p.on("key-made")
	p.click(`nav.side a[href$="/security"]`)
	p.on("security")
	back(`main[data-page="key"]`)
	if text := eval[string](p, `document.querySelector("main").innerText`); !strings.Contains(text, "cannot be shown again") ||
		!strings.Contains(text, "rotate the key") {
		t.Errorf("after Back, the page of a new key: %s", text)
	}
	// The declaration is there again with the name of its file until it is registered; then Back leads to its link.
	p.open("/en/console/records/new/file")
	p.do(chromedp.SendKeys(chromedp.CSS("#document"), "d-1"))
	p.choose(file(t, "chosen.txt", "one"))
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-hashed]")))
	p.click("[data-declares] > .actions button")
	p.on("register-confirm")
	p.click(`button[formmethod="get"]`)
	p.on("register-file")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-hashed]")))
	const named = `main[data-page="register-confirm"] [data-file-name]:not([hidden])`
	back(named)
	if text := eval[string](p, `document.querySelector("main").innerText`); !strings.Contains(text, "chosen.txt") ||
		!strings.Contains(text, hash("one")) {
		t.Errorf("on the way back: %s", text)
	}
	p.click("#declares ~ form button")
	p.on("record-link")
	back(`main[data-page="record-link"]`)
	p.do(chromedp.WaitVisible(chromedp.CSS("main .said, main [role=status]")))
}

// A link that opens on this computer only is not for others: a person learns it before anything is registered, and wherever
// a link stands.
func TestLinksOfAServiceOnThisComputer(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	id := w.registered("a", 1, "one")
	p := w.tab()
	p.signsIn("")
	for prefix, words := range map[string]string{"": "no los envíe", "/en": "do not send"} {
		for _, path := range []string{"/records/new", "/records/" + id, "/records/" + id + "/link"} {
			p.open(prefix + "/console" + path)
			if text := run(p, chromedp.Text(chromedp.CSS("main"))); strings.Count(text, words) != 1 {
				t.Errorf("%s%s: %s", prefix, path, text)
			}
		}
	}
}

// Nor does the page of an invitation ask to pass it on.
func TestInvitationOfAServiceOnThisComputer(t *testing.T) {
	t.Parallel()
	p := openDocuments(t).tab()
	p.signsIn("")
	for prefix, words := range map[string]string{"": "Abra aquí este enlace", "/en": "Open this link here"} {
		p.open(prefix + "/console/members")
		p.click("#role-viewer")
		p.do(chromedp.SendKeys(chromedp.CSS("#email"), "here"+strings.Trim(prefix, "/")+"@example.com"+kb.Enter))
		p.do(chromedp.WaitVisible(chromedp.CSS(".sample code")))
		text := run(p, chromedp.Text(chromedp.CSS(`section[role="status"]`)))
		if !strings.Contains(text, words) || strings.Contains(text, "do not send") || strings.Contains(text, "no los envíe") ||
			strings.Contains(text, "invited person") {
			t.Errorf("the page of an invitation: %s", text)
		}
		p.looks(strings.TrimPrefix(prefix, "/") + "-invitation-here")
	}
}
