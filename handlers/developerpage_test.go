package handlers_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/developers"
)

// crawl follows every link of the pages for developers and returns the pages by path.
func crawl(t *testing.T, s *service) map[string]string {
	t.Helper()
	pages, seen, queue := map[string]string{}, map[string]answer{}, []string{"/developers", "/en/developers"}
	fetch := func(path string) answer {
		if _, ok := seen[path]; !ok {
			seen[path] = s.page(path)
		}
		return seen[path]
	}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if pages[path] != "" {
			continue
		}
		page := fetch(path)
		if page.status != http.StatusOK || page.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%s: %d %v", path, page.status, page.header)
		}
		pages[path] = string(page.body)
		for _, match := range address.FindAllStringSubmatch(pages[path], -1) {
			to, err := url.Parse(strings.TrimPrefix(html.UnescapeString(match[1]), baseURL))
			check(t, err)
			if to.Host != "" {
				t.Errorf("%s leads to another host: %s", path, to)
				continue
			}
			target := to.Path
			if target == "" {
				target = path
			}
			found := fetch(target)
			if found.status != http.StatusOK {
				t.Errorf("%s leads to %s, which answers %d", path, target, found.status)
			}
			if to.Fragment != "" && strings.Count(string(found.body), ` id="`+html.EscapeString(to.Fragment)+`"`) != 1 {
				t.Errorf("%s leads to %s, which there is not once", path, to)
			}
			if guide.MatchString(target) && strings.HasPrefix(found.header.Get("Content-Type"), "text/html") {
				queue = append(queue, target)
			}
		}
	}
	return pages
}

var (
	address = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	guide   = regexp.MustCompile(`^(/en)?/developers(/|$)`)
)

// Every link and anchor of every page for developers has a target. Each page exists in both languages, with the same
// sections and samples.
func TestDeveloperPagesAreWhole(t *testing.T) {
	s := open(t, options{})
	pages := crawl(t, s)
	if len(pages) < 2*24 {
		t.Errorf("only %d pages were met: %v", len(pages), slices.Sorted(maps.Keys(pages)))
	}
	id := regexp.MustCompile(`<(h[1-6]|section|div)\b[^>]*? id="([^"]+)"`)
	samples := regexp.MustCompile(`(?s)<div class="sample"[^>]*><pre>.*?</pre>`)
	level := regexp.MustCompile(`<(h[1-6])\b`)
	for path, text := range pages {
		if strings.HasPrefix(path, "/en/") {
			continue
		}
		english := pages["/en"+path]
		if english == "" {
			t.Errorf("%s does not exist in English", path)
			continue
		}
		for what, pattern := range map[string]*regexp.Regexp{"sections": id, "headings": level} {
			equal(t, what+" of "+path, pattern.FindAllString(english, -1), any(pattern.FindAllString(text, -1)))
		}
		equal(t, "samples of "+path, samples.FindAllString(english, -1), any(samples.FindAllString(text, -1)))
		if !strings.Contains(text, `<html lang="es">`) || !strings.Contains(english, `<html lang="en">`) {
			t.Errorf("%s does not say its language", path)
		}
		if strings.Contains(text, "{{") || strings.Contains(english, "ledger.example.") ||
			strings.Contains(text, "<no value>") {
			t.Errorf("%s is not rendered", path)
		}
	}
	for _, from := range []string{"/", "/en", "/limits", "/errors/internal", "/integrity/" + s.registered("a", 1, "one")} {
		if found := address.FindAllString(string(s.page(from).body), -1); !slices.ContainsFunc(found, func(a string) bool {
			return strings.HasSuffix(a, `/developers"`)
		}) {
			t.Errorf("%s does not lead to the pages for developers", from)
		}
	}
	if a := s.page("/developers/reference/none"); a.status != http.StatusNotFound {
		t.Errorf("a group that there is not: %d", a.status)
	}
}

