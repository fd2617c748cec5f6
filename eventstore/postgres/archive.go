package postgres

import (
	"context"
	"crypto/rand"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
)

const (
	// archives is the directory beside the backups that holds an archive for each data directory ever backed up there.
	archives = "wal"
	// archiveDelay is the longest time until a change is archived.
	archiveDelay = time.Minute
	// archivePatience is the longest time the archiver may take for one segment.
	archivePatience = 60 * time.Second

	// segmentsPerLog is the number of 16 MB segments, initdb's default size, in a 4 GB log file.
	segmentsPerLog = 0x100
)

// noArchive makes the archiver discard segments. Archiving can then be switched on without a restart, and a server
// without backups does not accumulate WAL.
const noArchive = "true"

// configureArchive runs at every start, because older programs created data directories without an archive command.
func configureArchive(ctx context.Context, conn *pgx.Conn) error {
	var mode, library, command string
	err := conn.QueryRow(
		ctx,
		"SELECT current_setting('archive_mode'), current_setting('archive_library'), reset_val FROM pg_settings WHERE "+
			"name = 'archive_command'",
	).
		Scan(&mode, &library, &command)
	if err == nil && mode == "on" && library == "" && command == "" {
		if _, err = conn.Exec(ctx, "ALTER SYSTEM SET archive_command = '"+noArchive+"'"); err == nil {
			_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
		}
	}
	if err != nil {
		return say.Errorf("configure WAL archiving: %w", err)
	}
	return nil
}

// forgetArchive disables archiving in a restored data directory, which must not write into the archive of its original.
func forgetArchive(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return say.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{
		"LOAD 'basic_archive'",
		"ALTER SYSTEM RESET archive_library", "ALTER SYSTEM RESET basic_archive.archive_directory",
		"ALTER SYSTEM RESET archive_timeout",
		"ALTER SYSTEM SET archive_command = '" + noArchive + "'",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return say.Errorf("disable WAL archiving: %w", err)
		}
	}
	return nil
}

// currentArchive returns the directory that the server archives to, empty if it does not archive.
func currentArchive(ctx context.Context, conn *pgx.Conn) (string, error) {
	var mode, library, dir string
	err := conn.QueryRow(
		ctx,
		"SELECT current_setting('archive_mode'), current_setting('archive_library'), "+
			"coalesce(current_setting('basic_archive.archive_directory', true), '')",
	).
		Scan(&mode, &library, &dir)
	switch {
	case err != nil:
		return "", say.Errorf("read the settings of WAL archiving: %w", err)
	case mode != "on":
		return "", say.New(
			"this PostgreSQL was started by an older program without WAL archiving: restart the service, then back up",
		)
	case library == "":
		return "", nil
	default:
		return dir, nil
	}
}

// useArchive makes the server archive its WAL below root, now and after every restart, and returns the directory. It
// leaves an archive elsewhere only if cfg.Move is set. newest is the archive of the newest backup in root. If that is
// another archive, cfg.Replaces must be set: a restored data directory has the same identity as its original, which may
// still run, and Keep would remove the original's backups.
func (s *Server) useArchive(
	ctx context.Context, conn *pgx.Conn, root string, cfg BackupConfig, newest string,
) (string, error) {
	current, err := currentArchive(ctx, conn)
	if err != nil {
		return "", err
	}
	all := filepath.Join(root, archives)
	here := current != "" && filepath.Dir(current) == all
	if current != "" && !here && !cfg.Move {
		return "",
			say.Errorf("changes are already archived in %s: back up to %s, or move the archive here (--move); older backups "+
				"can then be restored only up to now",
				current, filepath.Dir(filepath.Dir(current)))
	}
	if newest != "" && (!here || filepath.Base(current) != newest) && !cfg.Replaces {
		return "",
			say.Errorf("another data directory of this ledger was last backed up to %s: if this one is a trial restore, name "+
				"another directory; if the other is permanently stopped, add --replaces", root)
	}
	if here {
		return current, nil
	}
	if err := makeDir(all); err != nil {
		return "", say.Errorf("archive: %w", err)
	}
	// Use a random name: two ledgers restored from one backup write segments with equal names.
	dir := filepath.Join(all, strings.ToLower(rand.Text()[:16]))
	if err := s.account.reach(all); err != nil {
		return "", say.Errorf("archive: %w", err)
	}
	if err := s.account.privateDir(dir); err != nil {
		return "", say.Errorf("archive: %w", err)
	}
	if _, err := conn.Exec(ctx, "LOAD 'basic_archive'"); err != nil {
		return "", say.Errorf(
			"PostgreSQL's own archiving module is missing (Debian: part of postgresql-%d; elsewhere install "+
				"postgresql-contrib): %w",
			s.program.major, err,
		)
	}
	quoted := "'" + strings.ReplaceAll(dir, "'", "''") + "'"
	for _, statement := range []string{
		"ALTER SYSTEM RESET archive_command",
		"ALTER SYSTEM SET basic_archive.archive_directory = " + quoted,
		"ALTER SYSTEM SET archive_library = 'basic_archive'",
		"ALTER SYSTEM SET archive_timeout = '" + strconv.Itoa(int(archiveDelay.Seconds())) + "s'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", say.Errorf("switch archiving on: %w", err)
		}
	}
	return dir, nil
}

