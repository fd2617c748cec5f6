package handlers_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"integrityledger/handlers/web"
)

// maxGrowth is the number of bytes by which a renderer may grow for the largest file: half of the file. Its size before
// differs between versions of the browser.
const maxGrowth = web.MaxFile / 2

// The largest file is hashed correctly, in pieces. One byte more is refused before anything is read. The test is not
// parallel: it would count the renderers of other tests.
func TestLargestFile(t *testing.T) {
	w := openSite(t)
	largest := sparse(t, web.MaxFile)
	f, err := os.Open(largest)
	check(t, err)
	digest := sha256.New()
	_, err = io.Copy(digest, f)
	check(t, err)
	check(t, f.Close())
	id := w.declared("a", hex.EncodeToString(digest.Sum(nil)), web.MaxFile)

	p := w.tab()
	p.open("/en/integrity/" + id)
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	w.quiet()
	before := p.renderers()
	p.choose(largest)
	text := p.result("MATCH_CURRENT")
	if !strings.Contains(text, "536.9 MB") {
		t.Errorf("the size is not shown: %s", text)
	}
	for pid, peak := range p.renderers() {
		t.Logf("renderer %d: %d MiB before, at most %d MiB", pid, before[pid]>>20, peak>>20)
		if peak-before[pid] >= maxGrowth {
			t.Errorf("renderer %d took %d MiB for the file", pid, (peak-before[pid])>>20)
		}
	}

	w.forget()
	p.choose(sparse(t, web.MaxFile+1))
	p.note("larger than 512 MiB")
	p.shot("too-large")
	if requests, _ := w.received(); len(requests) > 0 {
		t.Errorf("a file that is too large led to %v", requests)
	}
}

// holdsHashing makes the worker read only the first piece of a file with several.
func (w *site) holdsHashing() {
	const held = `{ const read = Blob.prototype.arrayBuffer; let pieces = 0;
		Blob.prototype.arrayBuffer = function () { return this.size > 1 << 20 && pieces++ > 0 ? new Promise(() => {}) : read.call(this) } }
	`
	w.around(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, "worker") {
			next.ServeHTTP(rw, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		maps.Copy(rw.Header(), whole.Header())
		rw.Header().Del("Content-Length")
		rw.WriteHeader(whole.Code)
		_, _ = io.WriteString(rw, held+whole.Body.String())
	})
}

// After a cancellation in the middle no request is sent, and the next file is compared as if there had been none
// before.
func TestCancelledFile(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	w.holdsHashing()
	id := w.registered("a", 1, "one")
	p := w.tab()
	p.open("/en/integrity/" + id)
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	w.quiet()
	p.choose(sparse(t, web.MaxFile))
	p.until(`document.querySelector("#result progress")?.value > 0`)
	p.shot("progress")
	p.click("[data-cancel]")
	p.note("Cancelled. No file has been compared.")
	says(t, p.result("FILE_NOT_COMPARED"), "Valid", "Current") // as before
	if eval[string](p, `document.activeElement.id`) != "file" {
		t.Error("the focus is lost after cancelling")
	}
	p.choose(file(t, "small", "another"))
	p.result("HASH_MISMATCH")
	if requests, _ := w.received(); len(requests) != 1 || !strings.HasSuffix(requests[0], hash("another")) {
		t.Errorf("after cancelling: %v", requests)
	}
	w.post(integrity+"/records/"+id+"/revoke", nil).is(http.StatusOK)
	p.choose(file(t, "small", "another"))
	p.until(`document.querySelector("#result").innerText.includes("Revoked")`)
	p.choose(sparse(t, web.MaxFile+1))
	p.note("larger than 512 MiB")
	says(t, p.result("FILE_NOT_COMPARED"), "Valid", "Revoked")
}

// declared registers a hash without a file.
func (s *service) declared(document, sum string, size int) string {
	s.t.Helper()
	declaration := declaration(document, 1, "").with(body{"sha256": sum, "sizeBytes": size})
	return s.post(integrity+"/records", declaration).is(201)["publicId"].(string)
}

// note waits until the page says why no file was compared.
func (p *tab) note(text string) {
	p.T.Helper()
	p.until(
		`document.querySelector('#result [data-result="FILE_NOT_COMPARED"] .note')?.textContent.includes(` +
			strconv.Quote(text) + `)`,
	)
}

// renderers returns the peak memory of each renderer process, in bytes (VmHWM, including shared memory).
func (p *tab) renderers() map[int64]int64 {
	p.T.Helper()
	processes, err := chromedp.CallBrowser(p, systeminfo.GetProcessInfo, cdp.Empty{})
	check(p.T, err)
	peaks := map[int64]int64{}
	for _, process := range processes.ProcessInfo {
		if process.Type != "renderer" {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.ID))
		peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || err == nil && peak == nil {
			continue // it has ended since it was listed, like an earlier test's renderer
		}
		check(p.T, err)
		kib, err := strconv.ParseInt(string(peak[1]), 10, 64)
		check(p.T, err)
		peaks[process.ID] = kib << 10
	}
	if len(peaks) == 0 {
		p.T.Error("there is no renderer to measure")
	}
	return peaks
}

