package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// invalid requires an answer with status 400 or 403 that is a JSON-RPC error without an id.
func (a answer) invalid(status, code int) {
	a.t.Helper()
	if m := a.message(status); m.Error == nil || m.Error.Code != code || string(m.ID) != "null" {
		a.t.Errorf("%s, want the code %d", a.body, code)
	}
}

func TestMCPOverHTTP(t *testing.T) {
	s := open(t, options{})
	for _, path := range []string{ordinaryMCP, integrityMCP} {
		ask := func(body string, header ...string) answer {
			t.Helper()
			return s.rpc(path, s.org.Secret, body, header...)
		}
		if a := ask(ping); a.message(http.StatusOK).Error != nil || a.header.Get("Cache-Control") != "private, no-store" ||
			a.header.Get("Mcp-Session-Id") != "" ||
			a.header.Get("X-Request-Id") == "" || a.header.Get("RateLimit") == "" ||
			a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("ping: %v %s", a.header, a.body)
		}
		for _, method := range []string{
			http.MethodGet, http.MethodDelete, http.MethodPut, http.MethodOptions, http.MethodHead,
		} {
			r := s.request(method, path, s.org.Secret, nil)
			if a := s.plainly(r); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "POST" {
				t.Errorf("%s: %d %v", method, a.status, a.header)
			}
		}

		// The caller and its origin.
		unknown := s.rpc(path, "", ping)
		unknown.refuses(http.StatusUnauthorized, domain.InvalidKey)
		// The challenge of the endpoint with OAuth is longer: see oauth_test.go.
		if got, _, more := strings.Cut(unknown.header.Get("WWW-Authenticate"), " "); got != "Bearer" ||
			more && path == integrityMCP {
			t.Errorf("WWW-Authenticate %q", got)
		}
		ask(ping, "Origin", baseURL).message(http.StatusOK)
		for _, origin := range []string{
			"https://page.example", "null", "http://ledger.example", baseURL + ":444", baseURL + ".evil.example",
		} {
			ask(ping, "Origin", origin).invalid(http.StatusForbidden, -32600)
		}
		// A page whose host name was pointed at the service has no key. A request with a key is not from a page.
		for host, keyless := range map[string]int{
			"ledger.example": 401, "LEDGER.example": 401, "localhost:1": 401, "127.0.0.1": 401, "[::1]:80": 401,
			"evil.example": 403, "ledger.example.evil": 403, "ledger": 403,
		} {
			for authorization, status := range map[string]int{
				"Bearer " + s.org.Secret: 200, "": keyless, "Basic " + s.org.Secret: keyless, "Bearer": keyless,
			} {
				r := s.request(http.MethodPost, path, "", strings.NewReader(ping))
				r.Host = host
				r.Header.Set("Content-Type", "application/json")
				if authorization != "" {
					r.Header.Set("Authorization", authorization)
				}
				if a := s.plainly(r); a.status != status {
					t.Errorf("Host %s, Authorization %q: %d %s", host, authorization, a.status, a.body)
				}
			}
		}

		// The body.
		ask(ping, "Content-Type", "text/plain").refuses(http.StatusUnsupportedMediaType, domain.UnsupportedMediaType)
		ask(ping, "Content-Type", "application/json; charset=utf-8").message(http.StatusOK)
		ask(ping, "Content-Encoding", "gzip").refuses(http.StatusUnsupportedMediaType, domain.UnsupportedMediaType)
		ask(ping, "Accept", "text/html").refuses(http.StatusNotAcceptable, domain.NotAcceptable)
		ask(ping, "Accept", "application/json").message(http.StatusOK)
		ask(ping, "Last-Event-Id", "1").message(http.StatusOK)
		ask(ping, "Mcp-Session-Id", "forgotten").message(http.StatusOK)
		full := ping + strings.Repeat(" ", 64<<10-len(ping))
		ask(full).message(http.StatusOK)
		ask(full+" ").refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
		for body, status := range map[string]int{full: http.StatusOK, full + " ": http.StatusRequestEntityTooLarge} {
			// without Content-Length
			r := s.request(http.MethodPost, path, s.org.Secret, struct{ io.Reader }{strings.NewReader(body)})
			r.Header.Set("Content-Type", "application/json")
			if a := s.plainly(r); a.status != status {
				t.Errorf("%d bytes in chunks: %d %s", len(body), a.status, a.body)
			}
		}

		// Messages. An error in one of them is answered under its id (see handlers/mcp).
		ask("{").invalid(http.StatusBadRequest, -32700)
		ask("{}").invalid(http.StatusBadRequest, -32600)
		ask("[]").invalid(http.StatusBadRequest, -32600)
		if m := ask(request("nothing", "{}")).message(http.StatusOK); m.Error.Code != -32601 || string(m.ID) != "1" {
			t.Errorf("an unknown method: %+v", m)
		}
		if m := ask(request("tools/call", `{"name":"nothing"}`)).message(http.StatusOK); m.Error.Code != -32602 {
			t.Errorf("an unknown tool: %+v", m)
		}
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
			`[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`,
		} {
			if a := ask(body); a.status != http.StatusAccepted || len(a.body) != 0 || a.header.Get("Content-Type") != "" {
				t.Errorf("%s: %d %v %s", body, a.status, a.header, a.body)
			}
		}

		// Versions.
		for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26"} {
			ask(ping, "Mcp-Protocol-Version", version).message(http.StatusOK)
			m := ask(request(
				"initialize", `{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`,
			)).message(http.StatusOK)
			if got := negotiated(t, m); got != version {
				t.Errorf("%s is answered with %s", version, got)
			}
			if release := `"version":"` + edge.ReadBuild().Semantic() + `"`; !strings.Contains(string(m.Result), release) {
				t.Errorf("serverInfo lacks %s: %s", release, m.Result)
			}
			switch a := ask("["+ping+","+ping+"]", "Mcp-Protocol-Version", version); version {
			case "2025-03-26":
				var list []message
				check(t, json.Unmarshal(a.body, &list))
				if a.status != http.StatusOK || len(list) != 2 {
					t.Errorf("a batch: %d %s", a.status, a.body)
				}
			default:
				a.invalid(http.StatusBadRequest, -32600)
			}
		}
		for _, version := range []string{"2024-11-05", "2026-07-28", "x", ""} {
			ask(ping, "Mcp-Protocol-Version", version).invalid(http.StatusBadRequest, -32600)
		}
		two := s.request(http.MethodPost, path, s.org.Secret, strings.NewReader(ping))
		two.Header.Set("Content-Type", "application/json")
		two.Header["Mcp-Protocol-Version"] = []string{"2025-11-25", "2025-11-25"}
		s.exchange(two).invalid(http.StatusBadRequest, -32600)
		m := ask(request(
			"initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`,
		)).message(http.StatusOK)
		if got := negotiated(t, m); got != "2025-11-25" {
			t.Errorf("an unknown version is answered with %s", got)
		}
	}
}

