package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestProfiles: they are served where the operator says, and there alone.
func TestProfiles(t *testing.T) {
	address := freeAddress(t)
	s := start(t, dataDir(t), "--metrics-listen", address)
	for url, want := range map[string]int{
		"http://" + address + "/debug/pprof/":                  http.StatusOK,
		"http://" + address + "/debug/pprof/profile?seconds=1": http.StatusOK,
		"http://" + address + "/debug/pprof/goroutine?debug=1": http.StatusOK,
		"http://" + address + "/api/v1/integrity/records":      http.StatusNotFound,
		s.base + "/debug/pprof/":                               http.StatusNotFound,
		s.base + "/debug/pprof/profile?seconds=1":              http.StatusNotFound,
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
	r := integrity(t, nil, "serve", "--data-dir", dataDir(t), "--listen", freeAddress(t), "--metrics-listen", "nowhere")
	if r.code != exitFailed || !strings.Contains(r.errs, "INTEGRITY_METRICS_LISTEN") {
		t.Errorf("exit code %d: %s", r.code, r.errs)
	}
}
