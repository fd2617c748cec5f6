package handlers_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers"
)

const mcpClients = "testdata/mcp"

// mcpPackages are the official MCP clients.
var mcpPackages = nodeRoom(mcpClients, "client.mjs")

// node is the Node.js that runs these clients: the machine's, or the one installed with them.
func node(t *testing.T, directory string) string {
	t.Helper()
	if path, err := exec.LookPath("node"); err == nil {
		out, err := exec.Command(path, "--version").Output()
		check(t, err)
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, _ := strconv.Atoi(major); n >= 22 {
			return path
		}
	}
	machine := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	path := filepath.Join(directory, "node_modules", "node-"+runtime.GOOS+"-"+machine, "bin", "node")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the MCP clients need Node.js 22 or later: %v", err)
	}
	return path
}

// script runs one of the clients' programs and returns what it printed.
func script(t *testing.T, directory, input string, arguments ...string) (out []byte, log string, err error) {
	t.Helper()
	command := exec.Command(node(t, directory), arguments...)
	command.Dir = directory
	command.Stdin = strings.NewReader(input)
	command.Env = append(os.Environ(), "HOME="+directory)
	var errors bytes.Buffer
	command.Stderr = &errors
	out, err = command.Output()
	return out, errors.String(), err
}

// clientAnswer is the official client's result of a step.
type clientAnswer struct {
	Version string
	Session *string
	Result  json.RawMessage
	Error   *struct {
		Name, Message string
		Code          int
		Data          json.RawMessage
	}
}

type clientStep struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

func calls(tool string, arguments any) clientStep {
	return clientStep{"tools/call", map[string]any{"name": tool, "arguments": arguments}}
}

// run connects the official client and takes steps.
func (s *service) run(directory, path, key, version string, steps ...clientStep) []clientAnswer {
	s.t.Helper()
	input, err := json.Marshal(map[string]any{"url": s.http.URL + path, "key": key, "version": version, "steps": steps})
	check(s.t, err)
	out, log, err := script(s.t, directory, string(input), "client.mjs")
	if err != nil {
		s.t.Fatalf("%v: %s", err, log)
	}
	var answers []clientAnswer
	check(s.t, json.Unmarshal(out, &answers))
	return answers
}

// The official client uses both endpoints in all versions: every tool, whose results it checks against their output
// schemas, and every kind of error.
func TestOfficialMCPClient(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages of npm")
	}
	directory, ok := mcpPackages(t, "MCP with the official clients")
	if !ok {
		t.Skip(errNoNPM)
	}
	s := open(t, options{plan: "gratis", plans: monthly(t, 1000)})
	s.hold()
	every := s.everyTool()
	none := s.Organization(t, 1, "none")
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26"} {
		for _, endpoint := range []string{ordinaryMCP, integrityMCP} {
			steps := []clientStep{{Method: "ping"}, {Method: "tools/list"}}
			for _, p := range every {
				if p.endpoint == endpoint {
					steps = append(steps, calls(p.tool, p.arguments))
				}
			}
			good := len(steps)
			mend := calls("integrity_register", declaration("a", 1, "another"))
			if endpoint == ordinaryMCP {
				mend = calls("listar_documentos", body{"limit": 0})
			}
			steps = append(
				steps, mend, calls("nobody", body{}), clientStep{"tools/call", map[string]any{"name": "nobody", "arguments": 5}},
			)
			answers := s.run(directory, endpoint, s.org.Secret, version, steps...)
			if len(answers) != len(steps)+1 || answers[0].Version != version || answers[0].Session != nil {
				t.Fatalf("%s, %s: %+v", endpoint, version, answers)
			}
			for i, a := range answers[1:] {
				var result struct{ IsError bool }
				if a.Error == nil {
					check(t, json.Unmarshal(a.Result, &result))
				}
				switch {
				case i < good && (a.Error != nil || result.IsError):
					t.Errorf("%s, %+v: %+v %s", version, steps[i], a.Error, a.Result)
				case i == good && !result.IsError:
					t.Errorf("%s, %+v: %+v %s", version, steps[i], a.Error, a.Result)
				case i > good && (a.Error == nil || a.Error.Name != "McpError" || a.Error.Code != -32602):
					t.Errorf("%s, %+v: %+v %s", version, steps[i], a.Error, a.Result)
				}
			}

			refused := func(status int, key string) {
				t.Helper()
				a := s.run(directory, endpoint, key, version)
				if len(a) != 1 || a[0].Error == nil || a[0].Error.Name != "StreamableHTTPError" || a[0].Error.Code != status {
					t.Errorf("%s, %s: %+v, want %d", endpoint, version, a[0], status)
				}
			}
			refused(http.StatusUnauthorized, "ik_wrong")
			if endpoint == ordinaryMCP {
				refused(http.StatusForbidden, none.Secret)
			}
		}
	}
	s.skew.Store(0)
	s.Audit(t)
}