// The reference has every operation of both documents in both languages, with all parameters, members of bodies,
// statuses and codes.
func TestReferenceIsWhole(t *testing.T) {
	s := open(t, options{})
	pages := crawl(t, s)
	for path, page := range pages {
		if strings.Contains(page, "<code></code>") {
			t.Errorf("%s shows a value that is empty", path)
		}
	}
	document, err := published()
	check(t, err)
	operations := 0
	for _, prefix := range []string{"", "/en"} {
		index := pages[prefix+"/developers/reference"]
		for path, item := range document.document.Paths.Map() {
			for method, o := range item.Operations() {
				operations++
				group := prefix + "/developers/reference/" + strings.ReplaceAll(o.Tags[0], " ", "-")
				if !strings.Contains(index, `href="`+group+"#"+o.OperationID+`"`) ||
					!strings.Contains(index, "<strong>"+method+"</strong> "+path+"<") {
					t.Errorf("%s/developers/reference lacks %s %s", prefix, method, path)
				}
				_, text, found := strings.Cut(pages[group], ` id="`+o.OperationID+`"`)
				text, _, _ = strings.Cut(text, "</section>")
				want := []string{"<strong>" + method + "</strong> " + path + "<"}
				for _, p := range o.Parameters {
					want = append(want, p.Value.Name+"</code>")
				}
				if o.RequestBody != nil {
					for mediaType, content := range o.RequestBody.Value.Content {
						want = append(want, "<code>"+mediaType+"</code>")
						for name := range content.Schema.Value.Properties {
							want = append(want, "<dt><code>"+name+"</code>")
						}
					}
				}
				for status, response := range o.Responses.Map() {
					if status >= "400" {
						want = append(want, "<dt>"+status+"</dt>")
						if json := response.Value.Content["application/json"]; json != nil {
							for code := range json.Examples {
								if strings.HasPrefix(code, "-") { // of JSON-RPC, which has no page: the description names it
									want = append(want, "JSON-RPC")
									continue
								}
								want = append(want, "<code>"+code+"</code>")
							}
						}
					} else {
						want = append(want, status+"</h3>")
					}
				}
				for _, part := range want {
					if !found || !strings.Contains(text, part) {
						t.Errorf("%s: %s lacks %s", group, o.OperationID, part)
					}
				}
				if incomplete.MatchString(text) {
					t.Errorf("%s: the request of %s lacks a value: %s", group, o.OperationID, incomplete.FindString(text))
				}
			}
		}
		if delivery := pages[prefix+"/developers/reference/webhooks"]; !strings.Contains(delivery, ` id="integrityEvent"`) {
			t.Errorf("%s: what is sent to receivers is not in the reference", prefix)
		}
	}
	if operations < 2*59 {
		t.Errorf("only %d operations were compared", operations)
	}
}

// incomplete matches a request in which a part of the path or a parameter has no value.
var incomplete = regexp.MustCompile(`\$INTEGRITY_BASE_URL[^\n]*(=&amp;|=&#34;|//|/&#34;|\{)`)

// The pages list exactly the downloads, codes and plans of the program, and the fixed text on the limits of the
// evidence.
func TestDeveloperPagesListWhatThereIs(t *testing.T) {
	s := open(t, options{})
	downloads, err := developers.Downloads()
	check(t, err)
	plans, err := domain.DefaultPlans()
	check(t, err)
	for prefix, language := range map[string]evidence.Language{"": evidence.Spanish, "/en": evidence.English} {
		page := func(name string) string {
			return html.UnescapeString(string(s.page(prefix + "/developers" + name).body))
		}
		text := page("/downloads")
		if !strings.Contains(text, `href="/developers/integrity-client-0.2.0.tgz"`) {
			t.Error("the client that the specification describes is not linked")
		}
		for _, file := range downloads {
			if file.Earlier {
				continue
			}
			if !strings.Contains(text, `href="/developers/`+file.Name+`"`) || !strings.Contains(text, file.SHA256) {
				t.Errorf("%s is not listed", file.Name)
			}
			if !regexp.MustCompile(
				`"/developers/` + regexp.QuoteMeta(file.Name) + `"[^\n]*</dt>\n<dd><p>[A-Z]`,
			).MatchString(text) {
				t.Errorf("%s: nothing says what %s is for (handlers/web/texts/%s.json)", language, file.Name, language)
			}
		}
		text = page("/errors")
		for _, code := range declaredCodes(t) {
			if strings.Count(text, `id="`+string(code)+`"`) != 1 {
				t.Errorf("%s is not listed", code)
			}
		}
		text = page("/limits")
		if strings.Contains(text, "<code>"+domain.InternalPlan+"</code>") {
			t.Error("the internal plan is shown")
		}
		column := regexp.MustCompile(`<th scope="col"><code>([^<]*)</code></th>`).FindAllStringSubmatch(text, -1)
		if len(column) != len(plans)-1 {
			t.Errorf("%d plans are shown", len(column))
		}
		var rows [][]string
		for _, row := range regexp.MustCompile(`<tr><th scope="row">.*</tr>`).FindAllString(text, -1) {
			rows = append(
				rows, regexp.MustCompile(`<td>([^<]*)`).FindAllString(strings.NewReplacer(".", "", ",", "").Replace(row), -1),
			)
		}
		for i, name := range column {
			plan := plans[name[1]]
			want := []string{
				fmt.Sprint(*plan.PriceEUR), strconv.Itoa(plan.PerMinute), strconv.FormatInt(*plan.VersionsPerMonth, 10),
				strconv.FormatInt(*plan.WebhookAttemptsPerMonth, 10), strconv.FormatInt(*plan.RequestsPerMonth, 10),
				strconv.FormatInt(*plan.RegistrationsPerMonth, 10),
				strconv.FormatInt(*plan.AdministrativeEventsPerDay, 10),
			}
			for j := range want {
				if len(rows) != len(want) || rows[j][i] != "<td>"+want[j] {
					t.Errorf("%s: %v, want %s", name[1], rows, want[j])
				}
			}
		}
		digits := strings.NewReplacer(".", "", ",", "").Replace(text)
		for _, limit := range []int64{
			domain.MaxVersion, 1<<53 - 1, domain.MaxWebhooks, domain.MaxWebhooksPerCompany, domain.MaxFileBytes,
			domain.MaxManifestFiles, domain.MaxManifestFileSize, domain.MaxManifestTotal, domain.MaxManifestBytes,
			domain.MaxTextBytes, domain.MaxTitle, domain.MaxStatement, domain.MaxArtifactVersions, domain.MaxReviewsOfAVersion,
			int64(domain.MinKeyLifetime / time.Hour), int64(domain.DefaultKeyLifetime / (24 * time.Hour)),
			int64(domain.MaxKeyLifetime / (24 * time.Hour)),
		} {
			if !regexp.MustCompile(`\b` + strconv.FormatInt(limit, 10) + `\b`).MatchString(digits) {
				t.Errorf("the page of limits in %s does not say %d", language, limit)
			}
		}
		for _, name := range []string{"", "/verification"} {
			text = page(name)
			for _, sentence := range evidence.Limits(language, "") {
				if !strings.Contains(text, "<li>"+sentence+"</li>") {
					t.Errorf("%s does not say: %s", name, sentence)
				}
			}
		}
	}
	a := s.page("/en/developers/mcp")
	if !contains(a.body, "Compatibility with every client or web connector is not guaranteed") ||
		!contains(a.body, baseURL+"/api/v1/integrity/mcp") {
		t.Error("the page on MCP")
	}
	again := s.request(http.MethodGet, "/en/developers/mcp", "", nil)
	again.Header.Set("If-None-Match", a.header.Get("ETag"))
	known, err := s.http.Client().Do(again)
	check(t, err)
	known.Body.Close()
	if a.header.Get("Cache-Control") != "public, max-age=300" || known.StatusCode != http.StatusNotModified {
		t.Errorf("conditional: %d %v", known.StatusCode, a.header)
	}
}

