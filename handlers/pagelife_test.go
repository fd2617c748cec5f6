package handlers_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// around serves w through a handler that gets each request first.
func (w *site) around(serve func(rw http.ResponseWriter, r *http.Request, next http.Handler)) {
	next := w.http.Config.Handler
	w.use(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { serve(rw, r, next) }))
}

// loaded waits until the page has the answer to a comparison with this hash.
func (p *tab) loaded(sum string) {
	p.T.Helper()
	p.until(
		`performance.getEntriesByType("resource").some(entry => entry.name.endsWith("` + sum + `") && entry.responseEnd > 0)`,
	)
}

// The page shows the result of the last file, however late answers arrive and whatever was being hashed.
func TestTheLastFileCounts(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	held := make(chan struct{})
	w.around(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.RawQuery, hash("slow")) {
			<-held
		}
		next.ServeHTTP(rw, r)
	})
	p := w.tab()
	p.open("/en/integrity/" + id)
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	w.quiet()
	p.choose(file(t, "slow", "slow"))
	p.until(`document.querySelector("#result [data-hashing]")?.textContent.startsWith("Asking")`)
	p.choose(file(t, "mine", "one"))
	p.result("MATCH_CURRENT")
	close(held)
	p.loaded(hash("slow"))
	if text := p.result("MATCH_CURRENT"); !strings.Contains(text, "mine") {
		t.Errorf("the result is of another file: %s", text)
	}

	w.forget()
	p.do(chromedp.Evaluate[chromedp.Void](`for (const content of ["two", "three", "four"]) {
		const carried = new DataTransfer();
		carried.items.add(new File([content], content));
		dispatchEvent(new DragEvent("drop", {dataTransfer: carried, cancelable: true}));
	}`))
	if text := p.result("HASH_MISMATCH"); !strings.Contains(text, "four") || !strings.Contains(text, hash("four")) {
		t.Errorf("the result is of another file: %s", text)
	}
	requests, _ := w.received()
	if len(requests) != 1 || !strings.HasSuffix(requests[0], hash("four")) {
		t.Errorf("files dropped at once led to %v", requests)
	}
}

// A browser that cannot hash says so, sends no request, and can compare later.
func TestWithoutAWorker(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	for name, broken := range map[string]func(rw http.ResponseWriter, r *http.Request, next http.Handler){
		"not found": func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) { rw.WriteHeader(http.StatusNotFound) },
		"no WebAssembly": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(withoutWASM{rw}, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.forget()
			w.around(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "worker") {
					broken(rw, r, next)
					return
				}
				next.ServeHTTP(rw, r)
			})
			p := w.tab()
			p.open("/en/integrity/" + id)
			p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
			for range 2 { // the second page starts without a worker
				p.choose(file(t, "a", "one"))
				p.note("This browser could not compute the hash")
			}
			requests, _ := w.received()
			for _, request := range requests {
				if strings.Contains(request, "sha256=") {
					t.Errorf("asked: %s", request)
				}
			}
			w.use(w.http.Config.Handler)
			p.open("/integrity/" + id)
			p.do(chromedp.Reload())
			p.choose(file(t, "a", "one"))
			p.result("MATCH_CURRENT")
		})
	}
}

// withoutWASM removes the permission for WebAssembly from the policy, and prevents caching.
type withoutWASM struct{ http.ResponseWriter }

func (w withoutWASM) WriteHeader(status int) {
	h := w.Header()
	h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"), "'wasm-unsafe-eval'", "'none'", 1))
	h.Set("Cache-Control", "no-store")
	w.ResponseWriter.WriteHeader(status)
}

// A page restored from the browser's memory is requested again, because its answer is old.
func TestPageFromMemory(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	p.open("/en/integrity/" + w.registered("a", 1, "one"))
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	p.choose(file(t, "a", "one"))
	p.result("MATCH_CURRENT")
	p.do(chromedp.Evaluate[chromedp.Void](
		`setTimeout(() => dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true})))`,
	))
	p.do(chromedp.WaitVisible(chromedp.CSS("#seen")))
}

