package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"integrityledger/domain/say"
)

const (
	// superuser is the role that initdb creates. restrict decides before every start which users may use it.
	superuser = "integrity"
	// Database is the name of the database in every data directory.
	Database = "integrity"

	port       = "5432"
	socketFile = ".s.PGSQL." + port
	// maxSocketPath is the length of sun_path without its terminating NUL.
	maxSocketPath = 107
)

// layout holds the paths of a data directory. They are absolute and free of symbolic links, so that they can be
// compared with the kernel's paths of a process.
type layout struct {
	dir, data, unfinished, restoring, lock, log string
	// socket is the directory of the socket. shared is set if it is in the world-writable temp dir.
	socket string
	shared bool
}

// newLayout returns the layout of dir, which must exist.
func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, say.Errorf("data directory %s: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return layout{}, say.Errorf("data directory: %w", err)
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
			return layout{}, say.Errorf(
				"neither %s nor the temp dir %s is short enough for a socket (%d bytes): set INTEGRITY_DATA_DIR to a shorter path",
				abs, os.TempDir(), maxSocketPath,
			)
		}
	}
	return l, nil
}

// makeDir creates a directory and its parents. If root creates them, other users may pass through them, because
// PostgreSQL does not run as root.
func makeDir(path string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	return os.MkdirAll(path, mode)
}

// majorVersion returns the PostgreSQL version of the data directory, 0 before it is initialized.
func (l layout) majorVersion() (int, error) {
	raw, err := os.ReadFile(filepath.Join(l.data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(l.data); err == nil {
			return 0, say.Errorf(
				"%s is not a PostgreSQL data directory (it has no PG_VERSION): move it away or set INTEGRITY_DATA_DIR", l.data,
			)
		}
		return 0, nil
	}
	if err != nil {
		return 0, say.Errorf("version of the data directory: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, say.Errorf("version of the data directory %s: %w", l.data, err)
	}
	return major, nil
}

// ErrNoRoom means that the disk of the data directory is full.
var ErrNoRoom = say.New("the disk of the data directory is full: free some space")

// noRoom is the size of a WAL segment. PostgreSQL stops if it cannot create one.
const noRoom = 16 << 20

// withoutRoom adds ErrNoRoom to an error if the disk is full, because PostgreSQL's exit code does not tell.
func (l layout) withoutRoom(err error) error {
	if err == nil || errors.Is(err, ErrNoRoom) {
		return err
	}
	free, unknown := freeSpace(l.dir)
	if unknown != nil {
		return err
	}
	if free < noRoom || errors.Is(err, syscall.ENOSPC) ||
		strings.Contains(err.Error(), "No space left on device") {
		return say.Errorf("%w (%s, %d bytes free): %w", ErrNoRoom, l.dir, free, err)
	}
	return err
}

// freeSpace returns the number of bytes that an ordinary user may still write to the disk of dir.
func freeSpace(dir string) (uint64, error) {
	var disk syscall.Statfs_t
	err := syscall.Statfs(dir, &disk)
	return disk.Bavail * uint64(disk.Bsize), err
}

// socketURL returns a URL with all settings that a driver would otherwise take from its environment.
func socketURL(socket, database string) string {
	query := url.Values{"host": {socket}, "port": {port}, "user": {superuser}}
	return "postgres:///" + url.PathEscape(database) + "?" + query.Encode()
}

// initialize creates pgdata. It is renamed into place once it is complete, so a crash leaves either a complete pgdata
// or a pgdata.init that the next call removes. The caller must hold the lock.
func initialize(ctx context.Context, l layout, a account, p programs, disposable bool) error {
	if err := os.RemoveAll(l.unfinished); err != nil {
		return say.Errorf("remove an unfinished initdb: %w", err)
	}
	if err := os.Mkdir(l.unfinished, 0o700); err != nil {
		return say.Errorf("make the data directory: %w", err)
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
		return say.Errorf("make the data directory: %w", err)
	}
	return syncDir(l.dir)
}

// initializeNameless runs initdb as another account, because initdb refuses an account without a name. The account gets
// copies of the files: a process of the other account could have put links among them.
func (a account) initializeNameless(ctx context.Context, data, program string, args []string) error {
	other, err := borrowed()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "integrity-initdb-*")
	if err != nil {
		return say.Errorf("make the data directory: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := other.give(temp); err != nil {
		return err
	}
	if err := other.run(ctx, program, append(args, "--pgdata="+temp)...); err != nil {
		return err
	}
	if err := os.Remove(data); err != nil {
		return say.Errorf("make the data directory: %w", err)
	}
	if err := a.copyTree(temp, data); err != nil {
		return say.Errorf("make the data directory: %w", err)
	}
	return a.run(ctx, program, "--sync-only", "--pgdata="+data)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return say.Errorf("sync %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return say.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
