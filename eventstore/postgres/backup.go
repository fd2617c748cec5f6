package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"integrityledger/eventstore/wait"

	"github.com/jackc/pgx/v5"
)

const (
	backupFile   = "backup.json"
	backupData   = "pgdata"
	backupLock   = "backup.lock"
	backupName   = "20060102T150405Z"
	unfinished   = ".part"
	labelStart   = `START WAL LOCATION: .* \(file ([0-9A-F]{24})\)`
	backupFormat = 1
)

// Backup is one complete base backup. Its directory has the name of the time it was begun at, and holds pgdata and
// backup.json.
type Backup struct {
	// Dir is where it stands.
	Dir    string `json:"-"`
	Format int    `json:"format"`
	// StartedAt and FinishedAt are PostgreSQL's clock. It can be restored to any time from FinishedAt on.
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	PostgreSQL int       `json:"postgresql"`
	// System is PostgreSQL's system identifier. A restored data directory keeps it.
	System string `json:"system"`
	// Archive is the name of the archive, below the directory wal beside the backups, that goes on from StartSegment.
	Archive      string `json:"archive"`
	StartSegment string `json:"startSegment"`
	Bytes        int64  `json:"bytes"`
}

// BackupConfig says what to back up to.
type BackupConfig struct {
	// Dir holds all backups and their archives. It is made where it is missing.
	Dir string
	// Move leaves an archive that is elsewhere.
	Move bool
	// Replaces says that this data directory has taken the place of the one that was backed up to Dir last.
	Replaces bool
	// Keep is how many backups stay; 0 keeps all.
	Keep int
	// Also adds files to the directory of the backup, before the backup is complete.
	Also func(dir string) error
}

// Backup copies the running server's data directory, verifies the copy, and has every later change archived beside it.
// Whatever interrupts it, the backups that were there stay.
func (s *Server) Backup(ctx context.Context, cfg BackupConfig) (b Backup, err error) {
	root, err := backupRoot(cfg.Dir)
	if err != nil {
		return b, err
	}
	locked, err := lockBackups(root)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	if s.lock == nil { // another process runs the server, and knows these
		if s.account, err = accountFor(s.layout); err != nil {
			return b, err
		}
		if err := s.findPrograms(ctx, s.layout); err != nil {
			return b, err
		}
	}
	if err := s.program.has("pg_basebackup", "pg_verifybackup", "pg_archivecleanup"); err != nil {
		return b, err // before anything is changed
	}
	if err := removeUnfinished(root); err != nil {
		return b, err
	}
	conn, err := pgx.Connect(ctx, s.URL(Database))
	if err != nil {
		return b, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	b = Backup{Format: backupFormat, PostgreSQL: s.program.major}
	archive, err := s.archiveFor(ctx, conn, &b, root, cfg)
	if err != nil {
		return b, err
	}
	if b.StartedAt, b.Dir, err = freeName(ctx, conn, root); err != nil {
		return b, err
	}
	part := b.Dir + unfinished
	if err := s.copyBase(ctx, conn, &b, part, archive); err != nil {
		return b, err
	}
	if cfg.Also != nil {
		if err := cfg.Also(part); err != nil {
			return b, err
		}
	}
	if b.Bytes, err = size(part); err != nil {
		return b, err
	}
	if err := b.complete(part); err != nil {
		return b, err
	}
	if cfg.Keep > 0 {
		return b, prune(ctx, s.program, root, cfg.Keep, b.Archive)
	}
	return b, nil
}

// archiveFor is the archive that goes on from the backup. Everything until now stands in it.
func (s *Server) archiveFor(
	ctx context.Context, conn *pgx.Conn, b *Backup, root string, cfg BackupConfig,
) (archive string, err error) {
	if err := noTablespaces(ctx, conn); err != nil {
		return "", err
	}
	system, newest, err := ownBackups(ctx, conn, root)
	if err != nil {
		return "", err
	}
	if archive, err = s.useArchive(ctx, conn, root, cfg, newest); err != nil {
		return "", err
	}
	b.System, b.Archive = system, filepath.Base(archive)
	return archive, s.flushArchive(ctx, conn, archive)
}

// copyBase makes the copy in part, and verifies it.
func (s *Server) copyBase(ctx context.Context, conn *pgx.Conn, b *Backup, part, archive string) (err error) {
	if err := os.Mkdir(part, 0o700); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	data := filepath.Join(part, backupData)
	if err := run(ctx, s.program, "pg_basebackup", "--pgdata="+data, "--dbname="+s.URL(Database), "--format=plain",
		"--wal-method=stream",
		"--checkpoint=fast", "--manifest-checksums=SHA256", "--label=integrity", "--no-password"); err != nil {
		return err
	}
	if b.FinishedAt, err = clock(ctx, conn); err != nil {
		return err
	}
	if err := s.flushArchive(ctx, conn, archive); err != nil {
		return err
	}
	if err := run(ctx, s.program, "pg_verifybackup", "--quiet", data); err != nil {
		return err
	}
	b.StartSegment, err = startSegment(data)
	return err
}

// freeName is when a backup begins, by the database's clock, and its directory, which is named by the second: a backup
// that ended within the second in which it began has that name, so the next one waits for the next second.
func freeName(ctx context.Context, conn *pgx.Conn, root string) (at time.Time, dir string, err error) {
	for {
		if at, err = clock(ctx, conn); err != nil {
			return at, "", err
		}
		dir = filepath.Join(root, at.Format(backupName))
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return at, dir, nil
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return at, "", err
		}
	}
}

