package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
	"integrityledger/projections/ledgertest"
)

func TestBadBodies(t *testing.T) {
	s := open(t, options{})
	const path = integrity + "/records"
	good := declaration("a", 1, "one")

	bad := s.post(path, good.with(body{
		"companyReference": "a b", "source": nil, "documentReference": 4, "version": 0, "sha256": "00", "sizeBytes": -1,
		"mimeType": "application/pdf; charset=x", "generatedAt": "2026-02-30T00:00:00Z", "Version": 1, "extra": true,
	})).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	for _, want := range []string{
		"/companyReference FORMAT", "/source REQUIRED", "/documentReference TYPE", "/version RANGE", "/sha256 FORMAT",
		"/sizeBytes RANGE",
		"/mimeType FORMAT", "/generatedAt FORMAT", "/Version UNKNOWN_MEMBER", "/extra UNKNOWN_MEMBER",
	} {
		if got := pointers(bad); !strings.Contains(got, want) {
			t.Errorf("errors lack %s: %s", want, got)
		}
	}
	for name, change := range map[string]body{
		"/previousVersion RANGE": {"version": 2, "previousVersion": 2},
		"/sizeBytes INTEGER":     {"sizeBytes": 1.5},
		"/sizeBytes RANGE":       {"sizeBytes": int64(1) << 53},
		"/version RANGE":         {"version": int64(1) << 31},
		"/source FORMAT":         {"source": "a\n"},
		"/source NUL":            {"source": "a\x00"},
		"/version TYPE":          {"version": "1"},
	} {
		if got := pointers(s.post(path, good.with(change)).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != name {
			t.Errorf("errors %s, want %s", got, name)
		}
	}
	for _, text := range []string{
		``, `{`, `{} {}`, "\xef\xbb\xbf{}", "{\"a\":\"\xff\"}", `{"a":"\ud800"}`,
		strings.Repeat("[", 33) + strings.Repeat("]", 33),
	} {
		s.post(path, text).refuses(http.StatusBadRequest, domain.MalformedJSON)
	}
	// The deepest allowed value: well-formed, but not a declaration.
	s.post(path, strings.Repeat("[", 32)+strings.Repeat("]", 32)).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)
	if got := pointers(s.post(path, `[]`).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != " TYPE" {
		t.Errorf("errors %s", got)
	}
	if got := pointers(s.post(
		path+"?dry=true&dry=false", good.with(body{"version": 0}),
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != "/dry UNKNOWN_PARAMETER, /version RANGE" {
		t.Errorf("errors %s", got)
	}
	duplicate := s.post(path, `{"version":1,"version":1}`).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if !strings.Contains(pointers(duplicate), "/version DUPLICATE_MEMBER") {
		t.Errorf("errors %s", pointers(duplicate))
	}
	revoke := s.post(
		path+"/aaaa/revoke", body{"reason": strings.Repeat("é", 501)},
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if got := pointers(revoke); got != "/reason LENGTH" {
		t.Errorf("errors %s", got)
	}
	if used := s.number("SELECT coalesce(sum(used), 0) FROM usage WHERE shard = $1 AND organization_id = $2"); used != 0 {
		t.Errorf("refused requests used %d registrations", used)
	}
}

func TestTransport(t *testing.T) {
	s := open(t, options{})
	const path = integrity + "/records"
	key := s.org.Secret
	text := `{"companyReference":"company-1"}`

	s.send(http.MethodPost, path, key, text, "Content-Type", "text/plain").refuses(
		http.StatusUnsupportedMediaType, domain.UnsupportedMediaType,
	)
	s.send(
		http.MethodPost, path, key, text, "Content-Type", "application/json; charset=latin1",
	).refuses(http.StatusUnsupportedMediaType, domain.UnsupportedMediaType)
	s.send(http.MethodPost, path, key, text, "Content-Encoding", "gzip").refuses(
		http.StatusUnsupportedMediaType, domain.UnsupportedMediaType,
	)
	s.send(
		http.MethodPost, path, key, text, "Content-Type", "application/JSON;charset=UTF-8",
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	s.send(http.MethodPost, path, key, strings.Repeat(" ", 8<<10)+text).refuses(
		http.StatusRequestEntityTooLarge, domain.PayloadTooLarge,
	)
	padded := func(in any, size int) string {
		whole, err := json.Marshal(in)
		check(t, err)
		return string(whole) + strings.Repeat(" ", size-len(whole))
	}
	largest := declaration("largest", 1, "largest")
	s.post(path, padded(largest, 8<<10+1)).refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
	s.post(path, padded(largest, 8<<10)).is(http.StatusCreated)
	s.post(path+"/batch", padded(body{"declarations": []any{largest}}, 4<<20)).is(http.StatusOK)
	chunked := s.request(http.MethodPost, path, key, struct{ *strings.Reader }{strings.NewReader(text)})
	chunked.ContentLength = -1
	chunked.Header.Set("Content-Type", "application/json")
	s.exchange(chunked).refuses(http.StatusLengthRequired, domain.LengthRequired)

	connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(
		connection,
		"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: "+
			"99\r\n\r\n{",
		path, key,
	)
	check(t, err)
	check(t, connection.(*net.TCPConn).CloseWrite())
	cut, err := http.ReadResponse(bufio.NewReader(connection), nil)
	check(t, err)
	if cut.Body.Close(); cut.StatusCode != http.StatusBadRequest {
		t.Errorf("a body that ends early: %d", cut.StatusCode)
	}

	for accept, status := range map[string]int{
		"text/html": 406, "application/json;q=0, */*": 406, "text/html, application/*;q=0.1": 200, "*/*": 200,
		"application/json": 200, "image/png, */*;q=0": 406,
	} {
		a := s.send(http.MethodGet, integrity+"/usage", key, nil, "Accept", accept)
		if status == 406 {
			a.refuses(status, domain.NotAcceptable)
		} else {
			a.is(status)
		}
	}
	for path, allow := range map[string]string{
		integrity + "/records": "GET, HEAD, POST", integrity + "/companies": "GET, HEAD, POST",
		"/api/public/integrity/x": "GET, HEAD, OPTIONS", "/healthz": "GET, HEAD",
	} {
		a := s.send(http.MethodDelete, path, "", nil)
		a.refuses(http.StatusMethodNotAllowed, domain.MethodNotAllowed)
		if got := a.header.Get("Allow"); got != allow {
			t.Errorf("Allow of %s: %s, want %s", path, got, allow)
		}
	}
	s.public("/api/v1/nothing").refuses(http.StatusNotFound, domain.NotFound)
	s.public("/none").refuses(http.StatusNotFound, domain.NotFound)
	if a := s.public("/api/public/nothing"); a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error("CORS is missing on an unknown public path")
	}

	id := s.registered("a", 1, "one")
	for _, path := range []string{
		integrity + "/records/" + id, "/api/public/integrity/" + id, "/healthz", "/.well-known/integrity-trusted-keys.json",
	} {
		head, get := s.send(http.MethodHead, path, key, nil, "X-Request-Id", "a"), s.send(
			http.MethodGet, path, key, nil, "X-Request-Id", "a",
		)
		if head.status != get.status || len(head.body) != 0 ||
			head.header.Get("Content-Type") != get.header.Get("Content-Type") || head.header.Get("Content-Length") == "" {
			t.Errorf("HEAD %s: %d %v", path, head.status, head.header)
		}
	}
	preflight := s.send(http.MethodOptions, "/api/public/integrity/"+id, "", nil)
	if preflight.status != http.StatusNoContent ||
		preflight.header.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" ||
		preflight.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("preflight: %d %v", preflight.status, preflight.header)
	}
	if a := s.get(integrity + "/usage"); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("an authenticated answer has CORS")
	}

	for sent, echoed := range map[string]bool{
		"Az0._-": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "a b": false,
	} {
		if got := s.send(http.MethodGet, "/healthz", "", nil, "X-Request-Id", sent).header.Get("X-Request-Id"); (got ==
			sent) != echoed || got == "" {
			t.Errorf("request id %q became %q", sent, got)
		}
	}
	for _, path := range []string{"/healthz", integrity + "/usage"} {
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		} {
			if got := s.public(path).header.Get(name); got != want {
				t.Errorf("%s of %s: %q", name, path, got)
			}
		}
	}
}

func TestPages(t *testing.T) {
	s := open(t, options{})
	page := s.public("/errors/version-conflict")
	if page.status != http.StatusOK || !contains(page.body, "VERSION_CONFLICT") || !contains(page.body, `lang="es"`) ||
		page.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d %s", page.status, page.body)
	}
	for _, code := range declaredCodes(t) {
		name := strings.ReplaceAll(strings.ToLower(string(code)), "_", "-")
		page := s.public("/errors/" + name)
		for _, part := range []string{
			string(code), `lang="en"`, "Cause: ", "What to do: ", "Worth repeating: ", `lang="es"`, "Causa: ", "Qué hacer: ",
			"Conviene repetir: ",
		} {
			if page.status != http.StatusOK || !contains(page.body, part) {
				t.Errorf("%s: %d, without %q", name, page.status, part)
			}
		}
	}
	s.public("/errors/none").refuses(http.StatusNotFound, domain.NotFound)
	for _, path := range []string{"/errors/version-conflict", "/limits"} {
		for preferred, want := range map[string]string{
			"": "en", "en-GB": "en", "es-MX,en;q=0.5": "es", "fr, es;q=0.1": "es", "?": "en", "*": "en",
			"de-DE, de;q=0.9": "en",
		} {
			page := s.send(http.MethodGet, path, "", nil, "Accept-Language", preferred)
			first := regexp.MustCompile(`<section class="card" lang="(..)">`).FindSubmatch(page.body)
			if first == nil || string(first[1]) != want || !contains(page.body, `<html lang="`+want+`"`) ||
				page.header.Get("Vary") != "Accept-Language" {
				t.Errorf("%s for %q: begins with %s, want %s; Vary %q", path, preferred, first, want, page.header.Get("Vary"))
			}
		}
	}
	if limits := s.public("/limits"); !contains(limits.body, "not an independent audit") ||
		!contains(limits.body, "no una auditoría independiente") {
		t.Errorf("%s", limits.body)
	}
	s.public("/healthz").is(http.StatusOK)
	s.public("/readyz").is(http.StatusOK)
}

