package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/wire"
)

// finding is a finding of the doctor.
type finding struct{ Check, State, Found, Do string }

// examine runs the doctor and returns its findings, as "state check: found".
func examine(t *testing.T, wantCode int, env []string, args ...string) string {
	t.Helper()
	r := integrity(t, env, append([]string{"doctor", "--json"}, args...)...)
	if r.code != wantCode {
		t.Errorf("doctor %v: exit code %d, want %d: %s%s", args, r.code, wantCode, r.out, r.errs)
	}
	var report struct {
		Findings []finding
		Failed   int
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v in %s%s", err, r.out, r.errs)
	}
	var all strings.Builder
	failed := 0
	for _, f := range report.Findings {
		all.WriteString(f.State + " " + f.Check + ": " + f.Found + "\n")
		if (f.State == operator.StateOK) != (f.Do == "") {
			t.Errorf("%s %s: says to do %q", f.State, f.Check, f.Do)
		}
		if f.State == operator.StateFail {
			failed++
		}
	}
	if failed != report.Failed {
		t.Errorf("%d failed, the report says %d", failed, report.Failed)
	}
	return all.String()
}

func wantFindings(t *testing.T, all string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("the doctor does not say %q:\n%s", w, all)
		}
	}
}

// TestDoctor breaks each thing that the doctor can check, while the service runs.
func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	wantFindings(
		t, examine(t, cli.ExitOK, nil, "--data-dir", dir), "ok keys: none yet", "ok database: none yet",
		"ok proxy: none needed",
	)
	public := []string{"INTEGRITY_BASE_URL=https://ledger.example"}
	wantFindings(
		t, examine(t, cli.ExitOK, public, "--data-dir", dir),
		"warn proxy: the base URL is https but the service speaks http", "warn configuration: no page says who operates",
	)
	wantFindings(t,
		examine(t, cli.ExitOK, append(public, "INTEGRITY_TRUSTED_PROXIES=192.0.2.0/24, ::1"), "--data-dir", dir),
		"ok proxy: trusted: [192.0.2.0/24 ::1/128]")
	if _, err := os.Stat(filepath.Join(dir, "pgdata")); err == nil {
		t.Error("the doctor has made a database")
	}
	address := freeAddress(t)
	s := start(t, dir, "--listen", address)
	at := func(more ...string) []string {
		return append([]string{"--data-dir", dir, "--listen", address}, more...)
	}
	wantFindings(t, examine(t, cli.ExitOK, []string{"INTEGRITY_LITSEN=x"}, at()...),
		"warn configuration: INTEGRITY_LITSEN has no effect", "ok keys: signing key ", "ok durability: fsync", "ok clock: ",
		"ok connections: ",
		"warn archive: nothing is archived", "warn witnesses: only this service vouches for its records",
		"ok migrations: ", "epoch 1", "ok ledger: every shard's head agrees",
		"ok disk: data directory")
	var status operator.LogStatusView
	mustJSON(t, nil, &status, "log", "status", "--data-dir", dir)
	if text := must(t, nil, "log", "status", "--data-dir", dir); !status.OnlyOperator ||
		!strings.Contains(text, "WARNING: only this service vouches") {
		t.Errorf("%+v\n%s", status, text)
	}
	if text := tail(s.log); !strings.Contains(text, "only this service vouches for its records") {
		t.Errorf("the start warns of nothing: %s", text)
	}
	// This installation is no witness of its own log, although the service knows no name of it.
	var own struct {
		VerifierKey string `json:"verifierKey"`
	}
	mustJSON(t, nil, &own, "keys", "witness", "--data-dir", dir, "--witness-name", "own.example/witness")
	must(t, nil, "keys", "add-witness", own.VerifierKey, "--data-dir", dir)
	itself := "INTEGRITY_WITNESSES=" + own.VerifierKey + " http://127.0.0.1:1"
	wantFindings(t, examine(t, cli.ExitOK, []string{itself}, at()...),
		"warn witnesses: only this service vouches for its records", "its key is this installation's own")
	for _, alone := range []string{itself, "INTEGRITY_TIMESTAMP_AUTHORITIES=unpinned https://a.example"} {
		mustJSON(t, []string{alone}, &status, "log", "status", "--data-dir", dir)
		if !status.OnlyOperator {
			t.Errorf("%s: %+v", alone, status)
		}
	}
	s.stop()
	s = surroundings{env: []string{itself}}.start(t, dir, "--listen", address)
	log, err := os.ReadFile(s.log)
	if err != nil || bytes.Count(log, []byte("only this service vouches for its records")) != 2 {
		t.Errorf("the start with itself as a witness warns of nothing: %v: %s", err, log)
	}
	var shown wire.Independence
	if err := json.Unmarshal(fetched(t, s.base+"/api/public/log/independence", ""), &shown); err != nil ||
		len(shown.Witnesses) != 1 || !shown.Witnesses[0].Own || shown.Witness != nil {
		t.Errorf("%v: %+v", err, shown.Witnesses)
	}
	stranger, err := evidence.NewWitnessKey("w.example/witness", make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	witness := "INTEGRITY_WITNESSES=" + stranger.VerifierKey + " https://w.example"
	wantFindings(t, examine(t, cli.ExitOK, []string{witness}, at()...),
		"warn witnesses: only this service vouches for its records",
		"warn witnesses: w.example/witness is asked for cosignatures, but verifiers do not count it")
	must(t, nil, "keys", "add-witness", stranger.VerifierKey, "--data-dir", dir)
	wantFindings(t, examine(t, cli.ExitOK, []string{witness}, at()...),
		"ok witnesses: w.example/witness is asked for cosignatures")
	mustJSON(t, []string{witness}, &status, "log", "status", "--data-dir", dir)
	if status.OnlyOperator {
		t.Errorf("with a witness: %+v", status)
	}
	backups := dataDir(t)
	var made operator.BackupView
	mustJSON(t, nil, &made, "backup", backups, "--data-dir", dir)
	wantFindings(
		t, examine(t, cli.ExitOK, nil, at()...),
		"ok archive: changes go to "+made.Archive+"; the last backup finished at "+made.FinishedAt,
	)
	description := filepath.Join(made.Backup, "backup.json")
	text, err := os.ReadFile(description)
	if err != nil {
		t.Fatal(err)
	}
	for was, now := range map[string]string{
		made.FinishedAt: "2026-01-02T03:04:05Z", filepath.Base(made.Archive): "another",
	} {
		write(t, description, strings.Replace(string(text), was, now, 1))
		code, want := cli.ExitOK, "warn archive: changes go to "+made.Archive+"; the last backup was "
		if now == "another" {
			code, want = cli.ExitNegative, "fail archive: changes go to "+made.Archive+", which no complete backup in "
		}
		wantFindings(t, examine(t, code, nil, at()...), want)
	}
	if err := os.Rename(backups, backups+".away"); err != nil {
		t.Fatal(err)
	}
	wantFindings(t, examine(t, cli.ExitNegative, nil, at()...), "fail archive: ")
	if err := os.Rename(backups+".away", backups); err != nil {
		t.Fatal(err)
	}
	write(t, description, string(text))

	if r := integrity(t, nil, "doctor", "--data-dir", dir, "--listen", "nowhere"); r.code != cli.ExitNegative ||
		!strings.Contains(r.out, "fail  configuration") || !strings.Contains(r.out, "-> ") {
		t.Errorf("a wrong variable: %d %s", r.code, r.out)
	}
	key := filepath.Join(dir, keyfiles.SigningKeyFile)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir, "UPDATE shard_heads SET position = 7000 WHERE shard = 0")
	alone(t, dir, "GRANT DELETE ON events TO integrity_service", "ALTER TABLE events DISABLE TRIGGER ALL")
	wantFindings(t,
		examine(t, cli.ExitNegative,
			[]string{
				"INTEGRITY_ISSUER=another", "INTEGRITY_SMTP_URL=smtp://127.0.0.1:1", "INTEGRITY_MAIL_FROM=a@b.example",
				"INTEGRITY_NATS_URL=nats://127.0.0.1:1", "INTEGRITY_BLOB_URL=file:///nowhere",
				"INTEGRITY_OAUTH_ISSUER=http://127.0.0.1:1",
			}, at()...),
		"fail keys: "+key+" may be read by others (mode 0644)", "fail ledger: shard 0: its head says position 7000",
		"fail ledger: the role integrity_service may change events", "fail ledger: the trigger",
		`INTEGRITY_ISSUER is "another"`, "warn mail: ", "warn stream: ", "fail blob store: ", "fail sign-in: discover http://127.0.0.1:1")
	s.stop()
	write(t, filepath.Join(dir, keyfiles.TrustedKeysFile), `{"keys": [], "keyStatus": {}, "revokedKeys": []}`)
	wantFindings(t, examine(t, cli.ExitNegative, nil, at()...), "fail keys: ")
}

