package handlers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/web"
	"integrityledger/schemas/vectortest"
)

const verifierScripts = "web/assets"

// verifierFiles are the scripts of the page's verifier.
func verifierFiles() []string {
	return []string{
		"verifier.js", "envelope.js", "forms.js", "trust.js", "strictjson.js", "transparency.js", "timestamps.js",
		"asn1.js", "ed25519.js", "bytes.js",
	}
}

// verdict is a verifier's result for a vector.
type verdict struct {
	Name     string         `json:"name"`
	ExitCode int            `json:"exitCode"`
	Findings map[string]any `json:"findings"`
}

// vectorFile is schemas/verification-vectors.json with every vector expanded, and the expected verdicts.
func vectorFile(t *testing.T) (text []byte, want []verdict) {
	t.Helper()
	text, err := vectortest.Read()
	check(t, err)
	var file struct {
		Vectors []struct {
			Name   string
			Expect verdict
		}
	}
	check(t, json.Unmarshal(text, &file))
	for _, v := range file.Vectors {
		v.Expect.Name = v.Name
		want = append(want, v.Expect)
	}
	return text, want
}

func sameVerdicts(t *testing.T, got, want []verdict) {
	t.Helper()
	if len(want) < 100 || len(got) != len(want) {
		t.Fatalf("%d verdicts of %d", len(got), len(want))
	}
	for i := range want {
		equal(t, want[i].Name, got[i], want[i])
	}
}

// runModule runs a module script in its own directory.
func runModule(t *testing.T, directory, main string, input []byte) []byte {
	t.Helper()
	program, err := exec.LookPath("node")
	check(t, err)
	command := exec.Command(program, "--no-warnings", filepath.Join(directory, main))
	command.Dir, command.Stdin, command.Stderr = directory, strings.NewReader(string(input)), os.Stderr
	out, err := command.Output()
	check(t, err)
	return out
}

// verifierModules copies the verifier to a place where Node.js loads it as modules.
func verifierModules(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	check(t, os.WriteFile(filepath.Join(directory, "package.json"), []byte(`{"type":"module"}`), 0o600))
	for _, name := range append(verifierFiles(), "../testdata/vectors.js") {
		text, err := os.ReadFile(filepath.Join(verifierScripts, name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(directory, filepath.Base(name)), text, 0o600))
	}
	return directory
}

// The page's verifier reaches the published verdicts in Node.js.
func TestVectorsInNode(t *testing.T) {
	t.Parallel()
	needsNPM(t, "the verifier in Node.js")
	text, want := vectorFile(t)
	sameVerdicts(t, inNode(t, text), want)
}

// inNode returns the verdicts of the page's verifier on a file of vectors in Node.js.
func inNode(t *testing.T, vectors []byte) (got []verdict) {
	t.Helper()
	directory := verifierModules(t)
	const main = `import { readFileSync } from "node:fs";
import * as verifier from "./verifier.js";
import { run } from "./vectors.js";
process.stdout.write(JSON.stringify(await run(verifier, JSON.parse(readFileSync(0, "utf8")))));`
	check(t, os.WriteFile(filepath.Join(directory, "main.js"), []byte(main), 0o600))
	check(t, json.Unmarshal(runModule(t, directory, "main.js", vectors), &got))
	return got
}

