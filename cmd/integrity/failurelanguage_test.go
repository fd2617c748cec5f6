package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/pgtest"
)

// englishWords are words that a Spanish sentence does not have.
var englishWords = regexp.MustCompile(
	`(?i)\b(the|of|is|was|were|be|must|to|and|not|with|for|it|its|this|that|from|by|has|have|are|at|cannot|could|failed|there|which)\b`,
)

// ownWords are messages of PostgreSQL, log records, a name and a code.
var ownWords = regexp.MustCompile(
	`(?m)(ERROR|FATAL): .* \(SQLSTATE \w+\)|^time=.*$|ledger-of-the-test|not-checked`,
)

// failure is a command that fails.
type failure struct {
	line    string // of the command, without words that have spaces
	environ string // variables, divided by spaces
	english string // part of what it says in English
}

// failing runs commands in both languages. Their exit codes are the same, the Spanish has no English, and the English is
// as it has been.
func failing(t *testing.T, values *strings.Replacer, failures []failure) {
	t.Helper()
	for _, f := range failures {
		args := strings.Fields(values.Replace(f.line))
		environ := strings.Fields(values.Replace(f.environ))
		english := integrity(t, append(environ, "LC_ALL=C"), args...)
		spanish := integrity(t, append(environ, "LC_ALL=es_ES.UTF-8"), args...)
		if english.code == cli.ExitOK || english.code != spanish.code {
			t.Errorf("%s: exit code %d, in Spanish %d", f.line, english.code, spanish.code)
		}
		if want := values.Replace(f.english); !strings.Contains(english.out+english.errs, want) {
			t.Errorf("%s says in English\n%s%snot %s", f.line, english.out, english.errs, want)
		}
		said := ownWords.ReplaceAllString(spanish.out+spanish.errs, "")
		if words := englishWords.FindAllString(said, -1); words != nil || said == "" {
			t.Errorf("%s says in Spanish (%q)\n%s%s", f.line, words, spanish.out, spanish.errs)
		}
	}
}