// alone runs statements that may affect no row, each outside a transaction.
func alone(t *testing.T, dir string, statements ...string) {
	t.Helper()
	ctx := context.Background()
	server, err := postgres.StartOrAttach(ctx, postgres.Config{DataDir: dir, Purpose: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	conn, err := pgx.Connect(ctx, server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
}

// askOf reads one value from the database of the service that runs in dir.
func askOf[T any](t *testing.T, dir, sql string) T {
	t.Helper()
	server, err := postgres.Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	value, err := pgtest.Ask[T](server.URL(postgres.Database), sql)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestDoctorWithExternalDatabase checks a server whose settings can lose acknowledged registrations.
func TestDoctorWithExternalDatabase(t *testing.T) {
	t.Parallel()
	theirs := foreignDatabase(context.Background(), t)
	env := []string{"INTEGRITY_DATABASE_URL=" + theirs, "INTEGRITY_DATA_DIR=" + dataDir(t)}
	wantFindings(t, examine(t, cli.ExitNegative, env),
		"fail durability: fsync is off", "fail durability: synchronous_commit is off",
		"fail durability: full_page_writes is off",
		"warn archive: archive_mode is off", "is a superuser", "warn migrations: the database is empty")
	conn, err := pgx.Connect(context.Background(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var tables int
	if err := conn.QueryRow(
		context.Background(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace",
	).Scan(&tables); err != nil || tables != 0 {
		t.Errorf("the doctor has made %d tables: %v", tables, err)
	}
	must(t, env, "migrate", "--issuer", "x")
	if _, err := conn.Exec(
		context.Background(), "INSERT INTO applied_migrations (version, sha256) VALUES (999, '')",
	); err != nil {
		t.Fatal(err)
	}
	wantFindings(
		t, examine(t, cli.ExitNegative, env), "warn migrations: the schema has version 999, this program only knows",
	)
	gone := []string{"INTEGRITY_DATABASE_URL=postgres://127.0.0.1:1/x?connect_timeout=2"}
	wantFindings(t, examine(t, cli.ExitNegative, gone, "--data-dir", dataDir(t)), "fail database: ")
}

// TestDoctorWithStandby checks a primary whose commits wait for a standby, do not wait, and wait for a lost one.
func TestDoctorWithStandby(t *testing.T) {
	cluster := pgtest.NewCluster(t, true)
	env := []string{"INTEGRITY_DATABASE_URL=" + cluster.PrimaryURL(), "INTEGRITY_DATA_DIR=" + dataDir(t)}
	wantFindings(t, examine(t, cli.ExitNegative, env), "ok standby: 1 synchronous") // there is no key
	const each = "ALTER ROLE integrity SET synchronous_commit = "
	pgtest.Exec(t, cluster.PrimaryURL(), each+"local")
	wantFindings(t, examine(t, cli.ExitNegative, env), "warn standby: synchronous_commit is local")
	pgtest.Exec(t, cluster.PrimaryURL(), "SET synchronous_commit = local; "+each+"on")
	cluster.Kill(t, cluster.Standby)
	pgtest.Eventually(t, "the primary misses its standby", func() (bool, error) {
		return pgtest.Ask[bool](cluster.PrimaryURL(), "SELECT NOT EXISTS (SELECT FROM pg_stat_replication)")
	})
	wantFindings(t, examine(t, cli.ExitNegative, env), "fail standby: commits wait for a synchronous standby")
}

// TestDoctorReadsModes: only the owner and the service's groups may read a private key or a password.
func TestDoctorReadsModes(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	_, secret := domain.NewSecretKey()
	write(t, in("url"), "postgres://replica@127.0.0.1:1/none")
	write(t, in("tls.key"), "none")
	write(t, in(keyfiles.SecretKeyFile), secret)
	write(t, in(keyfiles.LogKeyFile), "none")
	write(t, in(keyfiles.WitnessKeyFile), "none")
	write(t, in("signing-key.previous.pem"), "none")
	write(t, in("log-key.former.pem"), "none")
	env := []string{"INTEGRITY_DATABASE_URL_FILE=" + in("url"), "INTEGRITY_DATA_DIR=" + dir,
		"INTEGRITY_TLS_CERT=" + in("tls.crt"), "INTEGRITY_TLS_KEY=" + in("tls.key")}
	for _, name := range []string{
		keyfiles.SigningKeyFile, keyfiles.LogKeyFile, keyfiles.WitnessKeyFile, keyfiles.SecretKeyFile, "url", "tls.key",
		"signing-key.previous.pem", "log-key.former.pem",
	} {
		for mode, finding := range map[os.FileMode]bool{0o440: false, 0o444: true} {
			if err := os.Chmod(in(name), mode); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("fail keys: %s may be read by others (mode %04o)", in(name), mode)
			if found := strings.Contains(examine(t, cli.ExitNegative, env), text); found != finding {
				t.Errorf("%s, mode %04o: found %t", name, mode, found)
			}
		}
		if err := os.Chmod(in(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorFindsAWrongReplica: the replica must be a standby of the same ledger that answers.
func TestDoctorFindsAWrongReplica(t *testing.T) {
	t.Parallel()
	cluster, other := pgtest.NewCluster(t, false), pgtest.New(t)
	for _, url := range []string{cluster.PrimaryURL(), other} {
		must(t, []string{"INTEGRITY_DATABASE_URL=" + url}, "migrate", "--issuer", "ledger-of-the-test")
	}
	pgtest.Eventually(t, "the standby has the ledger", func() (bool, error) {
		return pgtest.Ask[bool](cluster.StandbyURL(), "SELECT count(*) = 1 FROM ledger")
	})
	env := []string{"INTEGRITY_DATABASE_URL=" + cluster.PrimaryURL(), "INTEGRITY_DATA_DIR=" + dataDir(t)}
	for url, want := range map[string]string{
		cluster.StandbyURL():                  "ok replica: a standby of this ledger",
		cluster.PrimaryURL():                  "warn replica: INTEGRITY_REPLICA_URL names a primary",
		other:                                 "fail replica: INTEGRITY_REPLICA_URL names the database of another ledger",
		"postgres://replica@127.0.0.1:1/none": "warn replica: ",
	} {
		wantFindings(t, examine(t, cli.ExitNegative, append(env, "INTEGRITY_REPLICA_URL="+url)), want)
	}
}

// TestDoctorFindsAWrongSecretKey: a destination's secret that no configured key decrypts is a finding. With the right
// key there is no finding.
func TestDoctorFindsAWrongSecretKey(t *testing.T) {
	t.Parallel()
	key, right := domain.NewSecretKey()
	_, wrong := domain.NewSecretKey()
	w := startSecretServers(t, right)
	w.create("https://receiver.example")
	// The test's server commits without fsync, so the doctor's answer is no in any case.
	const finding = "fail webhooks: 1 secrets are encrypted with the key "
	if all := examine(t, cli.ExitNegative, w.env); strings.Contains(all, finding) {
		t.Errorf("with the right key: %s", all)
	}
	write(t, w.files[0], wrong)
	wantFindings(t, examine(t, cli.ExitNegative, w.env), finding+key.ID()+", which is not configured")
	write(t, w.files[0], wrong+" "+right)
	if all := examine(t, cli.ExitNegative, w.env); strings.Contains(all, finding) {
		t.Errorf("with both keys: %s", all)
	}
}

// schemaFindings returns what the doctor finds of the schema.
func schemaFindings(t *testing.T, env []string) (findings []finding) {
	t.Helper()
	var report struct{ Findings []finding }
	r := integrity(t, env, "doctor", "--json")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v in %s%s", err, r.out, r.errs)
	}
	for _, f := range report.Findings {
		if f.Check == "schema" {
			findings = append(findings, f)
		}
	}
	return findings
}

// TestDoctorFindsDrift makes each fault of the schema, compares the finding and what it says to do, and does so.
func TestDoctorFindsDrift(t *testing.T) {
	t.Parallel()
	pgtest.OneServer(t, "tables are changed by hand")
	// A program with other statements has another hash. Done twice, it gives the former one.
	const edit = "UPDATE applied_migrations SET sha256 = set_byte(sha256, 0, 255 - get_byte(sha256, 0)) WHERE version = 3"
	for name, test := range map[string]struct {
		fault, found, do string
		mend             string // empty: what the doctor says
	}{
		"dropped index": {
			fault: "DROP INDEX members_email", found: "index members_email of public.members is missing",
			do: "CREATE INDEX members_email ON public.members ",
		},
		"dropped table": {
			fault: "DROP TABLE feed", found: "table public.feed is missing",
			do: "integrity rebuild recreates it from the log", mend: "rebuild",
		},
		"renamed table": {
			fault: "ALTER TABLE feed RENAME TO feed_away",
			found: "table public.feed is missing; it was renamed to public.feed_away",
			do:    "ALTER TABLE public.feed_away RENAME TO feed",
		},
		"dropped trigger": {
			fault: "DROP TRIGGER events_append_only ON events",
			found: "trigger events_append_only of public.events is missing",
			do:    "CREATE TRIGGER events_append_only BEFORE ",
		},
		"edited migration": {
			fault: edit, mend: edit,
			found: "00003_reader.sql differs from the migration that was applied to this database: " +
				"its statements were edited",
			do: "use the released program: the edited statements were never applied to the database",
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.New(t)
			env := []string{"INTEGRITY_DATABASE_URL=" + url, "INTEGRITY_DATA_DIR=" + dataDir(t)}
			must(t, env, "migrate", "--issuer", "ledger-of-the-test")
			pgtest.Exec(t, url, test.fault)
			found := schemaFindings(t, env)
			if len(found) != 1 || found[0].State != operator.StateFail || found[0].Found != test.found ||
				!strings.HasPrefix(found[0].Do, test.do) {
				t.Fatalf("%+v, want %q, %q", found, test.found, test.do)
			}
			switch test.mend {
			case "rebuild":
				must(t, env, "rebuild")
			case "":
				pgtest.Exec(t, url, found[0].Do)
			default:
				pgtest.Exec(t, url, test.mend)
			}
			if mended := schemaFindings(t, env); len(mended) != 1 || mended[0].State != operator.StateOK {
				t.Errorf("not mended by %q: %+v", found[0].Do, mended)
			}
		})
	}
}

// TestDoctorIsExplained: the manual leads from each check to an entry, and names no other.
func TestDoctorIsExplained(t *testing.T) {
	files, err := filepath.Glob("operator/*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(
		`const check = "([a-z -]+)"|\b(?:d|doctor)\.(?:ok|warn|fail|every|first)\(\s*"([a-z -]+)"|\n\t+"([a-z -]+)", d\.cfg\.`,
	)
	checks := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "*doctor)") {
			continue
		}
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			checks[found[1]+found[2]+found[3]] = true
		}
	}
	if len(checks) < 20 {
		t.Fatalf("the source has only the checks %v", checks)
	}
	manual, err := os.ReadFile("manual/routine.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(manual), "| check | more about what it finds |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table + "\n") {
		cells := strings.Split(line, "|")
		if !strings.Contains(cells[2], ".md") && !strings.Contains(cells[2], "](#") {
			t.Errorf("%q leads nowhere", line)
		}
		for check := range strings.SplitSeq(strings.TrimSpace(cells[1]), ", ") {
			if !checks[check] {
				t.Errorf("manual/routine.md has a check %q, which the doctor does not make, or twice", check)
			}
			delete(checks, check)
		}
	}
	for check := range checks {
		t.Errorf("manual/routine.md does not explain the check %q", check)
	}
}
