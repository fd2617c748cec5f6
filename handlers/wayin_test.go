package handlers_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
	"integrityledger/handlers/console"
)

const commandWithPaths = "/srv/bin/integrity member sign-in-link --data-dir /srv/ledger"

// A service without mail says which command prints a link: to strangers without paths, and for every address alike.
func TestSignInWithoutMail(t *testing.T) {
	s := &consoleService{service: open(t, options{config: func(c *handlers.Config) { c.LinkCommand = commandWithPaths }})}
	p := s.guest()
	command := "integrity member sign-in-link --email "
	shown := p.visit("/en/console/sign-in").says(http.StatusOK, command+"ADDRESS", "sends no email")
	p.visit("/console/sign-in").says(http.StatusOK, command+"ADDRESS", "línea de órdenes")
	known := p.press("/en/console/sign-in", "email", s.org.Email).says(http.StatusOK, command+s.org.Email+"<")
	unknown := p.press("/en/console/sign-in", "email", "nobody@example.com").says(http.StatusOK)
	if strings.ReplaceAll(string(known.body), s.org.Email, "nobody@example.com") != string(unknown.body) {
		t.Error("the page tells whether an address is known")
	}
	p.press("/en/console/sign-in", "email", "o'neil+x@example.com").says(
		http.StatusOK, command+"&#39;o&#39;\\&#39;&#39;neil&#43;x@example.com&#39;",
	)
	p.press("/en/console/sign-in", "email", "nobody").says(http.StatusUnprocessableEntity, "Enter an address")
	over := p.visit("/en/console/link/is_x").says(http.StatusNotFound, "cannot be used", command+"ADDRESS")
	for _, a := range []answer{shown, known, over} {
		if contains(a.body, "/srv") || contains(a.body, "terminal") {
			t.Errorf("a stranger is shown what belongs to the machine: %s", a.body)
		}
	}
	p.press("/en/console/sign-in/terminal").says(http.StatusNotFound)
	p.press("/en/console/link/" + s.operatorLink(s.org.Key.Member)).leads("/en/console")
	p.visit("/en/console/prove?to=/en/console/keys").says(http.StatusOK, command+s.org.Email)
	if contains(p.visit("/en/console/prove").body, "data-passkey") {
		t.Error("a member without a passkey is asked for one")
	}
	p.visit("/en/console/members/"+s.org.Key.Member.String()).says(http.StatusOK, "Lost access?", `<pre><code id="command">`+command+s.org.Email, `data-copy="#command"`)
	p.visit("/en/console/invitation/x").says(http.StatusNotFound, ">Sign in</a>")
	s.skew.Add(int64(13 * time.Hour))
	p.visit("/en/console").leads(sessionEnded)
	if a := p.visit(sessionEnded).says(http.StatusOK, "Your session has ended", command); contains(a.body, `class="said"`) {
		t.Error("the end of a session looks like a success")
	}
	p.visit("/en/console/sign-in?said=signed-out").says(http.StatusOK, `class="said"`, "You have signed out")
	p.visit("/en/console").leads("/en/console/sign-in")
	s.Audit(t)
}

