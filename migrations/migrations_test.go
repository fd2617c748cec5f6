package migrations_test

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// shardless are the tables that belong to no tenant.
func shardless() []string {
	return []string{
		"ledger", "oauth_subjects", "goose_db_version", "applied_migrations", "transparency_tree", "transparency_tiles",
		"transparency_runs", "transparency_checkpoint", "transparency_cosignatures", "transparency_refusals",
		"transparency_keys", "log_timestamps", "witness_logs", "witness_split_views", "processes",
	}
}

const keysWithoutShard = `SELECT n.nspname || '.' || c.relname || ': ' || coalesce(k.relname, 'no primary key')
	FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname IN ('public', 'rebuild')
	LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
	LEFT JOIN pg_class k ON k.oid = i.indexrelid
	LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
	WHERE c.relkind IN ('r', 'p') AND NOT c.relname = ANY($1) AND coalesce(a.attname, '') <> 'shard'
	UNION ALL
	SELECT n.nspname || '.' || c.relname || ': no primary key'
	FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname IN ('public', 'rebuild')
	WHERE c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)`

// TestGrowthRule: shard is the first column of every key of every tenant table.
func TestGrowthRule(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	ctx := context.Background()
	offenders := func() []string {
		rows, err := conn.Query(ctx, keysWithoutShard, shardless())
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := offenders(); len(found) > 0 {
		t.Errorf("keys that do not begin with shard: %v", found)
	}
	// The query itself must find each kind of offence.
	for _, offence := range []string{
		"CREATE TABLE offence (id uuid PRIMARY KEY, shard int)",
		"CREATE TABLE offence (shard int, id uuid, PRIMARY KEY (shard, id), UNIQUE (id))",
		"CREATE TABLE offence (shard int)",
	} {
		if _, err := conn.Exec(ctx, offence); err != nil {
			t.Fatal(err)
		}
		if len(offenders()) == 0 {
			t.Errorf("%s: not found", offence)
		}
		if _, err := conn.Exec(ctx, "DROP TABLE offence"); err != nil {
			t.Fatal(err)
		}
	}
}

const insertEvent = `INSERT INTO events (shard, position, organization_id, sequence, id, v, type, subject, occurred_at, actor, request_id, data, nonce, hash)
	VALUES (0, 1, gen_random_uuid(), 1, gen_random_uuid(), 1, 'x', 'x', now(), 'x', 'x', '', '', '')`

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return fmt.Sprint(err)
}

// TestEventsAreAppendOnly: the trigger stops the owner; the service role lacks the right.
func TestEventsAreAppendOnly(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	ctx := context.Background()
	if _, err := conn.Exec(ctx, insertEvent); err != nil {
		t.Fatal(err)
	}
	changes := []string{"UPDATE events SET actor = 'y'", "DELETE FROM events", "TRUNCATE events"}
	if !pgtest.OnCitus() { // it skips a statement that can change nothing
		changes = append(changes, "UPDATE events SET actor = 'y' WHERE false")
	}
	for _, change := range changes {
		if _, err := conn.Exec(ctx, change); code(err) != "23001" {
			t.Errorf("owner: %s: %v, want restrict_violation", change, err)
		}
	}
	if _, err := conn.Exec(ctx, "SET ROLE integrity_service"); err != nil {
		t.Fatal(err)
	}
	for _, change := range append(
		changes, "UPDATE ledger SET epoch = 2", "DELETE FROM versions", "DELETE FROM feed", "DROP TABLE feed",
	) {
		if _, err := conn.Exec(ctx, change); code(err) != "42501" {
			t.Errorf("service: %s: %v, want insufficient_privilege", change, err)
		}
	}
	if _, err := conn.Exec(ctx, strings.Replace(insertEvent, "(0, 1,", "(0, 2,", 1)); err != nil {
		t.Errorf("service: append: %v", err)
	}
}

