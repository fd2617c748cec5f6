package handlers_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"integrityledger/handlers"
)

// patience bounds each wait for the browser. No test asserts a time.
const patience = 4 * time.Minute

// chromium is the one browser of the run. It can reach this machine alone.
var chromium = sync.OnceValues(func() (*browser, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errors.New("the tests of the pages need Chromium (Debian: sudo apt-get install chromium); make test installs it where it may")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.WSURLReadTimeout(patience), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, err
	}
	return &browser{ctx, func() { _ = chromedp.Cancel(ctx); stop() }}, nil
})

type browser struct {
	context.Context
	stop func()
}

// closeBrowser ends the browser where one was started. No test may start one afterwards.
func closeBrowser() {
	if !started.Load() {
		return
	}
	if b, err := chromium(); err == nil {
		b.stop()
	}
}

var started atomic.Bool

// site is a service as a browser sees it: every byte that arrives is kept, and
// the handler can be changed under an open page.
type site struct {
	*service
	URL     string
	config  handlers.Config
	handler atomic.Pointer[http.Handler]
	cut     atomic.Bool // whether every request ends without an answer

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
		// Some browsers ask for the icon, at a time of their own, and some do not.
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

// forget drops what was received so far.
func (w *site) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Reset()
	w.requests = nil
}

// quiet waits for the worker, which a page asks for by itself after it has loaded, and forgets what was received so far.
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
	context.Context
	t    *testing.T
	site *site

	mu      sync.Mutex
	foreign []string // requests that were not for the site
}

func (w *site) tab() *tab {
	w.t.Helper()
	started.Store(true)
	b, err := chromium()
	check(w.t, err)
	ctx, cancel := chromedp.NewContext(b, chromedp.WithNewBrowserContext())
	w.t.Cleanup(cancel)
	p := &tab{Context: ctx, t: w.t, site: w}
	check(w.t, chromedp.Do(ctx)) // the page lives as long as the context of its first action
	check(w.t, chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(e.Request.URL, w.URL+"/") &&
			!strings.HasPrefix(e.Request.URL, "data:") { // an icon of the browser's own, in a field for a date
			p.mu.Lock()
			p.foreign = append(p.foreign, e.Request.URL)
			p.mu.Unlock()
		}
	}))
	call(p, network.Enable, network.EnableParams{})
	p.window(1280, 900)
	p.scheme("light")
	return p
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("browser: %v\n%s", err, p.state())
	}
}

// run is an action with a value.
func run[T any](p *tab, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("browser: %v\n%s", err, p.state())
	}
	return value
}

// until waits until an expression of the page's is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	run(p, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0))) // run's own patience bounds it
}

// call is a command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], parameters P) R {
	p.t.Helper()
	value, err := chromedp.Call(p, command, parameters)
	check(p.t, err)
	return value
}

func (p *tab) window(width, height int64) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	})
}

// scheme is what the person prefers, light or dark. Nothing moves: a click would miss what is still being scrolled.
func (p *tab) scheme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// state is what stands on the page, for the message of a failure.
func (p *tab) state() (text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context), 5*time.Second)
	defer cancel()
	text, _ = chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText.slice(0, 1500)`))
	return text
}

func (p *tab) open(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.site.URL + path))
}

// choose gives files to the page as its file dialogue would.
func (p *tab) choose(paths ...string) {
	p.t.Helper()
	p.do(chromedp.SetUploadFiles(chromedp.CSS("#file"), paths, chromedp.NodeReady))
}

// result waits for a panel and returns its text.
func (p *tab) result(name string) string {
	p.t.Helper()
	selector := chromedp.CSS(`#result > .panel[data-result="` + name + `"]`)
	p.do(chromedp.WaitVisible(selector))
	return run(p, chromedp.Text(selector))
}

func (p *tab) click(selector chromedp.CSS) {
	p.t.Helper()
	p.do(chromedp.Click(selector))
}

// eval is what an expression of the page's is.
func eval[T any](p *tab, expression string, options ...chromedp.EvaluateOption) T {
	p.t.Helper()
	return run(p, chromedp.Evaluate[T](expression, options...))
}

// shot keeps a picture of the whole page, in light and dark, on a desktop and a
// phone, where SCREENSHOTS names a directory.
func (p *tab) shot(name string) {
	p.t.Helper()
	directory := os.Getenv("SCREENSHOTS")
	if directory == "" {
		return
	}
	check(p.t, os.MkdirAll(directory, 0o700))
	for _, look := range []struct {
		name   string
		width  int64
		scheme string
	}{{"desktop-light", 1280, "light"}, {"desktop-dark", 1280, "dark"}, {"phone-light", 390, "light"}, {"phone-dark", 390, "dark"}} {
		p.window(look.width, 844)
		p.scheme(look.scheme)
		picture := run(p, chromedp.FullScreenshot(100))
		path := filepath.Join(directory, strings.NewReplacer("/", "-", " ", "-").Replace(name)+"-"+look.name+".png")
		check(p.t, os.WriteFile(path, picture, 0o600))
	}
	p.window(1280, 900)
	p.scheme("light")
}

// file makes a file of this content.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// sparse makes a file of this size that takes no room.
func sparse(t *testing.T, size int64) string {
	t.Helper()
	path := file(t, "large.bin", "")
	check(t, os.Truncate(path, size))
	return path
}
