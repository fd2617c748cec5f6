package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/postgres"
)

// TestKillBeforeTheWarning kills the service after it has counted the requests that reach every warning level of the
// month's allowance, and before a warning can be committed: the next start sends each warning once.
func TestKillBeforeTheWarning(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	const none = `"requestsPerMonth": null, "registrationsPerMonth": null, "webhookAttemptsPerMonth": null, "administrativeEventsPerDay": 10000`
	plans := write(t, filepath.Join(t.TempDir(), "plans.json"), `{
		"gratis": {"perMinute": 1000, "versionsPerMonth": null, "requestsPerMonth": 5, "registrationsPerMonth": null, "webhookAttemptsPerMonth": null, "administrativeEventsPerDay": 10000},
		"internal": {"perMinute": 1000, "versionsPerMonth": null, `+none+`}}`)
	in := surroundings{env: []string{"INTEGRITY_PLANS=" + plans}}
	s := in.start(t, dir)
	var org operator.OrganizationView
	mustJSON(t, in.env, &org, "organization", "create", "Example GmbH", "--plan", "gratis", "--data-dir", dir)
	of := []string{"--organization", org.ID, "--data-dir", dir}
	must(t, in.env, append([]string{"member", "add", "--email", "ana@example.org", "--role", "owner"}, of...)...)
	var key operator.KeyView
	mustJSON(t, in.env, &key,
		append([]string{"apikey", "create", "--member", "ana@example.org", "--scopes", "audit:read"}, of...)...)

	server, err := postgres.Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	// A lock on the heads delays every commit of a group; counting needs no heads.
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT FROM shard_heads ORDER BY shard FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if status, err := call(plainHTTP(), http.MethodGet, s.base+"/api/v1/me", key.Key, nil, nil); err != nil ||
			status != http.StatusOK {
			t.Fatalf("%d %v", status, err)
		}
	}
	var used, told int
	if err := conn.QueryRow(t.Context(),
		`SELECT (SELECT count(*) FROM request_usage WHERE used = 5 AND reached_100 IS NOT NULL),
			(SELECT count(*) FROM events WHERE type = 'quota.warning_reached')`).Scan(&used, &told); err != nil || used != 1 ||
		told != 0 {
		t.Fatalf("counted %d, told %d, %v", used, told, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	_ = conn.Close(t.Context()) // its server ends with the service

	s = in.start(t, dir)
	var usage struct {
		Warnings []struct {
			Allowance string
			Percent   int
		}
	}
	if conn, err = pgx.Connect(t.Context(), server.URL(postgres.Database)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the warnings are reported", func() error {
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM events WHERE type = 'quota.warning_reached'").Scan(&told)
		if err == nil && told != 3 {
			err = fmt.Errorf("%d are", told)
		}
		return err
	})
	_ = conn.Close(t.Context())
	if _, err := call(plainHTTP(), http.MethodGet, s.base+"/api/v1/usage", key.Key, nil, &usage); err != nil ||
		fmt.Sprint(usage.Warnings) != "[{requests 80} {requests 95} {requests 100}]" {
		t.Errorf("shown: %+v %v", usage, err)
	}
	s.stop()
	must(t, in.env, "audit", "--data-dir", dir)
}