// The verifiers agree on a token with a certificate that its signer does not need, whichever byte of the certificate is
// changed.
func TestVerifiersAgreeOnNeedlessCertificates(t *testing.T) {
	t.Parallel()
	needsNPM(t, "the verifier in Node.js")
	needless, err := os.ReadFile("../domain/evidence/testdata/unrelated-brainpoolP256r1.der")
	check(t, err)
	text, _ := vectorFile(t)
	var file struct {
		TrustedKeys map[string]string `json:"trustedKeys"`
		Vectors     []map[string]any  `json:"vectors"`
	}
	check(t, json.Unmarshal(text, &file))
	i := slices.IndexFunc(file.Vectors, func(v map[string]any) bool {
		return v["name"] == "token form: an unrelated certificate with a key of brainpoolP256r1"
	})
	good := file.Vectors[i]
	receipt := good["receipt"].(string)
	var parts evidence.Envelope
	check(t, json.Unmarshal([]byte(receipt), &parts))
	token := parts.Timestamps[0].Tokens[0].Token
	der, err := base64.StdEncoding.DecodeString(token)
	check(t, err)
	begin := bytes.Index(der, needless)
	trusted, err := evidence.ParseTrustedKeys([]byte(file.TrustedKeys[good["trustedKeys"].(string)]))
	check(t, err)
	now, err := time.Parse(time.RFC3339, good["now"].(string))
	check(t, err)

	masks := []byte{0x01, 0x20, 0x80, 0xff}
	if testing.Short() {
		masks = masks[:1]
	}
	file.Vectors = nil
	want, count := []evidence.Finding{}, map[evidence.Finding]int{}
	for at := begin; at < begin+len(needless); at++ {
		for _, mask := range masks {
			changed := bytes.Clone(der)
			changed[at] ^= mask
			v := maps.Clone(good)
			v["receipt"] = strings.Replace(receipt, token, base64.StdEncoding.EncodeToString(changed), 1)
			v["name"] = fmt.Sprintf("byte %d xor %#x", at-begin, mask)
			file.Vectors = append(file.Vectors, v)
			found := evidence.Verify([]byte(v["receipt"].(string)), trusted, evidence.Options{Now: now}).Time
			want = append(want, found)
			count[found]++
		}
	}
	if count[evidence.Valid] < 100 || count[evidence.Invalid] < 30 {
		t.Errorf("findings: %v", count)
	}
	text, err = json.Marshal(file)
	check(t, err)
	inPython := python(t, nil, "-c", `
import datetime, json, sys, verify_integrity
file = json.load(sys.stdin)
judge = lambda v: verify_integrity.verify_receipt(v["receipt"].encode(), file["trustedKeys"][v["trustedKeys"]].encode(), now=datetime.datetime.fromisoformat(v["now"]))
print(json.dumps([judge(v).time for v in file["vectors"]]))`)
	inPython.Stdin, inPython.Stderr = bytes.NewReader(text), os.Stderr
	out, err := inPython.Output()
	check(t, err)
	var got []evidence.Finding
	check(t, json.Unmarshal(out, &got))
	for i, v := range inNode(t, text) {
		if found := v.Findings["time"]; found != string(want[i]) || got[i] != want[i] {
			t.Errorf("%s: %s in Go, %v in JavaScript, %s in Python", v.Name, want[i], found, got[i])
		}
	}
}

// The verifier handles the cases that the published vectors leave open.
func TestVerifierInNode(t *testing.T) {
	t.Parallel()
	needsNPM(t, "the verifier in Node.js")
	runTests(t, verifierModules(t), "web/testdata/verifier.test.js", "")
}

// A token is refused if any byte of it is changed, and is never valid if it could not be checked.
func TestTokensInNode(t *testing.T) {
	t.Parallel()
	needsNPM(t, "tokens in Node.js")
	text, _ := vectorFile(t)
	directory := verifierModules(t)
	check(t, os.WriteFile(filepath.Join(directory, "vectors.json"), text, 0o600))
	runTests(t, directory, "web/testdata/timestamps.test.js", "")
}

// The served scripts reach the published verdicts in a browser.
func TestVectorsInTheBrowser(t *testing.T) {
	t.Parallel()
	text, want := vectorFile(t)
	w := openSite(t)
	p := w.tab()
	p.openVerify("/en")
	script := regexp.MustCompile(`/assets/verify\.[0-9a-f]+\.js`).FindString(string(w.page(web.VerifyPath).body))
	verifier := regexp.MustCompile(`\./(verifier\.[0-9a-f]+\.js)`).FindSubmatch(w.page(script).body)
	runner, err := os.ReadFile("web/testdata/vectors.js")
	check(t, err)
	run := strings.Replace(string(runner), "export async function run", "async function run", 1)
	w.quiet()
	got := eval[[]verdict](
		p, fmt.Sprintf(`(async () => { %s; return run(await import("/assets/%s"), %s); })()`, run, verifier[1], text),
		chromedp.EvalAwaitPromise,
	)
	sameVerdicts(t, got, want)
	if requests, _ := w.received(); len(requests) > 0 {
		t.Errorf("verifying asked for %v", requests)
	}
}

