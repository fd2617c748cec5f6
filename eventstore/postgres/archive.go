package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"integrityledger/eventstore/wait"

	"github.com/jackc/pgx/v5"
)

const (
	// archives is the directory, beside the backups, that holds an archive for each data directory that was ever backed up
	// there.
	archives = "wal"
	// archiveDelay is how long a change may wait for the archive.
	archiveDelay = time.Minute
	// archivePatience is how long the archiver may take for one segment.
	archivePatience = 60 * time.Second

	// segmentsPerLog is that of segments of 16 MB, which initdb makes.
	segmentsPerLog = 0x100
)

// noArchive makes the archiver throw segments away. Archiving can then be switched on without a restart, and a server
// without backups does not collect its WAL.
const noArchive = "true"

// configureArchive runs at every start, for data directories of programs that knew no archive too.
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
		return fmt.Errorf("set where WAL is archived: %w", err)
	}
	return nil
}

// forgetArchive leaves a restored data directory without one: it must not write into that of the ledger it comes from.
func forgetArchive(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{
		"LOAD 'basic_archive'",
		"ALTER SYSTEM RESET archive_library", "ALTER SYSTEM RESET basic_archive.archive_directory",
		"ALTER SYSTEM RESET archive_timeout",
		"ALTER SYSTEM SET archive_command = '" + noArchive + "'",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("leave the archive: %w", err)
		}
	}
	return nil
}

// currentArchive is the directory that the server archives in, empty where it does not.
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
		return "", fmt.Errorf("ask where WAL is archived: %w", err)
	case mode != "on":
		return "", errors.New(
			"this PostgreSQL was started by a program that knew no archive: restart the service, then back up",
		)
	case library == "":
		return "", nil
	default:
		return dir, nil
	}
}

// useArchive makes the server archive its WAL below root, from now on and after every restart, and returns the
// directory. An archive elsewhere is left only where cfg says so. newest is the archive of the newest backup there: a
// restored data directory has the identity of the one it comes from, which may live on, and whose backups Keep would
// remove.
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
			fmt.Errorf("changes are archived in %s already: back up to %s, or move the archive here (--move); older backups "+
				"then reach no further than now",
				current, filepath.Dir(filepath.Dir(current)))
	}
	if newest != "" && (!here || filepath.Base(current) != newest) && !cfg.Replaces {
		return "",
			fmt.Errorf("%s is where another data directory of this ledger was backed up last: where this one was restored "+
				"to try it, name a directory of its own; "+
				"where the other is stopped for good, say so (--replaces)", root)
	}
	if here {
		return current, nil
	}
	if err := makeDir(all); err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	// One of its own: two ledgers that were restored from one backup write segments of equal names.
	dir := filepath.Join(all, strings.ToLower(rand.Text()[:16]))
	if err := s.account.reach(all); err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	if err := s.account.privateDir(dir); err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	if _, err := conn.Exec(ctx, "LOAD 'basic_archive'"); err != nil {
		return "", fmt.Errorf(
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
			return "", fmt.Errorf("switch archiving on: %w", err)
		}
	}
	return dir, nil
}

// flushArchive returns when everything written until now stands in the archive.
func (s *Server) flushArchive(ctx context.Context, conn *pgx.Conn, archive string) error {
	var segment string // that it ends with
	deadline := time.Now().Add(archivePatience)
	for {
		// Another segment each time: the archiver may have thrown the last one away before it knew of the archive.
		if _, err := conn.Exec(ctx, "SELECT pg_create_restore_point('integrity backup')"); err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		if err := conn.QueryRow(ctx, "SELECT pg_walfile_name(pg_switch_wal())").Scan(&segment); err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		for again := time.Now().Add(10 * time.Second); time.Now().Before(again); {
			if _, err := os.Stat(filepath.Join(archive, segment)); err == nil {
				return nil
			}
			// An archiver that learns of another library ends, and the postmaster starts one again at the earliest ten
			// seconds after the last (PGARCH_RESTART_INTERVAL), when something wakes it: a connection does.
			if err := ping(ctx, s.URL("postgres")); err != nil {
				return fmt.Errorf("archive: %w", err)
			}
			if err := wait.For(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf(
				"%s does not arrive in the archive %s within %s: postgres.log in the data directory says why", segment, archive,
				archivePatience,
			)
		}
	}
}

// segmentNumber orders the segments of one timeline. ok is false for what is no segment.
func segmentNumber(name string) (n uint64, ok bool) {
	if len(name) != 24 {
		return 0, false
	}
	n, err := strconv.ParseUint(name[8:], 16, 64)
	log, segment := n>>32, n&math.MaxUint32
	return log*segmentsPerLog + segment, err == nil && segment < segmentsPerLog
}

// checkArchive finds a segment that is missing between first and the archive's last: PostgreSQL would take it for the
// end.
func checkArchive(archive, first string) (last string, err error) {
	from, ok := segmentNumber(first)
	if !ok {
		return "", fmt.Errorf("%q is no WAL segment", first)
	}
	entries, err := os.ReadDir(archive)
	if err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	next := from
	for _, e := range entries { // in the order of their names
		switch n, ok := segmentNumber(e.Name()); {
		case !ok || n < from:
		case n != next:
			return "", fmt.Errorf(
				"the archive %s has %s, but lacks a segment before it: find it, or restore another backup (--backup)", archive,
				e.Name(),
			)
		default:
			last = e.Name()
			next++
		}
	}
	if last == "" {
		return "", fmt.Errorf(
			"the archive %s lacks %s, which the backup needs: find it, or restore another backup (--backup)", archive, first,
		)
	}
	return last, nil
}
