package handlers_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"integrityledger/eventstore/cluster"
	"integrityledger/handlers"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// records has one record in every state, by name.
func (w *site) records() map[string]string {
	w.t.Helper()
	ids := map[string]string{
		"current":    w.registered("current", 1, "current"),
		"historical": w.registered("replaced", 1, "historical"),
		"revoked":    w.registered("revoked", 1, "revoked"),
		"broken":     w.registered("broken", 1, "broken"),
		"pending":    w.reserved("pending", 1),
		"unknown":    strings.Repeat("a", 26),
	}
	w.registered("replaced", 2, "replacement")
	w.post(integrity+"/records/"+ids["revoked"]+"/revoke", nil).is(200)
	w.owner(unguard,
		`UPDATE events SET data = convert_to(regexp_replace(convert_from(data, 'UTF8'), '"signature":"....', '"signature":"AAAA'), 'UTF8')
		WHERE type = 'integrity.registered' AND convert_from(data, 'UTF8') LIKE '%"documentReference":"broken"%'`)
	return ids
}

// away makes the service's database unreachable.
func (w *site) away() {
	w.t.Helper()
	pool, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(context.Background(), 1)
	check(w.t, err)
	w.t.Cleanup(pool.Close)
	config := w.config
	config.Store = query.New(query.Config{
		Pool: pool, Public: pool, Installation: w.config.Store.Installation, Plans: w.config.Store.Plans,
	})
	config.Sessions = &session.Store{Pool: pool, Installation: config.Store.Installation, Plans: config.Store.Plans}
	w.use(handlers.New(config))
}

// shows is the expected content of a result, or of the page before there is one.
type shows struct {
	record, file, result string
	title, not           string
	checks               []string
}

func (p *tab) shows(want shows) {
	p.T.Helper()
	if want.result == "" {
		says(p.T, p.seen(), append(want.checks, want.title)...)
		return
	}
	text := p.result(want.result)
	for _, part := range append([]string{want.title, want.not}, want.checks...) {
		if !strings.Contains(text, part) {
			p.T.Errorf("%s does not say %q:\n%s", want.result, part, text)
		}
	}
	said := strings.Contains(want.title, "No file was compared") ||
		strings.Contains(want.title, ". No se ha comparado ningún archivo")
	if hash := eval[bool](p, `document.querySelector("#result > .panel").dataset.compared === "hash"`); hash != said {
		p.T.Errorf("%s of a hash: %t", want.result, hash)
	}
}

