package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestRegistrationsFail: if a service answers every batch with 200 and registers nothing, /readyz and the metrics show
// it, reads still work, and it becomes ready again by itself.
func TestRegistrationsFail(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	metrics := freeAddress(t)
	s := start(t, dir, "--demo", "--shards", "2", "--metrics-listen", metrics)
	demo := s.demo()
	const route = "/api/v1/integrity/records/batch"
	document := 0
	batch := func() (failed int) {
		t.Helper()
		var items []map[string]any
		for range 20 {
			document++
			items = append(items, map[string]any{
				"companyReference": demo.CompanyReference, "source": "s", "documentReference": fmt.Sprint("d", document),
				"version": 1,
				"sha256":  strings.Repeat("0a", 32), "sizeBytes": 1, "mimeType": "application/pdf",
				"generatedAt": "2026-11-01T10:00:00Z",
			})
		}
		var data struct {
			Results []struct {
				Status int `json:"status"`
			} `json:"results"`
		}
		status, err := call(
			plainHTTP(), http.MethodPost, s.base+route, demo.Keys.Worker, map[string]any{"declarations": items}, &data,
		)
		if err != nil || status != http.StatusOK || len(data.Results) != len(items) {
			t.Fatalf("batch: %d %v %v", status, err, data)
		}
		for _, r := range data.Results {
			if r.Status == http.StatusServiceUnavailable {
				failed++
			}
		}
		return failed
	}
	asked := func(path string) (int, error) {
		return call(plainHTTP(), http.MethodGet, s.base+path, demo.Keys.Worker, nil, nil)
	}
	if failed := batch(); failed != 0 {
		t.Fatalf("%d items of a sound ledger failed", failed)
	}
	spoil(t, dir, "ALTER TABLE feed RENAME TO feed_away")
	if failed := batch(); failed != 20 {
		t.Fatalf("without the feed %d of 20 items failed", failed)
	}
	eventually(t, "/readyz says that nothing can be committed", func() error {
		if status, err := asked("/readyz"); err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("readyz: %d %w", status, err)
		}
		return nil
	})
	if status, err := asked("/api/v1/integrity/usage"); err != nil || status != http.StatusOK {
		t.Errorf("what is only read: %d %v", status, err)
	}
	now := scrapeOf(t, metrics)
	if err := now.Want(
		20, "integrity_http_failures_total", "route", route, "code", "TEMPORARILY_UNAVAILABLE",
	); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"integrity_groups_total", "integrity_shard_failing"} {
		labels := []string{}
		if name == "integrity_groups_total" {
			labels = []string{"outcome", "failed"}
		}
		if n, _ := now.Sum(name, labels...); n < 1 {
			t.Errorf("%s is %v", name, n)
		}
	}
	spoil(t, dir, "ALTER TABLE feed_away RENAME TO feed")
	eventually(t, "it is ready again without a request", func() error {
		if status, err := asked("/readyz"); err != nil || status != http.StatusOK {
			return fmt.Errorf("readyz: %d %w", status, err)
		}
		return nil
	})
	if failed := batch(); failed != 0 {
		t.Errorf("%d items failed after the outage", failed)
	}
}
