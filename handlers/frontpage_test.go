package handlers_test

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The one field of the front page leads from a link, a code or a whole message to the page of that link, in the
// language of the form. A hash is compared if there is a link too. A page of another site cannot lead a person there.
func TestFieldOfTheFrontPage(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	_, certificate := s.certificate("Title", "one")
	asked := func(path, site string, form url.Values) answer {
		r := s.request(http.MethodPost, path, "", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept-Language", "en")
		r.Header.Set("Sec-Fetch-Site", site)
		response, err := s.http.Client().Transport.RoundTrip(r)
		check(t, err)
		text, err := io.ReadAll(response.Body)
		check(t, err)
		response.Body.Close()
		return answer{t, response.StatusCode, response.Header, text}
	}
	for _, c := range []struct{ path, text, leads string }{
		{"/", "Hola: " + strings.ToUpper(baseURL+"/integrity/"+id) + ". Saludos", "/integrity/" + id + "?lang=es"},
		{"/en", baseURL + "/integrity/" + id + "?lang=es", "/en/integrity/" + id},
		{"/en", " " + strings.ToUpper(id) + ".", "/en/integrity/" + id},
		{"/en", certificate, "/en/certificates/" + certificate},
		// A message does not bring its own good result.
		{"/en", id + " " + hash("one"), "/en/integrity/" + id + "?hash=apart"},
		{"/", id + " " + hash("one") + " " + hash("two"), "/integrity/" + id + "?lang=es&hash=apart"},
		{"/en", "/certificates/" + id, "/en/certificates/" + id}, // which says that there is no such certificate
	} {
		a := asked(c.path, "same-origin", url.Values{"text": {c.text}})
		if a.status != http.StatusSeeOther || a.header.Get("Location") != c.leads {
			t.Errorf("%s leads to %d %s, want %s", c.text, a.status, a.header.Get("Location"), c.leads)
		}
	}
	link, sum := baseURL+"/integrity/"+id, hash("one")
	for _, c := range []struct {
		site   string
		form   url.Values
		status int
		part   string
	}{
		{"same-origin", url.Values{"text": {"<script>"}}, 422, "There is no link, code or SHA-256 in this text"},
		{"same-origin", url.Values{"text": {strings.ToUpper(sum)}}, 200, `name="sha256" value="` + sum + `"`},
		{"same-origin", url.Values{"text": {link}, "sha256": {sum}}, 200, "This hash matches the current version"},
		{"same-origin", url.Values{"text": {certificate}, "sha256": {hash("two")}}, 200, "This hash does not match"},
		{"same-origin", url.Values{"text": {sum + " " + hash("two")}}, 422, "has several SHA-256 hashes"},
		{"same-origin", url.Values{"text": {strings.Repeat("a", 26) + sum}}, 422, "There is no link"},
		{"same-origin", url.Values{"text": {strings.Repeat("a", 26)}, "sha256": {sum}}, 404, "There is no record"},
		{"same-origin", url.Values{"text": {link + " " + strings.Replace(link, id, certificate, 1)}}, 422, "links to several records"},
		{"same-origin", url.Values{"text": {link + " " + link + " " + certificate}}, 303, ""},
		{"same-origin", url.Values{"text": {"https://other.example/integrity/" + id}}, 200, "another service: <bdi>other.example<"},
		{"same-origin", url.Values{"text": {"https://other.example/integrity/" + id}, "sha256": {sum}}, 200, `value="` + id + `"`},
		{"cross-site", url.Values{"text": {link + "\n" + sum}}, 200, `action="/en"`},
		{"cross-site", url.Values{"text": {link}}, 200, `action="/en"`},
	} {
		a := asked("/en", c.site, c.form)
		if a.status != c.status || !contains(a.body, c.part) || contains(a.body, "<script>") ||
			a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v: %d without %q", c.form, a.status, c.part)
		}
	}

	// The page says what became of the hash, and that a form with two of them names neither.
	for path, parts := range map[string][2]string{
		"/en/integrity/" + id + "?hash=apart":                       {"also has a SHA-256. It was not compared", "This hash matches"},
		"/integrity/" + id + "?lang=es&hash=apart":                  {"No se ha comparado: un mensaje", "Esta huella coincide"},
		"/en/certificates/" + certificate + "?hash=apart":           {"also has a SHA-256. It was not compared", "This hash matches"},
		"/en/integrity/" + id:                                       {`id="drop"`, "also has a SHA-256"},
		"/en/integrity/" + id + "?hash=apart&sha256=" + hash("one"): {"It was not compared", "This hash matches"},
	} {
		if a := s.page(path).says(http.StatusOK, parts[0]); contains(a.body, parts[1]) {
			t.Errorf("%s says %q", path, parts[1])
		}
	}
	asked("/en/integrity/"+id, "same-origin", url.Values{"sha256": {sum + " " + hash("two")}}).
		says(http.StatusUnprocessableEntity, "has several SHA-256 hashes. Paste only the one of your file")
}