// scenarios are the scenarios of the official conformance suite that apply to every server that has tools and keeps no
// session.
func scenarios() []string {
	return []string{"server-initialize", "ping", "tools-list", "dns-rebinding-protection"}
}

// inapplicable are the other scenarios of the suite, with the reason why they do not apply.
func inapplicable() map[string]string {
	const (
		fixture   = "calls a tool of the suite's own, which answers something else than an object of the contract"
		events    = "needs event streams, which a server of JSON answers has none of"
		asks      = "the server would ask the client, which needs a session"
		resources = "the server has no resources"
		prompts   = "the server has no prompts"
	)
	return map[string]string{
		"logging-set-level": "the server sends no log messages", "completion-complete": "the server completes nothing",
		"tools-call-simple-text": fixture, "tools-call-image": fixture, "tools-call-audio": fixture,
		"tools-call-embedded-resource": fixture,
		"tools-call-mixed-content":     fixture, "tools-call-error": fixture, "json-schema-2020-12": fixture,
		"tools-call-with-logging": events, "tools-call-with-progress": events, "server-sse-polling": events,
		"server-sse-multiple-streams": events,
		"tools-call-sampling":         asks, "tools-call-elicitation": asks, "elicitation-sep1034-defaults": asks,
		"elicitation-sep1330-enums": asks,
		"resources-list":            resources, "resources-read-text": resources, "resources-read-binary": resources,
		"resources-templates-read": resources,
		"resources-subscribe":      resources, "resources-unsubscribe": resources,
		"prompts-list": prompts, "prompts-get-simple": prompts, "prompts-get-with-args": prompts,
		"prompts-get-embedded-resource": prompts, "prompts-get-with-image": prompts,
	}
}

func TestMCPConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages of npm")
	}
	directory, ok := mcpPackages(t, "MCP with the official conformance suite")
	if !ok {
		t.Skip(errNoNPM)
	}
	const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
	out, log, err := script(t, directory, "", suite, "list", "--server")
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		name, isName := strings.CutPrefix(line, "  - ")
		name, _, _ = strings.Cut(name, " ")
		if isName && !slices.Contains(scenarios(), name) && inapplicable()[name] == "" {
			t.Errorf("the suite has a scenario %s of which nothing is said", name)
		}
	}
	// The suite cannot send a key.
	var target atomic.Pointer[url.URL]
	var key atomic.Pointer[string]
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target.Load())
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+*key.Load())
	}})
	defer proxy.Close()
	s := open(t, options{config: func(c *handlers.Config) { c.BaseURL = proxy.URL }})
	address, err := url.Parse(s.http.URL)
	check(t, err)
	target.Store(address)
	key.Store(&s.org.Secret)
	for _, path := range []string{ordinaryMCP, integrityMCP} {
		for _, scenario := range scenarios() {
			out, log, err := script(t, directory, "", suite, "server", "--url", proxy.URL+path, "--scenario", scenario)
			if err != nil || !strings.Contains(string(out), "SUCCESS") && !strings.Contains(string(out), "✓") {
				t.Errorf("%s, %s: %v\n%s%s", path, scenario, err, out, log)
			}
		}
	}
}

// The inspector's command line lists the tools, finds their schemas portable, and calls them.
func TestMCPInspector(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages of npm")
	}
	directory, ok := mcpPackages(t, "MCP with the inspector")
	if !ok {
		t.Skip(errNoNPM)
	}
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	inspect := func(path string, arguments ...string) map[string]any {
		t.Helper()
		all := append([]string{"node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli",
			s.http.URL + path,
			"--transport", "http", "--header", "Authorization: Bearer " + s.org.Secret}, arguments...)
		out, log, err := script(t, directory, "", all...)
		if err != nil {
			t.Fatalf("%v: %s%s", err, out, log)
		}
		var answer map[string]any
		check(t, json.Unmarshal(out, &answer))
		return answer
	}
	for path, n := range map[string]int{ordinaryMCP: 4, integrityMCP: 7} {
		if list := inspect(path, "--method", "tools/list", "--strict"); len(list["tools"].([]any)) != n {
			t.Errorf("%s: %v", path, list)
		}
	}
	result := inspect(
		integrityMCP, "--method", "tools/call", "--tool-name", "integrity_verify", "--tool-arg", "publicId="+id,
		"--tool-arg", "sha256="+hash("one"),
	)
	if content := result["structuredContent"].(map[string]any); content["result"] != "MATCH_CURRENT" {
		t.Errorf("%v", result)
	}
	if result := inspect(
		ordinaryMCP, "--method", "tools/call", "--tool-name", "consultar_consumo",
	); result["structuredContent"].(map[string]any)["plan"] != domain.InternalPlan {
		t.Errorf("%v", result)
	}
}
