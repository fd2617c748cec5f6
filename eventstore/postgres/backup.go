package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
)

const (
	backupFile  = "backup.json"
	backupLock  = "backup.lock"
	backupName  = "20060102T150405Z"
	backupLabel = "backup_label"
	unfinished  = ".part"
	labelStart  = `START WAL LOCATION: .* \(file ([0-9A-F]{24})\)`

	// plainFormat holds the files of the data directory in pgdata. Older programs wrote it.
	plainFormat = 1
	plainData   = "pgdata"
	// backupFormat holds them compressed, in base.tar.zst.
	backupFormat = 2
)

// Backup is a complete base backup. Its directory is named after its start time and holds backup.json, base.tar.zst and
// PostgreSQL's backup_manifest. The WAL that it needs is in the archive.
type Backup struct {
	// Dir is its directory.
	Dir    string `json:"-"`
	Format int    `json:"format"`
	// StartedAt and FinishedAt are read from PostgreSQL's clock. The backup can be restored to any time from FinishedAt
	// on.
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	PostgreSQL int       `json:"postgresql"`
	// System is PostgreSQL's system identifier. A restored data directory keeps it.
	System string `json:"system"`
	// Archive is the name of the archive that continues from StartSegment, below the directory wal beside the backups.
	Archive      string `json:"archive"`
	StartSegment string `json:"startSegment"`
	// Bytes is the size of the backup, without the archive.
	Bytes int64 `json:"bytes"`
	// DataBytes is the size of the data directory that it unpacks to. The first format lacks it: there it is Bytes.
	DataBytes int64 `json:"dataBytes"`
}

// BackupConfig configures a backup.
type BackupConfig struct {
	// Dir holds all backups and their archives. It is created if it does not exist.
	Dir string
	// Move allows leaving an archive elsewhere.
	Move bool
	// Replaces confirms that this data directory has replaced the one that was last backed up to Dir.
	Replaces bool
	// Keep is the number of backups to keep; 0 keeps all.
	Keep int
	// Also adds files to the directory of the backup before it is complete.
	Also func(dir string) error
}

// Backup copies the running server's data directory, verifies the copy, and has every later change archived beside it.
// If it is interrupted, earlier backups are unaffected.
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
	if s.lock == nil { // another process started the server
		if s.account, err = accountFor(s.layout); err != nil {
			return b, err
		}
		if err := s.findPrograms(ctx, s.layout); err != nil {
			return b, err
		}
	}
	if err := s.program.has("pg_waldump", "pg_archivecleanup"); err != nil {
		return b, err // fail before changing anything
	}
	if err := removeUnfinished(root); err != nil {
		return b, err
	}
	conn, err := pgx.Connect(ctx, s.URL(Database))
	if err != nil {
		return b, say.Errorf("connect: %w", err)
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
	defer func() {
		if err != nil { // the disk may be full, and the archive needs it; without effect once the backup is complete
			err = errors.Join(err, os.RemoveAll(part))
		}
	}()
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

// archiveFor returns the archive that continues from the backup. It contains everything written so far.
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
	_, err = s.flushArchive(ctx, conn, archive)
	return archive, err
}

// copyBase copies the data directory to part, and verifies the copy and the WAL that was archived meanwhile.
func (s *Server) copyBase(ctx context.Context, conn *pgx.Conn, b *Backup, part, archive string) (err error) {
	if err := os.Mkdir(part, 0o700); err != nil {
		return say.Errorf("backup: %w", err)
	}
	if err := receiveBase(ctx, s.URL(Database), part); err != nil {
		return err
	}
	if b.FinishedAt, err = clock(ctx, conn); err != nil {
		return err
	}
	last, err := s.flushArchive(ctx, conn, archive)
	if err != nil {
		return err
	}
	label, err := verifyBase(ctx, part)
	if err != nil {
		return err
	}
	if _, b.DataBytes, err = readManifest(part); err != nil {
		return err
	}
	if b.StartSegment, err = startSegment(label.Bytes()); err != nil {
		return err
	}
	if _, err := checkArchive(archive, b.StartSegment); err != nil {
		return err
	}
	return checkWAL(ctx, s.program, filepath.Join(part, archives), archive, b.StartSegment, last)
}

// freeName returns the start time of a backup, by the database's clock, and its directory. The directory is named after
// the second, so if another backup has started in this second, freeName waits for the next.
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

// noTablespaces refuses a database with tablespaces, which a copy could not put beside the original.
func noTablespaces(ctx context.Context, conn *pgx.Conn) error {
	var names string
	if err := conn.QueryRow(
		ctx,
		"SELECT coalesce(string_agg(spcname, ', '), '') FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')",
	).Scan(&names); err != nil {
		return say.Errorf("look for tablespaces: %w", err)
	}
	if names != "" {
		return say.Errorf(
			"the database has tablespaces (%s), which are not backed up: move their tables back and drop them, or "+
				"back up with pgBackRest",
			names,
		)
	}
	return nil
}