// noTablespaces refuses what a copy could not put beside the original.
func noTablespaces(ctx context.Context, conn *pgx.Conn) error {
	var names string
	if err := conn.QueryRow(
		ctx,
		"SELECT coalesce(string_agg(spcname, ', '), '') FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')",
	).Scan(&names); err != nil {
		return fmt.Errorf("look for tablespaces: %w", err)
	}
	if names != "" {
		return fmt.Errorf(
			"the database has tablespaces (%s), which this backup does not know: move their tables back and drop them, or "+
				"back up with pgBackRest",
			names,
		)
	}
	return nil
}

// ownBackups refuses a directory with backups of another database, and returns the identifier of this one and the
// archive of the newest backup, empty without one.
func ownBackups(ctx context.Context, conn *pgx.Conn, root string) (system, newest string, err error) {
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&system); err != nil {
		return "", "", fmt.Errorf("ask for the system identifier: %w", err)
	}
	all, err := Backups(root)
	if err != nil {
		return "", "", err
	}
	for _, b := range all {
		if b.System != system {
			return "", "", fmt.Errorf(
				"%s holds backups of another ledger (%s): name a directory of its own", root, filepath.Base(b.Dir),
			)
		}
		newest = b.Archive
	}
	return system, newest, nil
}

// Archiving says how archiving stands: the directory, empty where nothing is archived, and the failures since the last
// success.
func Archiving(ctx context.Context, conn *pgx.Conn) (dir string, failing string, err error) {
	if dir, err = currentArchive(ctx, conn); err != nil || dir == "" {
		return dir, "", err
	}
	err = conn.QueryRow(ctx, `SELECT CASE WHEN last_failed_time > coalesce(last_archived_time, '-infinity')
		THEN last_failed_wal || ' failed at ' || last_failed_time ELSE '' END FROM pg_stat_archiver`).Scan(&failing)
	if err != nil {
		return dir, "", fmt.Errorf("ask how archiving stands: %w", err)
	}
	return dir, failing, nil
}

// complete makes the backup appear, with everything in it on the disk.
func (b *Backup) complete(part string) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(part, backupFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close(), syncDir(part)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Rename(part, b.Dir); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return syncDir(filepath.Dir(b.Dir))
}

