package handlers_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
	"integrityledger/handlers/web"
)

// page requests a page like a browser. Pages are for people, so the OpenAPI document does not describe them, and the
// recorder does not check them.
func (s *service) page(path string) answer {
	s.t.Helper()
	return s.browse(http.MethodGet, path, "")
}

func (s *service) browse(method, path, form string) answer {
	s.t.Helper()
	r := s.request(method, path, "", strings.NewReader(form))
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := s.http.Client().Do(r)
	check(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(s.t, err)
	return answer{s.t, response.StatusCode, response.Header, text}
}

// answering gives the same answer to every request.
func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

const pagePolicy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Every page, including pages about failures, has the security headers, sets no cookie, and contains no inline script
// or style.
func TestHeadersOfPages(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	_, certificate := s.certificate("Title", "one", "title")
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script[^>]*>[^<]|javascript:|https?://[^<]*"`)
	for path, status := range map[string]int{
		"/": 200, "/en": 200, "/integrity/" + id: 200, "/en/integrity/" + id: 200, "/errors/internal": 200, "/limits": 200,
		"/certificates/" + certificate: 200, "/en/certificates/" + certificate: 200, "/certificates/" + id: 404,
		"/en/certificates/x": 404, "/integrity/" + certificate: 404,
		"/developers": 200, "/en/developers/mcp": 200, "/developers/reference/records": 200,
		"/en/developers/reference/none": 404,
		web.VerifyPath:                  200, "/en" + web.VerifyPath: 200,
		"/integrity/" + strings.Repeat("a", 26): 404, "/en/integrity/x": 404, "/errors/none": 404, "/none": 404,
		"/en/none": 404,
	} {
		a := s.page(path)
		want := map[string]string{
			"Content-Security-Policy": pagePolicy, "X-Content-Type-Options": "nosniff",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer",
			"Content-Type":                "text/html; charset=utf-8",
			"Access-Control-Allow-Origin": "", "Set-Cookie": "",
		}
		if status != 200 || strings.Contains(path, "integrity") || strings.Contains(path, "certificates") {
			want["Cache-Control"] = "no-store"
		}
		for name, value := range want {
			if got := a.header.Get(name); got != value {
				t.Errorf("%s of %s: %q, want %q", name, path, got, value)
			}
		}
		if a.status != status {
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
		if found := inline.Find(toCatalogues.ReplaceAll(a.body, nil)); found != nil {
			t.Errorf("%s holds %q", path, found)
		}
	}
}

// toCatalogues matches the links of a page for search engines: the browser loads nothing from them.
var toCatalogues = regexp.MustCompile(`<link rel="(canonical|alternate)"[^>]*>`)

// Only the worker may run WebAssembly, and the worker may send no requests.
func TestAssets(t *testing.T) {
	s := open(t, options{})
	page := s.page("/en/integrity/" + s.registered("a", 1, "one"))
	urls := regexp.MustCompile(`/assets/[^"]+`).FindAllString(string(page.body), -1)
	types := map[string]string{
		"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
	}
	if len(urls) != 4 {
		t.Errorf("assets: %v", urls)
	}
	for _, url := range urls {
		a := s.page(url)
		policy := a.header.Get("Content-Security-Policy")
		if a.status != 200 || a.header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
			a.header.Get("Content-Type") != types[url[strings.LastIndex(url, ".")+1:]] {
			t.Errorf("%s: %d %v", url, a.status, a.header)
		}
		if worker := strings.Contains(url, "worker"); worker != strings.Contains(policy, "'wasm-unsafe-eval'") ||
			!strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "connect-src") {
			t.Errorf("%s has the policy %s", url, policy)
		}
	}
	if a := s.page("/assets/page.css"); a.status != 404 {
		t.Errorf("an asset without its hash: %d", a.status)
	}
}

// No page contains private data, whatever it shows.
func TestPagesNameNobody(t *testing.T) {
	s := open(t, options{})
	one := s.registered("private-document", 1, "one")
	s.registered("private-document", 2, "two")
	s.post(integrity+"/records/"+one+"/revoke", body{"reason": "a private reason"}).is(http.StatusOK)
	for _, prefix := range []string{"", "/en"} {
		path := prefix + "/integrity/" + one
		for _, a := range []answer{s.page(path), s.browse(http.MethodPost, path, "sha256="+hash("one"))} {
			for _, private := range []string{
				"private-document", "company-1", "billing", "private reason", s.org.ID.String(), hash("one"), hash("two"),
			} {
				if contains(a.body, private) {
					t.Errorf("%s shows %q", path, private)
				}
			}
		}
	}
}

func TestDetailsOfTheRecord(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		c.Relationship = map[evidence.Language]string{"es": "Lo opera Ejemplo <SL>.", "en": "Run by Example <Ltd>."}
	}})
	id := s.registered("a", 1, "one")
	record := s.get(integrity + "/records/" + id).is(http.StatusOK)
	key := s.Registrar.Signer.Key()
	for path, parts := range map[string][]string{
		"/integrity/" + id: {"Lo opera Ejemplo &lt;SL&gt;.", "no una auditoría independiente",
			"No autoriza a descargar un documento", "Código de verificación",
			"Descargar el justificante público", "no un sello de tiempo independiente", `lang="es"`,
			`href="/en/integrity/` + id + `"`},
		"/en/integrity/" + id: {"Run by Example &lt;Ltd&gt;.", "not an independent audit",
			"not an authorization to download a document", "Verification code",
			"Download the public receipt", "not an independent trusted timestamp", `lang="en"`,
			`href="/integrity/` + id + `?lang=es"`},
	} {
		a := s.page(path)
		for _, part := range append(parts, key.KeyID, key.FingerprintSHA256, record["receivedAt"].(string),
			`href="/api/public/integrity/`+id+`/receipt" download="integrity-receipt-`+id+`.json"`,
			"integrity verify integrity-receipt-"+id+".json integrity-trusted-keys.json", baseURL+"/integrity/"+id) {
			if !contains(a.body, part) {
				t.Errorf("%s does not hold %q", path, part)
			}
		}
	}
	for name, prefix := range map[string]string{"b": "", "c": "/en"} { // a reserved version has no details
		a := s.page(prefix + "/integrity/" + s.reserved(name, 1))
		if a.status != http.StatusOK || contains(a.body, "receipt\"") || contains(a.body, key.KeyID) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// A page of another site cannot lead a person to a result by submitting the form. Screen readers announce the result of
// the form first.
func TestFormIsOfThisSite(t *testing.T) {
	s := open(t, options{})
	_, certificate := s.certificate("Title", "one")
	record := "/integrity/" + s.registered("a", 1, "one")
	for _, c := range []struct{ path, site, form, result, title string }{
		{
			record, "same-origin", "sha256=" + hash("one"), "MATCH_CURRENT",
			"Esta huella coincide con la versión vigente. No se ha comparado ningún archivo",
		},
		// a browser without Fetch Metadata
		{record, "", "sha256=" + hash("two"), "HASH_MISMATCH", "Esta huella no coincide. No se ha comparado ningún archivo"},
		{record, "same-origin", "sha256=1", "", "Una huella SHA-256 tiene exactamente 64 caracteres"},
		{record, "cross-site", "sha256=" + hash("one"), "", "Comprobar un archivo"},
		{record, "same-site", "sha256=" + hash("one"), "", "Comprobar un archivo"},
		{record, "cross-site", "sha256=1", "", "Comprobar un archivo"},
		{
			"/en/certificates/" + certificate, "same-origin", "sha256=" + hash("one"), "MATCH_CURRENT",
			"This hash matches a valid certificate. No file was compared",
		},
		{
			"/en/certificates/" + certificate, "cross-site", "sha256=" + hash("one"), "",
			"Check a file against a certificate",
		},
	} {
		r := s.request(http.MethodPost, c.path, "", strings.NewReader(c.form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		response, err := s.http.Client().Do(r)
		check(t, err)
		text, err := io.ReadAll(response.Body)
		check(t, err)
		response.Body.Close()
		if got := panelOf(text); got != c.result || !contains(text, "<title>"+c.title) {
			t.Errorf("%s %s %.12s: %s, %s", c.path, c.site, c.form, got, regexp.MustCompile("<title>.*").Find(text))
		}
	}
}

// panelOf returns the result that a page shows, or nothing.
func panelOf(page []byte) string {
	if shown := shownPanel.FindSubmatch(page); shown != nil {
		return string(shown[1])
	}
	return ""
}

var shownPanel = regexp.MustCompile(`<section id="result"[^>]*>\s*<div class="panel" data-result="([^"]*)"`)

// The form accepts only a hash, and no larger body than a form needs.
func TestHashForm(t *testing.T) {
	s := open(t, options{})
	path := "/en/integrity/" + s.registered("a", 1, "one")
	for form, want := range map[string]struct {
		status int
		result string
	}{
		"sha256=" + hash("one"):                            {200, "MATCH_CURRENT"},
		"sha256=+" + strings.ToUpper(hash("one")):          {200, "MATCH_CURRENT"},
		"sha256=" + hash("two"):                            {200, "HASH_MISMATCH"},
		"sha256=%3Cscript%3E":                              {422, ""},
		"sha256=" + hash("one") + "&sha256=" + hash("one"): {422, ""},
		"nothing=1":                           {422, ""},
		"sha256=" + strings.Repeat("a", 2000): {413, ""},
	} {
		a := s.browse(http.MethodPost, path, form)
		shown := panelOf(a.body)
		if a.status != want.status || a.status != http.StatusRequestEntityTooLarge && shown != want.result ||
			contains(a.body, "<script>") {
			t.Errorf("%.40s: %d %s, want %v", form, a.status, shown, want)
		}
	}
	r := s.request(http.MethodPost, path, "", strings.NewReader(`{"sha256":"`+hash("one")+`"}`))
	r.Header.Set("Content-Type", "application/json")
	response, err := s.http.Client().Do(r)
	check(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("JSON: %d", response.StatusCode)
	}
}

// A request for a page gets a page even for an unknown path. A request for data gets the envelope.
func TestFailuresAsPages(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.PublicPagesPerMinute = 3 }})
	s.freshMinute()
	for path, parts := range map[string][]string{
		"/none":    {"Esta página no existe", "/errors/not-found", `href="/"`},
		"/en/none": {"There is no such page", "/errors/not-found", `href="/en"`},
		"/integrity/x": {
			"No hay ningún registro con este enlace", "no es una discrepancia",
			`href="/en/integrity/x"`,
		},
		"/en/integrity/x": {"There is no record under this link", "this is not a mismatch", `href="/integrity/x?lang=es"`},
	} {
		a := s.page(path)
		for _, part := range parts {
			if a.status != 404 || !contains(a.body, part) {
				t.Errorf("%s: %d without %q", path, a.status, part)
			}
		}
	}
	for languages, want := range map[string]string{"": "es", "es-MX": "es", "en": "en", "fr": "en", "*": "es"} {
		s.freshMinute()
		for _, path := range []string{"/none", "/developers/none", "/developers/reference/none"} {
			a := s.reads(path, languages)
			if a.status != http.StatusNotFound || !contains(a.body, `<html lang="`+want+`"`) ||
				a.header.Get("Vary") != "Accept-Language" {
				t.Errorf("%s for %q: %d %v", path, languages, a.status, a.header)
			}
		}
	}
	s.freshMinute()
	for range 3 {
		s.page("/limits")
	}
	for path, parts := range map[string][]string{
		"/integrity/x": {
			"Ahora mismo no se puede comprobar", "demasiadas peticiones desde su red", "no es una discrepancia",
			`href="/integrity/x?lang=es"`,
		},
		"/en": {"Temporarily unable to check", "Too many requests came from your network"},
	} {
		a := s.page(path)
		for _, part := range append(parts, `<span>`+a.header.Get("Retry-After")+`</span>`) {
			if a.status != 429 || !contains(a.body, part) {
				t.Errorf("%s: %d without %q", path, a.status, part)
			}
		}
	}
	s.public("/limits").refuses(http.StatusTooManyRequests, domain.RateLimited)
	if a := s.page("/api/none"); a.header.Get("Content-Type") != "application/json" {
		t.Errorf("an unknown path of the API answers %s", a.header.Get("Content-Type"))
	}
}

