package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/handlers/browsertest"
	"integrityledger/handlers/wire"
)

// TestConsoleStory is a stranger's visit to an open service, in both languages at once: sign up by mail, create a
// passkey, a company and a key, register with curl, find the record by its file, receive a webhook, invite a reviewer,
// who accepts in a separate browser and reviews a document that is then certified, and revoke the key. The history
// shows all of it, and an auditor accepts its bundle.
func TestConsoleStory(t *testing.T) {
	t.Parallel()
	mails, port := integritytest.ServeMail(t)
	s := surroundings{env: []string{
		"INTEGRITY_SIGNUP=open", fmt.Sprintf("INTEGRITY_SMTP_URL=smtp://127.0.0.1:%d", port),
		"INTEGRITY_MAIL_FROM=ledger@example.org",
		"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true", // the receiver is on this machine
	}}.start(t, dataDir(t))
	told := make(chan []string, 2)
	var languages sync.WaitGroup
	for name, prefix := range map[string]string{"es": "", "en": "/en"} {
		languages.Go(func() { // not t.Parallel, which would wait until every test of the package has begun
			t.Run(name, func(t *testing.T) {
				told <- (&visit{t: t, service: s, mails: mails, name: name, prefix: prefix}).story()
			})
		})
	}
	languages.Wait()
	s.stop()
	close(told)
	for secrets := range told {
		wantClean(t, s.log, secrets...)
	}
}

// visit is a stranger's visit to the console in one language.
type visit struct {
	t            *testing.T
	service      *running
	mails        *integritytest.Mailbox
	name, prefix string
}

// person is a person with a separate browser.
type person struct {
	*browsertest.Tab
	*visit
}

func (v *visit) arrives() person {
	p := person{browsertest.Open(v.t, strings.Replace(v.service.base, "127.0.0.1", "localhost", 1)), v}
	p.Authenticator()
	return p
}

// on waits for a page of the console, which must not scroll sideways, and saves a screenshot of it.
func (p person) on(page string) {
	p.T.Helper()
	p.sees(`main[data-page="` + page + `"]`)
	p.Fits(page + " " + p.name)
	p.Shot("story-" + page + "-" + p.name)
}

func (p person) sees(selector string) {
	p.T.Helper()
	p.Do(chromedp.WaitVisible(chromedp.CSS(selector)))
}

func (p person) types(selector, text string) {
	p.T.Helper()
	p.Do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// submits clicks and waits for the next page. A reload in between would reset the form.
func (p person) submits(selector string) {
	p.T.Helper()
	browsertest.Eval[bool](p.Tab, `(document.querySelector("main").dataset.before = true)`)
	p.Click(chromedp.CSS(selector))
	p.sees("main:not([data-before])")
}

// ticks ticks a checkbox with the keyboard, as some people do.
func (p person) ticks(selector string) {
	p.T.Helper()
	p.Do(
		chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent(" "),
		chromedp.WaitVisible(chromedp.CSS(selector+":checked")),
	)
}

// ready waits until the page's script handles a form.
func (p person) ready(form string) {
	p.T.Helper()
	p.sees(form + " .actions button:enabled")
}

// downloads clicks and returns the downloaded file.
func (p person) downloads(selector string) (path string) {
	p.T.Helper()
	directory := p.t.TempDir()
	profile := browsertest.Call(p.Tab, target.GetTargetInfo, target.GetTargetInfoParams{}).TargetInfo.BrowserContextID
	browsertest.Call(p.Tab, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllowAndName, BrowserContextID: profile, DownloadPath: directory,
	})
	p.Click(chromedp.CSS(selector))
	eventually(p.t, "the download has ended", func() error {
		all, err := filepath.Glob(filepath.Join(directory, "*"))
		if err != nil || len(all) != 1 || strings.HasSuffix(all[0], ".crdownload") {
			return fmt.Errorf("%v: %w", all, err)
		}
		path = all[0]
		return nil
	})
	return path
}