// An empty file is compared like any other file. If it is not the registered one, the page says what to do.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	id := w.registered("a", 1, "")
	p := w.tab()
	p.open("/integrity/" + id)
	p.choose(file(t, "empty", ""))
	says(t, p.result("MATCH_CURRENT"), hash(""))
	p.open("/integrity/" + w.registered("b", 1, "one"))
	p.choose(file(t, "empty", ""))
	says(t, p.result("HASH_MISMATCH"), "Su archivo está vacío; descárguelo de nuevo", "No es el archivo registrado")
	p.shot("empty")
}

// Anything but a single readable file is refused, and no request is sent.
func TestWhatIsNoFile(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	p.open("/en/integrity/" + w.registered("a", 1, "one"))
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	w.quiet()
	gone := file(t, "gone", "one")
	p.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelector("#file").addEventListener("change", e => { window.chosen = [...e.target.files] }, {capture: true, once: true})`,
	))
	p.choose(gone)
	p.result("MATCH_CURRENT")
	w.forget()
	drop := func(files string) {
		p.do(chromedp.Evaluate[chromedp.Void](`{ const carried = new DataTransfer(); ` + files + `
			dispatchEvent(new DragEvent("drop", {dataTransfer: carried, cancelable: true})) }`))
	}
	check(t, os.WriteFile(gone, []byte("changed after it was chosen"), 0o600))
	drop(`for (const file of window.chosen) carried.items.add(file)`)
	p.note("could not be read to its end")
	drop(`carried.items.add(new File(["b"], "b")); carried.items.add(new File(["c"], "c"))`)
	p.note("one file at a time")
	check(t, os.Remove(gone))
	drop(`for (const file of window.chosen) carried.items.add(file)`)
	p.note("could not be read to its end")
	drop(`carried.items.add(new File(["a"], "a")); carried.items.add(new File(["b"], "b"))`)
	p.note("one file at a time")
	if requests, _ := w.received(); len(requests) > 0 {
		t.Errorf("asked: %v", requests)
	}
	drop(`carried.items.add(new File(["one"], "a"))`)
	p.result("MATCH_CURRENT")
}

// key presses a key, with or without Shift.
func (p *tab) key(keys string, modifiers ...chromedp.Modifier) {
	p.T.Helper()
	p.do(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

// tabTo presses Tab until the selected element has the focus.
func (p *tab) tabTo(selector string, modifiers ...chromedp.Modifier) {
	p.T.Helper()
	for range 20 {
		p.key(kb.Tab, modifiers...)
		if eval[bool](p, `document.activeElement.matches(`+strconv.Quote(selector)+`)`) {
			return
		}
	}
	p.T.Fatalf("Tab does not reach %s", selector)
}

// chooseByKey opens the file dialogue of the focused element and gives it a file.
func (p *tab) chooseByKey(path string) {
	p.T.Helper()
	call(p, page.Enable, page.EnableParams{})
	call(p, page.SetInterceptFileChooserDialog, page.SetInterceptFileChooserDialogParams{Enabled: true})
	opened := run(p, chromedp.WaitEvent(page.FileChooserOpened, nil, chromedp.KeyEvent(kb.Enter)))
	call(p, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: []string{path}, BackendNodeID: opened.BackendNodeID})
}

// Everything works with the keyboard alone, and the focus is visible.
func TestKeyboardOnly(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	w.holdsHashing()
	id := w.registered("a", 1, "one")
	p := w.tab()
	p.open("/en/integrity/" + id)
	p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
	p.key(kb.Tab)
	if !eval[bool](
		p, `document.activeElement.matches(".skip") && document.activeElement.getBoundingClientRect().left >= 0`,
	) {
		t.Error("the first stop is not the visible link to the content")
	}
	p.tabTo("#file")
	if eval[string](p, `getComputedStyle(document.querySelector("label.button")).outlineStyle`) != "solid" {
		t.Error("the focus on the file button cannot be seen")
	}
	p.chooseByKey(file(t, "a", "one"))
	p.result("MATCH_CURRENT")

	// Cancel precedes the focused button.
	p.chooseByKey(sparse(t, web.MaxFile))
	p.do(chromedp.WaitVisible(chromedp.CSS("#result progress")))
	p.tabTo("[data-cancel]", chromedp.ModifierShift)
	p.key(kb.Enter)
	p.note("Cancelled")

	w.away()
	p.chooseByKey(file(t, "a", "one"))
	p.result("UNAVAILABLE")
	w.use(w.http.Config.Handler)
	p.tabTo("[data-retry]", chromedp.ModifierShift)
	p.key(kb.Enter)
	p.result("MATCH_CURRENT")
	if !eval[bool](p, `document.querySelector("#result").contains(document.activeElement)`) {
		t.Error("the focus was lost with the button that had it")
	}

	p.tabTo("summary")
	p.key(kb.Enter)
	p.tabTo("#sha256")
	p.key(hash("one"))
	p.key(kb.Enter)
	p.result("MATCH_CURRENT")
}
