package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"integrityledger/cmd/integrity/operator"
	"integrityledger/cmd/lab/weather/history"
	"integrityledger/handlers/wire"
)

// smallQuota is the quota of the organization that uses up its month.
const smallQuota = 400

// organization is an organization with its keys, and its clients' shared knowledge.
type organization struct {
	history.Organization

	id            string
	owner, worker credential

	mu      sync.Mutex
	known   []known        // versions in answers so far
	unknown []history.Call // writes with an unknown outcome

	evidence []string // files of a client that keeps them
}

func (o *organization) wonder(call history.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unknown = append(o.unknown, call)
}

func (o *organization) keep(file string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.evidence = append(o.evidence, file)
}

// known is a version that a client of the organization knows.
type known struct {
	wire.Declaration

	publicID string
}

func (o *organization) learn(k known) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = append(o.known, k)
}

// any returns a known version, more likely a recent one.
func (o *organization) any(rng *rand.Rand) (known, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.known)
	if n == 0 {
		return known{}, false
	}
	if rng.IntN(3) > 0 {
		return o.known[n-1-rng.IntN(min(n, 30))], true
	}
	return o.known[rng.IntN(n)], true
}

func (o *organization) company(rng *rand.Rand) history.Company {
	return o.Companies[rng.IntN(len(o.Companies))]
}

const (
	allScopes = "integrity:read,integrity:write,integrity:revoke,integrity:admin,organization:admin,verify:read," +
		"artifacts:read,artifacts:write,analyses:read,reviews:write,approvals:write,certificates:read,certificates:write," +
		"audit:read"
	workerScopes = "integrity:read,integrity:write"
)

// makeOrganizations creates three organizations on different plans, with two companies each.
func (w *world) makeOrganizations() {
	for i, plan := range []string{"wide", "wide", "small"} {
		var made operator.OrganizationView
		name := fmt.Sprintf("Organization %d", i+1)
		w.must(&made, "organization", "create", name, "--plan", plan)
		o := &organization{id: made.ID, Organization: history.Organization{ID: made.ID, Name: name, Plan: plan}}
		if plan == "small" {
			o.VersionsPerMonth = new(int64(smallQuota))
		}
		in := []string{"--organization", o.id}
		w.must(nil, append([]string{"member", "add", "--email", "owner@example.org", "--role", "owner"}, in...)...)
		var references []string
		for _, reference := range []string{"alpha", "beta"} {
			var company wire.Company
			w.must(&company, append([]string{"company", "create", reference}, in...)...)
			o.Companies = append(o.Companies, history.Company{ID: company.ID, Reference: reference})
			references = append(references, reference)
		}
		for _, k := range []struct {
			credential *credential
			scopes     string
		}{{&o.owner, allScopes}, {&o.worker, workerScopes}} {
			var key operator.KeyView
			w.must(&key,
				append([]string{
					"apikey", "create", "--member", "owner@example.org", "--scopes", k.scopes, "--company",
					strings.Join(references, ","),
				}, in...)...)
			*k.credential = credential{key.ID, key.Key}
		}
		w.organizations = append(w.organizations, o)
	}
}

// makeDestinations creates a webhook destination for each company, before the faults.
func (w *world) makeDestinations(t testing.TB) {
	http := w.front.client(callPatience)
	for i, o := range w.organizations {
		for _, company := range o.Companies {
			path := fmt.Sprintf("/%d/%s", i, company.Reference)
			var made wire.WebhookWithSecret
			w.setUp(t, http, "/api/v1/integrity/webhooks", o.owner, wire.WebhookRequest{URL: w.receivers.url + path}, &made)
			w.receivers.known[path] = destination{made.ID, made.Secret}
			w.setUp(
				t, http, "/api/v1/integrity/companies/"+company.ID+"/webhooks", o.owner,
				wire.WebhookAccessRequest{WebhookID: made.ID, Enabled: true}, nil,
			)
			w.history.End(history.End{Webhook: &history.Webhook{ID: made.ID, Organization: o.id, Company: company.Reference}})
		}
	}
}

// setUp posts a request that must succeed, before the faults.
func (w *world) setUp(t testing.TB, client *http.Client, path string, key credential, body, into any) {
	t.Helper()
	c := &plain{w: w, http: client}
	if err := c.post(path, key, body, into); err != nil {
		t.Fatal(err)
	}
}

// plain is for setup and for the end: its calls are not in the history.
type plain struct {
	w    *world
	http *http.Client
}

func (c *plain) post(path string, key credential, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(http.MethodPost, path, key, string(text), into)
}

func (c *plain) get(path string, key credential, into any) error {
	return c.do(http.MethodGet, path, key, "", into)
}

func (c *plain) do(method, path string, key credential, body string, into any) error {
	request, err := http.NewRequest(method, "http://front"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if key.text != "" {
		request.Header.Set("Authorization", "Bearer "+key.text)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	r := (&client{w: c.w, http: c.http}).exchange(request)
	if r.status < 200 || r.status > 299 {
		return fmt.Errorf("%s %s: %d %s", method, path, r.status, r.body)
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = r.body
		return nil
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(r.data, into)
}