// A file that is chosen or dropped on the front page waits for its link and is then compared there; only its hash
// leaves. The page can be used with the keyboard alone, on a narrow screen, and without JavaScript.
func TestFileOnTheFrontPage(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	const answered = `document.querySelector("#find-said").textContent.includes`
	p := w.tab()
	p.window(375, 812)
	p.open("/")
	if end := eval[float64](p, `document.querySelector("#find button").getBoundingClientRect().bottom`); end > 812 {
		t.Errorf("the field ends at %v", end)
	}
	p.accessible("light")
	p.contrast("dark")
	p.shot("front")
	w.forget()
	p.choose(file(t, "the-name-of-the-file.pdf", "one"))
	p.until(answered + `("the-name-of-the-file.pdf")`)
	if requests, _ := w.received(); len(requests) > 0 || eval[string](p, `document.activeElement.id`) != "text" {
		t.Errorf("a file without its link led to %v", requests)
	}
	p.shot("front-chosen")
	p.key("what?")
	p.key(kb.Enter)
	p.until(answered + `("No se ha comparado nada")`)
	p.do(chromedp.Clear(chromedp.CSS("#text")))
	p.key("(" + strings.ToUpper(w.URL+"/integrity/"+id) + ").")
	p.key(kb.Enter)
	says(t, p.result("MATCH_CURRENT"), "the-name-of-the-file.pdf", hash("one"))
	equal(t, "the address", eval[string](p, "location.pathname"), "/integrity/"+id)
	p.shot("front-compared")
	_, sent := w.received()
	if strings.Contains(string(sent), "the-name") || strings.Contains(string(sent), "multipart") {
		t.Errorf("more than the hash has left: %s", sent)
	}
	drop := func(name, content string) {
		p.do(chromedp.Evaluate[chromedp.Void](`{ const carried = new DataTransfer();
			carried.items.add(new File([` + strconv.Quote(content) + `], "` + name + `"));
			dispatchEvent(new DragEvent("drop", {dataTransfer: carried, cancelable: true})) }`))
	}
	drop("b", "two")
	p.result("HASH_MISMATCH")
	p.do(chromedp.Evaluate[chromedp.Void]("history.back()"))
	p.do(chromedp.WaitVisible(chromedp.CSS("#find")))

	p.open("/en")
	p.do(chromedp.SendKeys(chromedp.CSS("#text"), "the link is /integrity/"+id+" and its SHA-256 "+hash("one")))
	drop("a", "one")
	p.result("MATCH_CURRENT")
	equal(t, "the address", eval[string](p, "location.pathname"), "/en/integrity/"+id)

	// The file stays when the language changes, there and back; each page compares a dropped file once.
	for _, other := range []struct{ path, title string }{
		{"/integrity/", "Su archivo coincide con la versión vigente"},
		{"/en/integrity/", "Your file matches the current version"},
	} {
		p.do(chromedp.Click(chromedp.CSS("a.language")))
		p.until(`location.pathname === "` + other.path + id + `" && document.querySelector("#result h2")?.textContent === "` +
			other.title + `"`)
	}
	w.forget()
	drop("c", "three")
	says(t, p.result("HASH_MISMATCH"), "c (5 bytes)", "Choose another file", "Print or save this result")
	p.do(chromedp.Evaluate[chromedp.Void](`print = () => { document.title = "printed" }`))
	p.click("#result [data-facts] + .actions button")
	p.until(`document.title === "printed"`)
	if requests, _ := w.received(); len(requests) != 1 {
		t.Errorf("one file led to %v", requests)
	}
	p.open("/en")
	p.do(chromedp.SendKeys(chromedp.CSS("#text"), "/integrity/"+strings.Repeat("a", 26)))
	drop("a", "one")
	p.result("RECORD_NOT_FOUND")
	if len(p.Foreign()) > 0 {
		t.Errorf("requests left for %v", p.Foreign())
	}

	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.open("/en")
	p.do(chromedp.WaitNotVisible(chromedp.CSS("#drop")), chromedp.SendKeys(chromedp.CSS("#text"), hash("one")+kb.Enter))
	p.do(chromedp.WaitVisible(chromedp.CSS("#text[autofocus]")))

	// Nothing can be chosen there, so the result of a hash does not ask for it.
	p.do(chromedp.SendKeys(chromedp.CSS("#text"), "/integrity/"+id+kb.Enter))
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-compared="hash"]`)))
	const asks = "choose it below"
	if text := run(p, chromedp.Text(chromedp.CSS("#result"))); strings.Contains(text, asks) {
		t.Errorf("without scripts: %s", text)
	}
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
	p.open("/en/integrity/" + id)
	p.do(
		chromedp.WaitVisible(chromedp.CSS("#drop")), chromedp.Click(chromedp.CSS(".paste summary")),
		chromedp.SendKeys(chromedp.CSS("#sha256"), hash("one")+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS(`[data-compared="hash"] [data-with-drop]:not(.waiting)`)),
	)
	if text := run(p, chromedp.Text(chromedp.CSS("#result"))); !strings.Contains(text, asks) {
		t.Errorf("with scripts: %s", text)
	}
}
