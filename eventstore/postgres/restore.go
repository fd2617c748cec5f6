package postgres

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"integrityledger/domain/say"

	"github.com/klauspost/compress/gzip"
)

// RestoreConfig configures a restore.
type RestoreConfig struct {
	Config
	// From holds the backups and their archives.
	From string
	// Name selects a backup; empty means the newest that can be restored to To.
	Name string
	// To is the time to restore to, by PostgreSQL's clock. Later commits are left out. Zero restores everything.
	To time.Time
	// Finish runs once on the restored server, before the data directory is renamed into place.
	Finish func(ctx context.Context, url string) error
}

// Restore creates the data directory, which must not exist yet, from a backup and the WAL archived since. The directory
// is renamed into place once Finish has returned and everything is on disk. If Restore is interrupted, there is no data
// directory, and it can be started again. The restored ledger does not archive until its own first backup.
func Restore(ctx context.Context, cfg RestoreConfig) (b Backup, err error) {
	root, err := filepath.Abs(cfg.From)
	if err != nil {
		return b, say.Errorf("directory of backups: %w", err)
	}
	all, err := Backups(root)
	if err != nil {
		return b, err
	}
	if b, err = pick(all, cfg.From, cfg.Name, cfg.To); err != nil {
		return b, err
	}
	if err := makeDir(cfg.DataDir); err != nil {
		return b, say.Errorf("data directory: %w", err)
	}
	s := &Server{cfg: cfg.Config}
	if s.layout, err = newLayout(cfg.DataDir); err != nil {
		return b, err
	}
	final := s.layout.data
	if err := absent(final); err != nil { // fail before waiting for the lock of a running server
		return b, err
	}
	defer func() { err = s.layout.withoutRoom(err) }()
	if s.lock, err = waitLock(
		ctx, s.layout, holder{PID: os.Getpid(), Purpose: cfg.Purpose}, cfg.Wait, cfg.Log,
	); err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, s.lock.release()) }()
	if err := absent(final); err != nil {
		return b, err
	}
	archive := filepath.Join(root, archives, b.Archive)
	last, err := checkArchive(archive, b.StartSegment)
	if err != nil {
		return b, err
	}
	if err := s.unpack(ctx, b, archive, cfg.To, last); err != nil {
		return b, err
	}
	if err := s.recover(ctx, cfg, archive); err != nil {
		if !cfg.To.IsZero() && ctx.Err() == nil {
			if damaged := checkWAL(ctx, s.program, s.scratch(), archive, b.StartSegment, last); damaged != nil {
				return b, errors.Join(damaged, err)
			}
		}
		if strings.Contains(err.Error(), "recovery ended before configured recovery target was reached") {
			err = say.Errorf(
				"the archive holds no change after %s (its last segment is %s); to restore everything, give no time: %w",
				cfg.To.UTC().Format(time.RFC3339Nano), last, err,
			)
		}
		return b, err
	}
	if err := s.account.run(
		ctx, filepath.Join(s.program.dir, "initdb"), "--sync-only", "--pgdata="+s.layout.data,
	); err != nil {
		return b, err
	}
	if err := os.Rename(s.layout.data, final); err != nil {
		return b, say.Errorf("restore: %w", err)
	}
	return b, syncDir(s.layout.dir)
}

func absent(data string) error {
	if _, err := os.Lstat(data); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(
			say.Errorf("%s exists already, and a restore replaces nothing: move it away, or name another data directory", data),
			err,
		)
	}
	return nil
}

// pick returns the backup with that name, or the newest that finished no later than to.
func pick(all []Backup, dir, name string, to time.Time) (Backup, error) {
	if len(all) == 0 {
		return Backup{}, say.Errorf("%s holds no complete backup", dir)
	}
	for _, b := range slices.Backward(all) {
		named := filepath.Base(b.Dir) == name
		switch {
		case name != "" && !named:
		case to.IsZero() || !to.Before(b.FinishedAt):
			return b, nil
		case named:
			return b, say.Errorf(
				"the backup %s was finished at %s, after the time to restore", name, b.FinishedAt.Format(time.RFC3339Nano),
			)
		}
	}
	if name != "" {
		return Backup{}, say.Errorf("%s holds no complete backup %s", dir, name)
	}
	return Backup{}, say.Errorf(
		"the oldest backup in %s was finished at %s, after the time to restore", dir,
		all[0].FinishedAt.Format(time.RFC3339Nano),
	)
}

