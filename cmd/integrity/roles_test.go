package main

import (
	"context"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/pgtest"
)

// hiddenFromReaders are the tables that hold credentials or answers kept for others, and goose's own.
func hiddenFromReaders() []string {
	return []string{
		"console_challenges", "console_links", "console_sessions", "goose_db_version", "idempotency_keys",
		"invitation_mails", "mails", "oauth_subjects", "webhook_deliveries", "webhook_log",
	}
}

// loginAs returns the URL of a database for another login role.
func loginAs(t *testing.T, url, role string) string {
	t.Helper()
	parsed, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	query.Set("user", role)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// TestRoles installs a ledger with three logins, as the manual's page Install does: one owns it and migrates, one
// serves and owns nothing, one reads and can change nothing. The last two work through a pooler too.
func TestRoles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	owner, admin := ordinaryDatabase(ctx, t)
	pgtest.Exec(t, admin, "CREATE ROLE serving LOGIN; CREATE ROLE reading LOGIN")
	in := func(url string) []string { return []string{"INTEGRITY_DATABASE_URL=" + url} }
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	refuses := func(url, want string, args ...string) {
		t.Helper()
		if r := integrity(t, in(url), args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, want) {
			t.Errorf("%v: %d %s, want %q", args, r.code, r.errs, want)
		}
	}
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir}

	const migrateFirst = "run integrity migrate as the role that owns the tables"
	refuses(loginAs(t, owner, "serving"), migrateFirst, append(serve, "--issuer", "roles")...)
	pgtest.Exec(t, admin, "CREATE ROLE integrity_service; CREATE ROLE integrity_reader; "+
		"GRANT integrity_service TO app, serving; GRANT integrity_reader TO reading")
	must(t, in(owner), "migrate", "--issuer", "roles")
	pgtest.Exec(t, admin, "ALTER ROLE app NOCREATEROLE") // only the first migration needs it

	account, organization := "", ""
	for version, pooled := range []bool{false, true} {
		serving, reading := loginAs(t, owner, "serving"), loginAs(t, owner, "reading")
		if pooled {
			serving, reading = pgtest.NewPooler(t, serving), pgtest.NewPooler(t, reading)
		}
		s := surroundings{env: in(serving)}.start(t, dir)
		if account == "" {
			account = externalAccount(t, in(serving))
			var list struct{ Organizations []operator.OrganizationView }
			mustJSON(t, in(reading), &list, "organization", "list")
			organization = list.Organizations[0].ID
		}
		if status := s.registers(account, int32(version)+1); status != http.StatusCreated {
			t.Errorf("register: %d", status)
		}
		must(t, in(serving), "migrate") // nothing is pending
		must(t, in(reading), "audit", "--data-dir", dir)
		must(
			t, in(reading), "export", "--organization", organization, "--data-dir", dir, "--out", filepath.Join(dir, "bundle"),
		)
		for _, url := range []string{serving, reading} {
			if out := must(t, in(url), "rebuild", "--check"); !strings.HasSuffix(out, "; 0 rows differ\n") {
				t.Error(out)
			}
			must(t, in(url), "upgrade", "status")
		}
		pgtest.Exec(t, admin, "UPDATE usage SET used = used + 1")
		if r := integrity(t, in(reading), "rebuild", "--check"); r.code != cli.ExitNegative ||
			!strings.Contains(r.out, "usage") {
			t.Errorf("a reader's check of a wrong row: %d %s%s", r.code, r.out, r.errs)
		}
		pgtest.Exec(t, admin, "UPDATE usage SET used = used - 1")
		for url, role := range map[string]string{serving: "serving", reading: "reading", owner: "app"} {
			report := examine(t, cli.ExitNegative, in(url), "--data-dir", dir)
			wantFindings(t, report, "as role "+role, role+" lacks pg_monitor", "ok ledger: every shard's head agrees")
			if strings.Count(report, "fail ") != strings.Count(report, "fail durability: ") {
				t.Errorf("%s: the doctor finds fault:\n%s", role, report)
			}
		}
		s.stop()
	}

	const asOwner = "run it as the role that owns the tables"
	for _, url := range []string{loginAs(t, owner, "serving"), loginAs(t, owner, "reading")} {
		refuses(url, "may only compare (--check): run rebuild as the role that owns the tables", "rebuild")
		refuses(url, asOwner, "upgrade", "finish")
		refuses(url, asOwner, "migrate", "--shards", "99")
	}
	refuses(loginAs(t, owner, "reading"), "take on the role integrity_service", "organization", "create", "Y",
		"--plan", "internal")
	refuses(loginAs(t, owner, "reading"), "take on the role integrity_service", serve...)
	withdrawNewest(t, admin)
	refuses(loginAs(t, owner, "serving"), migrateFirst, serve...)
	must(t, in(owner), "migrate")
	wantReadOnly(ctx, t, loginAs(t, owner, "reading"))
	wantOwnsNothing(t, admin, "serving", "integrity_service", "reading", "integrity_reader")
}

