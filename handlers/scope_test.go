package handlers

import (
	"net/http"
	"slices"
	"testing"

	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
)

// The group judges the role of a key by the scope of the endpoint. An endpoint without a scope would let every role
// write, so each endpoint that writes names its scope, except those with which members act for themselves.
func TestEndpointsThatWriteNameTheirScope(t *testing.T) {
	own := []string{"POST /api/v1/oauth/links", "DELETE /api/v1/oauth/links/{linkId}"}
	s := assemble(Config{Edge: Edge{OAuth: &oauth.Provider{}}})
	var without []string
	writing := 0
	for _, e := range s.endpoints {
		if e.Caller == edge.Anyone || e.IsMessage() || e.Method == http.MethodGet {
			continue
		}
		writing++
		if e.Scope == edge.AnyScope {
			without = append(without, e.Method+" "+e.Template)
		}
	}
	slices.Sort(own)
	slices.Sort(without)
	if !slices.Equal(without, own) || writing < 20 {
		t.Errorf("of %d endpoints that write, these name no scope: %q", writing, without)
	}
}

// The middleware reads the policy of a path before it knows the method, so all methods of a path must agree on it.
func TestMethodsOfAPathAgree(t *testing.T) {
	s := assemble(Config{Edge: Edge{OAuth: &oauth.Provider{}}})
	for _, rt := range edge.RoutesOf(s.endpoints) {
		for method, e := range rt.Methods {
			if e.Caller != rt.Policy.Caller || e.Answer != rt.Policy.Answer || e.AnyOrigin != rt.Policy.AnyOrigin ||
				e.IsMessage() != rt.Policy.IsMessage() {
				t.Errorf("%s %s: %+v, another method has %+v", method, rt.Template, e.Policy, rt.Policy)
			}
		}
	}
}
