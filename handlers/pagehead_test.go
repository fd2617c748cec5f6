package handlers_test

import (
	"cmp"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/web"
)

// reads requests a page like a browser that prefers these languages, and follows no redirect.
func (s *service) reads(path, languages string) answer {
	s.t.Helper()
	r := s.request(http.MethodGet, path, "", nil)
	r.Header.Set("Accept", "text/html")
	if languages != "" {
		r.Header.Set("Accept-Language", languages)
	}
	response, err := s.http.Client().Transport.RoundTrip(r)
	check(s.t, err)
	text, err := io.ReadAll(response.Body)
	check(s.t, err)
	response.Body.Close()
	return answer{t: s.t, status: response.StatusCode, header: response.Header, body: text}
}

// A verification link opens in the language that the browser prefers. A reader who has chosen Spanish stays there, and
// there is no redirect loop.
func TestLinkOpensInTheLanguageOfItsReader(t *testing.T) {
	s := open(t, options{})
	_, certificate := s.certificate("Title", "one")
	for _, path := range []string{"/integrity/" + s.registered("a", 1, "one"), "/certificates/" + certificate} {
		for languages, english := range map[string]bool{
			"": false, "es": false, "en": true, "en-GB,en;q=0.9,es;q=0.8": true, "es-MX,es;q=0.9,en;q=0.8": false,
			"fr,en;q=0.5": true, "fr": true, "de-AT,*;q=0.1": true, "*;q=0.5": false,
			"en;q=0.3,es;q=0.7": false, "en;q=0": false, "*": false, "en;q=x": false, strings.Repeat("-", 3000): false,
			strings.Repeat("en,", 300_000): false, // which would take a second to judge
		} {
			a := s.reads(path, languages)
			want, location := http.StatusOK, ""
			if english {
				want, location = http.StatusFound, "/en"+path
			}
			if a.status != want || a.header.Get("Location") != location || a.header.Get("Vary") != "Accept-Language" ||
				a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s for %.40q: %d %v", path, languages, a.status, a.header)
			}
		}
		for _, stays := range []string{
			path + "?lang=es", path + "?lang=es&from=mail", "/en" + path, "/en" + path + "?lang=es",
		} {
			for _, languages := range []string{"en", "es"} {
				if a := s.reads(stays, languages); a.status != http.StatusOK {
					t.Errorf("%s for %s: %d", stays, languages, a.status)
				}
			}
		}
		change := regexp.MustCompile(`<a class="language" href="([^"]*)"`)
		if to := html.UnescapeString(string(
			change.FindSubmatch(s.page("/en" + path).body)[1],
		)); to != path+"?"+web.Chosen || s.reads(to, "en").status != http.StatusOK {
			t.Errorf("the way to Spanish is %s", to)
		}
		if to := string(change.FindSubmatch(s.page(path).body)[1]); to != "/en"+path {
			t.Errorf("the way to English is %s", to)
		}
		r := s.request(http.MethodPost, path, "", strings.NewReader("sha256="+hash("one"))) // a form keeps its language
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept-Language", "en")
		response, err := s.http.Client().Do(r)
		check(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("the form of %s: %d", path, response.StatusCode)
		}
	}
}

// The front page and the page that verifies offline open in the reader's language, English for readers of neither
// language. A reader stays in the language of a page of this site, and caches keep the two apart.
func TestPublicPagesOpenInTheLanguageOfTheirReader(t *testing.T) {
	s := open(t, options{})
	for path, english := range map[string]string{"/": "/en", web.VerifyPath: "/en" + web.VerifyPath} {
		for languages, location := range map[string]string{"": "", "es-MX, en;q=0.5": "", "*": "", "en": english, "de": english} {
			a := s.reads(path, languages)
			if a.header.Get("Location") != location || (a.status == http.StatusFound) != (location != "") ||
				a.header.Get("Vary") != "Accept-Language, Sec-Fetch-Site" {
				t.Errorf("%s for %q: %d %v", path, languages, a.status, a.header)
			}
		}
		r := s.request(http.MethodGet, path, "", nil)
		r.Header.Set("Accept-Language", "en")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		response, err := s.http.Client().Transport.RoundTrip(r)
		check(t, err)
		response.Body.Close()
		for what, status := range map[string]int{
			"within the site": response.StatusCode, "chosen": s.reads(path+"?"+web.Chosen, "en").status,
		} {
			if status != http.StatusOK {
				t.Errorf("%s, %s: %d", path, what, status)
			}
		}
		if a := s.page(english); !contains(a.body, `class="language" href="`+path+"?"+web.Chosen+`"`) {
			t.Errorf("%s does not lead back to Spanish", english)
		}
	}
}