// Backups are the complete ones in dir, oldest first.
func Backups(dir string) ([]Backup, error) {
	entries, err := os.ReadDir(dir) // in the order of their names, which is that of time
	if err != nil {
		return nil, fmt.Errorf("backups: %w", err)
	}
	var found []Backup
	for _, e := range entries {
		if _, err := time.Parse(backupName, e.Name()); err != nil || !e.IsDir() {
			continue
		}
		b := Backup{Dir: filepath.Join(dir, e.Name())}
		text, err := os.ReadFile(filepath.Join(b.Dir, backupFile))
		if err != nil {
			return nil, fmt.Errorf("backup %s: %w", e.Name(), err)
		}
		if err := json.Unmarshal(text, &b); err != nil {
			return nil, fmt.Errorf("backup %s: %s: %w", e.Name(), backupFile, err)
		}
		if b.Format != backupFormat {
			return nil, fmt.Errorf("backup %s has format %d: this program knows format %d", e.Name(), b.Format, backupFormat)
		}
		found = append(found, b)
	}
	return found, nil
}

// prune removes all but the newest backups, and the WAL that none of those needs.
func prune(ctx context.Context, p programs, root string, keep int, current string) error {
	all, err := Backups(root)
	if err != nil {
		return err
	}
	kept := all[max(0, len(all)-keep):]
	for _, old := range all[:len(all)-len(kept)] {
		// A backup that is being removed must not look like a complete one.
		if err := os.Rename(old.Dir, old.Dir+unfinished); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	if err := removeUnfinished(root); err != nil {
		return err
	}
	oldest := map[string]string{}
	for _, b := range slices.Backward(kept) {
		oldest[b.Archive] = b.StartSegment
	}
	entries, err := os.ReadDir(filepath.Join(root, archives))
	if err != nil {
		return fmt.Errorf("remove old WAL: %w", err)
	}
	for _, e := range entries {
		archive := filepath.Join(root, archives, e.Name())
		switch first := oldest[e.Name()]; {
		case first != "":
			err = run(ctx, p, "pg_archivecleanup", archive, first)
		case e.Name() != current:
			err = os.RemoveAll(archive)
		}
		if err != nil {
			return fmt.Errorf("remove old WAL: %w", err)
		}
	}
	return nil
}

func backupRoot(dir string) (root string, err error) {
	if err = makeDir(dir); err == nil {
		root, err = filepath.Abs(dir)
	}
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return "", fmt.Errorf("directory of backups: %w", err)
	}
	return root, nil
}

// lockBackups keeps out a second backup into the same directory.
func lockBackups(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, backupLock), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("directory of backups: %w", err)
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("another backup into %s is running: %w", root, err), f.Close())
	}
	return f, nil
}

// removeUnfinished needs the lock: nobody else can be writing them.
func removeUnfinished(root string) error {
	left, err := filepath.Glob(filepath.Join(root, "*Z"+unfinished))
	if err != nil {
		return fmt.Errorf("unfinished backups: %w", err)
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished backup: %w", err)
		}
	}
	return nil
}

func startSegment(data string) (string, error) {
	label, err := os.ReadFile(filepath.Join(data, "backup_label"))
	if err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	match := regexp.MustCompile(labelStart).FindSubmatch(label)
	if match == nil {
		return "", errors.New("backup: backup_label does not say where the WAL begins")
	}
	return string(match[1]), nil
}

// clock is the server's, which recovery goes by.
func clock(ctx context.Context, conn *pgx.Conn) (now time.Time, err error) {
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return now, fmt.Errorf("ask for the time: %w", err)
	}
	return now.UTC(), nil
}

func size(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("backup: %w", err)
	}
	return bytes, nil
}

// run runs one of PostgreSQL's programs as ourselves.
func run(ctx context.Context, p programs, name string, args ...string) error {
	return account{uid: os.Geteuid()}.run(ctx, filepath.Join(p.dir, name), args...)
}
