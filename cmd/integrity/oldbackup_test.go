package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
)

// startEmbedded runs the embedded server of a data directory, to which commands can attach.
func startEmbedded(t *testing.T, dir string) (server *postgres.Server, stop func()) {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Config{
		DataDir: dir, Purpose: "test", Serving: true, Wait: commandTime,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return server, stop
}

// backUpPlain makes a backup as programs before the second format did: files as they are, archived by basic_archive.
func backUpPlain(t *testing.T, server *postgres.Server, dir, backups string) (name string) {
	t.Helper()
	url := server.URL(postgres.Database)
	archive := filepath.Join(backups, "wal", "archiveofthepast")
	info, err := os.Stat(filepath.Join(dir, "pgdata"))
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(archive), 0o711), os.Chmod(backups, 0o711), os.Mkdir(archive, 0o700),
		os.Chown(archive, int(owner.Uid), int(owner.Gid)),
	); err != nil {
		t.Fatal(err)
	}
	alone(t, dir,
		"ALTER SYSTEM RESET archive_command",
		"LOAD 'basic_archive'",
		"ALTER SYSTEM SET basic_archive.archive_directory = '"+archive+"'",
		"ALTER SYSTEM SET archive_library = 'basic_archive'",
		"ALTER SYSTEM SET archive_timeout = '60s'",
		"SELECT pg_reload_conf()",
	)
	flush := func() {
		eventually(t, "a segment is archived", func() error {
			segment, err := pgtest.Ask[string](url, "SELECT pg_walfile_name(pg_switch_wal()) FROM pg_create_restore_point('x')")
			if err != nil {
				return err
			}
			_, err = os.Stat(filepath.Join(archive, segment))
			for again := time.Now().Add(time.Second); err != nil && time.Now().Before(again); {
				_, err = os.Stat(filepath.Join(archive, segment))
			}
			return err
		})
	}
	flush()
	b := postgres.Backup{Format: 1, StartedAt: time.Now().UTC(), Archive: filepath.Base(archive)}
	name = b.StartedAt.Format("20060102T150405Z")
	data := filepath.Join(backups, name, "pgdata")
	if out, err := exec.CommandContext(t.Context(), server.Program("pg_basebackup"), "--pgdata="+data, "--dbname="+url,
		"--format=plain", "--wal-method=stream", "--checkpoint=fast", "--manifest-checksums=SHA256",
	).CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v %s", err, out)
	}
	flush()
	b.FinishedAt = time.Now().UTC()
	label, err := os.ReadFile(filepath.Join(data, "backup_label"))
	if err != nil {
		t.Fatal(err)
	}
	b.StartSegment = string(regexp.MustCompile(`\(file (\w+)\)`).FindSubmatch(label)[1])
	if b.System, err = pgtest.Ask[string](url, "SELECT system_identifier::text FROM pg_control_system()"); err != nil {
		t.Fatal(err)
	}
	if b.PostgreSQL, err = pgtest.Ask[int](
		url, "SELECT current_setting('server_version_num')::int / 10000",
	); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(backups, name, "backup.json"), string(text))
	return name
}

