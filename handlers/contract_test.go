package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/schemas"
)

// each calls visit for every operation that has handlers, with a request that is valid except for its key.
func (s *service) each(
	id string, visit func(operation *openapi3.Operation, send func(key string, body any, header ...string) answer),
) {
	s.t.Helper()
	p, err := published()
	check(s.t, err)
	fill := strings.NewReplacer("{publicId}", id, "{id}", id, "{companyId}", s.org.Company.ID.String(), "{code}",
		"version-conflict", "{name}", "integrity-v1.json", "{file}", "verify_integrity.py",
		"{webhookId}", "whk_x", "{deliveryId}", "dlv_x", "{linkId}", "lnk_x", "{keyId}", "key_x", "{memberId}", "usr_x",
		"{level}", "0", "{n}", "000", "{width}", "1")
	for path, item := range p.document.Paths.Map() {
		for method, operation := range item.Operations() {
			visit(operation, func(key string, body any, header ...string) answer {
				s.t.Helper()
				url := fill.Replace(path)
				if i := slices.Index(header, "?"); i >= 0 {
					url += header[i+1]
					header = slices.Delete(header, i, i+2)
				}
				if body == nil && operation.RequestBody != nil {
					if json := operation.RequestBody.Value.Content["application/json"]; json != nil {
						body = json.Example
					} else {
						var kind string
						body, kind = form(reviewOf("ver_"+strings.Repeat("0", 26), "accepted"), "one.txt", "text/plain", "one")
						header = append([]string{"Content-Type", kind}, header...)
					}
				}
				return s.send(method, url, key, body, header...)
			})
		}
	}
}

func documents(operation *openapi3.Operation, status int) bool {
	return operation.Responses.Status(status) != nil
}

func answers(operation *openapi3.Operation, status int, code domain.Code) bool {
	return operation.Responses.Status(status).Value.Content["application/json"].Examples[string(code)] != nil
}

// Every operation gives every refusal that does not depend on its action.
func TestRefusalsOfEveryOperation(t *testing.T) {
	t.Parallel()
	s := open(t, options{config: func(c *handlers.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}})
	addresses := 0 // an address has 60 answers 401 a minute, and there are more operations
	id := s.registered("a", 1, "one")
	_, metrics := s.Key(t, s.org, domain.MetricsRead)
	_, analyses := s.Key(t, s.org, domain.AnalysesRead)
	s.each(id, func(o *openapi3.Operation, send func(string, any, ...string) answer) {
		addresses++
		weak, tooLarge := metrics, 8<<10+1
		switch o.OperationID {
		case "registerBatch", "registerArtifact", "registerVersion":
			tooLarge = 4<<20 + 1
		case "validateManifest":
			tooLarge = domain.MaxManifestBytes + 1
		case "getDetectorMetrics":
			weak = analyses
		case "callMcp", "callIntegrityMcp":
			tooLarge = 64<<10 + 1
		}
		upload := o.OperationID == "declareReview" // its parts have limits of their own: see upload_test.go
		for _, refusal := range []struct {
			status int
			code   domain.Code
			key    string
			body   any
			header []string
		}{
			{401, domain.InvalidKey, "", nil, []string{"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", addresses)}},
			{403, domain.MissingScope, weak, nil, nil},
			{406, domain.NotAcceptable, s.org.Secret, nil, []string{"Accept", "text/html"}},
			{415, domain.UnsupportedMediaType, s.org.Secret, nil, []string{"Content-Type", "text/plain"}},
			{413, domain.PayloadTooLarge, s.org.Secret, strings.Repeat(" ", tooLarge), nil},
			{400, domain.MalformedJSON, s.org.Secret, "{", nil},
			{422, domain.InvalidData, s.org.Secret, nil, []string{"?", "?nothing=1"}},
		} {
			if upload && (refusal.status == http.StatusBadRequest || refusal.status == http.StatusRequestEntityTooLarge) {
				continue
			}
			if o.OperationID == "callMcp" && refusal.code == domain.MissingScope {
				continue // only for access tokens: see oauth_test.go
			}
			if documents(o, refusal.status) && answers(o, refusal.status, refusal.code) {
				send(refusal.key, refusal.body, refusal.header...).refuses(refusal.status, refusal.code)
			}
		}
		if documents(o, http.StatusLengthRequired) {
			p, err := published()
			check(t, err)
			path := pathOf(p.document, o)
			r := s.request(
				methodOf(p.document, o),
				strings.NewReplacer(
					"{publicId}", id, "{id}", id, "{companyId}", "x", "{webhookId}", "x", "{deliveryId}", "x", "{linkId}", "x",
					"{keyId}", "x", "{memberId}", "x",
				).Replace(path),
				s.org.Secret, struct{ io.Reader }{strings.NewReader("{}")},
			)
			r.ContentLength = -1
			r.Header.Set("Content-Type", "application/json")
			if upload {
				r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
			}
			s.exchange(r).refuses(http.StatusLengthRequired, domain.LengthRequired)
		}
	})
}

