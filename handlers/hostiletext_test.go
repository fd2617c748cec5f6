package handlers_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// hostileTexts are texts that PostgreSQL refuses, or that a careless reader confuses with others, as bytes.
func hostileTexts() []string {
	return []string{
		"\x00", "a\x00b", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\u202eb\u2066",
		strings.Repeat("é", 500), "'\"\\%s{{", "",
	}
}

// hostileJSON are JSON values of a member with a hostile text.
func hostileJSON() []string {
	list := []string{`"\u0000"`, `"a\u0000b"`, `"\ud800"`, `"\udc00x"`, `null`, `[]`, `{}`, `-1`, `1e400`}
	for _, text := range hostileTexts() {
		if !strings.ContainsAny(text, "\"\\\x00") {
			list = append(list, `"`+text+`"`)
		}
	}
	return list
}

// attack sends hostile texts to a service while an organization in the attacker's shard registers.
type attack struct {
	*consoleService
	p          *guest
	member     domain.MemberID
	documented map[string]bool // method and template of each operation of the OpenAPI documents
	statuses   map[int]int
}

// judge requires that an answer is not a fault of the service.
func (a *attack) judge(r *http.Request, what string, answer answer) {
	a.t.Helper()
	a.statuses[answer.status]++
	if answer.status >= http.StatusInternalServerError {
		a.t.Errorf("%s %s with %s: %d %.300s", r.Method, r.URL.Path, what, answer.status, answer.body)
	}
}

// send sends a request. It repeats a console request if the session has ended or the last proof of identity is too old.
func (a *attack) send(e handlers.Endpoint, path, what, contentType, body string) {
	a.t.Helper()
	for try := 0; ; try++ {
		r := a.request(e.Method, path, "", strings.NewReader(body))
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		r.Header.Set("Accept", "text/html, application/json, text/event-stream")
		if e.Session {
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			for name, value := range a.p.cookies {
				r.AddCookie(&http.Cookie{Name: name, Value: value})
			}
		} else if strings.HasPrefix(path, "/api/v1/") {
			r.Header.Set("Authorization", "Bearer "+a.org.Secret)
		}
		client := *a.http.Client()
		// A path without its last variable belongs to another operation.
		if !strings.HasSuffix(path, "/") && a.documented[e.Method+" "+variableOfPath.ReplaceAllString(e.Template, "{}")] {
			r.Header.Set("Accept", "application/json, text/event-stream")
			client = *recorded(a.t, a.http)
		}
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		answer, err := a.through(&client, r)
		check(a.t, err)
		to := answer.header.Get("Location")
		if e.Session && try == 0 && (strings.Contains(to, "/sign-in") || strings.Contains(to, "/prove")) {
			a.signIn()
			continue
		}
		a.judge(r, what, answer)
		return
	}
}

func (a *attack) signIn() {
	a.t.Helper()
	a.p = a.guest()
	a.p.press("/en/console/link/" + a.operatorLink(a.member)).leads("/en/console")
}

var (
	variableOfPath = regexp.MustCompile(`\{(\w+)[^/}]*(?:\{[^}]*\}[^/}]*)*\}`)
	nameInPage     = regexp.MustCompile(`<(?:input|select|textarea|button)\b[^>]*\bname="([\w.-]+)"`)
	nameInProgram  = regexp.MustCompile(
		`(?:\.(?:Get|Has|String|Match|Sized|Int|Bool|NullableString|NullableInt|StringList|ReadReference)|(?i:known|integer|instant|optionalReference|readTime|readNames|textOf))\((?:\w+, )?"([\w-]+)"|\["([\w-]+)"\]`,
	)
)

