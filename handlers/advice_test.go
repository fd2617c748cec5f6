package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// detail returns the detail of a refusal.
func (a answer) detail(status int, code domain.Code) string {
	a.t.Helper()
	a.refuses(status, code)
	return a.is(status)["detail"].(string)
}

// A refusal says what to send instead, and to whom it applies.
func TestRefusalsAreAdvice(t *testing.T) {
	s := open(t, options{config: func(c *handlers.Config) { c.PublicPerMinute, c.PublicPagesPerMinute = 1, 1 }})
	id := s.registered("a", 1, "one")
	const email = "analyst@example.com"
	must(s, &domain.AddMember{Origin: s.org.Operator(), Email: email, Role: domain.Analyst})
	create, secret := domain.NewCreateKey(
		domain.CreateKey{
			Origin: s.org.Operator(), Email: email, Scopes: []domain.Scope{domain.IntegrityWrite}, Lifetime: time.Hour,
		},
		s.Now(),
	)
	must(s, create)
	viewer := domain.Viewer
	must(s, &domain.ChangeMember{Origin: s.org.Operator(), Email: email, Role: &viewer})
	said := s.send(
		http.MethodPost, integrity+"/records", secret, declaration("b", 1, "two"),
	).detail(http.StatusForbidden, domain.RoleRequired)
	if !strings.Contains(said, "needs the role owner, admin or analyst;") {
		t.Errorf("a role: %s", said)
	}
	said = s.get(integrity+"/changes?companyReference=company-1&after=7000").detail(
		http.StatusUnprocessableEntity, domain.CursorAhead,
	)
	if !strings.Contains(said, "7000") ||
		!strings.Contains(said, "Either it is not one that the feed gave out, or the database was restored") {
		t.Errorf("a cursor: %s", said)
	}

	s.freshMinute()
	limited := map[string]string{}
	for limit, ask := range map[string]func() answer{
		"This key": func() answer { return s.get("/api/v1/usage") },
		"network address may send 1 comparisons": func() answer {
			return s.public("/api/public/integrity/" + id)
		},
		"network address may send 1 requests for pages": func() answer { return s.public("/limits") },
		"network address may send 60 requests without a valid key": func() answer {
			return s.send(http.MethodGet, "/api/v1/me", "wrong", nil)
		},
	} {
		for range 61 {
			if a := ask(); a.status == http.StatusTooManyRequests {
				limited[limit] = a.detail(http.StatusTooManyRequests, domain.RateLimited)
				break
			}
		}
		if !strings.Contains(limited[limit], limit) {
			t.Errorf("%s: %q", limit, limited[limit])
		}
	}
}

// Both MCP endpoints refuse unknown parameters, as the whole API does.
func TestMCPRefusesAQuery(t *testing.T) {
	s := open(t, options{})
	for _, endpoint := range []string{integrityMCP, ordinaryMCP} {
		s.send(
			http.MethodPost, endpoint+"?x=1", s.org.Secret, body{"jsonrpc": "2.0", "id": 1, "method": "ping"},
		).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	}
}

// The schema of a tool describes every member as the tool takes it: in JSON, a + is not written as %2B.
func TestMCPMembersAreDescribed(t *testing.T) {
	s := open(t, options{})
	for _, endpoint := range []string{integrityMCP, ordinaryMCP} {
		for name, tool := range s.listed(endpoint, s.org.Secret) {
			var input struct {
				Properties map[string]struct{ Description string }
			}
			check(t, json.Unmarshal(tool.InputSchema, &input))
			for member, schema := range input.Properties {
				words := schema.Description
				if words == "" || strings.Contains(words, "%2B") {
					t.Errorf("%s.%s: %q", name, member, words)
				}
			}
		}
	}
}
