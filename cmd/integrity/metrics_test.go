package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain"
)

var scrapeOf = integritytest.ScrapeOf

// TestMetricsListener: metrics, page and profiles are served only at the operator's address; a default address that is
// in use does not stop the service.
func TestMetricsListener(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	s := start(t, dataDir(t), "--metrics-listen", address)
	for url, want := range map[string]int{
		"http://" + address + "/debug/pprof/":                  http.StatusOK,
		"http://" + address + "/debug/pprof/profile?seconds=1": http.StatusOK,
		"http://" + address + "/debug/pprof/goroutine?debug=1": http.StatusOK,
		"http://" + address + "/metrics":                       http.StatusOK,
		"http://" + address + "/ops":                           http.StatusOK,
		"http://" + address + "/ops/ops.css":                   http.StatusOK,
		"http://" + address + "/ops/ops.js":                    http.StatusOK,
		"http://" + address + "/ops/sample":                    http.StatusOK,
		"http://" + address + "/":                              http.StatusOK, // redirects to /ops
		"http://" + address + "/ops/index.html":                http.StatusNotFound,
		"http://" + address + "/api/v1/integrity/records":      http.StatusNotFound,
		s.base + "/debug/pprof/":                               http.StatusNotFound,
		s.base + "/debug/pprof/profile?seconds=1":              http.StatusNotFound,
		s.base + "/metrics":                                    http.StatusNotFound,
		s.base + "/ops":                                        http.StatusNotFound,
	} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || want == http.StatusOK && len(body) == 0 {
			t.Errorf("%s answered %d, not %d: %v", url, resp.StatusCode, want, err)
		}
	}
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	scrape, err := io.ReadAll(resp.Body)
	release := `version="` + domain.ThisRelease.String() + `"} 1`
	if err != nil || !strings.Contains(string(scrape), `integrity_build_info{commit="`+linkedCommit+`",go="go1.`) ||
		!strings.Contains(string(scrape), release) {
		t.Errorf("the metrics do not name the build: %v", err)
	}
	// A page on another site, whose name resolves to this address, can read nothing.
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "rebound.example"
	resp, err = plainHTTP().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host's name: %d", resp.StatusCode)
	}
	if out := integrity(
		t, nil, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t), "--metrics-listen", "nowhere",
	); out.code != cli.ExitFailed || !strings.Contains(out.errs, "INTEGRITY_METRICS_LISTEN") {
		t.Errorf("exit code %d: %s", out.code, out.errs)
	}
	if out := integrity(
		t, nil, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t), "--metrics-listen", address,
	); out.code != cli.ExitFailed || !strings.Contains(out.errs, "INTEGRITY_METRICS_LISTEN") {
		t.Errorf("a named address that is taken: exit code %d: %s", out.code, out.errs)
	}
	// Two services with the default: at most one of them gets the address, and both run.
	for range 2 {
		second := surroundings{env: []string{"INTEGRITY_METRICS_LISTEN="}}.start(t, dataDir(t))
		text, err := os.ReadFile(second.log)
		if err != nil {
			t.Fatal(err)
		}
		if has, taken := strings.Contains(string(text), "metrics are served"), strings.Contains(
			string(text), "metrics are not served",
		); has == taken {
			t.Errorf("metrics served: %v; address taken: %v", has, taken)
		}
	}
}
