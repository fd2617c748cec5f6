//go:build unix

package system

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// Flags for opening files: NoFollow refuses a symbolic link, NonBlock does not wait for the writer of a pipe.
const (
	NoFollow = syscall.O_NOFOLLOW
	NonBlock = syscall.O_NONBLOCK
)

// Lock locks a file until it is closed. If another process has locked it, Lock waits, or returns ErrLocked.
func Lock(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// GiveTo gives a file the owner and the group of another.
func GiveTo(path string, like fs.FileInfo) error {
	owner, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}

// GroupIsOurs reports whether this process belongs to the group of a file.
func GroupIsOurs(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	groups, err := os.Getgroups()
	return ok && err == nil && (int(owner.Gid) == os.Getegid() || slices.Contains(groups, int(owner.Gid)))
}

// SyncDirectory makes changes of a directory's entries durable.
func SyncDirectory(d *os.File) error { return d.Sync() }