// TestUpInSeveralProcesses starts eight migrations of one empty database at once.
func TestUpInSeveralProcesses(t *testing.T) {
	pgtest.OneServer(t, "an empty ledger is migrated before it is distributed")
	url := pgtest.New(t)
	conn := connect(t, url)
	ctx := context.Background()
	if _, err := conn.Exec(
		ctx, "DROP SCHEMA rebuild CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public",
	); err != nil {
		t.Fatal(err)
	}
	if database, known, err := migrations.Versions(ctx, url); err != nil || database == known {
		t.Fatalf("version %d of %d, %v before the migration", database, known, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := migrations.Up(ctx, url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if database, known, err := migrations.Versions(ctx, url); err != nil || database != known {
		t.Fatalf("version %d of %d, %v after the migration", database, known, err)
	}
	if _, err := conn.Exec(ctx, insertEvent); err != nil {
		t.Error(err)
	}
}

// TestOtherBaseline: no question and no migration changes such a database, whatever the number of its last
// migration, which the baseline may have too.
func TestOtherBaseline(t *testing.T) {
	pgtest.OneServer(t, "an empty ledger is migrated before it is distributed")
	url := pgtest.New(t)
	conn := connect(t, url)
	ctx := context.Background()
	relations := func() (names string) {
		t.Helper()
		const query = "SELECT string_agg(oid::regclass::text, ' ' ORDER BY oid) FROM pg_class WHERE relkind = 'r' AND " +
			"oid >= 16384"
		if err := conn.QueryRow(ctx, query).Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names
	}
	if _, err := conn.Exec(
		ctx, "DROP SCHEMA rebuild CASCADE; DELETE FROM goose_db_version WHERE version_id > 1",
	); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "UPDATE applied_migrations SET sha256 = 'x' WHERE version = 1"); err != nil {
		t.Fatal(err)
	}
	before := relations()
	refused := func(what string) {
		t.Helper()
		for name, ask := range map[string]func() error{
			"Up":       func() error { return migrations.Up(ctx, url) },
			"Versions": func() error { _, _, err := migrations.Versions(ctx, url); return err },
		} {
			if err := ask(); !errors.Is(err, migrations.ErrOtherBaseline) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
	}
	for _, last := range []int{1, 2, 18} {
		if _, err := conn.Exec(ctx, "UPDATE goose_db_version SET version_id = $1 WHERE version_id > 0", last); err != nil {
			t.Fatal(err)
		}
		refused(fmt.Sprintf("with migration %d", last))
	}
	if after := relations(); after != before {
		t.Errorf("tables before: %s; after: %s", before, after)

	}
	// The first ledgers recorded no hashes.
	if _, err := conn.Exec(ctx, "DROP TABLE applied_migrations"); err != nil {
		t.Fatal(err)
	}
	refused("without recorded hashes")
}

// ordinary makes a role with CREATEROLE and a database of its own on the server of admin.
func ordinary(t *testing.T, admin *pgx.Conn, role string) (url string) {
	t.Helper()
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN CREATEROLE NOSUPERUSER", "CREATE DATABASE " + role + " OWNER " + role,
	} {
		if _, err := admin.Exec(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	parsed, err := neturl.Parse(admin.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	query.Set("user", role)
	parsed.Path, parsed.RawQuery = "/"+role, query.Encode()
	return parsed.String()
}

// wantServing does what the service does first: it takes on the service role and appends an event.
func wantServing(t *testing.T, url, user string) {
	t.Helper()
	ctx := context.Background()
	tx, err := connect(t, url).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var session string
	if err := tx.QueryRow(ctx, "SELECT session_user").Scan(&session); err != nil || session != user {
		t.Fatalf("connected as %q, %v", session, err)
	}
	for _, statement := range []string{"SET ROLE integrity_service", "DELETE FROM meters", insertEvent} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %s: %v", user, statement, err)
		}
	}
}

// TestOrdinaryRole migrates as roles that are not superusers, on a server without any ledger: the first one makes the
// service role; since PostgreSQL 16 a superuser must make the second one a member.
func TestOrdinaryRole(t *testing.T) {
	pgtest.OneServer(t, "an empty ledger is migrated before it is distributed")
	ctx := context.Background()
	server, err := pgtest.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	admin := connect(t, server.URL())
	first := ordinary(t, admin, "app_first")
	if err := migrations.Up(ctx, first); err != nil {
		t.Fatal(err)
	}
	wantServing(t, first, "app_first")

	second := ordinary(t, admin, "app_second")
	if version(t, admin) >= 160000 {
		if err := migrations.Up(ctx, second); code(err) != "42501" ||
			!strings.Contains(err.Error(), "GRANT integrity_service TO app_second WITH SET TRUE") {
			t.Fatalf("a role that may not make itself a member: %v", err)
		}
		if _, err := admin.Exec(ctx, "GRANT integrity_service TO app_second WITH SET TRUE"); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Up(ctx, second); err != nil {
		t.Fatal(err)
	}
	wantServing(t, second, "app_second")
}

func version(t *testing.T, conn *pgx.Conn) (number int) {
	t.Helper()
	if err := conn.QueryRow(
		context.Background(), "SELECT current_setting('server_version_num')::int",
	).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

func TestFilesAreNumberedInOrder(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, e := range entries { // in the order of their names
		if name, ok := strings.CutSuffix(e.Name(), ".sql"); ok {
			var n int
			if _, err := fmt.Sscanf(name, "%05d_", &n); err != nil || n <= last ||
				!strings.HasPrefix(name, fmt.Sprintf("%05d_", n)) {
				t.Errorf("%s does not begin with a number above %05d", e.Name(), last)
			}
			last = n
		}
	}
}

// TestVacuumSettings: tables that only grow and queues are vacuumed long before a fifth of their rows is new or dead.
func TestVacuumSettings(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	rows, err := conn.Query(context.Background(),
		`SELECT relname, coalesce(array_to_string(reloptions, ' '), '') FROM pg_class
		WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{}
	var name, option string
	if _, err := pgx.ForEachRow(rows, []any{&name, &option}, func() error {
		options[name] = option
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for setting, tables := range map[string][]string{
		"autovacuum_vacuum_insert_scale_factor=0.02": {"events", "feed", "versions", "documents"},
		"autovacuum_vacuum_scale_factor=0.02": {
			"versions", "documents", "webhook_deliveries", "webhook_log", "mails", "idempotency_keys", "kept_contents",
		},
	} {
		for _, table := range tables {
			if !strings.Contains(options[table], setting) {
				t.Errorf("%s has %q, not %s", table, options[table], setting)
			}
		}
	}
}