// Every code that the verifier returns has a text on the page, and there are no other texts.
func TestVerifierCodesHaveWords(t *testing.T) {
	s := open(t, options{})
	said := map[string]bool{}
	for _, found := range regexp.MustCompile(
		`data-word="((?:reason|note|part)-[^"]+)"`,
	).FindAllStringSubmatch(string(s.page("/en"+web.VerifyPath).body), -1) {
		said[found[1]] = true
	}
	coded := map[string]bool{ // composed from the status and the kind of key
		"note-was-current": true, "note-was-superseded": true,
		"reason-log-key": true, "reason-log-key-signs": true, "reason-witness-key": true, "reason-witness-key-signs": true,
	}
	for _, name := range verifierFiles() {
		text, err := os.ReadFile(filepath.Join(verifierScripts, name))
		check(t, err)
		for _, c := range []struct{ kind, pattern string }{
			{
				"reason-",
				`(?:Refusal\(|Untrusted\(|\.fail\("[a-z]+", |\["(?:invalid|untrusted)", |[^.]fail\(|refuse\("[a-z]+", )"([a-z0-9-]+)"`,
			},
			{"reason-", `"(token-[a-z]+)"(?:\);|,\n| : )`}, {"note-", `note\("([a-z-]+)"`},
			{"part-", `(?:fail|failed|attempt)\("([a-z]+)", `},
		} {
			for _, found := range regexp.MustCompile(c.pattern).FindAllSubmatch(text, -1) {
				coded[c.kind+string(found[1])] = true
			}
		}
	}
	for name := range coded {
		if !said[name] {
			t.Errorf("%s has no words", name)
		}
	}
	for name := range said {
		if !coded[name] {
			t.Errorf("nothing answers %s", name)
		}
	}
}

// openVerify opens the page in a language and waits until everything is loaded for offline use.
func (p *tab) openVerify(prefix string) {
	p.T.Helper()
	p.open(prefix + web.VerifyPath)
	p.do(chromedp.WaitVisible(chromedp.CSS("#evidence:not(.waiting)")))
	p.until(`performance.getEntriesByType("resource").some(({ name }) => name.includes("/asn1."))`)
}

// Nothing moves while a script prepares a page, on a desktop or on a phone.
func TestPagesStandStill(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	_, certificate := w.certificate("Title", "one")
	registered, reserved := w.registered("a", 1, "one"), w.reserved("b", 1)
	p := w.tab()
	for _, prefix := range []string{"", "/en"} {
		for _, path := range []string{
			"/integrity/" + registered, "/integrity/" + reserved, "/certificates/" + certificate,
			web.VerifyPath, web.TrustPath, web.DeveloperRoot, web.DeveloperRoot + "/outbox", web.DeveloperRoot + "/webhooks", "/",
		} {
			p.Still(strings.TrimSuffix(prefix+path, "/"))
		}
	}
}

// give gives a file to a field of the page and waits until the page has noticed.
func (p *tab) give(field, path string) {
	p.T.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		`window.heard = false; document.querySelector(%q).addEventListener("change", () => { window.heard = true }, {once: true})`, field)))
	p.do(chromedp.SetUploadFiles(chromedp.CSS(field), []string{path}, chromedp.NodeReady))
	p.until(`window.heard`)
}

// found verifies the chosen files and returns the text of the findings.
func (p *tab) found() string {
	p.T.Helper()
	p.click(`#evidence [type="submit"]`)
	const findings = chromedp.CSS(`#result > .panel[data-result="findings"]`)
	p.do(chromedp.WaitVisible(findings))
	return run(p, chromedp.Text(findings))
}

// says requires that a text contains parts.
func says(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not said:\n%s", part, text)
		}
	}
}