// names returns the names of all fields and parameters that pages offer or handlers read.
func names(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for pattern, name := range map[string]*regexp.Regexp{
		"web/templates/*.html": nameInPage, "web/templates/*/*.html": nameInPage, "*/*.go": nameInProgram,
	} {
		files, err := filepath.Glob(pattern)
		check(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			check(t, err)
			for _, match := range name.FindAllSubmatch(text, -1) {
				if name := string(slices.Concat(match[1:]...)); name == strings.ToLower(name[:1])+name[1:] { // not a header
					found[name] = true
				}
			}
		}
	}
	for _, known := range []string{
		"companies", "name", "reason", "after", "said", "email", "companyReference", "limit", "sha256",
	} {
		if !found[known] {
			t.Fatalf("the field %s was not found among %v", known, slices.Sorted(maps.Keys(found)))
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// eachText calls visit with every text of a JSON example replaced by a hostile one, and with every further member of
// the schema.
func eachText(value any, schema *openapi3.SchemaRef, replace func(with string) string, visit func(text string)) {
	encode := func(v any) string {
		text, _ := json.Marshal(v)
		return string(text)
	}
	switch v := value.(type) {
	case map[string]any:
		all := maps.Clone(v)
		if schema != nil {
			for name := range schema.Value.Properties {
				if _, given := all[name]; !given {
					all[name] = ""
				}
			}
		}
		for name, inner := range all {
			var of *openapi3.SchemaRef
			if schema != nil {
				of = schema.Value.Properties[name]
			}
			rest := maps.Clone(v)
			eachText(inner, of, func(with string) string {
				rest[name] = json.RawMessage("0")
				delete(rest, name)
				text := strings.TrimSuffix(encode(rest), "}")
				if text != "{" {
					text += ","
				}
				return replace(text + encode(name) + ":" + with + "}")
			}, visit)
		}
		for _, bad := range []string{`"\u0000"`, "\"\xff\"", `"\ud800"`} { // a name
			visit(replace(strings.TrimSuffix(encode(v), "}") + "," + bad + `:1}`))
		}
	case []any:
		for i := range v {
			eachText(v[i], nil, func(with string) string {
				var parts []string
				for j := range v {
					if parts = append(parts, encode(v[j])); j == i {
						parts[j] = with
					}
				}
				return replace("[" + strings.Join(parts, ",") + "]")
			}, visit)
		}
	case string:
		for _, with := range hostileJSON() {
			visit(replace(with))
		}
	}
}

// The test sends texts that no database stores to every path, query and form of every page, to every member of every
// operation and to every argument of every tool. No answer is a fault of the service, and no registration of an
// organization in the same shard is refused meanwhile. Routes, fields, members and tools come from the router, the
// pages, the OpenAPI documents and tools/list, so new ones are covered.
func TestHostileTextIsNoFault(t *testing.T) {
	var config handlers.Config
	s := openConsoleWith(t, options{config: func(c *handlers.Config) {
		c.PublicPerMinute, c.PublicPagesPerMinute = 1<<30, 1<<30
		config = *c
	}})
	p, err := published()
	check(t, err)
	a := &attack{consoleService: s, member: s.org.Key.Member, documented: map[string]bool{}, statuses: map[int]int{}}
	for path, item := range p.document.Paths.Map() {
		for method := range item.Operations() {
			a.documented[method+" "+variableOfPath.ReplaceAllString(path, "{}")] = true
		}
	}
	a.signIn()

	neighbour := *s.service
	neighbour.org = s.Organization(t, 1, domain.InternalPlan)
	attacking, over := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	registered := 0
	beside.Go(func() {
		for attacking.Err() == nil {
			registered++
			answer, err := neighbour.trySend(integrity+"/records", declaration("beside", registered, "x"))
			if err != nil || answer.status != http.StatusCreated {
				t.Errorf("a registration of the neighbour: %d %s %v", answer.status, answer.body, err)
				return
			}
		}
	})

	// Resources that may be revoked, ended and closed meanwhile.
	key, _ := s.Key(t, s.org, domain.IntegrityRead)
	colleague := &domain.AddMember{Origin: s.org.Operator(), Email: "colleague@example.com", Role: domain.Viewer}
	s.Must(t, colleague)
	known := map[string]string{
		"reference": s.org.Company.Reference, "companyId": s.org.Company.ID.String(), "keyId": key.ID.String(),
		"memberId": colleague.Outcome.ID.String(),
	}
	plausibleID := func(name string) string { return cmp.Or(known[name], "x") }

	endpoints := handlers.Endpoints(config)
	fields := names(t)
	next, turn := 0, 0
	text := func() string { next++; return hostileTexts()[next%len(hostileTexts())] }
	plausible := map[string]string{
		"name": "n", "scopes": "integrity:read", "email": "x@example.com", "role": "viewer", "reference": "r", "hours": "1",
		"url": "https://example.com/hook", "types": string(domain.RecordRegistered), "overlap": "0", "statement": "s",
		"reason": "r",
	}
	covered, every := map[string]bool{}, 1 // one of every so many fields is tried
	if testing.Short() {
		every = 3
	}
	for _, e := range endpoints {
		fill := func(with func(name string) string) string {
			return variableOfPath.ReplaceAllStringFunc(e.Template, func(v string) string {
				return url.PathEscape(with(variableOfPath.FindStringSubmatch(v)[1]))
			})
		}
		kind, right := "", ""
		switch {
		case e.Form:
			kind = "application/x-www-form-urlencoded"
		case e.File:
			right, kind = form(body{"title": "t"}, "one.txt", "text/plain", "one")
		case e.Method != http.MethodGet:
			kind, right = "application/json", "{}"
		}
		path := fill(plausibleID)
		if strings.Contains(e.Template, "{") {
			for _, bad := range hostileTexts() {
				a.send(e, fill(func(string) string { return bad }), fmt.Sprintf("the path %q", bad), kind, right)
			}
		}
		read := e.Session || e.Form || strings.HasPrefix(e.Template, "/api/")
		if read && (strings.HasPrefix(e.Template, "/en/") || !e.Session) { // one of the two languages
			for _, field := range fields {
				bad := text()
				if turn++; turn%every != 0 {
					continue
				}
				if e.Method == http.MethodGet {
					a.send(e, path+"?"+url.Values{field: {bad}}.Encode(), fmt.Sprintf("?%s=%q", field, bad), "", "")
				}
				if e.Form {
					values := url.Values{}
					for name, value := range plausible {
						values.Set(name, value)
					}
					values.Set(field, bad)
					a.send(e, path, fmt.Sprintf("%s=%q", field, bad), kind, values.Encode())
				}
			}
		}
		if e.File {
			for _, bad := range hostileTexts() {
				for _, file := range []bool{true, false} {
					title, name := bad, "one.txt"
					if file {
						title, name = "t", bad
					}
					text, kind := form(
						body{"title": title}, strings.NewReplacer("\"", "", "\n", "").Replace(name), "text/plain", "one",
					)
					a.send(e, path, fmt.Sprintf("title %q and file %q", title, name), kind, text)
				}
			}
		}
		covered[e.Template] = true
	}

	operations := 0
	for path, item := range p.document.Paths.Map() {
		for method, o := range item.Operations() {
			if method == http.MethodGet && strings.Contains(path, "/tile/") { // one template of the router
				for _, bad := range hostileTexts() {
					tile := variableOfPath.ReplaceAllLiteralString(path, url.PathEscape(bad))
					a.send(handlers.Endpoint{Method: method, Template: path}, tile, fmt.Sprintf("the tile %q", bad), "", "")
				}
			}
			if o.RequestBody == nil || o.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			content := o.RequestBody.Value.Content["application/json"]
			e := handlers.Endpoint{Method: method, Template: path}
			if !slices.ContainsFunc(endpoints, func(known handlers.Endpoint) bool {
				return known.Method == method &&
					variableOfPath.ReplaceAllString(known.Template, "{}") == variableOfPath.ReplaceAllString(path, "{}")
			}) {
				t.Errorf("%s %s is not in the router", method, path)
			}
			operations++
			var example any
			text, err := json.Marshal(content.Example)
			check(t, err)
			check(t, json.Unmarshal(text, &example))
			filled := variableOfPath.ReplaceAllStringFunc(path, func(v string) string {
				return plausibleID(variableOfPath.FindStringSubmatch(v)[1])
			})
			eachText(example, content.Schema, func(with string) string { return with }, func(body string) {
				a.send(e, filled, fmt.Sprintf("the body %.200q", body), "application/json", body)
			})
		}
	}
	if operations < 20 {
		t.Errorf("only %d operations with a body were tried", operations)
	}

	tools := 0
	for _, at := range []string{integrity + "/mcp", "/api/v1/mcp"} {
		e := handlers.Endpoint{Method: http.MethodPost, Template: at}
		call := func(method, params string) string {
			return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
		}
		r := s.request(http.MethodPost, at, s.org.Secret, strings.NewReader(call("tools/list", "{}")))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		var list struct {
			Result struct {
				Tools []struct {
					Name        string
					InputSchema openapi3.SchemaRef
				}
			}
		}
		answer := s.plainly(r)
		check(t, json.Unmarshal(answer.body, &list))
		for _, tool := range list.Result.Tools {
			tools++
			arguments := map[string]any{}
			for name := range tool.InputSchema.Value.Properties {
				arguments[name] = "x"
			}
			eachText(arguments, nil, func(with string) string {
				return call("tools/call", `{"name":"`+tool.Name+`","arguments":`+with+`}`)
			}, func(body string) { a.send(e, at, fmt.Sprintf("the message %.200q", body), "application/json", body) })
		}
	}
	if tools < 5 {
		t.Errorf("only %d tools were tried", tools)
	}
	over()
	beside.Wait()
	t.Logf("%d templates, %d fields, %d operations, %d tools, %v; the neighbour registered %d",
		len(covered), len(fields), operations, tools, a.statuses, registered)
	total := 0
	for _, n := range a.statuses {
		total += n
	}
	if limited := a.statuses[http.StatusTooManyRequests]; 20*limited > total {
		t.Errorf("%d of %d requests were refused before they were read", limited, total)
	}
	if registered < 10 {
		t.Errorf("the neighbour registered %d times meanwhile", registered)
	}
	for _, line := range []string{"command cannot be written", "group is split"} {
		if strings.Contains(s.log.String(), line) {
			t.Errorf("poison has reached the ledger: %s", line)
		}
	}
	s.Audit(t)
}