// A page has one address. Other spellings, such as a code as answers write it or a trailing slash, redirect to it.
func TestOtherAddressesLeadToThePage(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	for from, to := range map[string]string{
		"/errors/INVALID_DATA": "/errors/invalid-data", "/errors/Invalid-Data": "/errors/invalid-data",
		"/errors/invalid_data?a=1": "/errors/invalid-data?a=1",
		"/errors/invalid-data/":    "/errors/invalid-data", "/limits/": "/limits", "/en/": "/en", "/console/": "/console",
		"/en/console/": "/en/console", "/developers/": "/developers", "/en/developers/mcp/?x=1&y": "/en/developers/mcp?x=1&y",
		"/developers/verify/": "/developers/verify", "/developers/reference/records/": "/developers/reference/records",
		"/integrity/" + id + "/": "/integrity/" + id, "/en/integrity/" + id + "/": "/en/integrity/" + id,
		"/certificates/x%2Fy/": "",
		"/developers%2F":       "/developers", "/en/developers/mcp%2f?x": "/en/developers/mcp?x",
		"/errors/invalid-data%2F": "/errors/invalid-data", "/integrity/a%20b/": "/integrity/a%20b",
	} {
		a := s.reads(from, "")
		if to == "" && a.status == http.StatusNotFound {
			continue
		}
		if a.status != http.StatusPermanentRedirect || a.header.Get("Location") != to {
			t.Errorf("%s: %d %s, want %s", from, a.status, a.header.Get("Location"), to)
		}
	}
	_, certificate := s.certificate("Title", "one")
	for _, page := range []string{
		"/integrity/" + id, "/en/integrity/" + id, "/certificates/" + certificate, "/en/certificates/" + certificate,
	} {
		for _, typed := range []string{strings.ToUpper(page), page + ".", page + "%20", page + ")", page + "%C2%A0",
			page + "%E2%80%8B", page + "%EF%BC%89", page + "%E3%80%82",
			page + "%E2%80%A6", strings.ToUpper(page) + "./", strings.ToUpper(page) + "/", strings.Replace(page, "i", "I", 1)} {
			to := s.reads(typed+"?lang=es", "en").header.Get("Location")
			if to != page+"?lang=es" || s.reads(to, "en").status != http.StatusOK {
				t.Errorf("%s leads to %q", typed, to)
			}
			r := s.request(http.MethodPost, typed, "", strings.NewReader("sha256="+hash("one")))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			response, err := s.http.Client().Transport.RoundTrip(r)
			check(t, err)
			response.Body.Close()
			if response.StatusCode < http.StatusBadRequest {
				t.Errorf("the form of %s: %d", typed, response.StatusCode)
			}
		}
	}
	for _, strict := range []string{
		"/api/public/integrity/" + strings.ToUpper(id), "/api/public/integrity/" + id + ".", "/API/public/integrity/" + id,
	} {
		if a := s.reads(strict, ""); a.status != http.StatusNotFound && a.status != http.StatusNotAcceptable {
			t.Errorf("%s: %d", strict, a.status)
		}
	}
	if a := s.public("/errors/INVALID_DATA"); a.status != http.StatusOK { // through the redirect, which the contract has
		t.Errorf("the code as answers write it: %d", a.status)
	}
	for _, nowhere := range []string{
		"/errors/none", "/errors/NONE/x", "/limits//", "//limits/", "//example.org/", "/none/", "/api/v1/integrity/records/",
		"/healthz/", "/api/integrity-openapi/", "/developers/verify_integrity.py/", "/INTEGRITY/NONE",
		"/integrity/" + id + "x", "/INTEGRITY/" + id[1:], "/INTEGRITY/." + id,
	} {
		if a := s.reads(nowhere, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", nowhere, a.status, a.header.Get("Location"))
		}
	}
}