// A person verifies saved evidence and a document in both languages. Findings are separate, nothing is sent, and the
// page names the source of the keys.
func TestVerifyingInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	ids := w.records()
	saved := func(name, path string) string { return file(t, name, string(w.get(path).is200().body)) }
	current := saved("current.json", integrity+"/records/"+ids["current"]+"/evidence")
	revoked := saved("revoked.json", integrity+"/records/"+ids["revoked"]+"/evidence")
	historical := saved("historical.json", integrity+"/records/"+ids["historical"]+"/evidence")
	sequence := int(w.get(certificationAction + "/audit-events?limit=1").is(http.StatusOK)["total"].(float64))
	past := saved("past.json", fmt.Sprintf("%s/records/%s/evidence?at=%d", integrity, ids["current"], sequence))
	keys := saved("trusted.json", "/.well-known/integrity-trusted-keys.json")
	_, id := w.certificate("work", "the work", "title")
	certificate := saved("certificate.json", "/api/v1/certificates/"+id+"/download")
	document, work := file(t, "the-name.pdf", "current"), file(t, "work.txt", "the work")
	for _, c := range []struct {
		prefix, scheme                            string
		yours, notIndependent                     string
		valid, state, match, differs              string
		revokedAt, earlier, untrusted, stillValid string
		needed, refused, noKeys                   string
		history, notReceipt                       string
		swapped, swappedKeys                      string
		language                                  evidence.Language
	}{
		{
			"", "light", "De su archivo", "No independientes: las claves se obtuvieron de este mismo servicio",
			"Válida con la clave de confianza que se indica abajo", "Vigente cuando se observó",
			"Exactamente la huella SHA-256 firmada",
			"puede ser otra versión legítima",
			"El registro ya estaba revocado el", "La versión es histórica", "no está entre las claves de confianza",
			"No queda acreditado si el certificado sigue siendo válido",
			"Elija un archivo de claves", "se ha rechazado por completo", "no contiene claves", "Vigente en el momento anterior que se indica abajo",
			"Esto no es un justificante ni un certificado. Si es su documento",
			"pero el del campo del documento sí lo es", "pero el del campo de las claves de confianza sí lo es",
			evidence.Spanish,
		},
		{
			"/en", "dark", "From your file", "Not independent: the keys were fetched from this same service",
			"Valid under the trusted key named below", "Current when it was observed", "Exactly the signed SHA-256",
			"it may be another legitimate version",
			"The record had been revoked at", "The version is historical", "not among the trusted keys",
			"Whether the certificate is still valid",
			"Choose a trusted-keys file", "was refused as a whole", "contains no keys", "Current at the earlier moment named below",
			"This is not a receipt or a certificate. If it is your document",
			"but the one in the field for the document is", "but the one in the field for the trusted keys is",
			evidence.English,
		},
	} {
		p := w.tab()
		looks := func(want string) {
			t.Helper()
			equal(t, "the look", eval[string](p, `document.querySelector("#result .panel").dataset.verdict`), want)
		}
		p.openVerify(c.prefix)
		says(t, eval[string](p, `document.querySelector("main").textContent`),
			append(append(evidence.Limits(c.language, ""), evidence.CertificateLimits(c.language, "")...),
				evidence.LimitsTitle(c.language), evidence.CertificateLimitsTitle(c.language))...)
		w.quiet()

		p.give("#receipt", file(t, "report.pdf", "%PDF-1.7"))
		p.click(`#evidence [type="submit"]`)
		p.notice("PDF") // before it asks for keys
		p.give("#receipt", current)
		p.click(`#evidence [type="submit"]`)
		p.notice(c.needed)
		p.give("#keys", keys)
		p.give("#document", document)
		text := p.found()
		says(t, text, c.valid, c.state, c.match, c.yours, ids["current"], hash("current"), w.keys.Load().Trusted.Keys()[0].KeyID)
		if strings.Contains(text, c.notIndependent) || strings.Contains(text, c.differs) {
			t.Errorf("a valid receipt under the person's own keys: %s", text)
		}
		looks("MATCH_CURRENT")
		p.accessible(c.scheme)
		p.shot("verify-valid" + c.prefix)
		p.Fits("the findings")
		p.give("#document", file(t, "other.pdf", "other"))
		says(t, p.found(), c.valid, c.differs)
		looks("HASH_MISMATCH")
		p.give("#receipt", revoked)
		p.offline(true)
		says(t, p.found(), c.valid, c.revokedAt, c.differs)
		p.accessible(c.scheme)
		p.shot("verify-revoked" + c.prefix)
		p.give("#document", file(t, "revoked.pdf", "revoked"))
		says(t, p.found(), c.valid, c.match)
		looks("RECORD_REVOKED")
		p.give("#receipt", historical)
		p.give("#document", file(t, "historical.pdf", "historical"))
		says(t, p.found(), c.valid, c.earlier)
		looks("MATCH_HISTORICAL")
		p.give("#receipt", past)
		text = p.found()
		says(t, text, c.valid, c.history, strconv.Itoa(sequence))
		if strings.Contains(text, c.state) {
			t.Errorf("history passes for the present: %s", text)
		}
		p.offline(false)
		p.give("#receipt", certificate)
		p.give("#document", work)
		says(t, p.found(), c.valid, c.match, c.stillValid, "work")
		p.give("#keys", file(t, "none.json", `{"keys":[]}`))
		says(t, p.found(), c.untrusted)
		looks("SIGNATURE_INVALID")
		p.give("#receipt", document)
		says(t, p.found(), c.notReceipt)
		p.shot("verify-no-receipt" + c.prefix)
		p.give("#document", current)
		p.click(`#evidence [type="submit"]`)
		p.notice(c.swapped)
		p.shot("verify-swapped" + c.prefix)
		p.give("#document", work)
		p.give("#receipt", keys)
		p.give("#keys", current)
		p.click(`#evidence [type="submit"]`)
		p.notice(c.swappedKeys)
		p.give("#keys", keys)
		p.give("#receipt", file(t, "strange.json", `{"contract":"","`+strings.Repeat("\u202ex", 1000)+`":1}`))
		if strange := p.found(); len(strange) > 4000 ||
			!eval[bool](p, `document.querySelector('[data-list="reasons"] bdi') !== null`) {
			t.Errorf("a strange name is not kept short and apart: %d", len(strange))
		}
		p.give("#receipt", certificate)
		p.give("#keys", file(t, "twice.json", `{"keys":[],"keys":[]}`))
		p.click(`#evidence [type="submit"]`)
		p.notice(c.refused)
		p.give("#keys", file(t, "other.json", `{"contract":"x"}`))
		p.click(`#evidence [type="submit"]`)
		p.notice(c.noKeys)
		if requests, sent := w.received(); len(requests) > 0 || len(sent) > 0 {
			t.Errorf("verifying has sent %v, %q", requests, sent)
		}

		p.click("#fetch")
		p.until(fmt.Sprintf(`document.querySelector("#keys-source").textContent.includes(%q)`, c.notIndependent))
		requests, _ := w.received()
		equal(t, "what the button asks for", requests, []string{"GET /.well-known/integrity-trusted-keys.json"})
		says(t, p.found(), c.valid, c.notIndependent)
		p.shot("verify-not-independent" + c.prefix)
		if stored := eval[int](p, `document.cookie.length + localStorage.length + sessionStorage.length`); stored != 0 {
			t.Error("the page has stored something")
		}
		if len(p.Foreign()) > 0 {
			t.Errorf("requests left for %v", p.Foreign())
		}
	}
}

