package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

	// segmentBytes is initdb's default size of a segment.
	segmentBytes = 16 << 20
	// segmentsPerLog is the number of segments in a 4 GB log file.
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

// compressed is the ending of a segment that archiveCommand has written. Segments of older programs have no ending.
const compressed = ".gz"

// archiveCommand returns the setting by which PostgreSQL archives compressed segments in dir: most are nearly empty. A
// segment gets its name once it is on disk. One that is there already, because the server died before it took note,
// must have the same content. Gzip is on every system. Level 1 takes half a second of one core for a segment of random
// bytes.
func archiveCommand(dir string) string {
	return "d=" + shellQuoted(dir) + `; f=$d/%f` + compressed + `; t=$d/.%f.$$; ` +
		`if test -e "$f"; then gzip -dc "$f" | cmp -s - %p; ` +
		`else gzip -1nc %p >"$t" && sync "$t" && mv "$t" "$f" && sync "$d" || { rm -f "$t"; exit 1; }; fi`
}

// restoreCommand returns the setting by which PostgreSQL reads segments from the archive dir. An exit code above 125,
// such as for a missing program, ends the recovery.
func restoreCommand(dir string) string {
	f := shellQuoted(dir) + `/%f`
	return "if test -e " + f + "; then cp " + f + " %p; else gzip -dc " + f + compressed + " >%p; fi"
}

var archiveDir = regexp.MustCompile(`^d='((?:[^']|'\\'')*)'; f=`)

// archiveOf returns the directory of an archiveCommand, of any version, or an empty string for any other command.
func archiveOf(command string) string {
	match := archiveDir.FindStringSubmatch(command)
	if match == nil {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(match[1], `'\''`, "'"), "%%", "%")
}

// shellQuoted returns a path as one word of a shell command in a setting where PostgreSQL replaces %f and %p.
func shellQuoted(path string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(path, "%", "%%"), "'", `'\''`) + "'"
}

// forgetArchive disables archiving in a restored data directory, which must not write into the archive of its original.
func forgetArchive(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return say.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := forgetLibrary(ctx, conn); err != nil {
		return err
	}
	for _, statement := range []string{
		"ALTER SYSTEM RESET archive_timeout",
		"ALTER SYSTEM SET archive_command = '" + noArchive + "'",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return say.Errorf("disable WAL archiving: %w", err)
		}
	}
	return nil
}

// forgetLibrary removes the settings of PostgreSQL's module basic_archive, with which older programs archived. It
// cannot compress.
func forgetLibrary(ctx context.Context, conn *pgx.Conn) error {
	var set bool
	err := conn.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM pg_file_settings WHERE name = 'basic_archive.archive_directory')",
	).Scan(&set)
	if err == nil && set {
		for _, statement := range []string{
			"LOAD 'basic_archive'", "ALTER SYSTEM RESET archive_library", "ALTER SYSTEM RESET basic_archive.archive_directory",
		} {
			if _, err = conn.Exec(ctx, statement); err != nil {
				break
			}
		}
	}
	if err != nil {
		return say.Errorf("stop archiving with basic_archive: %w", err)
	}
	return nil
}

// currentArchive returns the directory that the server archives to, empty if it does not archive.
func currentArchive(ctx context.Context, conn *pgx.Conn) (string, error) {
	var mode, library, dir, command string
	err := conn.QueryRow(
		ctx,
		"SELECT current_setting('archive_mode'), current_setting('archive_library'), "+
			"coalesce(current_setting('basic_archive.archive_directory', true), ''), reset_val FROM pg_settings WHERE "+
			"name = 'archive_command'",
	).
		Scan(&mode, &library, &dir, &command)
	switch {
	case err != nil:
		return "", say.Errorf("read the settings of WAL archiving: %w", err)
	case mode != "on":
		return "", say.New(
			"this PostgreSQL was started by an older program without WAL archiving: restart the service, then back up",
		)
	case library == "":
		return archiveOf(command), nil
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
		return current, archiveTo(ctx, conn, current) // an older program may have started it
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
	return dir, archiveTo(ctx, conn, dir)
}

// archiveTo makes the server archive to dir, now and after every restart.
func archiveTo(ctx context.Context, conn *pgx.Conn, dir string) error {
	for _, program := range []string{"gzip", "cmp"} {
		if _, err := exec.LookPath(program); err != nil {
			return say.Errorf("archiving needs %s: install it (Debian: gzip, diffutils): %w", program, err)
		}
	}
	if err := forgetLibrary(ctx, conn); err != nil {
		return err
	}
	for _, statement := range []string{
		"ALTER SYSTEM SET archive_command = '" + strings.ReplaceAll(archiveCommand(dir), "'", "''") + "'",
		"ALTER SYSTEM SET archive_timeout = '" + strconv.Itoa(int(archiveDelay.Seconds())) + "s'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return say.Errorf("switch archiving on: %w", err)
		}
	}
	return nil
}

// flushArchive returns once everything written so far is in the archive, whose last segment it returns.
func (s *Server) flushArchive(ctx context.Context, conn *pgx.Conn, archive string) (segment string, err error) {
	deadline := time.Now().Add(archivePatience)
	for {
		// Switch to another segment each time: the archiver may have discarded the last one before it learned of the archive.
		if _, err := conn.Exec(ctx, "SELECT pg_create_restore_point('integrity backup')"); err != nil {
			return "", say.Errorf("archive: %w", err)
		}
		if err := conn.QueryRow(ctx, "SELECT pg_walfile_name(pg_switch_wal())").Scan(&segment); err != nil {
			return "", say.Errorf("archive: %w", err)
		}
		for again := time.Now().Add(10 * time.Second); time.Now().Before(again); {
			if _, err := os.Stat(filepath.Join(archive, segment+compressed)); err == nil {
				return segment, nil
			}
			// When archive_library changes, the archiver exits. The postmaster starts another at the earliest ten seconds after
			// the last start (PGARCH_RESTART_INTERVAL), when something wakes it, such as a connection.
			if err := ping(ctx, s.URL("postgres")); err != nil {
				return "", say.Errorf("archive: %w", err)
			}
			if err := wait.For(ctx, 100*time.Millisecond); err != nil {
				return "", err
			}
		}
		if time.Now().After(deadline) {
			return "", say.Errorf(
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

// segmentName returns the inverse of segmentNumber, in the timeline of the segment like.
func segmentName(like string, n uint64) string {
	return fmt.Sprintf("%s%08X%08X", like[:8], n/segmentsPerLog, n%segmentsPerLog)
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
		name := strings.TrimSuffix(e.Name(), compressed)
		switch n, ok := segmentNumber(name); {
		case !ok || n < next:
		case n != next:
			return "", say.Errorf(
				"the archive %s has %s, but lacks a segment before it: find it, or restore another backup (--backup)", archive,
				e.Name(),
			)
		default:
			last = name
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