// withdrawNewest takes back the newest migration, so that it is pending.
func withdrawNewest(t *testing.T, admin string) {
	t.Helper()
	paths, err := filepath.Glob("../../migrations/*.sql")
	if err != nil || paths == nil {
		t.Fatal("no migration was found: ", err)
	}
	text, err := os.ReadFile(slices.Max(paths))
	if err != nil {
		t.Fatal(err)
	}
	_, down, _ := strings.Cut(string(text), "-- +goose Down")
	pgtest.Exec(t, admin, down+`;
		DELETE FROM applied_migrations WHERE version = (SELECT max(version) FROM applied_migrations);
		DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
}

// wantReadOnly asks the catalogue for every right of a reader's login, and tries to change every table.
func wantReadOnly(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, _ := conn.Query(ctx, `SELECT c.oid::regclass::text,
			has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
				OR has_any_column_privilege(c.oid, 'INSERT, UPDATE, REFERENCES'),
			has_table_privilege(c.oid, 'SELECT'),
			(SELECT quote_ident(attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND attnum > 0 LIMIT 1)
		FROM pg_class c WHERE relkind IN ('r', 'p') AND relnamespace IN ('public'::regnamespace, 'rebuild'::regnamespace)
		ORDER BY 1`)
	type right struct {
		Table            string
		Changes, Selects bool
		Column           string
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[right])
	if err != nil || len(tables) < 50 {
		t.Fatalf("%d tables: %v", len(tables), err)
	}
	var hidden []string
	for _, table := range tables {
		if table.Changes {
			t.Errorf("a reader may change %s", table.Table)
		}
		if !table.Selects {
			hidden = append(hidden, table.Table)
		}
		for _, change := range []string{
			"INSERT INTO %[1]s DEFAULT VALUES", "UPDATE %[1]s SET %[2]s = %[2]s", "DELETE FROM %[1]s", "TRUNCATE %[1]s",
			"DROP TABLE %[1]s",
		} {
			change = fmt.Sprintf(change, table.Table, table.Column)
			if _, err := conn.Exec(ctx, change); err == nil || !strings.Contains(err.Error(), "SQLSTATE 42501") {
				t.Errorf("%s: %v, want insufficient_privilege", change, err)
			}
		}
	}
	if !slices.Equal(hidden, hiddenFromReaders()) {
		t.Errorf("hidden from readers: %q, want %q: a migration that adds a table decides who reads it", hidden,
			hiddenFromReaders())
	}
	for _, change := range []string{
		"CREATE TABLE mine (x int)", "CREATE TABLE rebuild.mine (x int)", "SET ROLE integrity_service",
	} {
		if _, err := conn.Exec(ctx, change); err == nil || !strings.Contains(err.Error(), "SQLSTATE 42501") {
			t.Errorf("%s: %v, want insufficient_privilege", change, err)
		}
	}
}

// wantOwnsNothing requires that no object of the database belongs to the roles.
func wantOwnsNothing(t *testing.T, admin string, roles ...string) {
	t.Helper()
	for _, role := range roles {
		if n, err := pgtest.Ask[int](admin, fmt.Sprintf(`SELECT count(*)::int FROM pg_shdepend
			WHERE deptype = 'o' AND refclassid = 'pg_authid'::regclass AND refobjid = '%s'::regrole`, role)); n != 0 || err != nil {
			t.Errorf("%s owns %d objects: %v", role, n, err)
		}
	}
}