func negotiated(t *testing.T, m message) string {
	t.Helper()
	var result struct{ ProtocolVersion string }
	check(t, json.Unmarshal(m.Result, &result))
	return result.ProtocolVersion
}

// At the ordinary endpoint every message costs a monthly request, whatever its result, unless key, scope, role, plan or
// quota refuse it. The integrity endpoint costs none.
func TestMCPCosts(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: monthly(t, 31)})
	s.hold()
	_, weak := s.Key(t, s.org, domain.MetricsRead)
	used := 0
	costs := func(what string, n int) {
		t.Helper()
		used += n
		if got := s.number(
			"SELECT coalesce(sum(used), 0) FROM request_usage WHERE shard = $1 AND organization_id = $2",
		); got != int64(used) {
			t.Fatalf("%s: %d requests, want %d", what, got, used)
		}
	}
	s.rpc(
		ordinaryMCP, s.org.Secret,
		request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`),
	).message(http.StatusOK)
	costs("initialize", 1)
	s.rpc(ordinaryMCP, s.org.Secret, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	costs("a notification", 1)
	s.offered(ordinaryMCP, s.org.Secret)
	costs("a list", 1)
	s.tool(ordinaryMCP, s.org.Secret, "verificar_documento", body{})
	costs("a mistake", 1)
	s.tool(ordinaryMCP, weak, "consultar_consumo", body{})
	costs("another key of the organization", 1)
	s.rpc(ordinaryMCP, s.org.Secret, "{").invalid(http.StatusBadRequest, -32700)
	costs("no JSON", 1)
	s.rpc(ordinaryMCP, s.org.Secret, ping, "Content-Type", "text/plain").refuses(
		http.StatusUnsupportedMediaType, domain.UnsupportedMediaType,
	)
	costs("another media type", 1)
	s.rpc(ordinaryMCP, s.org.Secret, ping, "Mcp-Protocol-Version", "2026-07-28").invalid(http.StatusBadRequest, -32600)
	costs("another version", 1)
	s.rpc(ordinaryMCP, s.org.Secret, "["+strings.Repeat(ping+",", 20)+ping+"]").invalid(http.StatusBadRequest, -32600)
	costs("a batch beyond the limit, of which nothing was looked at", 1)

	s.rpc(
		ordinaryMCP, weak,
		request("tools/call", `{"name":"listar_documentos","name":"consultar_consumo","Name":"listar_documentos"}`),
	).message(http.StatusOK)
	costs("a name twice, of which the last is called", 1)

	s.tool(ordinaryMCP, weak, "listar_documentos", body{})
	s.rpc(ordinaryMCP, "wrong", ping).refuses(http.StatusUnauthorized, domain.InvalidKey)
	s.rpc(ordinaryMCP, s.org.Secret, ping, "Origin", "https://page.example").invalid(http.StatusForbidden, -32600)
	s.offered(integrityMCP, s.org.Secret)
	s.tool(integrityMCP, s.org.Secret, "integrity_register", declaration("a", 1, "one"))
	costs("refused by scope, key or origin, or not of the ordinary endpoint", 0)

	batch := func(key string, n int) answer {
		t.Helper()
		list := strings.Repeat(","+request("tools/call", `{"name":"listar_documentos","arguments":{}}`), n)
		return s.rpc(ordinaryMCP, key, "["+ping+list+"]", "Mcp-Protocol-Version", "2025-03-26")
	}
	batch(s.org.Secret, 9)
	costs("a batch of ten", 10)
	batch(weak, 9)
	costs("a batch of ten, nine of them refused by scope", 1)
	batch(s.org.Secret, 19).refuses(http.StatusTooManyRequests, domain.RequestQuotaExhausted)
	costs("a batch of twenty where ten are left", 0)
	batch(s.org.Secret, 9)
	costs("a batch of the last ten", 10)

	s.rpc(ordinaryMCP, s.org.Secret, ping).refuses(http.StatusTooManyRequests, domain.RequestQuotaExhausted)
	s.rpc(ordinaryMCP, s.org.Secret, "{").refuses(http.StatusTooManyRequests, domain.RequestQuotaExhausted)
	s.rpc(integrityMCP, s.org.Secret, ping).message(http.StatusOK)
	none := s.Organization(t, 1, "none")
	s.rpc(ordinaryMCP, none.Secret, ping).refuses(http.StatusForbidden, domain.PlanRequired)
	s.rpc(integrityMCP, none.Secret, ping).message(http.StatusOK)
}

// The last requests of a month are given out once, to whole batches or not at all.
func TestMCPLastRequests(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: monthly(t, 25)})
	s.hold()
	var given atomic.Int64
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			r := s.request(http.MethodPost, ordinaryMCP, s.org.Secret, strings.NewReader("["+ping+","+ping+","+ping+"]"))
			r.Header.Set("Content-Type", "application/json")
			switch a, err := s.through(s.http.Client(), r); {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusOK:
				given.Add(1)
			case a.status != http.StatusTooManyRequests:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	group.Wait()
	if got := s.allowance(s.org.Secret); given.Load() != 8 || !strings.HasPrefix(got, "25 24 1 ") {
		t.Errorf("%d batches of three were given: %s", given.Load(), got)
	}
}

// Both endpoints and REST share an organization's minute. A batch counts as a whole.
func TestMCPMinute(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	s.freshMinute()
	left := func(a answer, want int) {
		t.Helper()
		var remaining, reset int
		_, err := fmt.Sscanf(a.header.Get("RateLimit"), `"minute";r=%d;t=%d`, &remaining, &reset)
		check(t, err)
		if remaining != want {
			t.Errorf("RateLimit %s, want %d left", a.header.Get("RateLimit"), want)
		}
	}
	left(s.get(integrity+"/usage"), 29)
	left(s.rpc(ordinaryMCP, s.org.Secret, ping), 28)
	left(s.rpc(integrityMCP, s.org.Secret, ping), 27)
	batch := "[" + strings.Repeat(ping+",", 19) + ping + "]"
	left(s.rpc(integrityMCP, s.org.Secret, batch), 7)
	used := s.allowance(s.org.Secret) // one more
	refused := s.rpc(ordinaryMCP, s.org.Secret, batch)
	refused.refuses(http.StatusTooManyRequests, domain.RateLimited)
	left(refused, 0)
	s.get(integrity+"/usage").refuses(http.StatusTooManyRequests, domain.RateLimited)
	s.freshMinute()
	if got := s.allowance(s.org.Secret); got != used {
		t.Errorf("what the minute refuses costs of the month: %s, was %s", got, used)
	}
}

// A batch larger than the minute's limit is refused for its size, in a used-up minute too: there is no minute in which
// it would pass. It costs as much as one message.
func TestMCPBatchBeyondTheMinute(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 5}}`)})
	s.freshMinute()
	for _, endpoint := range []string{ordinaryMCP, integrityMCP} {
		batch := func(n int) answer { return s.rpc(endpoint, s.org.Secret, "["+strings.Repeat(ping+",", n-1)+ping+"]") }
		a := batch(6)
		a.invalid(http.StatusBadRequest, -32600)
		if !contains(
			a.body, "This batch has 6 messages, and the organization may send 5 a minute. Send smaller batches.",
		) || a.header.Get("Retry-After") != "" {
			t.Errorf("%v %s", a.header, a.body)
		}
		if a := batch(4); a.status != http.StatusOK {
			t.Errorf("a batch of the four that are left: %d %s", a.status, a.body)
		}
		s.freshMinute()
	}
}

