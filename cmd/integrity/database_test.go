package main

import (
	"context"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// ordinaryDatabase creates a database on a new external server, and returns its URLs for the ordinary role that owns it
// and for a superuser.
func ordinaryDatabase(ctx context.Context, t *testing.T) (url, superuser string) {
	t.Helper()
	theirs := foreignDatabase(ctx, t)
	pgtest.Exec(t, theirs, "CREATE ROLE app LOGIN CREATEROLE NOSUPERUSER")
	pgtest.Exec(t, theirs, "CREATE DATABASE app OWNER app")
	parsed, err := neturl.Parse(theirs)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Path = "/app"
	superuser = parsed.String()
	query := parsed.Query()
	query.Set("user", "app")
	parsed.RawQuery = query.Encode()
	return parsed.String(), superuser
}

// TestOrdinaryDatabaseRole: a role without superuser rights creates a ledger on a new server, serves, checks and
// repairs it, directly and through a pooler that keeps sessions. Any other pooler is refused.
func TestOrdinaryDatabaseRole(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	direct, _ := ordinaryDatabase(ctx, t)
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	shared := []string{"INTEGRITY_DATABASE_URL=" + pgtest.NewPooler(t, direct, "pool_mode = transaction")}
	refused := func(args ...string) {
		t.Helper()
		if r := integrity(t, shared, args...); r.code != cli.ExitFailed ||
			!strings.Contains(r.errs, cluster.ErrSharedSessions.Error()) || strings.Count(r.errs, "integrity: ") != 1 {
			t.Errorf("%v behind a pooler of transactions: %d %s", args, r.code, r.errs)
		}
	}
	refused("migrate", "--issuer", "ledger-of-the-test")
	if empty, err := pgtest.Ask[bool](direct, "SELECT to_regclass('goose_db_version') IS NULL"); err != nil || !empty {
		t.Errorf("the refusal has changed the database: %t, %v", empty, err)
	}

	account := ""
	for version, url := range []string{direct, pgtest.NewPooler(t, direct, "pool_mode = session")} {
		database := []string{"INTEGRITY_DATABASE_URL=" + url}
		s := surroundings{env: database}.start(t, dir, "--issuer", "ledger-of-the-test", "--shards", "2")
		if account == "" {
			account = externalAccount(t, database)
		}
		client := plainHTTP()
		var record wire.Registration
		status, err := call(client, http.MethodPost, s.base+"/api/v1/integrity/records", account, wire.Declaration{
			CompanyReference: "c", Source: "s", DocumentReference: "d", Version: int32(version) + 1,
			SHA256: strings.Repeat("ab", 32), SizeBytes: 1,
			MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
		}, &record)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("register: %d %v", status, err)
		}
		var changes struct{ Events []wire.FeedEvent }
		if status, err := call(
			client, http.MethodGet, s.base+"/api/v1/integrity/changes?companyReference=c&after=0", account, nil, &changes,
		); err != nil || status != http.StatusOK ||
			!slices.ContainsFunc(changes.Events, func(e wire.FeedEvent) bool { return e.PublicID == record.PublicID }) {
			t.Errorf("changes: %d %v %+v", status, err, changes)
		}
		for _, check := range [][]string{
			{"migrate"}, {"rebuild", "--check"}, {"rebuild"}, {"log", "check"}, {"audit", "--data-dir", dir},
		} {
			must(t, database, check...)
		}
		report := examine(t, cli.ExitNegative, database, "--data-dir", dir, "--listen", strings.TrimPrefix(s.base, "http://"))
		wantFindings(t, report, "ok database: PostgreSQL ", "as role app", "ok ledger: every shard's head agrees")
		if strings.Count(report, "fail ") != strings.Count(report, "fail durability: ") {
			// the tests' servers lose everything in a crash
			t.Errorf("the doctor finds fault:\n%s", report)
		}
		s.stop()
	}

	refused("serve", "--listen", "127.0.0.1:0", "--data-dir", dir)
	refused("organization", "list")
	refused("restore", "--external")
	wantFindings(
		t, examine(t, cli.ExitNegative, shared, "--data-dir", dir), "fail database: "+cluster.ErrSharedSessions.Error(),
	)
	replica := []string{
		"INTEGRITY_DATABASE_URL=" + direct,
		"INTEGRITY_REPLICA_URL=" + strings.TrimPrefix(shared[0], "INTEGRITY_DATABASE_URL="),
	}
	if r := integrity(t, replica, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "INTEGRITY_REPLICA_URL: "+cluster.ErrSharedSessions.Error()) {
		t.Errorf("a replica behind a pooler of transactions: %d %s", r.code, r.errs)
	}
}

// TestVersionsOfPostgreSQL: the versions that README promises are the ones that are tested and accepted without a
// warning.
func TestVersionsOfPostgreSQL(t *testing.T) {
	for file, want := range map[string]string{
		"../../README.md": fmt.Sprintf("PostgreSQL %d to %d", cluster.OldestPostgreSQL, cluster.NewestPostgreSQL),
		"../../.ci/tools": fmt.Sprintf("\nnewest=%d newest_package=%[1]d.", cluster.NewestPostgreSQL),
	} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q: %v", file, want, err)
		}
	}
	if newer := (cluster.Server{Major: cluster.NewestPostgreSQL + 1}); !newer.Untried() {
		t.Error("a newer server is as good as a tried one")
	}
}

