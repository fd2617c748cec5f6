// Package browsertest drives a real Chromium in tests of pages.
package browsertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
)

// Patience bounds each wait for the browser. No test asserts a time.
const Patience = 4 * time.Minute

// chromium is the browser shared by all tests of the run. It can only reach this machine.
var chromium = sync.OnceValues(func() (*browser, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errors.New(
			"the tests of the pages need Chromium (Debian: sudo apt-get install chromium); make test installs it if it may",
		)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.WSURLReadTimeout(Patience), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("accept-lang", "es"), // pages open in the browser's language
		// Back loads a page again, because chromedp does not hear of a page that the browser restores.
		chromedp.Flag("disable-features", "Translate,BackForwardCache"),
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

var started atomic.Bool

// Close stops the browser if one was started. No test may start one afterwards.
func Close() {
	if !started.Load() {
		return
	}
	if b, err := chromium(); err == nil {
		b.stop()
	}
}

// Tab is a page in a profile of its own. Its methods fail T.
type Tab struct {
	context.Context
	T   testing.TB
	URL string // of the service, without a trailing slash

	mu                  sync.Mutex
	foreign, complaints []string
}

// Open opens an empty page in the light scheme and of desktop size, and closes it when the test ends.
func Open(t testing.TB, url string) *Tab {
	t.Helper()
	started.Store(true)
	b, err := chromium()
	check(t, err)
	ctx, cancel := chromedp.NewContext(b, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &Tab{Context: ctx, T: t, URL: url}
	check(t, chromedp.Do(ctx)) // the page closes with the context of its first action
	check(t, chromedp.Listen(ctx, p.hear))
	Call(p, network.Enable, network.EnableParams{})
	Call(p, cdplog.Enable, struct{}{})
	Call(p, runtime.Enable, struct{}{})
	p.Window(1280, 900)
	p.Scheme("light")
	return p
}

func (p *Tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.URL+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			// data: is the browser's icon in a date field
			p.foreign = append(p.foreign, e.Request.URL)
		}
	case *cdplog.EventEntryAdded:
		p.complaints = append(p.complaints, string(e.Entry.Level)+": "+e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, "thrown: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		p.complaints = append(p.complaints, "console."+string(e.Type))
	}
}

// Foreign returns the requests that were not sent to the service.
func (p *Tab) Foreign() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.foreign...)
}

// Complaints returns the messages that the page wrote to the console and the exceptions that it threw.
func (p *Tab) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

// Authenticator gives the page a virtual device for passkeys that confirms at once.
func (p *Tab) Authenticator() {
	p.T.Helper()
	Call(p, webauthn.Enable, webauthn.EnableParams{})
	Call(p, webauthn.AddVirtualAuthenticator,
		webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true,
			IsUserVerified: true, AutomaticPresenceSimulation: true,
		}})
}

// Do runs actions one after another.
func (p *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.T.Helper()
	for _, action := range actions {
		Run(p, action)
	}
}

// replaced reports whether an action failed because its node or context belonged to a document that has been replaced,
// for example after a click left the page. Such an action has done nothing: it looks up its node first.
func replaced(err error) bool {
	refused, ok := errors.AsType[*cdproto.Error](err)
	return ok && slices.Contains([]string{"Could not find node with given id", "No node with given id found",
		"Node with given id does not belong to the document", "Cannot find context with specified id"}, refused.Message)
}

// Run runs an action and returns its value.
func Run[T any](p *Tab, action chromedp.Action[T]) T {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p, Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	for replaced(err) {
		value, err = chromedp.Run(ctx, action)
	}
	if err != nil {
		p.T.Fatalf("browser: %v\n%s", err, p.State())
	}
	return value
}

// Eval returns the value of a JavaScript expression in the page.
func Eval[T any](p *Tab, expression string, options ...chromedp.EvaluateOption) T {
	p.T.Helper()
	return Run(p, chromedp.Evaluate[T](expression, options...))
}

// Call runs a command of the DevTools protocol.
func Call[P, R any](p *Tab, command cdp.Command[P, R], parameters P) R {
	p.T.Helper()
	value, err := chromedp.Call(p, command, parameters)
	check(p.T, err)
	return value
}

// Until waits until a JavaScript expression in the page is true.
func (p *Tab) Until(expression string) {
	p.T.Helper()
	Run(p, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0))) // Run bounds the wait
}

