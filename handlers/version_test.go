package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

const versionHeader = "Integrity-Version"

// Every answer of the API names the service, including refusals and answers without a key, and pages of other origins
// may read the name. Pages do not name it.
func TestServiceNamesItsVersion(t *testing.T) {
	s := open(t, options{})
	version := s.get("/api/v1/me").is200().header.Get(versionHeader)
	if version != "integrity-ledger/"+edge.ReadBuild().Semantic() ||
		!strings.HasPrefix(version, "integrity-ledger/"+domain.ThisRelease.String()) {
		t.Errorf("the service is %q", version)
	}
	for path, want := range map[string]string{
		integrity + "/usage": version, integrity + "/nothing": version, "/api/public/integrity/x": version,
		"/api/healthz": version, "/limits": "", "/developers": "",
	} {
		if got := s.plainly(s.request(http.MethodGet, path, "", nil)).header.Get(versionHeader); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	a := s.public("/api/public/integrity/x")
	preflight := s.send(http.MethodOptions, "/api/public/integrity/x", "", nil, "Origin", "https://page.example")
	for name, header := range map[string]http.Header{
		"Access-Control-Expose-Headers": a.header, "Access-Control-Allow-Headers": preflight.header,
	} {
		if !strings.Contains(header.Get(name), versionHeader) {
			t.Errorf("%s: %s", name, header.Get(name))
		}
	}
}

// The name of a client appears in the log and in /me if it is one bounded product, and nowhere else. It has no effect.
func TestClientNamesItsVersion(t *testing.T) {
	s := open(t, options{})
	named := func(values ...string) any {
		t.Helper()
		r := s.request(http.MethodGet, "/api/v1/me", s.org.Secret, nil)
		r.Header[versionHeader] = values
		return read[wire.Me](s.exchange(r), http.StatusOK).Versions.Client
	}
	most := strings.Repeat("n", 40) + "/" + strings.Repeat("9", 64)
	for _, product := range []string{"integrity-python/0.3.0", "x/1.0.0-rc.1+build_2", most} {
		equal(t, product, named(product), any(product))
		s.logged(`"client":"` + product + `"`)
	}
	for _, values := range [][]string{
		nil, {""}, {"python"}, {"/1"}, {"python/"}, {"evil one/1"}, {"evil/1 other/2"}, {"evil/<script>"}, {"évil/1"},
		{`evil/1"`},
		{most + "9"}, {"n" + most}, {"evil/" + strings.Repeat("9", 8000)}, {"evil/1", "evil/2"},
	} {
		equal(t, strings.Join(values, "|"), named(values...), nil)
	}
	if log := s.log.String(); strings.Contains(log, "evil") || strings.Contains(log, "script") {
		t.Error("the log has what is no product")
	}
	for line := range strings.Lines(s.log.String()) {
		var entry map[string]any
		check(t, json.Unmarshal([]byte(line), &entry))
		if service, _ := entry["service"].(string); entry["msg"] == "request" &&
			!strings.HasPrefix(service, "integrity-ledger/") {
			t.Errorf("no service in %s", line)
		}
	}
}

// The Go client names itself and its program.
func TestGoClientNamesItsVersion(t *testing.T) {
	s := open(t, options{})
	for name, want := range map[string]string{"": "integrity-go/", "integrity-cli": "integrity-cli/"} {
		c, err := client.New(client.Config{BaseURL: s.http.URL, APIKey: s.org.Secret, Name: name, UserAgent: "erp/7"})
		check(t, err)
		_, err = c.Usage(t.Context())
		check(t, err)
		c.Close()
		s.logged(`"client":"` + want)
	}
}