// A fault in a tool affects only its call, and no answer reveals the fault.
func TestMCPFaults(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) {
		c.Keys = func() action.Keys { panic("a fault of the program") }
	}})
	a := s.rpc(
		integrityMCP, s.org.Secret,
		"["+request("tools/call", `{"name":"integrity_register","arguments":`+full+`}`)+","+ping+"]", "X-Request-Id",
		"broken",
	)
	var list []message
	check(t, json.Unmarshal(a.body, &list))
	if a.status != http.StatusOK || len(list) != 2 || list[0].Error == nil || list[0].Error.Code != -32603 ||
		list[1].Error != nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var data struct{ Error map[string]any }
	check(t, json.Unmarshal(list[0].Error.Data, &data))
	if data.Error["code"] != string(domain.Internal) || strings.Contains(string(a.body), "a fault of the program") {
		t.Errorf("%s", a.body)
	}
	s.logged(`"msg":"MCP call failed","requestId":"broken"`)
	s.logged("panic: a value of type string")
	if log := s.log.String(); strings.Contains(log, "a fault of the program") {
		t.Errorf("log %s", log)
	}
}

// The fixed text is part of every tool whose answer attests a fact (contract, section 10).
func TestMCPTexts(t *testing.T) {
	const own = "The operator's own words."
	s := open(t, options{config: func(c *handlers.Config) {
		c.Relationship = map[evidence.Language]string{evidence.English: own, evidence.Spanish: own}
	}})
	// Both kinds have the shared sentences. Each has its own sentences, and not the other's.
	says := func(what, text string, language evidence.Language, kind, other web.Kind) {
		t.Helper()
		title, said := kind.Limits(language, own)
		for _, sentence := range append(said, title) {
			if !strings.Contains(text, sentence) {
				t.Errorf("%s does not say: %s", what, sentence)
			}
		}
		title, foreign := other.Limits(language, own)
		for _, sentence := range append(foreign, title) {
			if !slices.Contains(said, sentence) && strings.Contains(text, sentence) {
				t.Errorf("%s says what is not true of it: %s", what, sentence)
			}
		}
	}
	for path, p := range map[string]struct {
		kind, other web.Kind
		language    evidence.Language
		tools       []string
	}{
		ordinaryMCP: {
			web.Certificate, web.Record, evidence.Spanish, []string{"verificar_documento", "verificar_certificado"},
		},
		integrityMCP: {
			web.Record, web.Certificate, evidence.English,
			[]string{"integrity_register", "integrity_export", "integrity_verify"},
		},
	} {
		m := s.rpc(
			path, s.org.Secret,
			request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`),
		).message(http.StatusOK)
		var result struct {
			Instructions string
			Capabilities map[string]any
		}
		check(t, json.Unmarshal(m.Result, &result))
		equal(t, "capabilities", result.Capabilities, map[string]any{"tools": map[string]any{}})
		says("initialize", result.Instructions, evidence.Spanish, p.kind, p.other)
		says("initialize", result.Instructions, evidence.English, p.kind, p.other)
		tools := s.listed(path, s.org.Secret)
		for _, name := range p.tools {
			says(name, tools[name].Description, p.language, p.kind, p.other)
		}
	}
}

// A client of a later protocol falls back to a supported version.
func TestMCPLaterClient(t *testing.T) {
	s := open(t, options{})
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:   s.http.URL + integrityMCP,
		HTTPClient: &http.Client{Transport: keyed{s.org.Secret, s.http.Client().Transport}}, MaxRetries: -1,
	}, nil)
	check(t, err)
	if got := session.InitializeResult().ProtocolVersion; got != "2025-11-25" {
		t.Errorf("version %s", got)
	}
	result, err := session.CallTool(
		ctx, &mcp.CallToolParams{Name: "integrity_register", Arguments: declaration("a", 1, "one")},
	)
	check(t, err)
	if result.IsError {
		t.Errorf("%+v", result)
	}
	check(t, session.Close())
}

// keyed sends a key with every request.
type keyed struct {
	key  string
	next http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.next.RoundTrip(r)
}

// If the further messages of a batch cannot be counted, the answer shows the minute after the first message.
func TestMCPBatchThatCannotBeCounted(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	s.freshMinute()
	s.rpc(integrityMCP, s.org.Secret, ping).message(http.StatusOK)
	s.owner(
		`CREATE FUNCTION no_more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.used > OLD.used + 1 THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$`,
		"CREATE TRIGGER no_more BEFORE UPDATE ON meters FOR EACH ROW EXECUTE FUNCTION no_more()",
	)
	a := s.rpc(integrityMCP, s.org.Secret, "["+ping+","+ping+","+ping+"]", "Mcp-Protocol-Version", "2025-03-26")
	if a.status != http.StatusInternalServerError || !strings.Contains(a.header.Get("RateLimit"), `"minute";r=`) ||
		!strings.Contains(a.header.Get("RateLimit-Policy"), `"minute";q=`) {
		t.Errorf("%d, %q, %q", a.status, a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy"))
	}
}
