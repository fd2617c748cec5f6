package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const (
	ordinaryMCP  = "/api/v1/mcp"
	integrityMCP = "/api/v1/integrity/mcp"
)

// rpc posts a body to an MCP endpoint; these are not described by the OpenAPI documents.
func (s *service) rpc(path, key, body string, header ...string) answer {
	s.t.Helper()
	r := s.request(http.MethodPost, path, key, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.plainly(r)
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

// tool calls a tool and returns its object, {error} where isError.
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

func (s *service) offered(path, key string) string {
	s.t.Helper()
	m := s.rpc(path, key, request("tools/list", "{}")).message(http.StatusOK)
	var list struct {
		Tools []struct{ Name string }
	}
	check(s.t, json.Unmarshal(m.Result, &list))
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

func TestMCPSmoke(t *testing.T) {
	s := open(t, options{})
	m := s.rpc(integrityMCP, s.org.Secret, request("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)).message(200)
	t.Logf("%s", m.Result)
	t.Log(s.offered(integrityMCP, s.org.Secret), "|", s.offered(ordinaryMCP, s.org.Secret))
	got, failed := s.tool(integrityMCP, s.org.Secret, "integrity_register", declaration("a", 1, "one"))
	t.Log(got, failed)
}
