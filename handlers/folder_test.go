package handlers_test

import (
	"bytes"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// emptyFolder is a folder of size 0, as all folders are in WebKit.
const emptyFolder = "/proc/sys"

// drops drops a path of the disk on the page.
func (p *tab) drops(path string) {
	p.T.Helper()
	for _, kind := range []input.DispatchDragEventType{
		input.DispatchDragEventTypeDragEnter, input.DispatchDragEventTypeDragOver, input.DispatchDragEventTypeDrop,
	} {
		call(p, input.DispatchDragEvent, input.DispatchDragEventParams{
			Type: kind, X: 400, Y: 300,
			Data: &input.DragData{Items: []*input.DragDataItem{}, Files: []string{path}, DragOperationsMask: 1},
		})
	}
}

// ways are the ways to give a path to a page that compares files.
func (p *tab) ways() map[string]func(path string) {
	return map[string]func(string){"dropped": p.drops, "chosen": func(path string) { p.choose(path) }}
}

// A folder is not a file, whatever its size: it is neither compared nor sent, and every page says why. An empty file is
// a file.
func TestFolderIsNoFile(t *testing.T) {
	t.Parallel()
	w := openDocuments(t)
	made := w.upload(certificationAction+"/artifacts", w.org.Secret, body{"title": "Empty"}, "empty", "text/plain", "")
	certificate := w.certifies(work(made, ""))
	p := w.tab()
	for _, address := range []string{"/en/integrity/" + w.registered("a", 1, ""), "/en/certificates/" + certificate} {
		for way, give := range p.ways() {
			p.open(address)
			p.do(chromedp.WaitVisible(chromedp.CSS("#drop")))
			w.forget()
			give(emptyFolder)
			p.note("This is a folder")
			if _, sent := w.received(); bytes.Contains(sent, []byte("sha256")) {
				t.Errorf("%s: a folder that was %s was compared", address, way)
			}
			give(file(t, "empty", ""))
			p.result("MATCH_CURRENT")
		}
		p.drops(t.TempDir()) // this folder has a size
		p.note("This is a folder")
	}

	p.signsIn("/en")
	for _, give := range p.ways() {
		p.open("/en/console/records")
		p.do(chromedp.WaitVisible(chromedp.CSS("[data-hash]")))
		give(emptyFolder)
		p.do(chromedp.WaitVisible(chromedp.CSS(`[data-refused="folder"]`)))
		give(file(t, "empty", ""))
		p.on("record")
	}
	versions := w.number("SELECT count(*) FROM artifact_versions WHERE shard = $1 AND organization_id = $2")
	p.open("/en/console/documents/new")
	p.until(`!document.querySelector("#upload .actions button").disabled`)
	p.do(chromedp.SendKeys(chromedp.CSS("#title"), "Typed"))
	p.drops(emptyFolder)
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="folder"]`)))
	p.choose(emptyFolder)
	p.until(`document.querySelector("[data-said='folder']").hidden`)
	p.click("#upload .actions button")
	p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="folder"]`)))
	if n := w.number("SELECT count(*) FROM artifact_versions WHERE shard = $1 AND organization_id = $2"); n != versions {
		t.Error("a folder was registered")
	}
	p.choose(file(t, "empty", ""))
	p.click("#upload .actions button")
	p.on("document")
	p.click(`a[href$="/review"]`)
	p.on("document-review")
	p.until(`!document.querySelector("#review .actions button").disabled`)
	for _, give := range p.ways() {
		give(emptyFolder)
		p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="folder"]`)))
		give(file(t, "empty", ""))
		p.do(chromedp.WaitVisible(chromedp.CSS(`[data-said="same"]`)))
	}
}

// The page that verifies offline reads three files, none of which may be a folder.
func TestFolderIsNotVerified(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	id := w.registered("a", 1, "")
	files := map[string]string{
		"#receipt":  file(t, "receipt.json", string(w.public("/api/public/integrity/"+id+"/receipt").is200().body)),
		"#keys":     file(t, "keys.json", string(w.public("/.well-known/integrity-trusted-keys.json").is200().body)),
		"#document": file(t, "empty", ""),
	}
	p.openVerify("/en")
	for field, path := range files {
		p.give(field, path)
	}
	for field, path := range files {
		p.give(field, emptyFolder)
		p.click(`#evidence [type="submit"]`)
		p.notice("One of these is a folder")
		p.give(field, path)
		says(t, p.found(), "Exactly the signed SHA-256")
	}
}