// audits audits a downloaded history as an auditor does, without the service: the file itself, and unpacked.
func (v *visit) audits(archive string) {
	v.t.Helper()
	nowhere := []string{"INTEGRITY_DATABASE_URL=postgres://127.0.0.1:1/none", "INTEGRITY_DATA_DIR=/nonexistent"}
	unpacked := v.t.TempDir()
	zipped, err := zip.OpenReader(archive)
	if err != nil {
		v.t.Fatal(err)
	}
	defer zipped.Close()
	if err := os.CopyFS(unpacked, zipped); err != nil {
		v.t.Fatal(err)
	}
	for _, path := range []string{archive, unpacked} {
		var view struct {
			Clean  bool
			Source string
			Events int64
		}
		mustJSON(v.t, nowhere, &view, "audit", path, "--trusted-keys", filepath.Join(v.service.dir, keyfiles.TrustedKeysFile))
		if !view.Clean || view.Source != "bundle" || view.Events < 18 {
			v.t.Errorf("audit of %s: %+v", path, view)
		}
	}
}

func (p person) goes(path string) {
	p.T.Helper()
	p.Open(p.prefix + "/console" + path)
}

func (p person) text(selector string) string {
	p.T.Helper()
	return browsertest.Run(p.Tab, chromedp.Text(chromedp.CSS(selector)))
}

// reads requires that the page contains the parts.
func (p person) reads(selector string, parts ...string) {
	p.T.Helper()
	shown := p.text(selector)
	for _, part := range parts {
		if !strings.Contains(shown, part) {
			p.T.Errorf("the page does not say %q:\n%s", part, shown)
		}
	}
}

// mailed returns the link in the newest mail to an address, as a path.
func (v *visit) mailed(to string) (path string) {
	v.t.Helper()
	eventually(v.t, "a mail to "+to, func() error {
		v.mails.Mu.Lock()
		defer v.mails.Mu.Unlock()
		for i, mail := range v.mails.Mails {
			if !strings.HasPrefix(mail, to+"\n") {
				continue
			}
			plain := strings.ReplaceAll(strings.ReplaceAll(mail, "=\r\n", ""), "=3D", "=") // quoted-printable
			if found := regexp.MustCompile(
				`:\d+(` + v.prefix + `/console/(?:link|invitation)/\w+)`,
			).FindStringSubmatch(plain); found != nil {
				v.mails.Mails[i], path = "", found[1] // mark it as read
				return nil
			}
		}
		return errors.New("none yet")
	})
	return path
}

// curl sends a request as a shell script would.
func (v *visit) curl(key, path string, body any) (status string, answer []byte) {
	v.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		v.t.Fatal(err)
	}
	c := exec.Command(
		"curl", "-sS", "-o", "-", "-w", "%{http_code}", "-H", "Authorization: Bearer "+key, "-H",
		"Content-Type: application/json", "--data-binary", "@-", v.service.base+path,
	)
	c.Stdin = bytes.NewReader(text)
	out, err := c.CombinedOutput()
	if err != nil || len(out) < 3 {
		v.t.Fatalf("curl: %v: %s", err, out)
	}
	return string(out[len(out)-3:]), out[:len(out)-3]
}