// Every operation with a body says that a request whose body stops arriving may be sent again.
func TestSlowBodyOfEveryOperation(t *testing.T) {
	// every delay is too long
	s := open(t, options{config: func(c *handlers.Config) { c.BodyGrace = time.Nanosecond }})
	before := s.sequence()
	s.each("x", func(o *openapi3.Operation, _ func(string, any, ...string) answer) {
		if !documents(o, http.StatusRequestTimeout) {
			return
		}
		p, err := published()
		check(t, err)
		kind := "application/json"
		if o.OperationID == "declareReview" {
			kind = "multipart/form-data; boundary=x"
		}
		path := strings.NewReplacer(
			"{publicId}", "x", "{id}", "x", "{companyId}", "x", "{webhookId}", "x", "{deliveryId}", "x", "{linkId}", "x",
			"{keyId}", "x", "{memberId}", "x",
		).Replace(pathOf(p.document, o))
		slow(s, methodOf(p.document, o), path, kind, "Content-Length: 100\r\n\r\n{")
	})
	slow(
		s, http.MethodPost, certificationAction+"/artifacts", "multipart/form-data; boundary=x",
		"Content-Length: 100\r\n\r\n--x\r\n",
	)
	// A body without Content-Length.
	slow(s, http.MethodPost, integrity+"/mcp", "application/json", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	if after := s.sequence(); after != before {
		t.Errorf("%d events", after-before)
	}
}

// slow sends the beginning of a body, and requires the answer that the body was late on a connection that ends.
func slow(s *service, method, path, kind, rest string) {
	s.t.Helper()
	text := fmt.Sprintf(
		"%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: application/json, "+
			"text/event-stream\r\nContent-Type: %s\r\n%s",
		method, path, s.org.Secret, kind, rest,
	)
	connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
	check(s.t, err)
	defer connection.Close()
	check(s.t, connection.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(connection, text)
	check(s.t, err)
	answers := bufio.NewReader(connection)
	response, err := http.ReadResponse(answers, &http.Request{Method: method})
	check(s.t, err)
	said, err := io.ReadAll(response.Body)
	check(s.t, err)
	check(s.t, response.Body.Close())
	if response.StatusCode != http.StatusRequestTimeout || !contains(said, `"code":"REQUEST_TIMEOUT"`) ||
		!contains(said, `"retryable":true`) ||
		!response.Close || response.Header.Get("Retry-After") != "1" {
		s.t.Errorf("%s %s: %d %v %s", method, path, response.StatusCode, response.Header, said)
	}
	check(s.t, judge(s.request(method, path, s.org.Secret, nil), nil, response, said))
	if _, err := answers.ReadByte(); err == nil {
		s.t.Errorf("%s %s: the connection stays", method, path)
	}
}

// An answer that does not need the body does not wait for one that never arrives.
func TestAnswerBeforeTheBody(t *testing.T) {
	s := open(t, options{})
	before := s.sequence()
	const begun = "Content-Length: 100\r\n\r\n{"
	var all sync.WaitGroup
	for line, want := range map[string]int{
		"POST " + certificationAction + "/artifacts HTTP/1.1\r\nAuthorization: Bearer x\r\n" +
			begun: http.StatusUnauthorized,
		"POST " + certificationAction + "/oauth/links/redeem HTTP/1.1\r\nContent-Type: text/plain\r\n" +
			begun: http.StatusUnsupportedMediaType,
		"POST /nothing HTTP/1.1\r\n" + begun: http.StatusNotFound,
		"GET /healthz HTTP/1.1\r\n" + begun:  http.StatusOK,
		"POST " + certificationAction + "/verify HTTP/1.1\r\nAuthorization: Bearer " + s.org.Secret +
			"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n": http.StatusUnsupportedMediaType,
		"POST " + certificationAction + "/artifacts HTTP/1.1\r\nAuthorization: Bearer " + s.org.Secret +
			"\r\nContent-Type: multipart/form-data; boundary=x\r\n" +
			"Content-Length: 10000\r\n\r\n--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n": http.StatusUnprocessableEntity,
	} {
		all.Go(func() {
			connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			err = connection.SetDeadline(time.Now().Add(20 * time.Second))
			if err == nil {
				_, err = io.WriteString(connection, strings.Replace(line, "\r\n", "\r\nHost: x\r\n", 1))
			}
			if err != nil {
				t.Error(err)
				return
			}
			answers := bufio.NewReader(connection)
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Errorf("%q: %v", line, err)
				return
			}
			if response.Body.Close(); response.StatusCode != want || !response.Close {
				t.Errorf("%q: %d %v", line, response.StatusCode, response.Header)
			}
		})
	}
	all.Wait()
	if after := s.sequence(); after != before {
		t.Errorf("%d events", after-before)
	}
}

func methodOf(document *openapi3.T, operation *openapi3.Operation) string {
	for _, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			if o == operation {
				return method
			}
		}
	}
	return ""
}

