package handlers

import (
	"net/http"
	"slices"
	"testing"

	"integrityledger/handlers/mcp"
	"integrityledger/handlers/oauth"
)

// The group judges the role of a key by the scope of the action. An action without one would let every role write, so
// each that writes names its scope, but those that a member takes for itself.
func TestActionsThatWriteNameTheirScope(t *testing.T) {
	own := []string{"POST /api/v1/oauth/links", "DELETE /api/v1/oauth/links/{linkId}"}
	s := &server{Config: Config{OAuth: &oauth.Provider{}}}
	var without []string
	actions := 0
	for _, r := range slices.Concat(s.routes(), s.certificationRoutes(), s.oauthRoutes()) {
		for method, act := range r.methods {
			if r.kind != apiRoute || method == http.MethodGet {
				continue
			}
			actions++
			if act.scope == anyScope {
				without = append(without, method+" "+r.template)
			}
		}
	}
	slices.Sort(own)
	slices.Sort(without)
	if !slices.Equal(without, own) || actions < 20 {
		t.Errorf("of %d actions that write, these name no scope: %q", actions, without)
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