// TestFirstScreenOfAPhone: on a phone the first screen shows the button and the state of the record. The state does not
// look like a result, because a panel appears only with a result. Nothing moves while the page loads.
func TestFirstScreenOfAPhone(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	_, certificate := w.certificate("Title", "one")
	p := w.tab()
	for _, path := range []string{"/integrity/" + id, "/en/certificates/" + certificate} {
		p.window(375, 812)
		p.open(path)
		for _, part := range []string{"#drop .button", "#seen"} {
			if end := eval[float64](
				p, `document.querySelector(`+strconv.Quote(part)+`).getBoundingClientRect().bottom`,
			); end > 812 {
				t.Errorf("%s of %s ends at %v", part, path, end)
			}
		}
		p.seen()
		p.choose(file(t, "a", "one"))
		p.result("MATCH_CURRENT")
		if eval[bool](p, `document.querySelector("#seen") !== null`) {
			t.Errorf("%s still shows what was known before", path)
		}
	}
}

// Times are in the reader's zone, with UTC beside them.
func TestTimesInTheZoneOfTheReader(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "one")
	at, err := time.Parse(time.RFC3339, w.get(integrity + "/records/" + id).is(http.StatusOK)["receivedAt"].(string))
	check(t, err)
	own := at.In(time.FixedZone("", 19_800)).Format("2 January 2006 at 15:04:05") + " GMT+5:30 ("
	p := w.tab()
	call(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	p.Still("/en/integrity/" + id)
	says(t, eval[string](p, `document.querySelector(".record time").textContent`), own, at.Format("15:04:05 UTC)"))
	p.choose(file(t, "a", "one"))
	says(t, p.result("MATCH_CURRENT"), own, at.Format("15:04:05 UTC)"))
	p.shot("own-zone")
	p.openVerify("/en")
	p.give("#receipt", file(t, "receipt.json", string(w.public("/api/public/integrity/"+id+"/receipt").is200().body)))
	p.give("#keys", file(t, "keys.json", string(w.public("/.well-known/integrity-trusted-keys.json").is200().body)))
	says(t, p.found(), own)
}

// No page needs horizontal scrolling at 320 CSS pixels (WCAG 2.2, 1.4.10), and a right-to-left name does not reverse
// the text after it.
func TestNarrowPages(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.records()
	p := w.tab()
	p.window(320, 640)
	long := filepath.Join(t.TempDir(), strings.Repeat("W", 240)+".pdf")
	check(t, os.WriteFile(long, []byte("current"), 0o600))
	fits := func(what string) {
		t.Helper()
		if width := eval[int](p, `document.documentElement.scrollWidth`); width > 320 {
			t.Errorf("%s is %d pixels wide", what, width)
		}
	}
	for _, path := range []string{
		"/", "/en", "/limits", "/errors/registration-quota-exhausted", "/none", "/integrity/" + ids["unknown"],
		"/integrity/" + ids["pending"], "/en/integrity/" + ids["broken"],
	} {
		p.open(path)
		fits(path)
	}
	for _, prefix := range []string{"", "/en"} {
		p.open(prefix + "/integrity/" + ids["current"])
		p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
		fits("the page")
		p.choose(long)
		p.result("MATCH_CURRENT")
		fits("a long name")
		p.shot("long-name" + prefix)
		p.window(320, 640)
	}
	p.choose(file(t, "تقرير.pdf", "current"))
	p.do(chromedp.WaitVisible(chromedp.CSS("#result h2 + p bdi")))
	p.until(`document.querySelector("#result bdi")?.textContent === "تقرير.pdf"`)
	if size := eval[string](p, `document.querySelector("#result bdi").nextSibling.textContent`); size != " (7 bytes)" {
		t.Errorf("beside the name stands %q", size)
	}
	p.shot("right-to-left")
}