// Every result of the specification has its own explanation in both languages, and none has a serious accessibility
// fault.
func TestResultsInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.records()
	for prefix, table := range map[string][]shows{
		"": {
			{
				"current", "", "", "No se ha comparado ningún archivo", "", []string{"firma válida", "versión vigente"},
			},
			{
				"current", "current", "MATCH_CURRENT", "Su archivo coincide con la versión vigente",
				"ni que existiera en una fecha acreditada",
				[]string{"Es exactamente el archivo registrado", "Válida: este servicio firmó", "Vigente"},
			},
			{
				"historical", "historical", "MATCH_HISTORICAL", "Su archivo coincide, pero no es la versión vigente",
				"Qué cambia en la versión vigente", []string{"Es exactamente", "Válida", "Histórica"},
			},
			{
				"current", "another", "HASH_MISMATCH", "Su archivo no es el de este enlace", "Que alguien haya manipulado el archivo",
				[]string{
					"No es el archivo registrado", "Firma del registro", "Válida", "Versión registrada", "Vigente",
					"otra versión legítima",
				},
			},
			{
				"historical", "another", "HASH_MISMATCH", "Su archivo no es el de este enlace", "Que alguien haya manipulado el archivo",
				[]string{"Histórica"},
			},
			{
				"revoked", "revoked", "RECORD_REVOKED", "Su archivo coincide, pero el registro está revocado",
				"El motivo de la revocación, que no se publica", []string{"Es exactamente", "Válida", "Revocada por la organización"},
			},
			{
				"broken", "broken", "SIGNATURE_INVALID", "No se ha podido validar el registro",
				"no es una coincidencia ni una discrepancia",
				[]string{"Ningún archivo comparado", "No validada", "Sin determinar"},
			},
			{
				"pending", "any", "REGISTRATION_PENDING", "Aún no hay nada registrado con este enlace",
				"no es una coincidencia ni una discrepancia", []string{"Una reserva no es una prueba", "Solo reservada"},
			},
			{
				"unknown", "", "RECORD_NOT_FOUND", "No hay ningún registro con este enlace", "no es una discrepancia",
				[]string{"letra a letra"},
			},
		},
		"/en": {
			{
				"revoked", "", "", "No file has been compared", "", []string{"signature is valid", "has revoked this record"},
			},
			{
				"current", "current", "MATCH_CURRENT", "Your file matches the current version",
				"that it existed at a trusted time",
				[]string{"Exactly the registered file", "Valid: this service signed", "Current"},
			},
			{
				"historical", "historical", "MATCH_HISTORICAL", "Your file matches, but it is not the current version",
				"What differs in the current version", []string{"Exactly the registered file", "Valid", "Historical"},
			},
			{
				"current", "another", "HASH_MISMATCH", "Your file is not the one registered under this link",
				"That somebody tampered with it",
				[]string{"Not the registered file", "Valid", "Current", "another legitimate version"},
			},
			{
				"revoked", "another", "HASH_MISMATCH", "Your file is not the one registered under this link",
				"That somebody tampered with it",
				[]string{"Revoked"},
			},
			{
				"revoked", "revoked", "RECORD_REVOKED", "Your file matches, but the record was revoked",
				"The reason for the revocation, which is not published", []string{"Exactly the registered file", "Valid", "Revoked by the organization"},
			},
			{
				"broken", "broken", "SIGNATURE_INVALID", "The record could not be validated", "neither a match nor a mismatch",
				[]string{"No file compared", "Not validated", "Not established"},
			},
			{
				"pending", "any", "REGISTRATION_PENDING", "Nothing is registered under this link yet",
				"neither a match nor a mismatch", []string{"A reservation is not evidence", "Reserved only"},
			},
			{
				"unknown", "", "RECORD_NOT_FOUND", "There is no record under this link", "this is not a mismatch",
				[]string{"letter by letter"},
			},
		},
	} {
		p := w.tab()
		for _, want := range table {
			p.open(prefix + "/integrity/" + ids[want.record])
			if want.file != "" {
				if strings.Contains(p.state(), "MATCH") ||
					eval[bool](p, `document.querySelector('#result [data-result^="MATCH"]') !== null`) {
					t.Errorf("the page of %s looks verified before a file is compared", want.record)
				}
				p.choose(file(t, "contract.pdf", want.file))
			}
			p.shows(want)
			if want.result == "HASH_MISMATCH" && eval[bool](p, `document.querySelector('#result [href="#i-yes"]') !== null`) {
				t.Errorf("%s of %s ticks what is true of another file", want.result, want.record)
			}
			p.accessible(map[string]string{"": "light", "/en": "dark"}[prefix])
			p.shot(want.result + "-" + want.record + prefix)
		}
		if len(p.Foreign()) > 0 {
			t.Errorf("requests left for %v", p.Foreign())
		}
	}
}