// Window sets the size of the page in CSS pixels. A narrow page emulates a phone.
func (p *Tab) Window(width, height int64) {
	p.T.Helper()
	Call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	})
}

// Fits requires that the page needs no horizontal scrolling at 320 CSS pixels (WCAG 2.2, 1.4.10), in the console not
// even of a table, whose rows are cards there. name is the page's name in the failure.
func (p *Tab) Fits(name string) {
	p.T.Helper()
	p.Window(320, 640)
	if width := Eval[int](p, `document.documentElement.scrollWidth`); width > 320 {
		p.T.Errorf("%s is %d pixels wide: %s", name, width, Eval[string](p,
			`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 321 && !e.closest(".scroll")).slice(0, 3).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
	}
	for _, table := range Eval[[]string](p, `[...document.querySelectorAll(".console .scroll")].filter(e =>
		e.scrollWidth > e.clientWidth ||
		e.querySelector("tbody td:not([data-label], :has(button, input, a), :empty)")).map(e =>
		e.outerHTML.slice(0, 200))`) {
		p.T.Errorf("%s has a table that is no list of cards: %s", name, table)
	}
	p.Window(1280, 900)
}

// Still requires that nothing in sight moves when the scripts of a path's page run: a reader has begun to read, or aims
// at a button. It opens the page without its scripts first.
func (p *Tab) Still(path string) {
	p.T.Helper()
	places := func(patterns ...*network.BlockPattern) map[string]float64 {
		Call(p, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: patterns})
		p.Open(path)
		return Eval[map[string]float64](p, `Object.fromEntries(["h1", "h2", "h3", "form", "section", "table", "dl", "pre", "footer"].flatMap(
			tag => [...document.querySelectorAll(tag)].filter(e => e.checkVisibility()).map((e, i) =>
				[tag + " " + i + ": " + e.textContent.trim().slice(0, 30), Math.round(e.getBoundingClientRect().top + scrollY)])))`)
	}
	for _, width := range []int64{375, 1280} {
		p.Window(width, 812)
		before := places(&network.BlockPattern{URLPattern: "*://*:*/*.js*", Block: true})
		after := places()
		for place, top := range before {
			if now, ok := after[place]; ok && now != top && top < 812 {
				p.T.Errorf("%s at %d pixels: a script moves %s from %v to %v", path, width, place, top, now)
			}
		}
		if len(before) < 3 {
			p.T.Errorf("%s has nothing to look at: %v", path, before)
		}
	}
	p.Window(1280, 900)
}

// Scheme sets the color scheme, light or dark. It also reduces motion: a click would miss an element that is still
// scrolling.
func (p *Tab) Scheme(name string) {
	p.T.Helper()
	Call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// State returns the address and text of the page, for failure messages.
func (p *Tab) State() (text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context), 5*time.Second)
	defer cancel()
	text, _ = chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText.slice(0, 1500)`))
	return text
}

// Open opens a path of the service.
func (p *Tab) Open(path string) {
	p.T.Helper()
	p.Do(chromedp.Navigate(p.URL + path))
}

// Choose passes files to the page, as its file dialogue would.
func (p *Tab) Choose(paths ...string) {
	p.T.Helper()
	p.Do(chromedp.SetUploadFiles(chromedp.CSS("#file"), paths, chromedp.NodeReady))
}

// Click clicks the first element that matches a selector.
func (p *Tab) Click(selector chromedp.CSS) {
	p.T.Helper()
	p.Do(chromedp.Click(selector))
}

// Shot saves screenshots of the whole page, in light and dark, on a desktop and a phone, if SCREENSHOTS names a
// directory.
func (p *Tab) Shot(name string) {
	p.T.Helper()
	directory := os.Getenv("SCREENSHOTS")
	if directory == "" {
		return
	}
	check(p.T, os.MkdirAll(directory, 0o700))
	for _, look := range []struct {
		name   string
		width  int64
		scheme string
	}{
		{"desktop-light", 1280, "light"}, {"desktop-dark", 1280, "dark"}, {"phone-light", 390, "light"},
		{"phone-dark", 390, "dark"},
	} {
		p.Window(look.width, 844)
		p.Scheme(look.scheme)
		picture := Run(p, chromedp.FullScreenshot(100))
		path := filepath.Join(directory, strings.NewReplacer("/", "-", " ", "-").Replace(name)+"-"+look.name+".png")
		check(p.T, os.WriteFile(path, picture, 0o600))
	}
	p.Window(1280, 900)
	p.Scheme("light")
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