// TestPlainBackup: a backup of the first format is listed, verified and restored, also with the compressed segments
// that this program adds to its archive, and removed.
func TestPlainBackup(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("restores a server many times")
	}
	dir, backups := dataDir(t), dataDir(t)
	must(t, nil, "migrate", "--data-dir", dir, "--issuer", "x")
	server, stop := startEmbedded(t, dir)
	url := server.URL(postgres.Database)
	old := backUpPlain(t, server, dir, backups)
	wantFindings(t, examine(t, cli.ExitNegative, nil, "--data-dir", dir), // there is no key
		"ok archive: changes go to "+backups)
	pgtest.Exec(t, url, "CREATE TABLE archived_as_it_is ()")
	var made operator.BackupView
	mustJSON(t, nil, &made, "backup", backups, "--data-dir", dir)
	if filepath.Base(made.Archive) != "archiveofthepast" || made.Bytes*2 > made.DataBytes {
		t.Errorf("the next backup: %+v", made)
	}
	pgtest.Exec(t, url, "CREATE TABLE archived_compressed ()")
	stop()

	segments, err := os.ReadDir(made.Archive)
	if err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{"", ".gz"} {
		if !slices.ContainsFunc(segments, func(e fs.DirEntry) bool { return filepath.Ext(e.Name()) == ending }) {
			t.Errorf("the archive has no segment with the ending %q", ending)
		}
	}
	for _, name := range []string{old, filepath.Base(made.Backup)} {
		restored := dataDir(t)
		must(t, nil, "restore", backups, "--backup", name, "--data-dir", restored)
		server, stop := startEmbedded(t, restored)
		if whole, err := pgtest.Ask[bool](
			server.URL(postgres.Database),
			"SELECT to_regclass('archived_as_it_is') IS NOT NULL AND to_regclass('archived_compressed') IS NOT NULL",
		); err != nil || !whole {
			t.Errorf("from %s not all is restored: %v", name, err)
		}
		wantNoArchive(t, restored)
		stop()
	}
	raw := slices.IndexFunc(segments, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".gz") }) - 1
	spoiled := filepath.Join(made.Archive, segments[raw].Name())
	flip(t, spoiled, 60) // the checksum of its first record
	if r := integrity(t, nil, "restore", backups, "--backup", old, "--data-dir", dataDir(t)); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "is damaged: find another copy of the segment") {
		t.Errorf("a damaged segment: %d %s", r.code, r.errs)
	}
	flip(t, spoiled, 60)
	flip(t, filepath.Join(backups, old, "pgdata", "global", "pg_control"), 100)
	if r := integrity(t, nil, "restore", backups, "--backup", old, "--data-dir", dataDir(t)); r.code != cli.ExitFailed ||
		!strings.Contains(r.errs, "the backup "+old+" is damaged") {
		t.Errorf("a damaged one: %d %s", r.code, r.errs)
	}
	must(t, nil, "backup", backups, "--data-dir", dir, "--keep", "1")
	if segments, err = os.ReadDir(made.Archive); err != nil || slices.ContainsFunc(segments, func(e fs.DirEntry) bool {
		return len(e.Name()) == 24
	}) {
		t.Errorf("after --keep 1: %v %v", segments, err)
	}
	if _, err := os.Stat(filepath.Join(backups, old)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old backup is still there: %v", err)
	}
}

// TestKilledBackup: a backup that is killed while PostgreSQL sends its files leaves nothing behind, and disturbs neither
// the earlier backup nor the next one.
func TestKilledBackup(t *testing.T) {
	t.Parallel()
	dir, backups := dataDir(t), dataDir(t)
	must(t, nil, "migrate", "--data-dir", dir, "--issuer", "x")
	server, _ := startEmbedded(t, dir)
	var first operator.BackupView
	mustJSON(t, nil, &first, "backup", backups, "--data-dir", dir)
	// Random rows make the copy long enough to be met.
	pgtest.Exec(t, server.URL(postgres.Database), `CREATE TABLE ballast AS
		SELECT sha512(n::text::bytea) AS b FROM generate_series(1, 600000) n`)
	c := exec.Command(os.Getenv(binaryVariable), "backup", backups, "--data-dir", dir)
	c.Env = cleanEnviron()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for begun := false; !begun; {
		select {
		case err := <-ended:
			t.Fatalf("it ended before it could be killed: %v", err)
		default:
		}
		parts, err := filepath.Glob(filepath.Join(backups, "*.part", "base.tar.zst"))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			info, err := os.Stat(part)
			begun = err == nil && info.Size() > 0
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Fatal("it was not killed")
	}
	all, err := postgres.Backups(backups)
	if err != nil || len(all) != 1 || all[0].Dir != first.Backup {
		t.Errorf("after the kill: %+v %v", all, err)
	}
	wantFindings(t, examine(t, cli.ExitNegative, nil, "--data-dir", dir), "ok archive: ")
	var next operator.BackupView
	mustJSON(t, nil, &next, "backup", backups, "--data-dir", dir)
	left, err := filepath.Glob(filepath.Join(backups, "*.part"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v %v", left, err)
	}
	restored := dataDir(t)
	must(t, nil, "restore", backups, "--data-dir", restored)
	again, _ := startEmbedded(t, restored)
	if rows, err := pgtest.Ask[int](again.URL(postgres.Database), "SELECT count(*)::int FROM ballast"); err != nil ||
		rows != 600000 {
		t.Errorf("%d rows are restored: %v", rows, err)
	}
	for _, path := range []string{"backup.json", "base.tar.zst", "backup_manifest"} {
		info, err := os.Stat(filepath.Join(next.Backup, path))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
}