// ownBackups refuses a directory with backups of another database. It returns this database's identifier and the
// archive of the newest backup, empty if no backup exists.
func ownBackups(ctx context.Context, conn *pgx.Conn, root string) (system, newest string, err error) {
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&system); err != nil {
		return "", "", say.Errorf("ask for the system identifier: %w", err)
	}
	all, err := Backups(root)
	if err != nil {
		return "", "", err
	}
	for _, b := range all {
		if b.System != system {
			return "", "", say.Errorf(
				"%s holds backups of another ledger (%s): name another directory", root, filepath.Base(b.Dir),
			)
		}
		newest = b.Archive
	}
	return system, newest, nil
}

// Archiving returns the directory that the server archives to, empty if it does not archive, and the last failure, if
// it is newer than the last success.
func Archiving(ctx context.Context, conn *pgx.Conn) (dir string, failing string, err error) {
	if dir, err = currentArchive(ctx, conn); err != nil || dir == "" {
		return dir, "", err
	}
	err = conn.QueryRow(ctx, `SELECT CASE WHEN last_failed_time > coalesce(last_archived_time, '-infinity')
		THEN last_failed_wal || ' failed at ' || last_failed_time ELSE '' END FROM pg_stat_archiver`).Scan(&failing)
	if err != nil {
		return dir, "", say.Errorf("ask how archiving stands: %w", err)
	}
	return dir, failing, nil
}

// complete syncs the backup to disk and renames it into place.
func (b *Backup) complete(part string) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return say.Errorf("backup: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(part, backupFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return say.Errorf("backup: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close(), syncDir(part)); err != nil {
		return say.Errorf("backup: %w", err)
	}
	if err := os.Rename(part, b.Dir); err != nil {
		return say.Errorf("backup: %w", err)
	}
	return syncDir(filepath.Dir(b.Dir))
}

// Backups returns the complete backups in dir, oldest first.
func Backups(dir string) ([]Backup, error) {
	entries, err := os.ReadDir(dir) // sorted by name, and so by time
	if err != nil {
		return nil, say.Errorf("backups: %w", err)
	}
	var found []Backup
	for _, e := range entries {
		if _, err := time.Parse(backupName, e.Name()); err != nil || !e.IsDir() {
			continue
		}
		b := Backup{Dir: filepath.Join(dir, e.Name())}
		text, err := os.ReadFile(filepath.Join(b.Dir, backupFile))
		if err != nil {
			return nil, say.Errorf("backup %s: %w", e.Name(), err)
		}
		if err := json.Unmarshal(text, &b); err != nil {
			return nil, say.Errorf("backup %s: %s: %w", e.Name(), backupFile, err)
		}
		if b.Format != plainFormat && b.Format != backupFormat {
			return nil, say.Errorf(
				"backup %s has format %d: this program knows the formats up to %d", e.Name(), b.Format, backupFormat,
			)
		}
		if b.Format == plainFormat {
			b.DataBytes = b.Bytes
		}
		found = append(found, b)
	}
	return found, nil
}

// prune removes all but the newest backups, and the WAL that none of them needs.
func prune(ctx context.Context, p programs, root string, keep int, current string) error {
	all, err := Backups(root)
	if err != nil {
		return err
	}
	kept := all[max(0, len(all)-keep):]
	for _, old := range all[:len(all)-len(kept)] {
		// A backup must not look complete while it is being removed.
		if err := os.Rename(old.Dir, old.Dir+unfinished); err != nil {
			return say.Errorf("remove an old backup: %w", err)
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
		return say.Errorf("remove old WAL: %w", err)
	}
	for _, e := range entries {
		archive := filepath.Join(root, archives, e.Name())
		switch first := oldest[e.Name()]; {
		case first != "":
			err = run(ctx, p, "pg_archivecleanup", "-x", compressed, archive, first)
		case e.Name() != current:
			err = os.RemoveAll(archive)
		}
		if err != nil {
			return say.Errorf("remove old WAL: %w", err)
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
		return "", say.Errorf("directory of backups: %w", err)
	}
	return root, nil
}

// lockBackups prevents a concurrent backup into the same directory.
func lockBackups(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, backupLock), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, say.Errorf("directory of backups: %w", err)
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(say.Errorf("another backup into %s is running: %w", root, err), f.Close())
	}
	return f, nil
}

// removeUnfinished removes unfinished backups. The caller must hold the lock, so that no process is writing them.
func removeUnfinished(root string) error {
	left, err := filepath.Glob(filepath.Join(root, "*Z"+unfinished))
	if err != nil {
		return say.Errorf("unfinished backups: %w", err)
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return say.Errorf("remove an unfinished backup: %w", err)
		}
	}
	return nil
}

func startSegment(label []byte) (string, error) {
	match := regexp.MustCompile(labelStart).FindSubmatch(label)
	if match == nil {
		return "", say.New("backup: backup_label does not say where the WAL begins")
	}
	return string(match[1]), nil
}

// clock returns the server's time, which recovery targets refer to.
func clock(ctx context.Context, conn *pgx.Conn) (now time.Time, err error) {
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return now, say.Errorf("ask for the time: %w", err)
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
		return 0, say.Errorf("backup: %w", err)
	}
	return bytes, nil
}

// run runs one of PostgreSQL's programs as this process's user.
func run(ctx context.Context, p programs, name string, args ...string) error {
	return account{uid: os.Geteuid()}.run(ctx, filepath.Join(p.dir, name), args...)
}