// A failure to compare is never shown as a mismatch, and the comparison can be repeated.
func TestUnableToCheck(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	working := w.http.Config.Handler
	p := w.tab()
	limited := func() {
		w.freshMinute()
		config := w.config
		config.PublicPerMinute = 1
		refusing := handlers.New(config)
		first := httptest.NewRequest(http.MethodGet, "/api/public/integrity/unknown", nil)
		first.RemoteAddr = "127.0.0.1:1" // the address of the browser
		refusing.ServeHTTP(httptest.NewRecorder(), first)
		w.use(refusing)
	}
	for _, c := range []struct {
		name, path, note, title string
		begin                   func(*tab)
	}{
		{"offline", "/integrity/", "No hay conexión con el servicio.", "Ahora mismo no se puede comprobar", func(p *tab) {
			p.offline(true)
		}},
		{"offline", "/en/integrity/", "There is no connection to the service.", "Temporarily unable to check", func(p *tab) {
			p.offline(true)
		}},
		{"503", "/integrity/", "El servicio no puede responder en este momento.", "no es una discrepancia", func(*tab) {
			w.away()
		}},
		{"503", "/en/integrity/", "The service cannot answer at the moment.", "this is not a mismatch", func(*tab) {
			w.away()
		}},
		{"429", "/integrity/", "demasiadas peticiones desde su red", "Segundos de espera:", func(*tab) { limited() }},
		{"429", "/en/integrity/", "Too many requests came from your network", "Seconds to wait:", func(*tab) { limited() }},
		{"no JSON", "/en/integrity/", "The service cannot answer at the moment.", "this is not a mismatch", func(*tab) {
			w.use(answering(200, "<p>Sign in to this network</p>"))
		}},
		{"another record's answer", "/en/integrity/", "The service cannot answer at the moment.",
			"Temporarily unable to check", func(*tab) {
				other := w.registered("other"+t.Name(), 1, "one")
				w.use(answering(200, string(w.public("/api/public/integrity/"+other+"?sha256="+hash("one")).body)))
			}},
		{"a match that is not verified", "/en/integrity/", "The service cannot answer at the moment.",
			"Temporarily unable to check", func(*tab) {
				text := string(w.public("/api/public/integrity/" + id + "?sha256=" + hash("one")).body)
				w.use(answering(200, strings.Replace(text, `"verified":true`, `"verified":false`, 1)))
			}},
	} {
		t.Run(c.name+c.path, func(t *testing.T) {
			w.t, p.T = t, t
			w.use(working)
			p.open(c.path + id)
			p.worker()
			c.begin(p)
			p.choose(file(t, "a.txt", "one"))
			p.shows(shows{result: "UNAVAILABLE", title: c.title, not: c.note})
			p.shot("UNAVAILABLE-" + c.name + c.path)
			w.use(working)
			p.offline(false)
			p.click("[data-retry]")
			p.result("MATCH_CURRENT")
		})
	}
}

// worker waits until the page has its worker, which it requests after it has loaded. Without it the page would say that
// it cannot hash, not that the service is unavailable.
func (p *tab) worker() {
	p.T.Helper()
	p.until(`performance.getEntriesByType("resource").some(r => r.name.includes("worker"))`)
}

// offline disconnects the site or connects it again. The site does it, because the browser's command for it changes
// between versions.
func (p *tab) offline(is bool) { p.site.cut.Store(is) }

// The page shows the state at the moment a file is chosen, not the state when the page was opened.
func TestEveryComparisonIsFresh(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	p := w.tab()
	p.open("/en/integrity/" + id)
	path := file(t, "a.txt", "one")
	p.paste(hash("another"))
	p.result("HASH_MISMATCH")
	p.choose(path)
	p.result("MATCH_CURRENT")
	equal(t, "the title", eval[string](p, "document.title"), "Your file matches the current version · Integrity Ledger")
	w.registered("a", 2, "two")
	p.choose(path)
	p.result("MATCH_HISTORICAL")
	w.post(integrity+"/records/"+id+"/revoke", nil).is(200)
	p.choose(path)
	p.result("RECORD_REVOKED")
}

// Only the hash leaves the browser, and no byte of the file.
func TestNoByteOfTheFileLeaves(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	content := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	record := w.registered("a", 1, content)
	_, certificate := w.certificate("Title", content)
	w.leavesHashAlone("/en/integrity/"+record, "/api/public/integrity/"+record, content)
	w.leavesHashAlone("/certificates/"+certificate, certificationAction+"/certificates/"+certificate+"/verify", content)
}

// leavesHashAlone compares a file on a page, which may send one request to one address.
func (w *site) leavesHashAlone(path, asked, content string) {
	t := w.t
	t.Helper()
	p := w.tab()
	p.open(path)
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	w.quiet()
	p.choose(file(t, "the-name-of-the-file.pdf", content))
	if text := p.result("MATCH_CURRENT"); !strings.Contains(text, "the-name-of-the-file.pdf") ||
		!strings.Contains(text, hash(content)) {
		t.Errorf("the result does not say which file it is of: %s", text)
	}
	requests, sent := w.received()
	equal(t, "what the browser asked for", requests, []string{"GET " + asked + "?sha256=" + hash(content)})
	for _, secret := range []string{content[:32], "the-name-of-the-file"} {
		if strings.Contains(string(sent), secret) {
			t.Errorf("%q has left: %s", secret, sent[:min(len(sent), 2000)])
		}
	}
	if len(sent) > 4096 {
		t.Errorf("%d bytes have left", len(sent))
	}
	if len(p.Foreign()) > 0 {
		t.Errorf("requests left for %v", p.Foreign())
	}
	if stored := eval[int](p, `document.cookie.length + localStorage.length + sessionStorage.length`); stored != 0 {
		t.Error("the page has stored something")
	}
}

