package handlers_test

import (
	"net/http"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/handlers"
)

// Requests that may read much use connections of their own and take none from authentication: when those are exhausted,
// everything else continues.
func TestScansAreApart(t *testing.T) {
	away, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(t.Context(), 1)
	check(t, err)
	t.Cleanup(away.Close)
	s := open(t, options{config: func(c *handlers.Config) { c.Store.Scans = away }})
	id := s.registered("a", 1, "one")
	webhook, _ := s.webhook("https://receiver.example/a")
	for _, path := range []string{
		integrity + "/usage/entries", integrity + "/webhooks/" + webhook + "/deliveries",
		certificationAction + "/artifacts", certificationAction + "/audit-events", certificationAction + "/metrics/detectors",
	} {
		s.get(path).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	}
	s.post(
		integrity+"/webhooks/"+webhook+"/replay", body{"fromSequence": 1, "dryRun": true},
	).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	for _, path := range []string{
		integrity + "/records/" + id, integrity + "/companies", integrity + "/webhooks", integrity + "/usage", "/api/v1/me",
		"/api/v1/usage",
	} {
		s.get(path).is(http.StatusOK)
	}
}