// TestFailuresFollowTheLocale: what goes wrong on a command line is said in the language of the locale, for every command
// of operators, with real ledgers, backups and bundles.
func TestFailuresFollowTheLocale(t *testing.T) {
	if testing.Short() {
		t.Skip("runs 90 commands, twice")
	}
	t.Parallel()
	dir, room := dataDir(t), dataDir(t)
	s := start(t, dir, "--demo", "--issuer", "ledger-of-the-test")
	must(t, nil, "backup", filepath.Join(room, "backups"), "--data-dir", dir)
	var organizations struct{ Organizations []operator.OrganizationView }
	mustJSON(t, nil, &organizations, "organization", "list", "--data-dir", dir)
	organization := organizations.Organizations[0].ID
	bundle := filepath.Join(room, "bundle")
	must(t, nil, "export", "--organization", organization, "--out", bundle, "--data-dir", dir)
	tampered, gone, other := filepath.Join(room, "tampered"), filepath.Join(room, "gone"), filepath.Join(room, "other")
	for _, copied := range []string{tampered, gone, other} {
		if err := os.CopyFS(copied, os.DirFS(bundle)); err != nil {
			t.Fatal(err)
		}
	}
	segment := "events/000000000001.ndjson"
	text, err := os.ReadFile(filepath.Join(bundle, segment))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tampered, segment), strings.Replace(string(text), "organization.created", "organization.changed", 1))
	if err := os.Remove(filepath.Join(gone, segment)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(other, "manifest.json"), "{}")
	file, empty := write(t, filepath.Join(room, "file"), "x"), filepath.Join(room, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	must(t, nil, "keys", "generate", "--data-dir", filepath.Join(room, "s"))
	database, old, ledger, spoiled, damaged := pgtest.New(t), pgtest.New(t), pgtest.New(t), pgtest.New(t), pgtest.New(t)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	app, superuser := ordinaryDatabase(ctx, t)
	for _, url := range []string{ledger, spoiled, damaged, superuser} {
		must(t, []string{"INTEGRITY_DATABASE_URL=" + url}, "migrate", "--issuer", "ledger-of-the-test")
	}
	pgtest.Exec(t, old, "UPDATE applied_migrations SET sha256 = '' WHERE version = 1")
	must(t, []string{"INTEGRITY_DATABASE_URL=" + spoiled}, "organization", "create", "x", "--plan", "pro", "--data-dir", filepath.Join(room, "s"))
	pgtest.Exec(t, spoiled, "UPDATE shard_heads SET occurred_at = now() + interval '1 day'")
	pgtest.Exec(t, damaged, "UPDATE shard_heads SET position = 7 WHERE shard = 0")
	values := strings.NewReplacer(
		"{dir}", dir, "{room}", room, "{organization}", organization, "{bundle}", bundle, "{tampered}", tampered, "{gone}", gone,
		"{other}", other, "{file}", file, "{empty}", empty, "{taken}", listener.Addr().String(), "{database}", database,
		"{ledger}", ledger, "{old}", old, "{spoiled}", spoiled, "{damaged}", damaged, "{app}", app,
		"{secret}", s.demo().Keys.Worker, "{none}", "INTEGRITY_DATABASE_URL=postgres://nobody@127.0.0.1:1/none?sslmode=disable",
		"{id}", "org_01m8japx32f8cbhsgxbtbee000", "{key}", "key_01m8japx32f8cbhsgxbtbee000",
	)
	failing(t, values, []failure{
		{"restore /none --data-dir {room}/new", "", "integrity: backups: open /none: no such file or directory"},
		{"restore {empty} --data-dir {room}/new", "", "integrity: {empty} holds no complete backup"},
		{"restore {file} --data-dir {room}/new", "", "integrity: backups: open {file}: not a directory"},
		{"restore {room}/backups --data-dir {dir}", "", "integrity: {dir}/pgdata exists already, and a restore replaces nothing: move it away, or name another data directory"},
		{"restore {room}/backups --data-dir {room}/new --to 2020-01-01T00:00:00Z", "", "integrity: the oldest backup in {room}/backups was finished at "},
		{"restore {room}/backups --data-dir {room}/new --backup none", "", "integrity: {room}/backups holds no complete backup none"},
		{"restore --external", "INTEGRITY_DATABASE_URL={database}", "integrity: read ledger row: no rows in result set"},
		{"backup {room}/backups --data-dir {empty}", "", "integrity: there is no ledger to back up in {empty} (--data-dir): stat {empty}/pgdata: no such file or directory"},
		{"backup {file} --data-dir {dir}", "", "integrity: directory of backups: mkdir {file}: not a directory"},
		{"backup {room}/elsewhere", "INTEGRITY_DATABASE_URL={database}", "integrity: INTEGRITY_DATABASE_URL names an external database: back it up with its own tools, such as pgBackRest or pg_basebackup with WAL archiving"},
		{"audit /none", "", "integrity: bundle /none: stat /none: no such file or directory"},
		{"audit {empty}", "", "integrity: bundle {empty}: lstat manifest.json: no such file or directory"},
		{"audit {file}", "", "integrity: bundle {file}: zip: not a valid zip file"},
		{"audit {tampered}", "", `FINDING readable: organization {organization} sequence 1: expected data of a known type and version, found event type "organization.changed" is not known to this program`},
		{"audit {gone}", "", "FINDING file: events/000000000001.ndjson: expected "},
		{"audit {other}", "", "integrity: {other}/manifest.json: it is not as integrity export writes it"},
		{"audit {bundle} --against {tampered}", "", "integrity: former history: file: events/000000000001.ndjson: expected "},
		{"audit {bundle} --trusted-keys {file}", "", "integrity: {file}: trusted keys: invalid character 'x' looking for beginning of value (at byte 1)"},
		{"export --data-dir {dir} --organization {organization} --out {file}", "", "integrity: bundle {file}: lstat manifest.json: not a directory"},
		{"export --data-dir {dir} --organization {organization} --out {tampered}", "", "integrity: {tampered} cannot be continued: file: events/000000000001.ndjson: expected "},
		{"export --data-dir {dir} --organization {organization} --out {other}", "", "integrity: {other}/manifest.json: it is not as integrity export writes it"},
		{"log status", "{none}", "integrity: open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"log check", "INTEGRITY_DATABASE_URL={database}", "integrity: set INTEGRITY_ISSUER, or a public INTEGRITY_BASE_URL, to create a ledger: it names the issuer of every signed record and cannot change later"},
		{"log resume --data-dir {dir}", "", "integrity: --published FILE or --fork must be given; see integrity log resume --help"},
		{"log resume --data-dir {dir} --published {file}", "", "integrity: --published must be a checkpoint of ledger-of-the-test/log signed by a trusted log key: not a checkpoint: must be three lines, a blank one and 1 to 100 signatures, each ended by a newline"},
		{"witness", "{none}", "integrity: set INTEGRITY_WITNESS_NAME (--witness-name): it names this witness in each cosignature and in its verifier key"},
		{"witness --witness-name w --witness-logs nonsense --data-dir {room}/w", "", "integrity: INTEGRITY_WITNESS_LOGS (--witness-logs) must be the path of a file, or a list separated by commas, of logs: a verifier key and, if it differs from the key's name, a space and the origin"},
		{"witness --witness-name w --witness-logs {file} --data-dir {room}/w", "", "integrity: INTEGRITY_WITNESS_LOGS (--witness-logs) must be the path of a file, or a list separated by commas, of logs: a verifier key and, if it differs from the key's name, a space and the origin"},
		{"distribute", "INTEGRITY_DATABASE_URL={ledger}", "integrity: the database lacks the extension citus: set shared_preload_libraries = 'citus' on every server, run CREATE EXTENSION citus in a database of this name on each, and citus_set_coordinator_host and citus_add_node on the coordinator"},
		{"distribute", "INTEGRITY_DATABASE_URL=postgres://127.0.0.1:bad/x", "integrity: INTEGRITY_DATABASE_URL must be a PostgreSQL URL (postgres://…), with target_session_attrs read-write or primary, if any"},
		{"rebuild --data-dir {dir} --projection none", "", "integrity: --projection must be one of aliases, "},
		{"rebuild", "INTEGRITY_DATABASE_URL={database}", "integrity: set INTEGRITY_ISSUER, or a public INTEGRITY_BASE_URL, to create a ledger: it names the issuer of every signed record and cannot change later"},
		{"migrate", "{none}", "integrity: open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"clock reset --data-dir {dir}", "", "no shard is dated ahead of the clocks by more than the tolerance"},
		{"clock reset", "{none}", "integrity: open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"upgrade status", "INTEGRITY_DATABASE_URL={database}", "integrity: read ledger row: no rows in result set"},
		{"upgrade finish", "{none}", "integrity: open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"top", "{none}", "integrity: open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"doctor", "{none}", "open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: "},
		{"organization list", "{none}", "integrity: open database: failed to connect to `user=nobody database=none`: 127.0.0.1:1 (127.0.0.1): dial error: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"organization create x --plan none --data-dir {dir}", "", "integrity: INVALID_DATA: Correct the members listed in errors and send the request again."},
		{"member invite --organization {organization} --email x --role owner --data-dir {dir}", "", "integrity: --email must be an address such as name@example.org"},
		{"apikey show key_x --data-dir {dir}", "", "integrity: KEY_ID: must be an id of the form key_ and 26 characters (give the id, not the key's text; integrity apikey list shows the ids)"},
		{"company close none --organization {organization} --data-dir {dir}", "", "integrity: NOT_FOUND: This organization has no company with that reference."},
		{"keys generate --data-dir {dir}", "", "integrity: {dir}/trusted-keys.json already exists and is not overwritten"},
		{"keys list --data-dir {file}", "", "integrity: trusted keys: open {file}/trusted-keys.json: not a directory"},
		{"keys add-witness x --data-dir {dir}", "", "integrity: verifierKey: must be <name>+<8 hexadecimal digits>+<base64> of an Ed25519 cosignature's key (type 0x04)"},
		{"keys add-authority x {file} --data-dir {dir}", "", "integrity: certificates/0: must be an X.509 certificate in DER: it is not in DER"},
		{"keys rotate --activate --data-dir {dir}", "", "integrity: no key is staged: create one with integrity keys rotate --stage"},
		{"keys rotate-secret --data-dir {dir}", "", "integrity: at least one of the flags in the group [stage activate reencrypt check retire] is required"},
		{"replay --data-dir {dir} --after 0 --shard 900", "", "integrity: --shard must be a number from 0 to "},
		{"verify /none /none", "", "integrity: receipt: open /none: no such file or directory"},
		{"verify {file} {file}", "", "integrity: {file}: trusted keys: invalid character 'x' looking for beginning of value (at byte 1)"},
		{"manifest create /none", "", "integrity: lstat /none: no such file or directory"},
		{"monitor http://127.0.0.1:1 --state {room}/state --trusted-keys {dir}/trusted-keys.json", "", "integrity: it could not be checked, which says nothing about the log: the service at http://127.0.0.1:1 did not answer: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"serve --data-dir {file}/x", "", "integrity: data directory: mkdir {file}: not a directory"},
		{"serve --data-dir {empty} --listen nowhere", "", "integrity: INTEGRITY_LISTEN (--listen) must be host:port"},
		{"serve --data-dir {room}/s --listen {taken}", "", "integrity: INTEGRITY_LISTEN (--listen): listen tcp {taken}: bind: address already in use"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_BLOB_URL=ftp://x INTEGRITY_DATABASE_URL={ledger}", "integrity: INTEGRITY_BLOB_URL (--blob-url) must be file:///directory or s3://bucket"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_NATS_URL=http://x INTEGRITY_DATABASE_URL={ledger}", "integrity: INTEGRITY_NATS_URL must be nats:// or tls://, with [user:password@]host[:port]"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_SMTP_URL=http://x INTEGRITY_DATABASE_URL={ledger}", "integrity: INTEGRITY_SMTP_URL must be smtp://, smtp+starttls:// or smtps://, with [user:password@]host[:port]"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "OTEL_TRACES_EXPORTER=zipkin INTEGRITY_DATABASE_URL={ledger}", `integrity: OTEL_TRACES_EXPORTER must be otlp or none, not "zipkin"`},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_WITNESSES=x INTEGRITY_DATABASE_URL={ledger}", "integrity: INTEGRITY_WITNESSES (--witnesses) must be the path of a file, or a list separated by commas, of witnesses: a verifier key, a space, an https address"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_SECRET_KEY=short INTEGRITY_DATABASE_URL={ledger}", "integrity: INTEGRITY_SECRET_KEY must be 32 bytes in base64 or hexadecimal, such as openssl rand -base64 32 prints"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_TLS_CERT=/none INTEGRITY_TLS_KEY=/none INTEGRITY_DATABASE_URL={ledger}", "integrity: INTEGRITY_TLS_CERT, INTEGRITY_TLS_KEY: open /none: no such file or directory"},
		{"migrate", "INTEGRITY_DATABASE_URL={old}", "integrity: this database holds a ledger from before the first release, which this program cannot read: keep its history with"},
		{"migrate --shards 0 --issuer x", "INTEGRITY_DATABASE_URL={database}", "integrity: INTEGRITY_SHARDS (--shards) must be a whole number from 1 to 65535"},
		{"migrate", "INTEGRITY_DATABASE_URL={app}", "integrity: ask for the lowest version that may serve: ERROR: permission denied for table ledger (SQLSTATE 42501)"},
		{"rebuild", "INTEGRITY_DATABASE_URL={app}", "integrity: ask for the lowest version that may serve: ERROR: permission denied for table ledger (SQLSTATE 42501)"},
		{"rebuild --data-dir {dir} --organization {id}", "", "integrity: rebuild shard 0: the log has no event of the organization: {id}"},
		{"audit --data-dir {dir} --organization {id}", "", "integrity: NOT_FOUND: There is no organization with that id."},
		{"audit --trusted-keys {dir}/trusted-keys.json", "INTEGRITY_DATABASE_URL={app}", "integrity: ask for the lowest version that may serve: ERROR: permission denied for table ledger (SQLSTATE 42501)"},
		{"audit --trusted-keys {room}/s/trusted-keys.json", "INTEGRITY_DATABASE_URL={spoiled}", "FINDING head: shard "},
		{"clock reset", "INTEGRITY_DATABASE_URL={spoiled}", "was not changed: no event is dated as late as the shard's head: the database was changed by another program"},
		{"export --data-dir {dir} --organization {id} --out {room}/new", "", "integrity: NOT_FOUND: There is no organization with that id."},
		{"backup {room}/elsewhere --data-dir {dir}", "", "integrity: changes are already archived in {room}/backups/wal/"},
		{"distribute", "INTEGRITY_DATABASE_URL={database}", "integrity: the database lacks the extension citus: set shared_preload_libraries"},
		{"organization plan {id} --plan pro --data-dir {dir}", "", "integrity: NOT_FOUND: There is no organization with that id."},
		{"organization retention {id} --data-dir {dir}", "", `integrity: required flag(s) "keep" not set`},
		{"member list --organization {id} --data-dir {dir}", "", "integrity: NOT_FOUND: There is no organization with that id."},
		{"member end --organization {organization} --member nobody@example.org --data-dir {dir}", "", "integrity: NOT_FOUND: This organization has no such member."},
		{"member unlink {id} --data-dir {dir}", "", "integrity: LINK_ID: must be an id of the form lnk_ and 26 characters (give the id, not the code; integrity member links"},
		{"apikey create --organization {id} --scopes integrity:read --data-dir {dir}", "", "integrity: name the member with --member"},
		{"apikey revoke {key} --data-dir {dir}", "", "integrity: NOT_FOUND: There is no API key with that id."},
		{"keys retire none --data-dir {dir}", "", "integrity: the key is not among the trusted keys; integrity keys list shows them"},
		{"heal plan {file} --organization {organization} --data-dir {dir}", "", "it is not a JSON object of evidence, of an outbox or of a bundle"},
		{"heal apply /none --organization {organization} --data-dir {dir}", "", "integrity: lstat /none: no such file or directory"},
		{"origin-demo --data-dir {file} --company c --source s", "INTEGRITY_API_KEY={secret}", "integrity: origin: mkdir {file}: not a directory"},
		{"reconcile {file} --company c --url http://127.0.0.1:1", "INTEGRITY_API_KEY={secret}", "integrity: the service at http://127.0.0.1:1 did not answer: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"verify {file} {dir}/trusted-keys.json", "", "NOT VALID"},
		{"replay --data-dir {dir} --shard 0 --after x", "", `integrity: invalid argument "x" for "--after" flag: strconv.ParseInt: parsing "x": invalid syntax`},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_DATABASE_URL={old}", "integrity: this database holds a ledger from before the first release, which this program cannot read: keep its history with"},
		{"serve --data-dir {room}/s --listen 127.0.0.1:0", "INTEGRITY_DATABASE_URL={damaged}", "integrity: the database is damaged: restore it from a backup: shard 0: its head says position 7, its last event is 0"},
		{"witness --witness-name w --witness-logs nonsense --data-dir {room}/w", "", "integrity: INTEGRITY_WITNESS_LOGS (--witness-logs) must be the path of a file, or a list separated by commas, of logs: "},
	})
}