// story returns the secrets that no log may contain.
func (v *visit) story() (secrets []string) {
	owner, reviewer := v.name+"-owner@example.org", v.name+"-reviewer@example.org"
	p := v.arrives()

	// Create an organization with a link that comes by mail.
	p.goes("")
	p.on("sign-in")
	p.Click(`a[href$="/console/sign-up"]`)
	p.on("sign-up")
	p.types("#sign-up #email", owner)
	p.Click("#sign-up button")
	p.on("sign-up-sent")
	link := v.mailed(owner)
	p.Open(link)
	p.on("organization-new")
	p.types("#organization #name", "Story "+v.name)
	p.Click("#organization button")
	p.on("")
	p.reads("main", "gratis")

	// Create a passkey, and sign in with it.
	p.Click(`#to-do ~ ul a[href$="/security#passkeys"]`)
	p.sees("#name")
	p.types("#name", "key ring")
	p.Click("[data-new-passkey] button")
	p.sees(`[aria-labelledby="passkeys"] tbody th`)
	p.on("security")
	p.Click(".account button")
	p.sees("[data-passkey]")
	p.Click("[data-passkey]")
	p.on("")

	// Create a company, and a key for it, whose text is shown once.
	p.Click(`#to-do ~ ul a[href$="/console/companies"]`)
	p.sees("#reference")
	p.types("#reference", "story-company")
	p.Click(`[aria-labelledby="new"] button`)
	p.sees(`tbody th[scope="row"]`)
	p.on("companies")
	p.goes("/keys")
	p.Click(`a[href$="/keys/new"]`)
	p.sees("#name")
	p.types("#name", "origin system")
	for _, scope := range []domain.Scope{domain.IntegrityRead, domain.IntegrityWrite} {
		p.ticks(`[name="scopes"][value="` + string(scope) + `"]`)
	}
	p.sees(`[name="companies"]:checked`) // the only company is chosen already
	p.on("key-new")
	p.Click("form.fields > .actions button")
	p.on("key-made")
	key := browsertest.Run(p.Tab, chromedp.Text(chromedp.CSS(".sample code")))
	if !strings.HasPrefix(key, "ik_") {
		p.T.Fatalf("no key: %q", key)
	}
	p.Until(`/key_\w+$/.test(location.pathname)`) // a reload requests this page, and does not submit the form again
	p.Do(chromedp.Reload())
	p.on("key")
	if page := browsertest.Eval[string](p.Tab, "document.documentElement.outerHTML"); strings.Contains(page, key[30:]) {
		p.T.Error("the key is shown again")
	}
	keyPage := browsertest.Eval[string](p.Tab, "location.pathname")

	// The origin system registers; the record is found by its file.
	file := write(v.t, filepath.Join(v.t.TempDir(), "contract.txt"), "the contract, "+v.name)
	declaration := wire.Declaration{
		CompanyReference: "story-company", Source: "crm", DocumentReference: "contract-1", Version: 1,
		SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("the contract, "+v.name))), SizeBytes: 16, MimeType: "text/plain",
		GeneratedAt: "2026-01-02T03:04:05Z",
	}
	register := func() (status string) {
		v.t.Helper()
		status, answer := v.curl(key, "/api/v1/integrity/records", declaration)
		if status != "201" && status != "401" {
			v.t.Fatalf("curl: %s %s", status, answer)
		}
		return status
	}
	register()
	p.goes("/records")
	p.sees("#records, h2#search")
	p.Choose(file)
	p.on("record")
	p.reads("main", "contract-1", "story-company", declaration.SHA256)

	// A webhook reports to a receiver; the deliveries it missed are sent again.
	var broken atomic.Bool
	var heard atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			rw.Header().Set("Retry-After", "3600") // an earlier delivery must come from a request
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		heard.Add(1)
	}))
	defer receiver.Close()
	p.goes("/webhooks/new")
	p.types("#url", receiver.URL)
	p.ticks(`[name="company"]`)
	p.on("webhook-new")
	p.Click("form.fields .actions button")
	p.on("webhook-secret")
	secret := browsertest.Run(p.Tab, chromedp.Text(chromedp.CSS("#secret")))
	p.Click("main .actions a")
	p.on("webhook")
	p.submits(`form[action$="/test"] button`)
	p.Until(`document.querySelector('#rows [title="delivered"]') !== null`)
	if heard.Load() != 1 {
		v.t.Errorf("the test event came %d times", heard.Load())
	}
	broken.Store(true)
	declaration.DocumentReference = "contract-2"
	register()
	eventually(v.t, "the delivery fails", func() error {
		if p.Do(chromedp.Reload()); !strings.Contains(p.text("main"), "500") {
			return errors.New(p.text("main"))
		}
		return nil
	})
	p.on("webhook")
	broken.Store(false)
	p.submits(`#deliveries ~ .scroll tbody tr:first-child form button`)
	eventually(v.t, "the delivery arrives", func() error {
		if p.Do(chromedp.Reload()); strings.Contains(p.text("main"), "500") {
			return errors.New(p.text("main"))
		}
		return nil
	})
	if heard.Load() != 2 {
		v.t.Errorf("the receiver has heard of %d events", heard.Load())
	}

	// A reviewer, in a separate browser.
	p.goes("/members")
	p.types("#email", reviewer)
	p.ticks(`[name="role"][value="reviewer"]`)
	p.on("members")
	p.Click(`[aria-labelledby="invite"] form button`)
	p.sees(`[role="status"] .who`)
	invitation := v.mailed(reviewer)
	q := v.arrives()
	q.Open(invitation)
	q.on("invitation")
	q.reads("main", "Story "+v.name, reviewer)
	q.Click("main form button")
	q.on("")
	q.goes("/keys")
	if q.sees("main"); strings.Contains(q.text("main"), "origin system") {
		v.t.Errorf("a reviewer sees keys: %s", q.text("main"))
	}

	// The reviewer reviews a document, comparing it with the same file, and the owner certifies it.
	p.goes("/documents")
	p.Click(`a[href$="/documents/new"]`)
	p.ready("#upload")
	p.types("#title", "Contract "+v.name)
	p.Choose(file)
	p.on("document-new")
	p.Click("#upload .actions button")
	p.on("document")
	document := browsertest.Eval[string](p.Tab, "location.pathname")
	q.goes("/documents")
	q.Click("tbody a")
	q.Click(`a[href$="/review"]`)
	q.ready("#review")
	q.Choose(file)
	q.sees(`[data-said="same"]`)
	q.ticks("#outcome-accepted")
	q.types("#statement", "Read and compared.")
	q.ticks("#consent")
	q.on("document-review")
	q.Click("#review .actions button")
	q.on("document")
	if q.Open(document + "/approve"); browsertest.Eval[bool](q.Tab, `document.querySelector("#approve") !== null`) {
		v.t.Error("a reviewer may approve")
	}
	p.Open(document)
	p.Click(`a[href$="/approve"]`)
	p.sees("#approve")
	p.types("#statement", "Approved.")
	p.ticks("#consent")
	p.on("document-approve")
	p.Click("#approve .actions button")
	p.Click(`a[href$="/certify"]`)
	p.sees("#certify")
	p.ticks("#title-public")
	p.ticks("#consent")
	p.on("document-certify")
	p.Click("#certify .actions button")
	p.Click(`a[href*="/certificates/"]:not(.button)`)
	p.sees(`main[data-kind="certificate"]`)
	p.Shot("story-certificate-" + v.name)
	p.reads("main", "Contract "+v.name)

	// The key has leaked.
	p.Open(keyPage)
	p.Click(`a[href$="/revoke"]`)
	p.on("key-revoke")
	p.Click("main form button")
	p.on("key")
	declaration.DocumentReference = "contract-3"
	if status := register(); status != "401" {
		v.t.Errorf("a revoked key: %s", status)
	}

	p.goes("/history")
	p.on("history")
	p.reads("main table", "organization.created", "passkey.added", "company.created", "key.created",
		"company.access_changed", "integrity.registered",
		"webhook.created", "company.webhook_changed", "member.invited", "member.joined",
		"artifact.version_registered", "analysis.completed", "review.declared", "version.approved", "certificate.issued",
		"key.revoked", owner)
	v.audits(p.downloads("#export"))
	for _, tab := range []person{p, q} {
		if foreign := tab.Foreign(); len(foreign) > 0 {
			v.t.Errorf("requests for %v", foreign)
		}
	}
	return []string{owner, reviewer, key, secret, link, invitation, "story-company"}
}