// notice waits until the page says why there are no findings.
func (p *tab) notice(text string) {
	p.T.Helper()
	p.until(fmt.Sprintf(`document.querySelector('#result [data-result="notice"] h2')?.textContent.includes(%q)`, text))
}

// In a browser without Ed25519 the page says so and verifies nothing.
func TestVerifyingNeedsEd25519(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	p := w.tab()
	call(p, page.Enable, page.EnableParams{})
	call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `SubtleCrypto.prototype.importKey = async () => { throw new DOMException("", "NotSupportedError") }`,
	})
	p.open("/en" + web.VerifyPath)
	p.do(chromedp.WaitVisible(chromedp.CSS("#unsupported")), chromedp.WaitNotVisible(chromedp.CSS("#evidence")))
	says(t, p.state(), "This browser cannot check")
	p.shot("verify-unsupported")
}

// Choosing another file removes the findings of the previous one, and a document that is too large is not read.
func TestFindingsAreOfWhatIsChosen(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	w.holdsHashing()
	id := w.registered("a", 1, "one")
	p := w.tab()
	p.openVerify("/en")
	p.give("#receipt", file(t, "receipt.json", string(w.public("/api/public/integrity/"+id+"/receipt").is200().body)))
	p.give("#keys", file(t, "keys.json", string(w.public("/.well-known/integrity-trusted-keys.json").is200().body)))
	says(t, p.found(), "Without an observation nothing is said", "No document was compared", "Not supplied")
	p.give("#document", sparse(t, web.MaxFile+1))
	p.notice("Nothing has been verified yet")
	p.click(`#evidence [type="submit"]`)
	p.notice("larger than 512 MiB")
	p.give("#document", sparse(t, web.MaxFile))
	p.click(`#evidence [type="submit"]`)
	p.do(chromedp.WaitVisible(chromedp.CSS("#result progress")))
	p.give("#document", file(t, "one", "one"))
	says(t, p.found(), "Exactly the signed SHA-256", "Your file is the signed one")
	p.give("#document", file(t, "empty", ""))
	says(t, p.found(), "Your file is empty; download it again", "Not the signed SHA-256")
}

