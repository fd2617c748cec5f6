package handlers

import (
	"net/http"
	"slices"
	"testing"

	"integrityledger/handlers/mcp"
	"integrityledger/handlers/oauth"
)

// The group judges the role of a key by the scope of the endpoint. One without a scope would let every role write, so
// each endpoint that writes names its scope, but for those with which members act for themselves.
func TestEndpointsThatWriteNameTheirScope(t *testing.T) {
	own := []string{"POST /api/v1/oauth/links", "DELETE /api/v1/oauth/links/{linkId}"}
	s := &server{Config: Config{OAuth: &oauth.Provider{}}}
	var without []string
	writing := 0
	for _, e := range s.endpoints() {
		if e.caller == anyone || e.isMessage() || e.method == http.MethodGet {
			continue
		}
		writing++
		if e.scope == anyScope {
			without = append(without, e.method+" "+e.template)
		}
	}
	slices.Sort(own)
	slices.Sort(without)
	if !slices.Equal(without, own) || writing < 20 {
		t.Errorf("of %d endpoints that write, these name no scope: %q", writing, without)
	}
	tools := 0
	for _, e := range []*mcpEndpoint{s.ordinaryMCP(), s.integrityMCP()} {
		for _, tool := range e.tools {
			tools++
			if tool.effect != mcp.Reads && tool.scope == anyScope {
				t.Errorf("%s names no scope", tool.name)
			}
		}
	}
	if tools < 10 {
		t.Errorf("%d tools", tools)
	}
}

// The middleware asks the policy of a path before it knows the method, so all methods of a path agree on it.
func TestMethodsOfAPathAgree(t *testing.T) {
	s := &server{Config: Config{OAuth: &oauth.Provider{}}}
	for _, rt := range routesOf(s.endpoints()) {
		for method, e := range rt.methods {
			if e.caller != rt.policy.caller || e.answer != rt.policy.answer || e.anyOrigin != rt.policy.anyOrigin || e.isMessage() != rt.policy.isMessage() {
				t.Errorf("%s %s: %+v, another method has %+v", method, rt.template, e.policy, rt.policy)
			}
		}
	}
}