// TestStartCheckWithoutAConnection: an unreachable database is not reported as damaged.
func TestStartCheckWithoutAConnection(t *testing.T) {
	away, err := cluster.At("postgres://nobody@127.0.0.1:1/none?sslmode=disable").ReadPool(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	if err := checkHeads(t.Context(), away); err == nil || !strings.HasPrefix(err.Error(), "check shard heads: ") ||
		strings.Contains(err.Error(), "backup") {
		t.Errorf("got %v", err)
	}
}

// TestStartCheck: only a head that contradicts its log is damage. Every other error of the check is reported as it is,
// and never sends the operator to a backup that lacks later events.
func TestStartCheck(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	url, admin := ordinaryDatabase(ctx, t)
	database := []string{"INTEGRITY_DATABASE_URL=" + url}
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, database, "migrate", "--issuer", "ledger-of-the-test")
	before16, err := pgtest.Ask[bool](url, "SELECT current_setting('server_version_num')::integer < 160000")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, spoil, mend, says, finding string }{
		{"a head ahead of its log", "UPDATE shard_heads SET position = 7 WHERE shard = 0",
			"UPDATE shard_heads SET position = 0 WHERE shard = 0",
			"the database is damaged: restore it from a backup: shard 0: its head says position 7, its last event is 0",
			"fail ledger: shard 0: its head says position 7"},
		{"no right to read", "REVOKE SELECT ON shard_heads FROM integrity_service",
			"GRANT SELECT ON shard_heads TO integrity_service",
			"check shard heads: ERROR: permission denied for table shard_heads",
			"fail ledger: check shard heads: ERROR: permission denied"},
		{"no table", "ALTER TABLE events RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO events",
			`check shard heads: ERROR: relation "events" does not exist`,
			`fail ledger: check shard heads: ERROR: relation "events" does not exist`},
		{
			"a table that somebody holds", "", "",
			"look for shards that decide by earlier rules: ERROR: canceling statement due to lock timeout",
			"fail ledger: check shard heads: ERROR: canceling statement due to lock timeout",
		},
		{"no membership", "REVOKE integrity_service FROM app GRANTED BY app", "GRANT integrity_service TO app WITH SET TRUE",
			`take on the role integrity_service: ERROR: permission denied to set role "integrity_service" (SQLSTATE 42501): let a superuser run GRANT integrity_service TO "app"`,
			"fail database: app may not SET ROLE integrity_service"},
	} {
		spoil, mend := test.spoil, test.mend
		switch {
		case spoil == "":
			spoil, mend = "BEGIN; LOCK TABLE shard_heads IN ACCESS EXCLUSIVE MODE", "COMMIT"
		case before16:
			spoil, mend = strings.TrimSuffix(spoil, " GRANTED BY app"), strings.TrimSuffix(mend, " WITH SET TRUE")
		}
		conn, err := pgx.Connect(ctx, admin)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, spoil); err != nil {
			t.Fatalf("%s: %v", spoil, err)
		}
		r := integrity(t, database, "serve", "--listen", "127.0.0.1:0", "--data-dir", dir)
		if r.code != cli.ExitFailed || !strings.Contains(r.errs, test.says) {
			t.Errorf("%s: serve: %d %s", test.name, r.code, r.errs)
		}
		report := integrity(t, database, "doctor", "--data-dir", dir)
		if all := examine(t, cli.ExitNegative, database, "--data-dir", dir); !strings.Contains(all, test.finding) {
			t.Errorf("%s: the doctor does not say %q:\n%s", test.name, test.finding, all)
		}
		damaged := strings.Contains(test.says, "damaged")
		if strings.Contains(r.errs, "restore it from a backup") != damaged ||
			strings.Contains(report.out, "restore a backup") != damaged {
			t.Errorf("%s: the wrong advice: %s%s", test.name, r.errs, report.out)
		}
		if _, err := conn.Exec(ctx, mend); err != nil {
			t.Fatalf("%s: %v", mend, err)
		}
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	s := surroundings{env: database}.start(t, dir)
	s.stop()
}

// TestServeEndsOnceTheLedgerIsDistributed: a process that started on local tables ends once they are distributed.
func TestServeEndsOnceTheLedgerIsDistributed(t *testing.T) {
	pgtest.OneServer(t, "its catalogue is that of Citus")
	url := pgtest.New(t)
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	s := surroundings{env: []string{"INTEGRITY_DATABASE_URL=" + url}}.start(t, dir, "--issuer", "ledger-of-the-test")
	// The service checks this table.
	pgtest.Exec(t, url,
		`CREATE TABLE pg_dist_partition AS SELECT 'public.shard_heads'::regclass AS logicalrelid; GRANT SELECT ON pg_dist_partition TO integrity_service;
		CREATE FUNCTION hold_piece(bigint) RETURNS void LANGUAGE sql AS ''`)
	select {
	case <-s.exited:
	case <-time.After(patient):
		t.Fatal("it serves on")
	}
	if log := tail(s.log); s.cmd.ProcessState.ExitCode() != cli.ExitFailed || !strings.Contains(log, "restart it") {
		t.Errorf("it ended with %d: %s", s.cmd.ProcessState.ExitCode(), log)
	}
}