// unpack verifies the backup, and the archive if all of it is to be replayed, and copies the backup to the restore
// directory.
func (s *Server) unpack(ctx context.Context, b Backup, archive string, to time.Time, last string) (err error) {
	l := &s.layout
	if s.account, err = accountFor(*l); err != nil {
		return err
	}
	if err := s.account.reach(l.dir); err != nil {
		return err
	}
	installed, err := findPrograms(ctx, candidateDirs(ctx))
	if err != nil {
		return err
	}
	if s.program, err = chooseMajor(installed, b.PostgreSQL, b.Dir); err != nil {
		return err
	}
	if err := s.program.has("pg_waldump"); err != nil {
		return err
	}
	l.data = l.restoring
	for _, left := range []string{l.data, s.scratch()} {
		if err := os.RemoveAll(left); err != nil {
			return say.Errorf("remove an unfinished restore: %w", err)
		}
	}
	if free, err := freeSpace(l.dir); err == nil && free < uint64(b.DataBytes) {
		return say.Errorf("%w (%s, %d bytes free, and the backup needs %d)", ErrNoRoom, l.dir, free, b.DataBytes)
	}
	if to.IsZero() {
		if err := checkWAL(ctx, s.program, s.scratch(), archive, b.StartSegment, last); err != nil {
			return err
		}
	}
	if err := s.copyBackup(ctx, b); err != nil {
		return errors.Join(err, os.RemoveAll(l.data))
	}
	// A file that the account cannot read would look like the end of the archive.
	if err := s.account.run(
		ctx, "/bin/sh", "-c", `for f in "$1"/*; do test ! -e "$f" || test -r "$f" || exit 1; done; test -x "$1"`, "sh",
		archive,
	); err != nil {
		return say.Errorf(
			"user %s, which PostgreSQL runs as, may not read the archive %s: give it to that user (chown -R), and let that "+
				"user pass through the directories above it: %w",
			userName(s.account.uid), archive, err,
		)
	}
	return s.account.privateDir(l.socket)
}

// scratch returns the directory for unpacked segments.
func (s *Server) scratch() string { return s.layout.restoring + ".wal" }

// copyBackup verifies the backup and copies it to the restore directory.
func (s *Server) copyBackup(ctx context.Context, b Backup) error {
	if b.Format != plainFormat {
		if err := unpackBase(ctx, b.Dir, s.layout.data); err != nil {
			return say.Errorf("unpack the backup: %w", err)
		}
		return s.account.own(s.layout.data)
	}
	if err := s.program.has("pg_verifybackup"); err != nil {
		return err
	}
	from := filepath.Join(b.Dir, plainData)
	if err := run(ctx, s.program, "pg_verifybackup", "--quiet", from); foundFault(err) {
		return say.Errorf("the backup %s is damaged: %w", filepath.Base(b.Dir), err)
	} else if err != nil {
		return err
	}
	if err := s.account.copyTree(from, s.layout.data); err != nil {
		return say.Errorf("copy the backup: %w", err)
	}
	return nil
}

// waldumpSegments is the number of segments that checkWAL unpacks at a time.
const waldumpSegments = 16