// For a resource that a key may not see, the answer is byte for byte the answer for one that does not exist.
func TestForeignIsUnknown(t *testing.T) {
	s := open(t, options{})
	mine := s.registered("a", 1, "one")
	other := s.Organization(t, 1, "gratis")   // the same shard
	distant := s.Organization(t, 2, "gratis") // another shard
	foreign := func(o ledgertest.Organization) string {
		return s.send(
			http.MethodPost, integrity+"/records", o.Secret, declaration("a", 1, "theirs"),
		).is(http.StatusCreated)["publicId"].(string)
	}
	hidden := s.Company(t, s.org, "hidden")
	s.Grant(t, s.org, s.org.Key.ID, hidden.ID, true)
	ungranted := s.post(
		integrity+"/records", declaration("h", 1, "h").with(body{"companyReference": "hidden"}),
	).is(http.StatusCreated)["publicId"].(string)
	s.Grant(t, s.org, s.org.Key.ID, hidden.ID, false)

	ask := func(method, path string, in any, part string) (status int, told string) {
		t.Helper()
		if text, ok := in.(string); ok {
			in = strings.ReplaceAll(text, "*", part)
		}
		a := s.send(method, strings.ReplaceAll(path, "*", part), s.org.Secret, in, "X-Request-Id", "r")
		h := a.header
		return a.status, fmt.Sprint(
			a.status, h.Get("Content-Type"), h.Get("Cache-Control"), h.Get("Content-Length"), len(h), string(a.body),
		)
	}
	same := func(method, path string, in any, known, unknown string) {
		t.Helper()
		status, k := ask(method, path, in, known)
		// A batch and a search answer 200, and contain their refusals or results.
		if within := strings.Contains(path, "/batch") ||
			strings.Contains(path, "sha256="); (status == http.StatusOK) != within || status == http.StatusCreated {
			t.Errorf("%s %s answers %d", method, path, status)
		}
		if _, u := ask(method, path, in, unknown); k != u {
			t.Errorf("%s %s tells\n%s\nfrom\n%s", method, path, k, u)
		}
	}
	fresh := domain.NewPublicID(s.Installation.Secret, s.org.ID.Shard())
	for _, known := range []string{foreign(other), foreign(distant), ungranted} {
		for _, unknown := range []string{strings.Repeat("a", 26), fresh.String(), "x", strings.ToUpper(mine)} {
			same(http.MethodGet, integrity+"/records/*", nil, known, unknown)
			same(http.MethodGet, integrity+"/lookup?publicId=*", nil, known, unknown)
			same(http.MethodGet, integrity+"/records/*/evidence", nil, known, unknown)
			same(http.MethodPost, integrity+"/records/*/revoke", nil, known, unknown)
		}
	}
	declared := fmt.Sprintf(
		`{"companyReference":"*","source":"billing","documentReference":"h","version":1,"sha256":"%s","sizeBytes":1,"mimeType":"a/b","generatedAt":"2026-11-01T10:00:00Z"}`,
		hash("h"),
	)
	same(http.MethodPost, integrity+"/records", declared, "hidden", "absent")
	same(http.MethodPost, integrity+"/records/batch", `{"declarations":[`+declared+`]}`, "hidden", "absent")
	reserved := `{"companyReference":"*","source":"billing","documentReference":"h","version":%d}`
	for _, version := range []int{1, 2} { // registered, and unknown
		same(http.MethodPost, integrity+"/reservations", fmt.Sprintf(reserved, version), "hidden", "absent")
	}
	for _, known := range []string{"theirs", "h"} {
		same(http.MethodGet, integrity+"/records?sha256=*", nil, hash(known), hash("unknown"))
	}
	same(
		http.MethodGet, integrity+"/lookup?companyReference=*&source=billing&documentReference=h&version=1", nil, "hidden",
		"absent",
	)
	same(http.MethodGet, integrity+"/changes?companyReference=*", nil, "hidden", "absent")
	s.get(
		integrity+"/lookup?companyReference=company-1&source=billing&documentReference=a&version=2",
	).refuses(http.StatusNotFound, domain.RecordNotFound)

	unknownCompany := domain.NewID[domain.CompanyID](s.Now())
	grant := fmt.Sprintf(`{"keyId":"%s","enabled":true}`, s.org.Key.ID)
	for _, known := range []domain.CompanyID{other.Company.ID, distant.Company.ID} {
		same(http.MethodPost, integrity+"/companies/*/access", grant, known.String(), unknownCompany.String())
		same(http.MethodPost, integrity+"/companies/*/access", grant, known.String(), "x")
	}
	unknownKey := domain.NewKeyID(s.Now(), s.org.ID.Shard())
	access := integrity + "/companies/" + s.org.Company.ID.String() + "/access"
	for _, known := range []domain.KeyID{other.Key.ID, distant.Key.ID} {
		same(http.MethodPost, access, `{"keyId":"*","enabled":true}`, known.String(), unknownKey.String())
	}
	s.post(access, body{"keyId": "x", "enabled": 1}).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	if used := s.number(
		"SELECT count(*) FROM versions WHERE shard = $1 AND organization_id = $2 AND revoked_at IS NOT NULL",
	); used != 0 {
		t.Error("a foreign record was revoked")
	}
}

