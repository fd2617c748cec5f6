package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/wire"
)

// databaseTime returns the time of the clock that a restore uses.
func databaseTime(t *testing.T, dir string) string {
	t.Helper()
	ctx := context.Background()
	server, err := postgres.Attach(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, server.URL(postgres.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var now time.Time
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now.UTC().Format(time.RFC3339Nano)
}

// TestPointInTimeRestore is the drill: registrations up to a time are there afterwards, later ones are not, and a feed
// reader that had seen them gets an explanation.
func TestPointInTimeRestore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("restores a server")
	}
	address := freeAddress(t)
	s := start(t, dataDir(t), "--demo", "--listen", address)
	access := s.demo()
	client := plainHTTP()
	env := []string{config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=" + s.base}
	register := func(s *running, document string) wire.Registration {
		t.Helper()
		var record wire.Registration
		status, err := call(client, http.MethodPost, s.base+"/api/v1/integrity/records", access.Keys.Worker, wire.Declaration{
			CompanyReference: access.CompanyReference, Source: "drill", DocumentReference: document, Version: 1,
			SHA256: strings.Repeat("ab", 32), SizeBytes: 1, MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
		}, &record)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("register %s: %d %v", document, status, err)
		}
		return record
	}
	backups := filepath.Join(dataDir(t), "back'ups")
	register(s, "before")
	var made operator.BackupView
	mustJSON(t, nil, &made, "backup", backups, "--data-dir", s.dir, "--with-keys")
	if len(made.Keys) != 4 || made.Bytes == 0 || len(made.NotContained) != 1 ||
		!strings.HasPrefix(made.NotContained[0], "kept bytes (file:///") {
		t.Errorf("backup: %+v", made)
	}
	a := register(s, "a")
	to := databaseTime(t, s.dir)
	b := register(s, "b")
	copied := filepath.Join(t.TempDir(), "copy.db")
	must(t, env, "reconcile", copied, "--company", access.CompanyReference)
	_, ahead := stored(t, copied)
	s.stop() // the archiver archives the rest

	if r := integrity(t, nil, "restore", backups, "--data-dir", s.dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "exists already") {
		t.Errorf("over a ledger: %d %s", r.code, r.errs)
	}
	former, restored := s.dir, dataDir(t)
	var view operator.RestoredView
	mustJSON(t, nil, &view, "restore", backups, "--to", to, "--data-dir", restored)
	if view.Epoch <= 1 || view.Missing != nil || len(view.Keys) != 4 || view.Issuer != s.base {
		t.Errorf("restore: %+v", view)
	}
	s = start(t, restored, "--listen", address)
	for publicID, want := range map[string]int{a.PublicID: http.StatusOK, b.PublicID: http.StatusNotFound} {
		if status, err := call(
			client, http.MethodGet, s.base+"/api/v1/integrity/records/"+publicID, access.Keys.Worker, nil, nil,
		); err != nil || status != want {
			t.Errorf("%s: %d %v, want %d", publicID, status, err, want)
		}
	}
	if out := must(t, nil, "rebuild", "--check", "--data-dir", restored); !strings.HasSuffix(out, "0 rows differ\n") {
		t.Errorf("rebuild --check: %s", out)
	}
	feed := s.base + "/api/v1/integrity/changes?companyReference=" + access.CompanyReference + "&after="
	if status, err := call(client, http.MethodGet, feed+fmt.Sprint(ahead), access.Keys.Worker, nil, nil); err != nil ||
		status != http.StatusUnprocessableEntity {
		t.Errorf("a cursor ahead: %d %v", status, err)
	}
	if r := integrity(t, env, "reconcile", copied, "--company", access.CompanyReference); r.code != cli.ExitNegative {
		t.Errorf("reconcile with a cursor ahead: %d %s", r.code, r.errs)
	}
	// The new events have passed the reader's cursor, so only the epoch shows the loss.
	register(s, "c")
	register(s, "d")
	if r := integrity(t, env, "reconcile", copied, "--company", access.CompanyReference); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, fmt.Sprintf("epoch 1 became %d", view.Epoch)) {
		t.Errorf("reconcile with a cursor passed since: %d %s", r.code, r.errs)
	}
	wantSequences(t, s.base, env, access)
	wantNoArchive(t, s.dir)
	// The restored directory's first backup starts a separate archive; the former directory's backups stay.
	for _, more := range [][]string{nil, {"--keep", "1"}, {"--move"}} {
		// The former directory may still be in use, and this one only a drill.
		r := integrity(t, nil, append([]string{"backup", backups, "--data-dir", restored}, more...)...)
		if r.code != cli.ExitFailed || !strings.Contains(r.errs, "--replaces") {
			t.Errorf("where the former ledger was backed up, %v: %d %s", more, r.code, r.errs)
		}
	}
	var next operator.BackupView
	mustJSON(t, nil, &next, "backup", backups, "--data-dir", restored, "--replaces")
	if _, err := os.Stat(made.Archive); err != nil {
		t.Errorf("without --keep nothing is removed: %v", err)
	}
	// From now on the former directory counts as a stranger.
	if r := integrity(t, nil, "backup", backups, "--data-dir", former, "--keep", "1"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "--replaces") {
		t.Errorf("the former ledger, after it was replaced: %d %s", r.code, r.errs)
	}
	mustJSON(t, nil, &next, "backup", backups, "--data-dir", restored, "--keep", "1")
	if next.Archive == made.Archive || len(next.Keys) != 1 {
		t.Errorf("the restored ledger's backup: %+v", next)
	}
	for path, kept := range map[string]bool{
		next.Backup: true, next.Archive: true, made.Backup: false, made.Archive: false,
	} {
		if _, err := os.Stat(path); (err == nil) != kept {
			t.Errorf("after --keep 1: %s: %v", path, err)
		}
	}
	register(s, "e")
	s.stop()
	// Restore everything, into a third directory, without the keys.
	third, restoredEpoch := dataDir(t), view.Epoch
	mustJSON(t, nil, &view, "restore", backups, "--data-dir", third)
	if view.Epoch <= restoredEpoch || len(view.Missing) != 3 {
		t.Errorf("second restore: %+v", view)
	}
	for _, name := range []string{keyfiles.SigningKeyFile, keyfiles.LogKeyFile, keyfiles.SecretKeyFile} {
		text, err := os.ReadFile(filepath.Join(restored, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(third, name), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	start(t, third, "--listen", address)
	wantSequences(t, s.base, env, access)
	if out := must(
		t, env, "changes", "--company", access.CompanyReference, "--json",
	); !strings.Contains(out, `"documentReference":"e"`) {
		t.Errorf("the last registration before the stop is not restored: %s", out)
	}
}

// wantSequences fails on a gap in the company's feed.
func wantSequences(t *testing.T, base string, env []string, access demo.Access) {
	t.Helper()
	last, events, between := int64(0), 0, signInLinks(t, base, access)
	for line := range strings.Lines(must(t, env, "changes", "--company", access.CompanyReference, "--json")) {
		var e wire.FeedEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		for last++; events > 0 && between[last]; last++ {
		}
		if events > 0 && e.Sequence != last {
			t.Errorf("the feed goes from sequence %d to %d", last-1, e.Sequence)
		}
		last = e.Sequence
		events++
	}
	if events < 4 {
		t.Errorf("the feed has %d events", events)
	}
}

// signInLinks returns the sequences of the demo's sign-in link events, which lie between its company's events: each
// start creates a link.
func signInLinks(t *testing.T, base string, access demo.Access) map[int64]bool {
	t.Helper()
	var page wire.AuditEvents
	path := base + "/api/v1/audit-events?limit=200&action=" + string(domain.SignInLinkMade)
	if status, err := call(plainHTTP(), http.MethodGet, path, access.Keys.Admin, nil, &page); err != nil ||
		status != http.StatusOK || page.HasMore {
		t.Fatal(status, err, page.HasMore)
	}
	sequences := map[int64]bool{}
	for _, e := range page.Events {
		sequences[e.Sequence] = true
	}
	return sequences
}

// wantNoArchive fails if a restored ledger still writes to the archive that it comes from.
func wantNoArchive(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pgdata", "postgresql.auto.conf"))
	if err != nil || strings.Contains(string(text), "archive_directory") {
		t.Errorf("the restored ledger has an archive: %v %s", err, text)
	}
}

// TestRestoreRefusals damages a backup in each way that would silently lose data.
func TestRestoreRefusals(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("restores a server many times")
	}
	dir := dataDir(t)
	must(t, nil, "migrate", "--data-dir", dir)
	backups := dataDir(t)
	var first, made operator.BackupView
	mustJSON(t, nil, &first, "backup", backups, "--data-dir", dir)
	mustJSON(t, nil, &made, "backup", backups, "--data-dir", dir)
	if first.Archive != made.Archive {
		t.Errorf("two archives of one ledger: %s, %s", first.Archive, made.Archive)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		r := integrity(t, nil, append(args, "--data-dir", filepath.Join(backups, "..", "restored"))...)
		if r.code != cli.ExitFailed || !strings.Contains(r.errs, want) {
			t.Errorf("%v: %d %s, want %s", args, r.code, r.errs, want)
		}
	}
	refused("no complete backup", "restore", t.TempDir())
	refused("after the time to restore", "restore", backups, "--to", "2026-01-02T03:04:05Z")
	refused("a time in the past", "restore", backups, "--to", "2999-01-02T03:04:05Z")
	refused("a time like", "restore", backups, "--to", "yesterday")
	refused("no complete backup 20260102T030405Z", "restore", backups, "--backup", "20260102T030405Z")
	refused("holds no change after", "restore", backups, "--to", time.Now().UTC().Format(time.RFC3339Nano))
	refused("no ledger to back up", "backup", backups)
	another := dataDir(t)
	must(t, nil, "migrate", "--data-dir", another)
	if r := integrity(t, nil, "backup", backups, "--data-dir", another, "--keep", "1"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "backups of another ledger") {
		t.Errorf("a directory of another ledger: %d %s", r.code, r.errs)
	}
	if r := integrity(t, nil, "backup", dataDir(t), "--data-dir", dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "--move") {
		t.Errorf("a second archive: %d %s", r.code, r.errs)
	}
	if r := integrity(
		t, []string{"INTEGRITY_DATABASE_URL=postgres:///x"}, "backup", backups,
	); r.code != cli.ExitFailed || !strings.Contains(r.errs, "pgBackRest") {
		t.Errorf("somebody else's database: %d %s", r.code, r.errs)
	}
	tablespace := filepath.Join(filepath.Dir(dataDir(t)), "slow")
	if err := os.Mkdir(tablespace, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "pgdata"))
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || os.Chown(tablespace, int(owner.Uid), int(owner.Gid)) != nil {
		t.Fatal("the tablespace cannot be given to PostgreSQL")
	}
	alone(t, dir, "CREATE TABLESPACE slow LOCATION '"+tablespace+"'")
	if r := integrity(t, nil, "backup", backups, "--data-dir", dir); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "tablespaces (slow)") {
		t.Errorf("a tablespace: %d %s", r.code, r.errs)
	}
	// A service must not create a new ledger in the directory of an unfinished restore.
	refused("a restore that was not finished", "migrate")

	// A missing segment would look like the end of the archive.
	lost := segmentAfterStart(t, first)
	if err := os.Rename(lost, lost+".lost"); err != nil {
		t.Fatal(err)
	}
	refused("lacks a segment", "restore", backups, "--backup", filepath.Base(first.Backup))
	// An unreadable segment would too; the segments before it can still be restored.
	segments := archived(t, made)
	spoiled := segments[len(segments)-1]
	whole, err := os.ReadFile(spoiled)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, spoiled, 100) // in its first records: the zeros behind them could be encoded in several ways
	refused("is damaged: find another copy of the segment", "restore", backups)
	refused(
		"is damaged: find another copy of the segment", "restore", backups, "--to",
		time.Now().UTC().Format(time.RFC3339Nano),
	)
	if err := os.WriteFile(spoiled, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	refused("is damaged: find another copy of the segment", "restore", backups)
	if err := os.WriteFile(spoiled, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(made.Backup, "base.tar.zst"), 5000)
	refused("the backup "+filepath.Base(made.Backup)+" is damaged", "restore", backups)
	for _, segment := range archived(t, made) {
		if err := os.Remove(segment); err != nil {
			t.Fatal(err)
		}
	}
	refused("which the backup needs", "restore", backups)
	if entries, err := os.ReadDir(filepath.Join(backups, "..", "restored")); err != nil || len(entries) == 0 {
		t.Errorf("restored: %v %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(backups, "..", "restored", "pgdata")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused restore has left a database: %v", err)
	}
}