// is200 requires an answer without an envelope.
func (a answer) is200() answer {
	a.t.Helper()
	if a.status != http.StatusOK {
		a.t.Fatalf("status %d: %s", a.status, a.body)
	}
	return a
}

// A person sees which authorities say that a record existed before which time, and how many trusted witnesses have seen
// the log, in both languages. The reader of tokens works offline; without it, no time is valid. A record signed by a
// revoked key counts only if the person chooses so.
func TestVerifyingTimeInTheBrowser(t *testing.T) {
	text, _ := vectorFile(t)
	var vectors struct {
		TrustedKeys map[string]string
		Vectors     []struct{ Name, Receipt, TrustedKeys, Now string }
	}
	check(t, json.Unmarshal(text, &vectors))
	now := ""
	vector := func(name string) (receipt, keys string) {
		i := slices.IndexFunc(vectors.Vectors, func(v struct{ Name, Receipt, TrustedKeys, Now string }) bool {
			return v.Name == name
		})
		v := vectors.Vectors[i]
		now = v.Now
		return file(t, "receipt.json", v.Receipt), file(t, "keys.json", vectors.TrustedKeys[v.TrustedKeys])
	}
	unlogged, keysOnly := vector("proof: without log keys")
	stamped, pinned := vector("chain: through an intermediate")
	witnessed, _ := vector("witnesses: two")
	accepted, revoked := vector("revoked signing key: stamped before")
	w := openSite(t)
	whole := *w.handler.Load()
	w.use(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/assets/asn1.") {
			panic(http.ErrAbortHandler)
		}
		whole.ServeHTTP(rw, r)
	}))
	p := w.tab()
	p.openVerify("/en")
	p.give("#keys", pinned)
	p.give("#receipt", stamped)
	found := p.found()
	says(t, found, "the code that reads them could not be loaded", "Not checked")
	if strings.Contains(found, "Existed before") {
		t.Errorf("a token that was not read is valid: %s", found)
	}
	w.use(whole)
	for _, c := range []struct{ prefix, scheme, existed, notRegistered, witnesses, unlogged, untrusted, chosen string }{
		{"", "light", "Existía antes del 19 de noviembre de 2026 a las 9:31:00 UTC, según Alpha", "No es la hora en que se registró",
			"2 de 3 testigos de confianza", "las claves de confianza no contienen ninguna clave de su registro de transparencia. Obtenga esa clave",
			"La clave de firma está revocada", "Usted ha elegido aceptarlo"},
		{"/en", "dark", "Existed before 19 November 2026 at 09:31:00 UTC, says Alpha", "That is not when it was registered",
			"2 of 3 trusted witnesses", "the trusted keys contain no key of its log. Obtain that key",
			"The signing key has been revoked", "You chose to accept that"},
	} {
		p := w.tab()
		call(p, page.Enable, page.EnableParams{})
		call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: fmt.Sprintf(`Date = class extends Date { constructor(...at) { super(...(at.length ? at : [%q])); } }`, now),
		})
		p.openVerify(c.prefix)
		p.offline(true)
		p.give("#keys", pinned)
		p.give("#receipt", stamped)
		says(t, p.found(), c.existed, c.notRegistered)
		p.accessible(c.scheme)
		p.shot("verify-stamped" + c.prefix)
		p.give("#receipt", witnessed)
		says(t, p.found(), c.witnesses)
		p.give("#keys", keysOnly)
		p.give("#receipt", unlogged)
		says(t, p.found(), c.unlogged)
		p.shot("verify-without-log-key" + c.prefix)
		p.give("#keys", revoked)
		p.give("#receipt", accepted)
		says(t, p.found(), c.untrusted)
		p.click("#accept")
		says(t, p.found(), c.existed, c.chosen)
		p.offline(false)
		if strings.Contains(p.state(), "{") {
			t.Errorf("a name was left out: %s", p.state())
		}
	}
}