// A link cannot make a page show a result.
func TestPageIgnoresTheQuery(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	p := w.tab()
	p.open("/en/integrity/" + id + "?sha256=" + hash("one") + "&result=MATCH_CURRENT&verified=true#MATCH_CURRENT")
	says(t, p.seen(), "No file has been compared")
	plain, query := w.page("/en/integrity/"+id), w.page("/en/integrity/"+id+"?sha256="+hash("one"))
	if string(plain.body) != string(query.body) {
		t.Error("the query changes the page")
	}
}

// Before a file is chosen, the page of a record that is revoked or not current makes its state stand out, without a panel.
func TestPageNoticesState(t *testing.T) {
	s := open(t, options{})
	first, current, revoked := s.registered("a", 1, "one"), s.registered("a", 2, "two"), s.registered("b", 1, "three")
	s.post(integrity+"/records/"+revoked+"/revoke", body{}).is(http.StatusOK)
	for id, text := range map[string]string{
		first:   `<p id="seen" class="noticed"><strong>No file has been compared yet.</strong> <strong>This record has a valid signature, but it is not the current version`,
		revoked: `<p id="seen" class="noticed"><strong>No file has been compared yet.</strong> <strong>The organization has revoked this record`,
		current: `<p id="seen"><strong>No file has been compared yet.</strong> This record has a valid signature and is the current version`,
	} {
		if page := s.page("/en/integrity/" + id); !contains(page.body, text) {
			t.Errorf("the page lacks %s: %s", text, page.body)
		}
	}
}

// A lower version that is registered late was never current, so no text says that it was replaced later.
func TestLateLowerVersion(t *testing.T) {
	s := open(t, options{})
	s.registered("late", 2, "two")
	id := s.registered("late", 1, "one")
	for prefix, never := range map[string][]string{
		"": {"ya no es", "Después se", "sustitu"}, "/en": {" since", "no longer", "replaced"},
	} {
		for _, form := range []string{"", "sha256=" + hash("one")} {
			method := http.MethodPost
			if form == "" {
				method = http.MethodGet // the page with all panels of the script
			}
			text := string(s.browse(method, prefix+"/integrity/"+id, form).body)
			text = text[strings.Index(text, "<main"):strings.Index(
				text, `<section class="card record"`,
			)] + text[strings.Index(text, `<template id="panel-MATCH_HISTORICAL"`):]
			text, _, _ = strings.Cut(text, `<template id="panel-HASH_MISMATCH"`)
			for _, words := range never {
				if strings.Contains(text, words) {
					t.Errorf("%s: %q is said of a late lower version", prefix, words)
				}
			}
		}
	}
}

// Without JavaScript the page shows the state, says why a file needs it, and compares a pasted hash.
func TestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.records()
	p := w.tab()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.open("/en/integrity/" + ids["historical"])
	says(t, p.seen(), "not the current version")
	p.do(chromedp.WaitVisible(chromedp.CSS("#needs-script")), chromedp.WaitNotVisible(chromedp.CSS("#drop")))
	p.shot("no-javascript")
	p.paste(hash("historical"))
	p.shows(shows{result: "MATCH_HISTORICAL", title: "This hash matches, but not the current version. No file was compared",
		not:    "Anything about a file",
		checks: []string{"no file compared", "Historical"}})
}

// paste sends a hash with the form.
func (p *tab) paste(text string) {
	p.T.Helper()
	const field = chromedp.CSS("#sha256")
	if !eval[bool](p, `document.querySelector(".paste").open`) {
		p.click(".paste summary")
	}
	p.do(chromedp.WaitVisible(field), chromedp.Clear(field), chromedp.SendKeys(field, text))
	// The previous content may look like the answer.
	run(p, chromedp.WaitEvent(page.LoadEventFired, nil, chromedp.Click(chromedp.CSS(".paste button"))))
}

// signOfAFile is true if a page shows a sign that only the comparison of a file may show.
const signOfAFile = `document.querySelector('#result > :not([data-compared="hash"])[data-result^="MATCH"], #result use:is([href="#i-yes"], [href^="#i-MATCH"])') !== null`