// A look-up names a public id or a version, and a refusal names missing or superfluous members.
func TestLookupNamesOneRecord(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	const version = "companyReference=company-1&source=billing&documentReference=a&version=1"
	for query, want := range map[string]string{
		"": "/companyReference REQUIRED, /source REQUIRED, /documentReference " +
			"REQUIRED, /version REQUIRED",
		"?companyReference=company-1&version=1": "/source REQUIRED, /documentReference REQUIRED",
		"?publicId=" + id + "&" + version: "/companyReference CONFLICT, /source CONFLICT, /documentReference " +
			"CONFLICT, /version CONFLICT",
		"?publicId=" + id + "&version=x":           "/version CONFLICT",
		"?publicId=" + id + "&publicId=" + id:      "/publicId DUPLICATE_MEMBER",
		"?publicId=&source=billing":                "/source CONFLICT",
		"?publicId=" + id + "&sha256=" + hash("x"): "/sha256 UNKNOWN_PARAMETER",
	} {
		if got := pointers(s.get(integrity+"/lookup"+query).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestCompanies(t *testing.T) {
	s := open(t, options{})
	first := s.post(integrity+"/companies", body{"reference": "b-2"}).is(http.StatusCreated)
	equal(t, "company", []any{first["reference"], first["status"], first["replayed"]}, []any{"b-2", "active", false})
	again := s.post(integrity+"/companies", body{"reference": "b-2"}).is(http.StatusOK)
	equal(t, "again", []any{again["id"], again["replayed"]}, []any{first["id"], true})
	s.post(integrity+"/companies", body{"reference": "a-1"}).is(http.StatusCreated)

	list := func(query string) (references []string, page wire.Companies) {
		page = read[wire.Companies](s.get(integrity+"/companies"+query), http.StatusOK)
		for _, c := range page.Companies {
			references = append(references, c.Reference)
		}
		return references, page
	}
	if got, _ := list(""); fmt.Sprint(got) != "[company-1]" {
		t.Errorf("creating grants nothing: %v", got)
	}
	all, cursor := []string{}, ""
	for more := true; more; {
		references, page := list("?all=true&limit=1" + cursor)
		all, more = append(all, references...), page.HasMore
		cursor = "&after=" + *page.NextCursor
	}
	if fmt.Sprint(all) != "[a-1 b-2 company-1]" {
		t.Errorf("all companies: %v", all)
	}
	granted := s.post(
		integrity+"/companies/"+first["id"].(string)+"/access", body{"keyId": s.org.Key.ID.String(), "enabled": true},
	).is(http.StatusOK)
	equal(
		t, "grant", []any{granted["companyId"], granted["keyId"], granted["enabled"]},
		[]any{first["id"], s.org.Key.ID.String(), true},
	)
	if got, _ := list(""); fmt.Sprint(got) != "[b-2 company-1]" {
		t.Errorf("granted companies: %v", got)
	}
	s.get(integrity+"/companies?after=.&limit=0&all=1").refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	_, reader := s.Key(t, s.org, domain.IntegrityRead)
	s.send(http.MethodGet, integrity+"/companies?all=true", reader, nil).refuses(http.StatusForbidden, domain.MissingScope)
}

func TestQuota(t *testing.T) {
	plans := parsePlans(
		t, `{"gratis": {"perMinute": 1000, "versionsPerMonth": 2}, "none": {"perMinute": 1000, "versionsPerMonth": 0}}`,
	)
	s := open(t, options{plan: "gratis", plans: plans})
	s.hold()
	s.registered("a", 1, "one")
	s.registered("a", 2, "two")
	refused := s.post(integrity+"/records", declaration("a", 3, "three"))
	refused.refuses(http.StatusTooManyRequests, domain.RegistrationQuotaExhausted)
	wait, err := time.ParseDuration(refused.header.Get("Retry-After") + "s")
	check(t, err)
	if end := domain.PeriodOf(s.Now()).End(); s.Now().Add(wait).Before(end) ||
		s.Now().Add(wait-10*time.Second).After(end) {
		t.Errorf("Retry-After %s does not lead to %s", wait, end)
	}
	s.post(integrity+"/records", declaration("a", 1, "one")).is(http.StatusOK)
	s.post(integrity+"/records", declaration("a", 1, "x")).refuses(http.StatusConflict, domain.VersionConflict)
	s.get(integrity + "/changes?companyReference=company-1").is(http.StatusOK)

	none := s.Organization(t, 1, "none")
	s.send(
		http.MethodPost, integrity+"/records", none.Secret, declaration("a", 1, "one"),
	).refuses(http.StatusForbidden, domain.PlanRequired)
}

func TestPanic(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		plain := c.Keys
		calls := 0
		c.Keys = func() action.Keys {
			if calls++; calls == 1 {
				panic("a secret")
			}
			return plain()
		}
	}})
	a := s.public("/readyz")
	a.refuses(http.StatusInternalServerError, domain.Internal)
	s.logged("panic")
	if contains(a.body, "secret") || strings.Contains(s.log.String(), "a secret") {
		t.Errorf("answer %s\nlog %s", a.body, s.log.String())
	}
	s.public("/readyz").is(http.StatusOK)
}

