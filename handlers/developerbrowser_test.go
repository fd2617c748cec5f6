package handlers_test

import (
	"slices"
	"strings"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"integrityledger/handlers/web"
)

// guides are the pages for developers to test in a browser: one of every kind.
func guides(prefix string) (paths []string) {
	for _, name := range append(
		web.DeveloperPages(), "reference/records", "reference/webhooks", "reference/public", "search?q=hash",
	) {
		paths = append(paths, prefix+strings.TrimSuffix(web.DeveloperRoot+"/"+name, "/"))
	}
	return paths
}

// The pages load nothing from other sites, write nothing to the browser's console, store nothing, need no horizontal
// scrolling at 320 CSS pixels, and have no fault that axe finds. Both languages have the same structure and style: axe
// checks every page in one language, in a drill in both, and the dark scheme on a page of each shape.
func TestDeveloperPagesInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	dark := []string{"/en/developers", "/en/developers/reference/records", "/en/developers/errors"}
	for _, prefix := range []string{"", "/en"} {
		p := w.tab()
		for _, path := range guides(prefix) {
			p.open(path)
			p.do(chromedp.WaitReady(chromedp.CSS("footer")))
			switch {
			case prefix == "" || !testing.Short():
				p.accessible("light")
			case slices.Contains(dark, path):
				p.contrast("dark")
			}
			p.shot("developers" + strings.TrimPrefix(strings.ReplaceAll(path, "/developers", ""), "/en") + prefix)
			p.Fits(path)
		}
		if foreign, complaints := p.Foreign(), p.Complaints(); len(foreign) > 0 || len(complaints) > 0 {
			t.Errorf("requests for %v, in the console %v", foreign, complaints)
		}
		if stored := eval[int](p, `document.cookie.length + localStorage.length + sessionStorage.length`); stored != 0 {
			t.Error("a page has stored something")
		}
	}
}

// A button copies exactly the text of its sample, and confirms it.
func TestCopySample(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	profile := call(p, target.GetTargetInfo, target.GetTargetInfoParams{}).TargetInfo.BrowserContextID
	permit := func(name string, setting cdpbrowser.PermissionSetting) {
		t.Helper()
		call(p, cdpbrowser.SetPermission, cdpbrowser.SetPermissionParams{
			Permission: &cdpbrowser.PermissionDescriptor{Name: name}, Setting: setting, Origin: w.URL, BrowserContextID: profile,
		})
	}
	permit("clipboard-read", cdpbrowser.PermissionSettingGranted)
	permit("clipboard-write", cdpbrowser.PermissionSettingGranted)
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	p.open("/en/developers")
	const sample = `[data-sample="start/1-register.sh"]`
	// The confirmation is visible only for seconds, so it is recorded.
	const listen = `window.told = []; new MutationObserver(() => {
		told.push([document.querySelector("#copied").textContent, document.querySelector('` + sample +
		` .copy').textContent]);
	}).observe(document.body, {subtree: true, childList: true, characterData: true})`
	p.do(chromedp.Evaluate[chromedp.Void](listen))
	p.click(sample + " .copy")
	p.until(`told.some(([status, button]) => status === "Copied" && button === "Copied")`)
	copied := eval[string](p, `navigator.clipboard.readText()`, chromedp.EvalAwaitPromise)
	shown := eval[string](p, `document.querySelector('`+sample+` code').textContent`)
	if copied != shown || !strings.HasPrefix(copied, "printf 'The final") || strings.Contains(copied, "Copy") {
		t.Errorf("copied was %q, shown is %q", copied, shown)
	}
	p.until(`document.querySelector('` + sample + ` .copy').textContent === "Copy"`)
	if buttons, samples := eval[int](
		p, `document.querySelectorAll(".copy").length`,
	), eval[int](p, `document.querySelectorAll(".sample").length`); buttons != samples || samples < 6 {
		t.Errorf("%d buttons for %d samples", buttons, samples)
	}
	permit("clipboard-write", cdpbrowser.PermissionSettingDenied)
	p.open("/developers")
	p.do(chromedp.Evaluate[chromedp.Void](listen))
	p.click(sample + " .copy")
	p.until(`told.some(([status]) => status.startsWith("No se pudo copiar"))`)
}

