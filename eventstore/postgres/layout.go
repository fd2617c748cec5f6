package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	// superuser is the role that initdb makes; who may be it is written before every start (restrict).
	superuser = "integrity"
	// Database is the database that every data directory has.
	Database = "integrity"

	port       = "5432"
	socketFile = ".s.PGSQL." + port
	// maxSocketPath is sun_path without its closing NUL.
	maxSocketPath = 107
)

// layout is where things are. All paths are absolute and free of symbolic links, so that they can be compared with what
// the kernel says of a process.
type layout struct {
	dir, data, unfinished, restoring, lock, log string
	// socket is the directory of the socket; shared says that it stands in the world-writable temp dir.
	socket string
	shared bool
}

// newLayout needs dir to exist.
func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return layout{}, fmt.Errorf("data directory: %w", err)
	}
	l := layout{
		dir:        abs,
		data:       filepath.Join(abs, "pgdata"),
		unfinished: filepath.Join(abs, "pgdata.init"),
		restoring:  filepath.Join(abs, "pgdata.restore"),
		lock:       filepath.Join(abs, "postgres.lock"),
		log:        filepath.Join(abs, "postgres.log"),
		socket:     filepath.Join(abs, "socket"),
	}
	// Drivers split a host at commas.
	if len(filepath.Join(l.socket, socketFile)) > maxSocketPath || strings.Contains(l.socket, ",") {
		sum := sha256.Sum256([]byte(abs))
		l.socket = filepath.Join(os.TempDir(), "integrity-"+hex.EncodeToString(sum[:8]))
		l.shared = true
		if len(filepath.Join(l.socket, socketFile)) > maxSocketPath {
			return layout{}, fmt.Errorf(
				"neither %s nor the temp dir %s is short enough for a socket (%d bytes): set INTEGRITY_DATA_DIR to a shorter path",
				abs, os.TempDir(), maxSocketPath,
			)
		}
	}
	return l, nil
}

// makeDir makes a directory. One that root makes may be passed through by others, because PostgreSQL does not run as
// root.
func makeDir(path string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	return os.MkdirAll(path, mode)
}

// majorVersion is that of the data directory, 0 before it is initialized.
func (l layout) majorVersion() (int, error) {
	raw, err := os.ReadFile(filepath.Join(l.data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(l.data); err == nil {
			return 0, fmt.Errorf(
				"%s is not a PostgreSQL data directory (it has no PG_VERSION): move it away or set INTEGRITY_DATA_DIR", l.data,
			)
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("version of the data directory: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("version of the data directory %s: %w", l.data, err)
	}
	return major, nil
}

// ErrNoRoom says that the disk of the data directory is full.
var ErrNoRoom = errors.New("the disk of the data directory is full: make room on it")

// noRoom is less than a segment of WAL: PostgreSQL stops when it can make none.
const noRoom = 16 << 20

// withoutRoom adds to an error that there is no room, where that is so: PostgreSQL's exit code does not say it.
func (l layout) withoutRoom(err error) error {
	var disk syscall.Statfs_t
	if err == nil || errors.Is(err, ErrNoRoom) || syscall.Statfs(l.dir, &disk) != nil {
		return err
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < noRoom || errors.Is(err, syscall.ENOSPC) ||
		strings.Contains(err.Error(), "No space left on device") {
		return fmt.Errorf("%w (%s, %d bytes free): %w", ErrNoRoom, l.dir, free, err)
	}
	return err
}

// socketURL names everything that a driver would otherwise take from its environment.
func socketURL(socket, database string) string {
	query := url.Values{"host": {socket}, "port": {port}, "user": {superuser}}
	return "postgres:///" + url.PathEscape(database) + "?" + query.Encode()
}

// initialize makes pgdata. It appears by a rename once it is complete, so a crash leaves either all of it or a
// pgdata.init that the next call throws away. The caller holds the lock.
func initialize(ctx context.Context, l layout, a account, p programs, disposable bool) error {
	if err := os.RemoveAll(l.unfinished); err != nil {
		return fmt.Errorf("remove an unfinished initdb: %w", err)
	}
	if err := os.Mkdir(l.unfinished, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := a.give(l.unfinished); err != nil {
		return err
	}
	args := []string{
		"--username=" + superuser, "--auth-local=peer", "--auth-host=reject", "--data-checksums", "--locale=C",
		"--encoding=UTF8", "--no-instructions",
	}
	if disposable {
		args = append(args, "--no-sync")
	}
	program := filepath.Join(p.dir, "initdb")
	var err error
	if _, nameless := systemName(a.uid); nameless != nil && a.other {
		err = a.initializeNameless(ctx, l.unfinished, program, args)
	} else {
		err = a.run(ctx, program, append(args, "--pgdata="+l.unfinished)...)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(l.unfinished, l.data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return syncDir(l.dir)
}

// initializeNameless is for an account without a name, as which initdb does not run: another one makes the files. The
// account gets copies of them, because a link to something else of the machine's could be among the other one's own.
func (a account) initializeNameless(ctx context.Context, data, program string, args []string) error {
	other, err := borrowed()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "integrity-initdb-*")
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := other.give(temp); err != nil {
		return err
	}
	if err := other.run(ctx, program, append(args, "--pgdata="+temp)...); err != nil {
		return err
	}
	if err := os.Remove(data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := a.copyTree(temp, data); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return a.run(ctx, program, "--sync-only", "--pgdata="+data)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