// Every link of the front page has a target, and the page discloses what the specification requires.
func TestFrontPage(t *testing.T) {
	s := open(t, options{})
	for path, parts := range map[string][]string{
		"/":   {`lang="es"`, "no una auditoría independiente", "no hay SLA", "No acredita existencia"},
		"/en": {`lang="en"`, "not an independent audit", "no SLA", "does not prove existence"},
	} {
		a := s.page(path)
		for _, part := range append(
			parts, `href="/api/integrity-openapi"`, `href="/.well-known/integrity-trusted-keys.json"`,
		) {
			if !contains(a.body, part) {
				t.Errorf("%s does not hold %q", path, part)
			}
		}
		for _, link := range regexp.MustCompile(`(?:href|src)="(/[^"]*)"`).FindAllSubmatch(a.body, -1) {
			if got := s.page(string(link[1])); got.status != http.StatusOK {
				t.Errorf("%s of %s: %d", link[1], path, got.status)
			}
		}
	}
}

// What a public page shows at first is in plain words, with three lines on the limits. The fixed text and the technical
// details are one click away.
func TestPublicPagesArePlain(t *testing.T) {
	s := open(t, options{})
	_, certificate := s.certificate("Title", "one")
	hidden := regexp.MustCompile(`(?s)<head>.*?</head>|<details.*?</details>|<template.*?</template>`)
	record := "/integrity/" + s.registered("a", 1, "one")
	for _, path := range []string{"/", record, "/certificates/" + certificate, web.VerifyPath} {
		for language, prefix := range map[evidence.Language]string{evidence.Spanish: "", evidence.English: "/en"} {
			shown := hidden.ReplaceAllString(string(s.page(prefix+strings.TrimSuffix(path, "/")).body), "")
			titles := []string{evidence.LimitsTitle(language), evidence.CertificateLimitsTitle(language)}
			for _, title := range titles {
				if _, limits, found := strings.Cut(shown, title+"</h2>"); found {
					limits, _, _ = strings.Cut(limits, "</section>")
					if n := strings.Count(limits, "<li>"); n != 3 {
						t.Errorf("%s%s shows %d limits", prefix, path, n)
					}
				}
			}
			for _, jargon := range []string{"receivedAt", "issuedAt", "generatedAt", "Ed25519", "append-only", "añadidos"} {
				if strings.Contains(shown, jargon) {
					t.Errorf("%s%s says %s", prefix, path, jargon)
				}
			}
		}
	}
}

// The printed code contains the verification link; cmd/lab/judges reads one.
func TestQRCode(t *testing.T) {
	s := open(t, options{})
	_, certificate := s.certificate("Title", "one")
	for _, path := range []string{"/integrity/" + s.registered("a", 1, "one"), "/certificates/" + certificate} {
		want, err := web.DrawQR(baseURL + path)
		check(t, err)
		if a := s.page(path + "/qr.svg"); !bytes.Equal(a.body, want.SVG()) || a.header.Get("Content-Type") != "image/svg+xml" {
			t.Errorf("%s: %v %s", path, a.header, a.body)
		}
	}
	for _, unknown := range []string{"/integrity/x/qr.svg", "/certificates/x/qr.svg"} {
		if a := s.page(unknown); a.status != http.StatusNotFound {
			t.Errorf("%s, no public id, has a code: %d", unknown, a.status)
		}
	}
}