func pathOf(document *openapi3.T, operation *openapi3.Operation) string {
	for path, item := range document.Paths.Map() {
		for _, o := range item.Operations() {
			if o == operation {
				return path
			}
		}
	}
	return ""
}

func TestLimitsOfEveryOperation(t *testing.T) {
	plans := parsePlans(t, `{"gratis": {"perMinute": 1, "versionsPerMonth": 1}}`)
	s := open(t, options{plan: "gratis", plans: plans, config: func(c *handlers.Config) {
		c.PublicPerMinute, c.PublicPagesPerMinute = 1, 1
	}})
	s.freshMinute()
	id := s.registered("a", 1, "one")
	s.public("/limits")
	s.public("/api/public/integrity/unknown")
	s.each(id, func(o *openapi3.Operation, send func(string, any, ...string) answer) {
		if documents(o, http.StatusTooManyRequests) {
			a := send(s.org.Secret, nil)
			if a.status == http.StatusOK { // it took something away, which succeeds once
				a = send(s.org.Secret, nil)
			}
			a.refuses(http.StatusTooManyRequests, domain.RateLimited)
		}
	})
}

func TestFaultsOfEveryOperation(t *testing.T) {
	away, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(context.Background(), 1)
	check(t, err)
	t.Cleanup(away.Close)
	for _, fault := range []struct {
		status int
		code   domain.Code
		config func(*handlers.Config)
	}{
		{http.StatusInternalServerError, domain.Internal, func(c *handlers.Config) {
			c.Store, c.Sessions, c.Keys, c.Transparency = nil, nil, func() action.Keys {
				panic("a fault of the program")
			}, &transparency.Reader{}
		}},
		{http.StatusServiceUnavailable, domain.TemporarilyUnavailable, func(c *handlers.Config) {
			c.Store.Pool, c.Store.Public, c.Sessions.Pool, c.Keys = away, away, away, func() action.Keys { return action.Keys{} }
			c.Transparency = &transparency.Reader{Pool: away}
		}},
	} {
		s := open(t, options{config: fault.config})
		id := domain.NewPublicID(s.Installation.Secret, 1)
		s.each(id.String(), func(o *openapi3.Operation, send func(string, any, ...string) answer) {
			if documents(o, fault.status) && o.OperationID != "getDownload" { // it only says that other downloads are in progress
				send(s.org.Secret, nil).refuses(fault.status, fault.code)
			}
		})
	}
}