// checkWAL returns an error if a record between two segments is damaged, which PostgreSQL would treat as the end of the
// archive. It creates scratch for unpacked segments, and removes it.
func checkWAL(ctx context.Context, p programs, scratch, archive, first, last string) (err error) {
	from, _ := segmentNumber(first)
	to, ok := segmentNumber(last)
	if !ok {
		return say.Errorf("%q is not a WAL segment", last)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	for {
		end := min(from+waldumpSegments-1, to)
		if err := os.Mkdir(scratch, 0o700); err != nil {
			return say.Errorf("check the archive: %w", err)
		}
		for n := from; n <= end; n++ {
			name := segmentName(first, n)
			if damaged, err := unpackSegment(archive, name, scratch); damaged != nil {
				return damagedArchive(archive, say.Errorf("%s: %w", name, damaged))
			} else if err != nil {
				return say.Errorf("check the archive: %w", err)
			}
		}
		err := run(ctx, p, "pg_waldump", "--quiet", "--path="+scratch, segmentName(first, from), segmentName(first, end))
		if foundFault(err) {
			return damagedArchive(archive, err)
		}
		if err != nil || end == to {
			return err
		}
		if err := os.RemoveAll(scratch); err != nil {
			return say.Errorf("check the archive: %w", err)
		}
		from = end // again, because its last record may end in the next segment
	}
}

func damagedArchive(archive string, err error) error {
	return say.Errorf(
		"the archive %s is damaged: find another copy of the segment, or restore to a time before (--to): %w", archive, err,
	)
}

// unpackSegment puts a segment of the archive into dir. It keeps damage apart from other errors.
func unpackSegment(archive, name, dir string) (damaged, err error) {
	raw, to := filepath.Join(archive, name), filepath.Join(dir, name)
	if _, err := os.Stat(raw); err == nil {
		return nil, os.Symlink(raw, to)
	}
	packed, err := os.Open(raw + compressed)
	if err != nil {
		return err, nil
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		return err, nil
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	damaged, err = pour(file, io.LimitReader(z, segmentBytes+1)) // one more is a wrong size
	return damaged, errors.Join(err, file.Close())
}

// foundFault reports whether a checking program ran to its end and found a fault. A program that is missing or was
// interrupted has found none.
func foundFault(err error) bool {
	exit, ended := errors.AsType[*exec.ExitError](err)
	return ended && exit.Exited()
}

// recover replays the archive, runs Finish and stops the server.
func (s *Server) recover(ctx context.Context, cfg RestoreConfig, archive string) error {
	if s.layout.shared {
		defer os.RemoveAll(s.layout.socket)
	}
	signal := filepath.Join(s.layout.data, "recovery.signal")
	if err := errors.Join(os.WriteFile(signal, nil, 0o600), s.account.give(signal)); err != nil {
		return say.Errorf("restore: %w", err)
	}
	s.cfg.Settings = map[string]string{
		"archive_mode": "off",
		// Accept connections only once everything is replayed.
		"hot_standby":     "off",
		"restore_command": restoreCommand(archive),
	}
	if !cfg.To.IsZero() {
		s.cfg.Settings["recovery_target_time"] = cfg.To.UTC().Format("2006-01-02 15:04:05.999999") + "+00"
		s.cfg.Settings["recovery_target_action"] = "promote"
	}
	c, err := s.launch(ctx)
	if err != nil {
		return err
	}
	if err = forgetArchive(ctx, s.URL(Database)); err == nil {
		err = cfg.Finish(ctx, s.URL(Database))
	}
	return errors.Join(err, s.shutdown(context.WithoutCancel(ctx), c))
}

// run runs a program as the account.
func (a account) run(ctx context.Context, program string, args ...string) error {
	var output strings.Builder // read only after the program has exited
	c, err := spawn(spawnConfig{
		program: program, args: args, account: a, dir: "/", output: &output, whenWeDie: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.signal(syscall.SIGKILL)
		<-c.exited
	}
	if c.err != nil { // report the interruption rather than its effect
		return say.Errorf(
			"%s: %w: %s", filepath.Base(program), cmp.Or(ctx.Err(), c.err),
			lastLines(strings.ToValidUTF8(output.String(), "?"), 5),
		)
	}
	return nil
}

// copyTree copies from to to, which only the account may access.
func (a account) copyTree(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return a.own(to)
}

// own gives a tree to the account, which alone may access it. It changes the owner of to last, so that only this
// process's user can enter it before.
func (a account) own(to string) error {
	if err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		switch {
		case err != nil || path == to:
			return err
		case d.IsDir():
			mode = 0o700
		case !d.Type().IsRegular():
			return say.Errorf("%s is neither a file nor a directory", path)
		}
		return errors.Join(os.Chmod(path, mode), a.give(path)) //nolint:gosec // no other user can enter the directory yet
	}); err != nil {
		return err
	}
	return a.give(to)
}