// TestExternalRestore completes a restore by other tools.
func TestExternalRestore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	theirs := foreignDatabase(ctx, t)
	env := []string{"INTEGRITY_DATABASE_URL=" + theirs}
	must(t, env, "migrate", "--issuer", "x")
	conn, err := pgx.Connect(ctx, theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	const signIns = `INSERT INTO console_sessions SELECT 0, '\x01', n, n, n, 'owner', '', '', now(), now(), now(), now() + '1 hour' FROM (SELECT gen_random_uuid() AS n) n;
		INSERT INTO console_links SELECT 0, n, '\x01', '\x01', NULL, NULL, NULL, now(), now() + '1 hour', NULL FROM (SELECT gen_random_uuid() AS n) n;
		INSERT INTO console_challenges VALUES (0, '\x01', now() + '1 hour')`
	if _, err := conn.Exec(ctx, signIns); err != nil {
		t.Fatal(err)
	}
	if out := must(t, env, "restore", "--external"); strings.Contains(out, "backup") ||
		!strings.Contains(out, "integrity log resume") {
		t.Errorf("restore --external: %s", out)
	}
	var view operator.RestoredView
	mustJSON(t, env, &view, "restore", "--external")
	var live int
	if err := conn.QueryRow(
		ctx,
		`SELECT (SELECT count(*) FROM console_sessions) + (SELECT count(*) FROM console_links) + (SELECT count(*) FROM console_challenges)`,
	).Scan(&live); err != nil || live != 0 {
		t.Errorf("%d sessions, links and challenges live again: %v", live, err)
	}
	if view.Epoch <= 1 || view.Issuer != "x" {
		t.Errorf("%+v", view)
	}
	for want, args := range map[string][]string{
		"integrity restore --external": {"restore", t.TempDir()},
		"takes no DIR":                 {"restore", t.TempDir(), "--external"},
	} {
		if r := integrity(t, env, args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, want) {
			t.Errorf("%v: %d %s", args, r.code, r.errs)
		}
	}
	if _, err := conn.Exec(ctx, "UPDATE shard_heads SET position = 7000 WHERE shard = 0"); err != nil {
		t.Fatal(err)
	}
	if r := integrity(t, env, "restore", "--external"); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "shard 0: its head says position 7000") {
		t.Errorf("a damaged database: %d %s", r.code, r.errs)
	}
	var epoch int64
	if err := conn.QueryRow(ctx, "SELECT epoch FROM ledger").Scan(&epoch); err != nil || epoch != view.Epoch {
		t.Errorf("epoch %d after a refusal: %v", epoch, err)
	}
}

// segmentAfterStart returns the second segment that a backup needs.
func segmentAfterStart(t *testing.T, b operator.BackupView) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Backup, "backup.json"))
	if err != nil {
		t.Fatal(err)
	}
	var described postgres.Backup
	if err := json.Unmarshal(text, &described); err != nil {
		t.Fatal(err)
	}
	segments := archived(t, b)
	i := slices.Index(segments, filepath.Join(b.Archive, described.StartSegment+".gz"))
	if i < 0 || i+2 >= len(segments) {
		t.Fatalf("%s is not followed by two more in %v", described.StartSegment, segments)
	}
	return segments[i+1]
}

// flip changes one byte in the middle of a file.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[at] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// archived returns the segments of a backup's archive.
func archived(t *testing.T, b operator.BackupView) []string {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(b.Archive, strings.Repeat("[0-9A-F]", 24)+".gz"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%s holds no segment: %v", b.Archive, err)
	}
	return segments
}