func TestPublishedContract(t *testing.T) {
	const own = "The operator's <own> words."
	s := open(t, options{config: func(c *handlers.Config) {
		c.BaseURL = "https://other.example.org"
		c.Relationship = map[evidence.Language]string{evidence.English: own}
	}})
	a := s.public("/api/integrity-openapi")
	var document struct {
		OpenAPI string `json:"openapi"`
		Info    struct {
			Version, Description string
			Release              string `json:"x-release"`
		}
		Servers []struct{ URL string }
	}
	check(t, json.Unmarshal(a.body, &document))
	if a.header.Get("Content-Type") != "application/json" || document.OpenAPI != "3.1.0" ||
		document.Info.Version != "1.0.0" || document.Info.Release != domain.ThisRelease.String() {
		t.Errorf("%v %s %+v", a.header, document.OpenAPI, document.Info)
	}
	equal(t, "servers", document.Servers, []any{map[string]any{"URL": "https://other.example.org"}})
	for language, words := range map[evidence.Language]string{evidence.English: own, evidence.Spanish: ""} {
		for _, sentence := range append(evidence.Limits(language, words), evidence.LimitsTitle(language)) {
			if !strings.Contains(document.Info.Description, sentence) {
				t.Errorf("the document does not say: %s", sentence)
			}
		}
	}
	// The certification API receives files, so its contract limits the statement to certificates.
	older := string(s.public("/api/openapi").body)
	for language, words := range map[evidence.Language]string{evidence.English: own, evidence.Spanish: ""} {
		said := evidence.CertificateLimits(language, words)
		for _, sentence := range append(said, evidence.CertificateLimitsTitle(language)) {
			if !strings.Contains(older, sentence) {
				t.Errorf("/api/openapi does not say: %s", sentence)
			}
		}
		for _, sentence := range append(evidence.Limits(language, words), evidence.LimitsTitle(language)) {
			if !slices.Contains(said, sentence) && strings.Contains(older, sentence) {
				t.Errorf("/api/openapi says what is not true of certificates: %s", sentence)
			}
		}
	}
	if bytes.Contains(a.body, []byte(`"url": "`+baseURL)) {
		t.Error("the document names an address that is not this service's")
	}

	names, err := fs.Glob(os.DirFS("../schemas"), "*-v1.json")
	check(t, err)
	paths := []string{"/api/integrity-openapi", "/api/openapi", "/.well-known/integrity-trusted-keys.json"}
	for _, name := range names {
		paths = append(paths, "/schemas/"+name)
		var schema map[string]any
		check(t, json.Unmarshal(s.public("/schemas/"+name).body, &schema))
		if schema["$id"] != "https://other.example.org/schemas/"+name {
			t.Errorf("$id %v", schema["$id"])
		}
	}
	if len(names) != 15 {
		t.Errorf("schemas %v", names)
	}
	for _, name := range []string{schemas.VectorsFile, schemas.ReleasesFile} {
		text, err := schemas.File(name)
		check(t, err)
		if a := s.public("/schemas/" + name); !bytes.Equal(a.body, text) ||
			a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
	for _, path := range paths {
		a, head := s.send(
			http.MethodGet, path, "", nil, "Accept-Encoding", "identity",
		), s.send(http.MethodHead, path, "", nil)
		tag := a.header.Get("ETag")
		if a.status != http.StatusOK || tag == "" || a.header.Get("Cache-Control") != "public, max-age=300" ||
			head.header.Get("ETag") != tag || len(head.body) != 0 {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
		known := s.send(http.MethodGet, path, "", nil, "Accept-Encoding", "identity", "If-None-Match", tag)
		if known.status != http.StatusNotModified || len(known.body) != 0 || known.header.Get("ETag") != tag {
			t.Errorf("%s, conditional: %d", path, known.status)
		}
		if strings.HasPrefix(path, "/schemas/") && a.header.Get("Content-Type") != "application/schema+json" {
			t.Errorf("%s: %s", path, a.header.Get("Content-Type"))
		}
	}
	for _, path := range []string{
		"/schemas/integrity-v2.json", "/schemas/integrity-openapi.json", "/schemas/openapi.json", "/schemas/schemas.go",
		"/schemas/..",
	} {
		if e := s.public(path).is(http.StatusNotFound); e["code"] != string(domain.NotFound) {
			t.Errorf("%s: %v", path, e)
		}
	}
}

// Too large headers are refused before the service reads the request. A probe has no other refusal.
func TestHeadersOfAProbe(t *testing.T) {
	s := open(t, options{})
	for _, path := range []string{"/healthz", "/readyz"} {
		connection, err := net.Dial("tcp", s.http.Listener.Addr().String())
		check(t, err)
		defer connection.Close()
		check(t, connection.SetDeadline(time.Now().Add(patience)))
		// The server stops reading, so writing may fail.
		_, _ = fmt.Fprintf(
			connection, "GET %s HTTP/1.1\r\nHost: localhost\r\nX-Long: %s\r\n\r\n", path,
			strings.Repeat("x", http.DefaultMaxHeaderBytes+8<<10),
		)
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		check(t, err)
		said, err := io.ReadAll(response.Body)
		check(t, err)
		check(t, response.Body.Close())
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !response.Close {
			t.Errorf("%s: %d %v", path, response.StatusCode, response.Header)
		}
		check(t, judge(s.request(http.MethodGet, path, "", nil), nil, response, said))
	}
}

// Pages of other origins may read exactly the answers that the contract allows.
func TestCORS(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	p, err := published()
	check(t, err)
	fill := strings.NewReplacer(
		"{publicId}", id, "{id}", id, "{companyId}", "x", "{code}", "internal", "{name}", "integrity-v1.json", "{file}",
		"verify_integrity.py", "{webhookId}", "x", "{deliveryId}", "x", "{linkId}", "x", "{keyId}", "x", "{memberId}", "x",
		"{level}", "0", "{n}", "000", "{width}", "1",
	)
	for path, item := range p.document.Paths.Map() {
		a := s.send(
			http.MethodOptions, fill.Replace(path), s.org.Secret, nil, "Origin", "https://page.example",
			"Access-Control-Request-Method", "GET",
		)
		get := s.send(http.MethodGet, fill.Replace(path), s.org.Secret, nil, "Origin", "https://page.example")
		public := false // if the document says so
		if item.Get != nil {
			public = item.Get.Responses.Status(http.StatusOK).Value.Headers["Access-Control-Allow-Origin"] != nil
		}
		if public != (a.status == http.StatusNoContent) || public != (a.header.Get("Access-Control-Allow-Origin") == "*") ||
			public != (get.header.Get("Access-Control-Allow-Origin") == "*") ||
			a.header.Get("Allow") == "" && !strings.Contains(path, "reservations") && !strings.Contains(path, "batch") {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
}

func TestCodesOfTheDocument(t *testing.T) {
	p, err := published()
	check(t, err)
	documented := p.enumerated()
	for _, code := range declaredCodes(t) {
		if !slices.Contains(documented, string(code)) {
			t.Errorf("the OpenAPI document does not name %s", code)
		}
	}
	for _, code := range documented {
		if !slices.Contains(declaredCodes(t), domain.Code(code)) {
			t.Errorf("the service has no code %s", code)
		}
	}
}