// A search works without a script and in the language of its page, and every result is at its address.
func TestSearchOfTheDeveloperPages(t *testing.T) {
	s := open(t, options{})
	result := regexp.MustCompile(`<li><a href="([^"]*)">`)
	for query, want := range map[string]string{
		"/en/developers/search?q=VERSION_CONFLICT":        "/en/developers/errors#VERSION_CONFLICT",
		"/en/developers/search?q=rotate+secret":           "/en/developers/webhooks#rotate",
		"/developers/search?q=verificacion%20SIN%20linea": "",
		"/developers/search?q=renovar+secreto":            "/developers/reference/webhooks#rotateWebhookSecret",
	} {
		page := s.page(query)
		_, list, _ := strings.Cut(string(page.body), `<ol class="found">`)
		found := result.FindAllStringSubmatch(list, -1)
		if page.status != http.StatusOK || len(found) > 20 || want != "" && (len(found) == 0 || found[0][1] != want) {
			t.Errorf("%s: %d, %q, want %s", query, page.status, found, want)
		}
		for _, one := range found {
			path, fragment, anchored := strings.Cut(one[1], "#")
			if anchored && strings.Count(string(s.page(path).body), ` id="`+fragment+`"`) != 1 {
				t.Errorf("%s leads to %s, which there is not once", query, one[1])
			}
		}
	}
	for query, want := range map[string]string{
		"?q=%22%3E%3Cscript%3Ex": `value="&#34;&gt;&lt;script&gt;x"`, "?q=qqqq": "No page has all of these words",
		"": `name="q" value=""`, "?q=a%20b&q=c": `value="a b"`,
		"?q=" + strings.Repeat("x", 5000): "No page has",
	} {
		page := s.page("/en/developers/search" + query)
		if page.status != http.StatusOK || !contains(page.body, want) || contains(page.body, "<script>x") ||
			!contains(page.body, `<meta name="robots" content="noindex">`) {
			t.Errorf("%s: %d %s", query, page.status, page.body)
		}
	}
	if page := s.page("/en/developers/search?q=hash+link"); !contains(page.body, `href="/developers/search?q=hash&#43;link"`) {
		t.Error("the other language loses the words")
	}
}
