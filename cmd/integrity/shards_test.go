package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// TestRaiseShards adds shards to a ledger in use. Existing data stays in its shards, and new organizations use the new
// ones.
func TestRaiseShards(t *testing.T) {
	t.Parallel()
	theirs := foreignDatabase(context.Background(), t)
	database := []string{"INTEGRITY_DATABASE_URL=" + theirs, "INTEGRITY_ISSUER=growing"}
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	register := func(s *running, key string) {
		t.Helper()
		status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records", key, wire.Declaration{
			CompanyReference: "c", Source: "s", DocumentReference: strings.TrimPrefix(s.base, "http://"), Version: 1,
			SHA256: strings.Repeat("ab", 32), SizeBytes: 1,
			MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
		}, nil)
		if err != nil || status != http.StatusCreated {
			t.Errorf("register: %d %v", status, err)
		}
	}
	in := surroundings{env: database}
	s := in.start(t, dir, "--shards", "1")
	former := externalAccount(t, database)
	register(s, former)
	s.stop()
	s = in.start(t, dir, "--shards", "3")
	register(s, former)
	later := externalAccount(t, database)
	register(s, later)
	conn, err := pgx.Connect(context.Background(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), "SELECT shard FROM organization_state ORDER BY created_at")
	if err != nil {
		t.Fatal(err)
	}
	shards, err := pgx.CollectRows(rows, pgx.RowTo[domain.Shard])
	if err != nil || len(shards) != 2 || shards[0] != 0 || shards[1] == 0 {
		t.Errorf("organizations are in shards %v: %v", shards, err)
	}
	if out := must(t, database, "rebuild", "--check"); !strings.HasSuffix(out, "0 rows differ\n") {
		t.Errorf("rebuild --check: %s", out)
	}
	if out := must(t, append(database, "INTEGRITY_SHARDS=2"), "migrate"); !strings.Contains(out, "3 shards") {
		t.Errorf("shards were taken away: %s", out)
	}
}