// With mail no page names the command.
func TestSignInWithMailNamesNoCommand(t *testing.T) {
	s := openConsoleWith(t, options{config: func(c *handlers.Config) { c.LinkCommand = commandWithPaths }})
	for _, path := range []string{"/en/console/sign-in", "/en/console/link/is_x"} {
		if a := s.guest().visit(path); contains(a.body, "sign-in-link") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// At the machine of a demo the page has the whole command and a button that prints a link in the terminal, at most three
// in a minute. Anyone else gets neither.
func TestSignInAtTheMachine(t *testing.T) {
	w := openDocuments(t)
	var printed atomic.Int64
	w.config.LinkCommand, w.config.FirstAddress = commandWithPaths, "demo@example.org"
	var last, spoken atomic.Value
	w.config.PrintLink = func(_ context.Context, l evidence.Language, address string) error {
		spoken.Store(l)
		printed.Add(1)
		last.Store(address)
		return nil
	}
	w.use(handlers.New(w.config))
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cookies, typed := map[string]string{}, url.Values{"email": {"bob@example.org"}}
	ask := func(method, path string, header ...string) (status int, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader(typed.Encode()))
		check(t, err)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "text/html")
		for i := 0; i < len(header); i += 2 {
			if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
				r.Host = header[i+1]
			}
		}
		for name, value := range cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		resp, err := client.Do(r)
		check(t, err)
		for _, cookie := range resp.Cookies() {
			if cookies[cookie.Name] = cookie.Value; cookie.MaxAge < 0 {
				delete(cookies, cookie.Name)
			}
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		return resp.StatusCode, resp.Header.Get("Location") + string(body)
	}
	const page, button = "/en/console/sign-in", "/en/console/sign-in/terminal"
	if status, text := ask(http.MethodGet, page); status != http.StatusOK ||
		!strings.Contains(text, commandWithPaths+" --email demo@example.org") || !strings.Contains(text, button) {
		t.Errorf("at the machine: %d %s", status, text)
	}
	for _, header := range [][]string{
		{"X-Forwarded-For", "203.0.113.9"}, {"Forwarded", "for=203.0.113.9"}, {"Via", "1.1 proxy"},
		{"Host", "ledger.example"},
	} {
		if status, text := ask(http.MethodGet, page, header...); strings.Contains(text, "/srv") || strings.Contains(text, button) {
			t.Errorf("%v: %d %s", header, status, text)
		}
		if status, text := ask(http.MethodPost, button, header...); status != http.StatusForbidden || printed.Load() != 0 {
			t.Errorf("%v: %d %s", header, status, text)
		}
	}
	if status, _ := ask(http.MethodPost, button, "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("from another site: %d", status)
	}
	w.freshMinute()
	for i := range 5 {
		want := "The terminal that runs the demo names"
		if i >= 3 {
			want = "Three links were printed in this minute"
		}
		// The page keeps the address for which the link was printed.
		if status, text := ask(http.MethodPost, button); status != http.StatusOK || !strings.Contains(text, want) ||
			!strings.Contains(text, `type="hidden" name="email" value="bob@example.org"`) ||
			!strings.Contains(text, `maxlength="254" value="bob@example.org"`) {
			t.Errorf("press %d: %d %s", i, status, text)
		}
	}
	if printed.Load() != 3 || last.Load() != "bob@example.org" {
		t.Errorf("%d links were printed, the last for %v", printed.Load(), last.Load())
	}
	w.skew.Add(int64(time.Minute))
	if _, text := ask(http.MethodPost, button); !strings.Contains(text, "The terminal that runs the demo names") {
		t.Errorf("a minute later: %s", text)
	}
	// The link leads to a page in the language of the button's.
	if spoken.Load() != evidence.English {
		t.Errorf("the English page prints a link in %v", spoken.Load())
	}
	if _, text := ask(http.MethodPost, "/console/sign-in/terminal"); !strings.Contains(text, "La terminal en la que funciona la demostración") ||
		spoken.Load() != evidence.Spanish {
		t.Errorf("the Spanish page prints a link in %v: %s", spoken.Load(), text)
	}
	// The button names the address that was typed, whether or not it is known.
	for _, address := range []string{"bob@example.org", w.org.Email} {
		typed.Set("email", address)
		if _, text := ask(http.MethodPost, page); !strings.Contains(text, `name="email" value="`+address+`"`) ||
			!strings.Contains(text, `<span class="who">`+address) {
			t.Errorf("the button is not for %s: %s", address, text)
		}
	}
	typed.Set("email", "bob")
	if status, text := ask(http.MethodPost, button); status != http.StatusUnprocessableEntity || last.Load() != "bob@example.org" {
		t.Errorf("for no address: %d %s", status, text)
	}

	// A signed-in member gets a link of the own address, whatever the form says, stays on the page, and returns with the
	// link to the page that asked for the proof.
	const from = "/en/console/members"
	prove := "/en/console/prove?to=" + url.QueryEscape(from)
	if _, text := ask(http.MethodPost, "/en/console/link/"+w.operatorLink(w.org.Key.Member)); text != "/en/console" {
		t.Fatalf("the link leads to %s", text)
	}
	if status, text := ask(http.MethodGet, prove); status != http.StatusOK ||
		!strings.Contains(text, "/en/console/prove/terminal") || !strings.Contains(text, `name="to" value="`+from+`"`) {
		t.Errorf("the page for a proof: %d %s", status, text)
	}
	typed = url.Values{"to": {from}, "email": {"bob@example.org"}}
	status, text := ask(http.MethodPost, "/en/console/prove/terminal")
	if status != http.StatusSeeOther || text != prove+"&said=terminal-own" || last.Load() != w.org.Email {
		t.Errorf("%d %s, for %v", status, text, last.Load())
	}
	if _, text := ask(http.MethodGet, text); !strings.Contains(text, "a new link for your address") {
		t.Errorf("without a message: %s", text)
	}
	typed = url.Values{}
	if _, text := ask(http.MethodPost, "/en/console/link/"+w.operatorLink(w.org.Key.Member)); text != from {
		t.Errorf("after the proof: %s", text)
	}
	if _, text := ask(http.MethodPost, "/en/console/link/"+w.operatorLink(w.org.Key.Member)); text != "/en/console" {
		t.Errorf("a later link leads to %s", text)
	}

	// An invitation's link opens at this machine only, and the page says so.
	typed = url.Values{"email": {"new@example.org"}, "role": {"viewer"}}
	if status, text := ask(http.MethodPost, from); status != http.StatusOK || !strings.Contains(text, "on this computer only") ||
		!strings.Contains(text, "/en/console/invitation/") {
		t.Errorf("the link of an invitation: %d %s", status, text)
	}
	typed = url.Values{}

	// The link of another member says so before its button, and leads to no page of the former member.
	if _, text := ask(http.MethodGet, "/en/console/link/"+w.operatorLink(w.org.Key.Member)); strings.Contains(text, "This link belongs to") {
		t.Errorf("the own link: %s", text)
	}
	bob := must(
		w.service, &domain.AddMember{Origin: w.org.Operator(), Email: "bob@example.org", Role: domain.Admin},
	).Outcome
	ask(http.MethodGet, prove)
	other := "/en/console/link/" + w.operatorLink(bob.ID)
	if _, text := ask(http.MethodGet, other); !strings.Contains(text, "This link belongs to <strong class=\"who\">bob@example.org") ||
		!strings.Contains(text, w.org.Email) {
		t.Errorf("the link of another: %s", text)
	}
	if _, text := ask(http.MethodPost, other); text != "/en/console" {
		t.Errorf("the link of another leads to %s", text)
	}
}

func TestCommandIsQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"a@example.org": "a@example.org", "/srv/a b": "'/srv/a b'", "o'neil": `'o'\''neil'`, "$(id)": "'$(id)'", "": "''",
		"a;b": "'a;b'", "`x`": "'`x`'", "ñ": "'ñ'",
	} {
		if got := console.Quoted(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// While a person has at most one passkey, the page of passkeys leads to a second one and says how to sign in without
// any. The page that removes the last one says so too.
func TestOnePasskeyLeadsToASecond(t *testing.T) {
	s := openConsole(t)
	p := s.signedIn(s.org.Email)
	const security = "/en/console/security"
	second := []string{"two on different devices", "sign in on the other device", `href="/en/console/members#invite"`}
	without := []string{"emails to <span class=\"who\">" + s.org.Email, "another owner or the operator"}
	all := slices.Concat(second, without)
	p.visit(security).says(http.StatusOK, all...)
	first := s.passkeyNamed("office laptop")
	p.visit(security).says(http.StatusOK, append(all, "lost the device, end its session")...)
	p.visit("/console/security").says(http.StatusOK, "dos en dispositivos distintos", "otro propietario o al operador")
	remove := func(key domain.Passkey) string { return security + "/passkeys/" + key.ID.String() + "/remove" }
	p.visit(remove(first)).says(http.StatusOK, append(without, "your last passkey")...)
	p.visit(strings.TrimPrefix(remove(first), "/en")).says(http.StatusOK, "su última llave de acceso")
	must(s.service, &domain.AddMember{Origin: s.org.Operator(), Email: "second@example.com", Role: domain.Owner})
	if page := p.visit(security).says(http.StatusOK, second[:2]...); contains(page.body, "#invite") {
		t.Error("a second owner is asked for although there is one")
	}
	s.passkeyNamed("phone")
	for _, text := range append(all, "your last passkey") {
		if contains(p.visit(security).body, text) || contains(p.visit(remove(first)).body, text) {
			t.Errorf("with two passkeys a page says %q", text)
		}
	}
	s.Audit(t)
}

// Without mail, a person without a passkey needs the operator's command.
func TestLastPasskeyWithoutMail(t *testing.T) {
	s := &consoleService{service: open(t, options{})}
	p := s.guest()
	p.press("/en/console/link/" + s.operatorLink(s.org.Key.Member)).leads("/en/console")
	command := `<pre><code id="command">integrity member sign-in-link --email ` + s.org.Email + "<"
	last := s.passkeyNamed("office laptop")
	p.visit("/en/console/security").says(http.StatusOK, command, "its operator gets a link")
	remove := "/console/security/passkeys/" + last.ID.String() + "/remove"
	p.visit("/en"+remove).says(http.StatusOK, "your last passkey", command)
	p.visit(remove).says(http.StatusOK, "su última llave de acceso", command, "su operador obtiene un enlace")
	s.passkeyNamed("phone")
	if contains(p.visit("/en/console/security").body, command) || contains(p.visit("/en"+remove).body, command) {
		t.Error("with two passkeys a page shows the command")
	}
}

// A passkey is offered where there is one: first in the browser that has one, folded in others, and not at all if the
// ledger has none.
func TestPasskeyIsOfferedWhereThereIsOne(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	p, other := w.tab(), w.tab()
	p.Authenticator()
	none := func(p *tab) {
		t.Helper()
		p.open("/en/console/sign-in")
		p.on("sign-in")
		if eval[bool](p, `document.querySelector("[data-passkey]") !== null`) {
			t.Error("a passkey is offered although the ledger has no passkey")
		}
	}
	none(p)
	p.looks("en-console-sign-in-command")
	p.do(chromedp.SendKeys(chromedp.CSS("#email"), "ana@example.com"))
	p.click(`form[action*="/sign-in"] button`)
	p.do(chromedp.WaitVisible(chromedp.CSS(`#email[value="ana@example.com"]`)))
	if command := run(p, chromedp.Text(chromedp.CSS("#command"))); !strings.HasSuffix(command, "--email ana@example.com") {
		t.Errorf("the command is %s", command)
	}
	p.signsIn("/en")
	p.open("/en/console/prove")
	p.on("prove")
	p.looks("en-console-prove-command")
	p.open("/en/console/security")
	p.do(chromedp.WaitVisible(chromedp.CSS("#name")), chromedp.SendKeys(chromedp.CSS("#name"), "laptop"))
	p.click("[data-new-passkey] button")
	p.do(chromedp.WaitVisible(chromedp.CSS(`[aria-labelledby="passkeys"] tbody th`)))
	p.open("/en/console/prove")
	p.do(chromedp.WaitVisible(chromedp.CSS("[data-passkey]")))
	p.click(".account button")
	p.on("sign-in")
	p.do(chromedp.WaitVisible(chromedp.CSS("section [data-passkey]")))
	p.looks("en-console-sign-in-passkey")
	other.open("/en/console/sign-in")
	other.do(chromedp.WaitVisible(chromedp.CSS("details summary")))
	const shown = `document.querySelector("details [data-passkey]").checkVisibility()`
	if eval[bool](other, shown) {
		t.Error("in a browser without a passkey the button is not folded away")
	}
	other.click("details summary")
	other.until(shown)
	other.looks("en-console-sign-in-folded")
	p.click("[data-passkey]")
	p.on("")
	p.open("/en/console/security")
	p.click(`a[href$="/remove"]`)
	p.on("passkey-remove")
	p.looks("en-console-passkey-remove")
	p.click("main form button")
	p.on("security")
	p.do(chromedp.WaitVisible(chromedp.CSS(`.said a[href="#sessions"]`)), chromedp.WaitNotPresent(chromedp.CSS(`a[href$="/remove"]`)))
	p.click(".account button")
	p.on("sign-in")
	none(p)
	none(other)
	w.owner("UPDATE console_sessions SET expires_at = now() - interval '1 day'")
	w.Audit(t)
}