// Each result of a pasted hash has its own headline and color, and none looks like the result for a file.
func TestPastedHash(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.records()
	p := w.tab()
	const look = `(s => [s.borderTopStyle, s.backgroundColor, s.borderLeftColor].join())(getComputedStyle(document.querySelector("#result > .panel")))`
	p.open("/integrity/" + ids["current"])
	p.choose(file(t, "a", "current"))
	p.result("MATCH_CURRENT")
	match, looks := eval[string](p, look), map[string]bool{}
	for _, c := range []shows{
		{record: "current", file: "current", result: "MATCH_CURRENT",
			title:  "Esta huella coincide con la versión vigente. No se ha comparado ningún archivo",
			checks: []string{"ningún archivo comparado", "Vigente"}},
		{record: "historical", file: "historical", result: "MATCH_HISTORICAL",
			title:  "Esta huella coincide, pero no es la de la versión vigente. No se ha comparado ningún archivo",
			checks: []string{"Histórica"}},
		{record: "revoked", file: "revoked", result: "RECORD_REVOKED",
			title:  "Esta huella coincide, pero el registro está revocado. No se ha comparado ningún archivo",
			checks: []string{"Revocada"}},
		{
			record: "current", file: "another", result: "HASH_MISMATCH",
			title: "Esta huella no coincide. No se ha comparado ningún archivo", checks: []string{"ningún archivo comparado"},
		},
		{record: "broken", file: "broken", result: "SIGNATURE_INVALID", title: "No se ha podido validar el registro"},
		{record: "pending", file: "any", result: "REGISTRATION_PENDING", title: "Aún no hay nada registrado"},
	} {
		p.open("/integrity/" + ids[c.record])
		p.paste("  " + strings.ToUpper(hash(c.file)) + " ")
		p.shows(c)
		shown := eval[string](p, look)
		if strings.Contains(c.title, ". No se ha comparado") && !strings.Contains(shown, "dashed") || shown == match {
			t.Errorf("%s looks like the result of a file", c.result)
		}
		if looks[shown] {
			t.Errorf("%s looks like another result", c.result)
		}
		looks[shown] = true
		if eval[bool](p, signOfAFile) {
			t.Errorf("%s shows the sign of a file's match", c.result)
		}
		p.contrast("light")
		p.contrast("dark")
		p.scheme("light")
		p.shot("PASTED-" + c.result + "-" + c.record)
	}
	p.open("/integrity/" + ids["current"])
	p.paste("no hash")
	p.do(chromedp.WaitVisible(chromedp.CSS("#hash-error")))
	says(t, p.seen(), "No se ha comparado ningún archivo")
	p.shot("PASTED-invalid")
}

// The front page links to the console if there is one, and a demo's front page says how to sign in. Neither contains a
// secret.
func TestFrontPageLeadsToTheConsole(t *testing.T) {
	for name, c := range map[string]struct {
		config        func(*handlers.Config)
		console, demo bool
	}{
		"a service":  {func(*handlers.Config) {}, true, false},
		"no console": {func(c *handlers.Config) { c.BaseURL = "http://ledger.example" }, false, false},
		"a demo":     {func(c *handlers.Config) { c.Demo = true }, true, true},
	} {
		s := open(t, options{config: c.config})
		for path, words := range map[string]struct{ link, steps string }{
			"/": {`href="/console"`, "Primeros pasos"}, "/en": {`href="/en/console"`, "First steps"},
			"/developers": {`href="/console"`, ""}, "/en/developers": {`href="/en/console"`, ""},
		} {
			a := s.page(path)
			if a.status != http.StatusOK || contains(a.body, words.link) != c.console {
				t.Errorf("%s %s: %d, the link to the console: %t", name, path, a.status, !c.console)
			}
			if words.steps != "" && contains(a.body, words.steps) != c.demo || contains(a.body, "/link/") {
				t.Errorf("%s %s: first steps: %t", name, path, !c.demo)
			}
		}
		if c.console {
			if a := s.page("/en/console/sign-in"); contains(a.body, "This demo sends no email") != c.demo {
				t.Errorf("%s: the way in: %s", name, a.body)
			}
		}
	}
}