// The language of samples is chosen by mouse or keyboard, in all tabs of a page and on every page after it.
func TestTabsOfSamples(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	shown := func() string {
		return eval[string](p, `[...document.querySelectorAll(".tabs")].map((group) =>
			[...group.querySelectorAll("[role=tabpanel]")].filter((panel) => panel.checkVisibility())
				.map((panel) => panel.dataset.language).join("+")).join(" ")`)
	}
	p.open("/en/developers")
	if got := shown(); got != "curl" {
		t.Errorf("at first %q is shown", got)
	}
	p.click(`[data-language="curl"] .copy`) // a button within a panel is no tab
	p.click(`#tab-0-node`)
	if got := shown(); got != "node" {
		t.Errorf("%q is shown, want node", got)
	}
	p.accessible("light")
	p.do(chromedp.SendKeys(chromedp.CSS("#tab-0-node"), kb.ArrowRight))
	if got := shown(); got != "php" || eval[string](p, `document.activeElement.id`) != "tab-0-php" {
		t.Errorf("the key shows %q", got)
	}
	p.open("/developers/webhooks")
	if got := shown(); got != "python php" { // the first group has no PHP
		t.Errorf("on another page %q is shown", got)
	}
	p.Fits("/developers/webhooks")
	p.click(`#tab-0-node`)
	if got := shown(); got != "node node" {
		t.Errorf("%q is shown in a page of two groups", got)
	}
	if stored := eval[string](p, `JSON.stringify(localStorage)`); stored != `{"language":"node"}` {
		t.Errorf("stored is %s", stored)
	}
}

// An address that names an entry or a section shows what is folded there.
func TestAddressUnfolds(t *testing.T) {
	t.Parallel()
	p := openSite(t).tab()
	for path, details := range map[string]string{
		"/en/developers/errors#VERSION_CONFLICT": "#VERSION_CONFLICT > details[open]",
		"/developers/changelog#2026-11-20":       "[id='2026-11-20'] + details[open]",
	} {
		p.open(path)
		p.do(chromedp.WaitVisible(chromedp.CSS(details)))
		if open := eval[int](p, `document.querySelectorAll("details[open]").length`); open != 1 {
			t.Errorf("%s opens %d entries", path, open)
		}
	}
}

// Without JavaScript all content is shown, without buttons that would do nothing.
func TestDeveloperPagesWithoutJavaScript(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.open("/en/developers/reference/records")
	if text := run(p, chromedp.Text(chromedp.CSS("main"))); !strings.Contains(text, "/api/v1/integrity/records/batch") ||
		!strings.Contains(text, "data.companyContribution.used") {
		t.Errorf("the reference without JavaScript: %.500s", text)
	}
	p.click("details summary")
	p.do(chromedp.WaitVisible(chromedp.CSS("details[open] pre")))
	if eval[int](p, `document.querySelectorAll("main button").length`) != 0 {
		t.Error("there are buttons that nothing moves")
	}
	p.click(`.chapters a[href="/en/developers/webhooks"]`)
	p.do(chromedp.WaitVisible(chromedp.CSS("#signature")))
	for _, language := range []string{"python", "node", "php"} {
		p.do(chromedp.WaitVisible(chromedp.CSS(`.tabs [data-language="` + language + `"] h3`)))
	}
	p.do(chromedp.SendKeys(chromedp.CSS(".search input"), "revoke webhook\r"))
	p.do(chromedp.WaitVisible(chromedp.CSS(".found mark")))
	p.Fits("/en/developers/search")
}