// An unavailable database is never answered as a mismatch, an unknown record or an invalid key.
func TestDatabaseAway(t *testing.T) {
	away, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(context.Background(), 1)
	check(t, err)
	t.Cleanup(away.Close)
	s := open(t, options{config: func(c *handlers.Config) {
		c.Store.Pool, c.Store.Public, c.Sessions.Pool = away, away, away
		c.Ready = func(ctx context.Context) error { return away.Ping(ctx) }
	}})
	id := domain.NewPublicID(s.Installation.Secret, 1)
	for _, path := range []string{
		integrity + "/usage", "/api/public/integrity/" + id.String(), "/api/public/integrity/" + id.String() + "/receipt",
		"/api/public/integrity/" + id.String() + "/publisher", "/readyz",
	} {
		s.get(path).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	}
	s.public("/healthz").is(http.StatusOK)
}

func TestCompanyLimit(t *testing.T) {
	s := open(t, options{})
	s.owner("UPDATE organization_state SET companies = 10000")
	a := s.post(integrity+"/companies", body{"reference": "more"})
	a.refuses(http.StatusTooManyRequests, domain.CompanyLimit)
	s.post(integrity+"/companies", body{"reference": "company-1"}).is(http.StatusOK)
}

// The last place is given out once, however many requests compete for it. Withdrawing a grant affects the very next
// request and removes the company from the list.
func TestLastCompanyAndGrants(t *testing.T) {
	s := open(t, options{})
	s.owner("UPDATE organization_state SET companies = 9999")
	answers := make(chan answer, 8)
	for i := range 8 {
		go func() {
			a, err := s.trySend(integrity+"/companies", body{"reference": fmt.Sprint("last-", i)})
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	made := 0
	for range 8 {
		switch a := <-answers; a.status {
		case http.StatusCreated:
			made++
		default:
			a.refuses(http.StatusTooManyRequests, domain.CompanyLimit)
		}
	}
	if made != 1 {
		t.Errorf("%d companies took the last place", made)
	}

	s.owner("UPDATE organization_state SET companies = 1")
	for _, reference := range []string{"a", "b", "c"} {
		c := s.Company(t, s.org, reference)
		if reference != "b" {
			s.Grant(t, s.org, s.org.Key.ID, c.ID, true)
		}
	}
	var pages []string
	cursor := ""
	for more := true; more; {
		page := read[wire.Companies](s.get(integrity+"/companies?limit=2"+cursor), http.StatusOK)
		for _, c := range page.Companies {
			pages = append(pages, c.Reference)
		}
		pages, more = append(pages, "|"), page.HasMore
		cursor = "&after=" + *page.NextCursor
	}
	if got := fmt.Sprint(pages); got != "[a c | company-1 |]" {
		t.Errorf("granted companies in pages: %s", got)
	}
	id := s.registered("x", 1, "one")
	s.Grant(t, s.org, s.org.Key.ID, s.org.Company.ID, false)
	s.get(integrity+"/records/"+id).refuses(http.StatusNotFound, domain.RecordNotFound)
	s.post(integrity+"/records", declaration("x", 1, "one")).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	s.get(integrity+"/changes?companyReference=company-1").refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	list := s.get(integrity + "/companies").is(http.StatusOK)["companies"].([]any)
	if len(list) != 2 {
		t.Errorf("companies after the grant was taken back: %v", list)
	}
}