// Every page names the operator if the installation has its name, and otherwise says nothing.
func TestPagesNameTheOperator(t *testing.T) {
	s := openConsoleWith(t, options{config: func(c *handlers.Config) { c.OperatorName = "Registros <SL>" }})
	id := s.registered("a", 1, "one")
	for _, path := range []string{"", "/trust", "/integrity/" + id, "/developers", "/console/sign-in"} {
		for prefix, words := range map[string]string{"": "Servicio operado por", "/en": "Operated by"} {
			a := s.page(cmp.Or(prefix+path, "/"))
			if !contains(a.body, words+" <bdi>Registros &lt;SL&gt;</bdi>") {
				t.Errorf("%s%s does not name the operator: %d", prefix, path, a.status)
			}
		}
	}
	s.page("/en/trust").says(http.StatusOK, "<p>The operator of this service is “Registros &lt;SL&gt;”.</p>")
	s.page("/limits").says(http.StatusOK, "Registros &lt;SL&gt;")
	if a := open(t, options{}).page("/en/trust"); contains(a.body, "Operated by") {
		t.Error("a page names an operator without a name")
	}
}

// Files for crawlers, browsers and security researchers are at their usual addresses.
func TestFilesThatProgramsLookFor(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		c.SecurityContact = "mailto:security@example.org, https://example.org/security"
	}})
	for path, contentType := range map[string]string{
		"/robots.txt": "text/plain; charset=utf-8", "/favicon.ico": "image/x-icon",
		"/.well-known/security.txt": "text/plain; charset=utf-8",
	} {
		a := s.page(path)
		if a.status != http.StatusOK || a.header.Get("Content-Type") != contentType || a.header.Get("ETag") == "" {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
	if icon := s.page("/favicon.ico").body; !strings.HasPrefix(string(icon), "\x00\x00\x01\x00") {
		t.Error("it must be an icon")
	}
	text := string(s.page("/.well-known/security.txt").body)
	for _, line := range []string{
		"Contact: mailto:security@example.org\n", "Contact: https://example.org/security\n",
		"Canonical: " + baseURL + "/.well-known/security.txt\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in %q", line, text)
		}
	}
	expires, err := time.Parse("Expires: 2006-01-02T15:04:05Z", regexp.MustCompile(`(?m)^Expires: .*$`).FindString(text))
	if left := time.Until(expires); err != nil || left < 5*30*24*time.Hour || left > 365*24*time.Hour {
		// RFC 9116, section 2.5.5: less than a year
		t.Errorf("it expires in %s: %v", left, err)
	}
	open(t, options{}).public("/.well-known/security.txt").refuses(http.StatusNotFound, domain.NotFound)
}

// Every page that may be listed has a description, its own address, and the address in the other language; the two
// pages name each other.
func TestPagesSayWhatTheyAreFor(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	pages := []string{
		"/", "/en", "/limits", "/errors/invalid-data", "/developers/verify", "/en/developers/verify",
		"/developers/reference/records", "/en/developers/reference/records", "/integrity/" + id, "/en/integrity/" + id,
	}
	for _, name := range web.DeveloperPages() {
		if path := strings.TrimSuffix("/developers/"+name, "/"); s.page(path).status == http.StatusOK {
			pages = append(pages, path, "/en"+path)
		}
	}
	one := func(page, pattern string) string {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1)
		if len(found) != 1 {
			return ""
		}
		return html.UnescapeString(found[0][1])
	}
	said := map[string]string{}
	for _, path := range pages {
		page := string(s.page(path).body)
		if text := one(page, `<meta name="description" content="([^"]*)">`); len(text) < 30 || len(text) > 400 ||
			said[text] != "" {
			t.Errorf("%s says %q, as does %s", path, text, said[text])
		} else {
			said[text] = path
		}
		if to := one(page, `<link rel="canonical" href="([^"]*)">`); to != baseURL+path {
			t.Errorf("%s stands at %s", path, to)
		}
		var versions []string
		for _, found := range regexp.MustCompile(
			`<link rel="alternate" hreflang="([^"]*)" href="([^"]*)">`,
		).FindAllStringSubmatch(page, -1) {
			versions = append(versions, found[1]+" "+found[2])
		}
		spanish, _ := strings.CutPrefix(path, "/en")
		english := "/en" + strings.TrimSuffix(spanish, "/")
		want := []string{"es " + baseURL + spanish, "en " + baseURL + english, "x-default " + baseURL + english}
		if spanish == "" {
			want = []string{"es " + baseURL + "/", "en " + baseURL + "/en", "x-default " + baseURL + "/en"}
		}
		if path == "/limits" || strings.HasPrefix(path, "/errors/") { // which are in both
			want = nil
		}
		if !slices.Equal(versions, want) {
			t.Errorf("%s: %v, want %v", path, versions, want)
		}
	}
	if page := string(s.page("/integrity/x").body); strings.Contains(page, `rel="canonical"`) ||
		strings.Contains(page, "description") {
		t.Error("a failure says where it stands")
	}
}