// flushArchive returns once everything written so far is in the archive.
func (s *Server) flushArchive(ctx context.Context, conn *pgx.Conn, archive string) error {
	var segment string // the last one needed
	deadline := time.Now().Add(archivePatience)
	for {
		// Switch to another segment each time: the archiver may have discarded the last one before it learned of the archive.
		if _, err := conn.Exec(ctx, "SELECT pg_create_restore_point('integrity backup')"); err != nil {
			return say.Errorf("archive: %w", err)
		}
		if err := conn.QueryRow(ctx, "SELECT pg_walfile_name(pg_switch_wal())").Scan(&segment); err != nil {
			return say.Errorf("archive: %w", err)
		}
		for again := time.Now().Add(10 * time.Second); time.Now().Before(again); {
			if _, err := os.Stat(filepath.Join(archive, segment)); err == nil {
				return nil
			}
			// When archive_library changes, the archiver exits. The postmaster starts another at the earliest ten seconds after
			// the last start (PGARCH_RESTART_INTERVAL), when something wakes it, such as a connection.
			if err := ping(ctx, s.URL("postgres")); err != nil {
				return say.Errorf("archive: %w", err)
			}
			if err := wait.For(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return say.Errorf(
				"%s did not arrive in the archive %s within %s: see postgres.log in the data directory", segment, archive,
				archivePatience,
			)
		}
	}
}

// segmentNumber returns the ordinal of a segment in its timeline. ok is false if name is not a segment.
func segmentNumber(name string) (n uint64, ok bool) {
	if len(name) != 24 {
		return 0, false
	}
	n, err := strconv.ParseUint(name[8:], 16, 64)
	log, segment := n>>32, n&math.MaxUint32
	return log*segmentsPerLog + segment, err == nil && segment < segmentsPerLog
}

// checkArchive returns the archive's last segment. It returns an error if a segment between first and the last is
// missing, because PostgreSQL would treat the gap as the end.
func checkArchive(archive, first string) (last string, err error) {
	from, ok := segmentNumber(first)
	if !ok {
		return "", say.Errorf("%q is not a WAL segment", first)
	}
	entries, err := os.ReadDir(archive)
	if err != nil {
		return "", say.Errorf("archive: %w", err)
	}
	next := from
	for _, e := range entries { // in the order of their names
		switch n, ok := segmentNumber(e.Name()); {
		case !ok || n < from:
		case n != next:
			return "", say.Errorf(
				"the archive %s has %s, but lacks a segment before it: find it, or restore another backup (--backup)", archive,
				e.Name(),
			)
		default:
			last = e.Name()
			next++
		}
	}
	if last == "" {
		return "", say.Errorf(
			"the archive %s lacks %s, which the backup needs: find it, or restore another backup (--backup)", archive, first,
		)
	}
	return last, nil
}
