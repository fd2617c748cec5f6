package handlers_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
)

const (
	ordinaryMCP  = "/api/v1/mcp"
	integrityMCP = "/api/v1/integrity/mcp"
)

// rpc posts a body to an MCP endpoint. The OpenAPI documents do not describe these endpoints.
func (s *service) rpc(path, key, body string, header ...string) answer {
	s.t.Helper()
	r := s.request(http.MethodPost, path, key, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.exchange(r)
}

// message is a JSON-RPC answer.
type message struct {
	JSONRPC string
	ID      json.RawMessage
	Result  json.RawMessage
	Error   *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

// message requires one JSON-RPC answer.
func (a answer) message(status int) message {
	a.t.Helper()
	var m message
	if a.status != status || a.header.Get("Content-Type") != "application/json" {
		a.t.Fatalf("status %d, want %d: %v %s", a.status, status, a.header, a.body)
	}
	check(a.t, json.Unmarshal(a.body, &m))
	if m.JSONRPC != "2.0" || (m.Result == nil) == (m.Error == nil) {
		a.t.Fatalf("no JSON-RPC answer: %s", a.body)
	}
	return m
}

type toolResult struct {
	IsError           bool
	StructuredContent map[string]any
	Content           []struct{ Type, Text string }
}

func request(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

// tool calls a tool and returns its object, or {error} if isError.
func (s *service) tool(path, key, name string, arguments any) (object map[string]any, isError bool) {
	s.t.Helper()
	text, err := json.Marshal(arguments)
	check(s.t, err)
	m := s.rpc(path, key, request("tools/call", `{"name":"`+name+`","arguments":`+string(text)+`}`)).message(http.StatusOK)
	if m.Error != nil {
		s.t.Fatalf("%s: %+v", name, m.Error)
	}
	var r toolResult
	check(s.t, json.Unmarshal(m.Result, &r))
	if len(r.Content) != 1 || r.Content[0].Type != "text" || r.IsError != (r.StructuredContent == nil) {
		s.t.Fatalf("%s: %s", name, m.Result)
	}
	check(s.t, json.Unmarshal([]byte(r.Content[0].Text), &object))
	if !r.IsError {
		equal(s.t, name+" as text", object, r.StructuredContent)
	}
	return object, r.IsError
}

// toolRefuses calls a tool that refuses with a code.
func (s *service) toolRefuses(path, key, name string, arguments any, code domain.Code) wire.Failure {
	s.t.Helper()
	object, isError := s.tool(path, key, name, arguments)
	failure := typed[wire.Refused](s.t, object).Error
	if !isError || failure == nil || failure.Code != code {
		s.t.Fatalf("%s: %v, want %s", name, object, code)
	}
	return *failure
}

// listed is a tool in the answer to tools/list.
type listed struct {
	Name, Title, Description string
	InputSchema              json.RawMessage
	OutputSchema             json.RawMessage
	Annotations              map[string]bool
}

func (s *service) listed(path, key string) map[string]listed {
	s.t.Helper()
	m := s.rpc(path, key, request("tools/list", "{}")).message(http.StatusOK)
	var list struct {
		CacheScope string
		Tools      []listed
	}
	check(s.t, json.Unmarshal(m.Result, &list))
	if list.CacheScope != "private" {
		s.t.Errorf("the tools of one key may be kept for others: %s", m.Result)
	}
	tools := map[string]listed{}
	for _, tool := range list.Tools {
		tools[tool.Name] = tool
	}
	return tools
}

// offered names the tools that are shown to a key.
func (s *service) offered(path, key string) string {
	s.t.Helper()
	return strings.Join(slices.Sorted(maps.Keys(s.listed(path, key))), " ")
}

// follows requires that a value matches a published schema.
func follows(t *testing.T, what string, schema json.RawMessage, value any) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	check(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check(t, compiler.AddResource("https://ledger.example/tool.json", document))
	compiled, err := compiler.Compile("https://ledger.example/tool.json")
	check(t, err)
	text, err := json.Marshal(value)
	check(t, err)
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	check(t, err)
	if err := compiled.Validate(plain); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	closed := document.(map[string]any)
	if closed["type"] != "object" || closed["additionalProperties"] != false {
		t.Errorf("%s: the schema is not closed: %s", what, schema)
	}
}

// step is a tool call and the equivalent REST request: a path, or a body to POST.
type step struct {
	endpoint, tool string
	arguments      body
	rest           string
	body           any
	differ         []string // members that may differ between the two calls
}

func (s *service) everyTool() []step {
	s.t.Helper()
	reference := body{"companyReference": "company-1", "source": "billing", "documentReference": "a", "version": 1}
	const lookup = "companyReference=company-1&source=billing&documentReference=a&version=1"
	id := s.registered("a", 1, "one")
	s.registered("a", 2, "two")
	gone := s.registered("b", 1, "gone")
	s.post(integrity+"/records/"+gone+"/revoke", nil).is(http.StatusOK)
	_, certificate := s.certificate("Title", "content", "title")
	certificates := certificationAction + "/certificates/" + certificate + "/verify"
	return []step{
		{
			integrityMCP, "integrity_reserve", reference.with(body{"version": 3}), integrity + "/reservations",
			reference.with(body{"version": 3}), []string{"replayed", "expiresAt"},
		},
		{
			integrityMCP, "integrity_register", declaration("a", 1, "one"), integrity + "/records", declaration("a", 1, "one"),
			nil,
		},
		{
			integrityMCP, "integrity_register",
			declaration("a", 4, "four").with(body{"previousVersion": 2, "sha256": strings.ToUpper(hash("four"))}),
			integrity + "/records", declaration("a", 4, "four").with(body{"previousVersion": 2}),
			[]string{"replayed", "consumption"},
		},
		{integrityMCP, "integrity_lookup", reference, integrity + "/lookup?" + lookup, nil, nil},
		{integrityMCP, "integrity_lookup", body{"publicId": id}, integrity + "/lookup?publicId=" + id, nil, nil},
		{
			integrityMCP, "integrity_changes", body{"companyReference": "company-1", "after": 1, "limit": 2},
			integrity + "/changes?companyReference=company-1&after=1&limit=2", nil, nil,
		},
		{
			integrityMCP, "integrity_changes", body{"companyReference": "company-1", "epoch": 1},
			integrity + "/changes?companyReference=company-1", nil, nil,
		},
		{integrityMCP, "integrity_export", body{"publicId": id}, "", nil, nil},
		{
			integrityMCP, "integrity_revoke", body{"publicId": gone, "reason": "again"},
			integrity + "/records/" + gone + "/revoke", body{}, nil,
		},
		{
			integrityMCP, "integrity_verify", body{"publicId": id, "sha256": hash("one")},
			"/api/public/integrity/" + id + "?sha256=" + hash("one"), nil, []string{"checkedAt"},
		},
		{
			integrityMCP, "integrity_verify", body{"publicId": id, "sha256": hash("other")},
			"/api/public/integrity/" + id + "?sha256=" + hash("other"), nil, []string{"checkedAt"},
		},
		{
			integrityMCP, "integrity_verify", body{"publicId": gone, "sha256": hash("gone")},
			"/api/public/integrity/" + gone + "?sha256=" + hash("gone"), nil, []string{"checkedAt"},
		},
		{integrityMCP, "integrity_verify", body{"publicId": id}, "/api/public/integrity/" + id, nil, []string{"checkedAt"}},
		{
			ordinaryMCP, "verificar_documento", body{"publicId": certificate, "sha256": hash("content")},
			certificationAction + "/verify", body{"publicId": certificate, "sha256": hash("content")}, []string{"checkedAt"},
		},
		{
			ordinaryMCP, "verificar_documento", body{"publicId": certificate, "sha256": hash("other")},
			certificationAction + "/verify", body{"publicId": certificate, "sha256": hash("other")}, []string{"checkedAt"},
		},
		{ordinaryMCP, "verificar_certificado", body{"publicId": certificate}, certificates, nil, []string{"checkedAt"}},
		{
			ordinaryMCP, "listar_documentos", body{"limit": 1, "offset": 0},
			certificationAction + "/artifacts?limit=1&offset=0", nil, nil,
		},
		{ordinaryMCP, "listar_documentos", body{}, certificationAction + "/artifacts", nil, nil},
		{ordinaryMCP, "consultar_consumo", body{}, "/api/v1/usage", nil, nil},
	}
}

// like sends the REST request that is equivalent to a step.
func (s *service) like(p step) answer {
	s.t.Helper()
	if p.body != nil {
		return s.post(p.rest, p.body)
	}
	return s.get(p.rest)
}

// Every tool accepts the arguments of its input schema and returns the same as REST, in the form of its output schema.
func TestMCPTools(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: monthly(t, 1000)})
	s.hold()
	seen := map[string]bool{}
	tools := map[string]map[string]listed{
		ordinaryMCP: s.listed(ordinaryMCP, s.org.Secret), integrityMCP: s.listed(integrityMCP, s.org.Secret),
	}
	for _, p := range s.everyTool() {
		tool, ok := tools[p.endpoint][p.tool]
		if !ok {
			t.Fatalf("%s is not offered", p.tool)
		}
		seen[p.tool] = true
		follows(t, p.tool+", input", tool.InputSchema, p.arguments)
		got, isError := s.tool(p.endpoint, s.org.Secret, p.tool, p.arguments)
		if isError {
			t.Fatalf("%s: %v", p.tool, got)
		}
		follows(t, p.tool+", output", tool.OutputSchema, got)
		if p.tool == "integrity_export" {
			envelope, err := json.Marshal(got)
			check(t, err)
			verdict := evidence.Verify(envelope, s.Trusted, evidence.Options{Now: s.Now()})
			if verdict.Signature != evidence.Valid || verdict.References != evidence.Valid ||
				verdict.Observation != evidence.Valid {
				t.Errorf("the export does not verify: %+v", verdict)
			}
			continue
		}
		want := s.like(p)
		if want.status > http.StatusCreated {
			t.Fatalf("%s: %s", p.rest, want.body)
		}
		data := want.is(want.status)
		for _, name := range p.differ {
			delete(data, name)
			delete(got, name)
		}
		equal(t, p.tool+" and "+p.rest, got, data)
	}
	for _, list := range tools {
		for name, tool := range list {
			if !seen[name] || tool.Title == "" {
				t.Errorf("%s is not tried, or has no title", name)
			}
			reads := !slices.Contains([]string{"integrity_reserve", "integrity_register", "integrity_revoke"}, name)
			if tool.Annotations["readOnlyHint"] != reads || !tool.Annotations["idempotentHint"] ||
				tool.Annotations["destructiveHint"] != (name == "integrity_revoke") {
				t.Errorf("%s: %v", name, tool.Annotations)
			}
		}
	}
	s.Audit(t)
}

// The epoch is metadata of the tool's result, as it is in meta of a REST answer.
func TestMCPFeedHasItsEpoch(t *testing.T) {
	s := open(t, options{})
	s.owner("UPDATE ledger SET feed_epoch = 7")
	const call = `{"name":"integrity_changes","arguments":{"companyReference":"company-1","epoch":7}}`
	m := s.rpc(integrityMCP, s.org.Secret, request("tools/call", call)).message(http.StatusOK)
	var result struct {
		StructuredContent map[string]any
		Meta              map[string]any `json:"_meta"`
	}
	check(t, json.Unmarshal(m.Result, &result))
	equal(t, "_meta", result.Meta, map[string]any{"epoch": 7.0})
	equal(
		t, "structuredContent", result.StructuredContent,
		s.get(integrity+"/changes?companyReference=company-1").is(http.StatusOK),
	)
}

// A failure that the caller can correct is a result with the same error as in REST.
func TestMCPErrors(t *testing.T) {
	s := open(
		t,
		options{
			plan:  "gratis",
			plans: parsePlans(t, `{"gratis": {"perMinute": 10000, "versionsPerMonth": 1, "requestsPerMonth": 1000}}`),
		},
	)
	s.hold()
	s.registered("a", 1, "one")
	pending := s.post(
		integrity+"/reservations",
		body{"companyReference": "company-1", "source": "billing", "documentReference": "r", "version": 1},
	).is(http.StatusCreated)["publicId"].(string)
	unknown := strings.Repeat("a", 26)
	s.Company(t, s.org, "company-2")
	for _, p := range []struct {
		code domain.Code
		step
	}{
		{
			domain.InvalidData,
			step{
				integrityMCP, "integrity_register", body{"version": 1.5, "sha256": "x", "other": true}, integrity + "/records",
				body{"version": 1.5, "sha256": "x", "other": true}, nil,
			},
		},
		{domain.InvalidData, step{integrityMCP, "integrity_reserve", body{}, integrity + "/reservations", body{}, nil}},
		{
			domain.InvalidData,
			step{
				integrityMCP, "integrity_revoke", body{"publicId": unknown, "reason": strings.Repeat("x", 501)},
				integrity + "/records/" + unknown + "/revoke", body{"reason": strings.Repeat("x", 501)}, nil,
			},
		},
		{
			domain.InvalidData,
			step{
				integrityMCP, "integrity_verify", body{"publicId": unknown, "sha256": "x"},
				"/api/public/integrity/" + unknown + "?sha256=x", nil, nil,
			},
		},
		{domain.InvalidData, step{ordinaryMCP, "verificar_documento", body{}, certificationAction + "/verify", body{}, nil}},
		{
			domain.InvalidData,
			step{
				ordinaryMCP, "listar_documentos", body{"limit": 201}, certificationAction + "/artifacts?limit=201", nil,
				[]string{"errors"},
			},
		},
		{
			domain.VersionConflict,
			step{
				integrityMCP, "integrity_register", declaration("a", 1, "two"), integrity + "/records", declaration("a", 1, "two"),
				nil,
			},
		},
		{
			domain.CompanyNotAuthorized,
			step{
				integrityMCP, "integrity_register", declaration("a", 1, "two").with(body{"companyReference": "company-2"}),
				integrity + "/records", declaration("a", 1, "two").with(body{"companyReference": "company-2"}), nil,
			},
		},
		{
			domain.CompanyNotAuthorized,
			step{
				integrityMCP, "integrity_changes", body{"companyReference": "nobody"},
				integrity + "/changes?companyReference=nobody", nil, nil,
			},
		},
		{
			domain.CursorAhead,
			step{
				integrityMCP, "integrity_changes", body{"companyReference": "company-1", "after": 1000},
				integrity + "/changes?companyReference=company-1&after=1000", nil, nil,
			},
		},
		{
			domain.CursorAhead,
			step{
				integrityMCP, "integrity_changes", body{"companyReference": "company-1", "epoch": 2},
				integrity + "/changes?companyReference=company-1&epoch=2", nil, nil,
			},
		},
		{
			domain.RegistrationQuotaExhausted,
			step{
				integrityMCP, "integrity_register", declaration("a", 2, "two"), integrity + "/records", declaration("a", 2, "two"),
				[]string{"retryAfter"},
			},
		},
		{
			domain.RecordNotFound,
			step{
				integrityMCP, "integrity_lookup",
				body{"companyReference": "company-1", "source": "billing", "documentReference": "r", "version": 1},
				integrity + "/lookup?companyReference=company-1&source=billing&documentReference=r&version=1", nil, nil,
			},
		},
		{
			domain.RecordNotFound,
			step{
				integrityMCP, "integrity_lookup", body{"publicId": pending}, integrity + "/lookup?publicId=" + pending, nil, nil,
			},
		},
		{
			domain.InvalidData,
			step{
				integrityMCP, "integrity_lookup", body{"publicId": pending, "version": 1, "source": "billing"},
				integrity + "/lookup?publicId=" + pending + "&version=1&source=billing", nil, nil,
			},
		},
		{
			domain.InvalidData,
			step{
				integrityMCP, "integrity_lookup", body{"source": "billing"}, integrity + "/lookup?source=billing", nil,
				[]string{"errors"},
			},
		},
		{
			domain.RecordNotFound,
			step{
				integrityMCP, "integrity_export", body{"publicId": pending}, integrity + "/records/" + pending + "/evidence", nil,
				nil,
			},
		},
		{
			domain.RecordNotFound,
			step{
				integrityMCP, "integrity_revoke", body{"publicId": unknown}, integrity + "/records/" + unknown + "/revoke", body{},
				nil,
			},
		},
		{
			domain.RecordNotFound,
			step{integrityMCP, "integrity_verify", body{"publicId": unknown}, "/api/public/integrity/" + unknown, nil, nil},
		},
		{
			domain.CertificateNotFound,
			step{
				ordinaryMCP, "verificar_documento", body{"publicId": "x", "sha256": hash("")}, certificationAction + "/verify",
				body{"publicId": "x", "sha256": hash("")}, nil,
			},
		},
		{
			domain.CertificateNotFound,
			step{
				ordinaryMCP, "verificar_certificado", body{"publicId": unknown},
				certificationAction + "/certificates/" + unknown + "/verify", nil, nil,
			},
		},
	} {
		got, isError := s.tool(p.endpoint, s.org.Secret, p.tool, p.arguments)
		if !isError {
			t.Errorf("%s, %s: %v", p.tool, p.code, got)
			continue
		}
		failure := got["error"].(map[string]any)
		a := s.like(p.step)
		a.refuses(a.status, p.code)
		want := a.is(a.status)
		if wait, given := failure["retryAfter"]; given != (a.header.Get("Retry-After") != "") || given && wait.(float64) < 1 {
			t.Errorf("%s, %s: retryAfter %v, header %s", p.tool, p.code, wait, a.header.Get("Retry-After"))
		}
		for _, name := range p.differ {
			delete(want, name)
			delete(failure, name)
		}
		equal(t, p.tool+" and "+p.rest, failure, want)
	}

	// Without a signing key the failure is retryable.
	s.keys.Store(&action.Keys{Trusted: s.Trusted})
	failure := s.toolRefuses(integrityMCP, s.org.Secret, "integrity_register", declaration("a", 1, "one"),
		domain.TemporarilyUnavailable)
	if !failure.Retryable || failure.RetryAfter != 1 {
		t.Errorf("without a key: %+v", failure)
	}
	s.Audit(t)
}

// viewer is a key with integrity:write whose member is now a viewer.
func (s *service) viewer() string {
	s.t.Helper()
	org, viewer := s.org, domain.Viewer
	org.Email = "viewer@example.com"
	must(s, &domain.AddMember{Origin: org.Operator(), Email: org.Email, Role: domain.Owner})
	_, secret := s.Key(s.t, org, domain.IntegrityWrite)
	must(s, &domain.ChangeMember{Origin: org.Operator(), Email: org.Email, Role: &viewer})
	return secret
}

// A key is shown the tools that its scopes, role and companies allow at the moment.
func TestMCPOffers(t *testing.T) {
	s := open(t, options{})
	const (
		reads  = "integrity_changes integrity_export integrity_lookup"
		writes = "integrity_register integrity_reserve"
	)
	key, reader := s.Key(t, s.org, domain.IntegrityRead)
	_, worker := s.Key(t, s.org, domain.IntegrityRead, domain.IntegrityWrite)
	writerKey, writer := s.Key(t, s.org, domain.IntegrityWrite)
	_, verifier := s.Key(t, s.org, domain.VerifyRead)
	want := func(what, path, secret, names string) {
		t.Helper()
		if got := s.offered(path, secret); got != names {
			t.Errorf("%s: %q, want %q", what, got, names)
		}
	}
	want(
		"all", integrityMCP, s.org.Secret, reads+" integrity_register integrity_reserve integrity_revoke integrity_verify",
	)
	want("all", ordinaryMCP, s.org.Secret, "consultar_consumo listar_documentos verificar_certificado verificar_documento")
	want("no company", integrityMCP, reader, "integrity_verify")
	want("no company", integrityMCP, worker, "integrity_verify")
	want("no company, no reading", integrityMCP, writer, "")
	want("no scope", integrityMCP, verifier, "")
	want("no scope", ordinaryMCP, reader, "consultar_consumo")
	want("verify", ordinaryMCP, verifier, "consultar_consumo verificar_certificado verificar_documento")

	s.Grant(t, s.org, key.ID, s.org.Company.ID, true)
	s.Grant(t, s.org, writerKey.ID, s.org.Company.ID, true)
	want("granted", integrityMCP, reader, reads+" integrity_verify")
	want("granted", integrityMCP, writer, writes)
	s.Grant(t, s.org, key.ID, s.org.Company.ID, false)
	want("no longer granted", integrityMCP, reader, "integrity_verify")

	// Calling a tool that is not shown is refused as in REST.
	for _, p := range []struct {
		path, key, tool string
		arguments       body
		code            domain.Code
	}{
		{integrityMCP, reader, "integrity_register", declaration("a", 1, "one"), domain.MissingScope},
		{integrityMCP, worker, "integrity_register", declaration("a", 1, "one"), domain.CompanyNotAuthorized},
		{integrityMCP, writer, "integrity_verify", body{"publicId": "x"}, domain.MissingScope},
		{integrityMCP, s.viewer(), "integrity_register", declaration("a", 1, "one"), domain.RoleRequired},
		{ordinaryMCP, reader, "listar_documentos", body{}, domain.MissingScope},
	} {
		s.toolRefuses(p.path, p.key, p.tool, p.arguments, p.code)
	}
	id := s.registered("a", 1, "one")
	stranger := s.Organization(t, 1, domain.InternalPlan)
	got, isError := s.tool(integrityMCP, stranger.Secret, "integrity_verify", body{"publicId": id, "sha256": hash("one")})
	if isError || got["result"] != "MATCH_CURRENT" {
		t.Errorf("any public id: %v", got)
	}
	m := s.rpc(
		integrityMCP, s.org.Secret, request("tools/call", `{"name":"verificar_documento","arguments":{}}`),
	).message(http.StatusOK)
	if m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("a tool of the other endpoint: %+v", m)
	}
}
