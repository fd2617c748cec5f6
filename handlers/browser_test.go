package handlers_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"integrityledger/handlers"
	"integrityledger/handlers/browsertest"
)

// patience bounds each wait. No test asserts a time.
const patience = browsertest.Patience

// site is a service for a browser. It records every byte that arrives, and its handler can be replaced under an open
// page.
type site struct {
	*service
	URL     string
	config  handlers.Config
	handler atomic.Pointer[http.Handler]
	cut     atomic.Bool // every request ends without an answer

	mu       sync.Mutex
	bytes    bytes.Buffer
	requests []string
}

func openSite(t *testing.T) *site {
	t.Helper()
	w := &site{}
	w.service = open(t, options{config: func(c *handlers.Config) { w.config = *c }})
	w.use(w.http.Config.Handler)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		// Browsers differ in whether and when they request the icon.
		if !strings.Contains(r.URL.Path, "icon") {
			w.mu.Lock()
			w.requests = append(w.requests, r.Method+" "+r.URL.RequestURI())
			w.mu.Unlock()
		}
		(*w.handler.Load()).ServeHTTP(rw, r)
	}))
	server.Listener = keepingListener{server.Listener, w}
	server.Start()
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

func (w *site) use(h http.Handler) { w.handler.Store(&h) }

// forget drops the requests recorded so far.
func (w *site) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Reset()
	w.requests = nil
}

// quiet waits for the worker, which a page requests by itself after it has loaded, and drops the requests recorded so
// far.
func (w *site) quiet() {
	w.t.Helper()
	w.eventually("the browser has asked for the worker", func() bool {
		requests, _ := w.received()
		return slices.ContainsFunc(requests, func(r string) bool { return strings.Contains(r, "worker") })
	})
	w.forget()
}

func (w *site) received() (requests []string, sent []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.requests...), bytes.Clone(w.bytes.Bytes())
}

type keepingListener struct {
	net.Listener
	site *site
}

func (l keepingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return keepingConn{c, l.site}, err
}

type keepingConn struct {
	net.Conn
	site *site
}

func (c keepingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.site.mu.Lock()
	defer c.site.mu.Unlock()
	c.site.bytes.Write(p[:n])
	return n, err
}

// tab is a page in a profile of its own.
type tab struct {
	*browsertest.Tab
	site *site
}

func (w *site) tab() *tab {
	w.t.Helper()
	return &tab{browsertest.Open(w.t, w.URL), w}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.T.Helper()
	p.Do(actions...)
}

func run[T any](p *tab, action chromedp.Action[T]) T {
	p.T.Helper()
	return browsertest.Run(p.Tab, action)
}

func call[P, R any](p *tab, command cdp.Command[P, R], parameters P) R {
	p.T.Helper()
	return browsertest.Call(p.Tab, command, parameters)
}

func eval[T any](p *tab, expression string, options ...chromedp.EvaluateOption) T {
	p.T.Helper()
	return browsertest.Eval[T](p.Tab, expression, options...)
}

func (p *tab) open(path string) {
	p.T.Helper()
	p.Open(path)
}

func (p *tab) choose(paths ...string) {
	p.T.Helper()
	p.Choose(paths...)
}

func (p *tab) click(selector chromedp.CSS) {
	p.T.Helper()
	p.Click(selector)
}

func (p *tab) until(expression string) {
	p.T.Helper()
	p.Until(expression)
}

func (p *tab) window(width, height int64) {
	p.T.Helper()
	p.Window(width, height)
}

func (p *tab) scheme(name string) {
	p.T.Helper()
	p.Scheme(name)
}

func (p *tab) shot(name string) {
	p.T.Helper()
	p.Shot(name)
}

func (p *tab) state() string { return p.State() }

// on waits for a page of the console.
func (p *tab) on(name string) {
	p.T.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="` + name + `"]`)))
}

// looks requires that axe finds no fault with the page in either scheme, and that the page needs no horizontal
// scrolling.
func (p *tab) looks(name string) {
	p.T.Helper()
	p.accessible("light")
	p.contrast("dark")
	p.shot(name)
	p.Fits(name)
	for _, act := range eval[[]string](p, `[...document.querySelectorAll(".console main :is(a.button, button)")].filter(e =>
		/[/](revoke|delete|remove|sign-out-everywhere|members[/]\w+[/]end)$/.test(new URL(e.href ?? e.form?.action ?? "/", location).pathname) &&
		!(e.matches(".danger") && (e.matches("button") || e.matches(":last-child")))).map(e => e.outerHTML)`) {
		p.T.Errorf("%s: an action that cannot be undone is not last, or does not look dangerous: %s", name, act)
	}
}

// accessible fails on every violation of WCAG 2.2 AA that axe finds.
func (p *tab) accessible(scheme string) {
	p.T.Helper()
	p.violates(scheme, `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`)
}

// contrast fails if text has too little contrast, the only fault that can differ between the schemes of a page.
func (p *tab) contrast(scheme string) {
	p.T.Helper()
	p.violates(scheme, `["color-contrast"]`)
}

// violates fails if axe finds violations of some of its rules. Without npm it checks nothing.
func (p *tab) violates(scheme, rules string) {
	p.T.Helper()
	p.scheme(scheme)
	if eval[bool](p, `typeof axe === "undefined"`) {
		directory, ok := packages(p.site.t, "accessibility")
		if !ok {
			return
		}
		text, err := os.ReadFile(filepath.Join(directory, "node_modules/axe-core/axe.min.js"))
		check(p.site.t, err)
		p.do(chromedp.Evaluate[chromedp.Void](string(text)))
	}
	for _, violation := range eval[[]string](p,
		`axe.run(document, {resultTypes: ["violations"], runOnly: `+rules+`}).then(found =>
		found.violations.map(v => v.impact + " " + v.id + ": " + v.help + "\n" + v.nodes.map(n => n.html + " " + n.failureSummary).join("\n")))`, chromedp.EvalAwaitPromise) {
		p.T.Errorf("accessibility, %s: %s", scheme, violation)
	}
}

// result waits for a panel and returns its text.
func (p *tab) result(name string) string {
	p.T.Helper()
	selector := chromedp.CSS(`#result > .panel[data-result="` + name + `"]`)
	p.do(chromedp.WaitVisible(selector))
	return run(p, chromedp.Text(selector))
}

// seen returns what the page says of the record before anything is compared.
func (p *tab) seen() string {
	p.T.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS("#seen")))
	if eval[bool](p, `document.querySelector("#result .panel, #seen svg") !== null`) {
		p.T.Errorf("a result is shown although nothing was compared: %s", p.state())
	}
	return run(p, chromedp.Text(chromedp.CSS("#seen")))
}

// file makes a file with this content.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// sparse makes a file of this size that takes no space on disk.
func sparse(t *testing.T, size int64) string {
	t.Helper()
	path := file(t, "large.bin", "")
	check(t, os.Truncate(path, size))
	return path
}
