package system

import (
	"errors"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// Windows has no such flags.
const (
	NoFollow = 0
	NonBlock = 0
)

// Lock locks a file until it is closed. If another process has locked it, Lock waits, or returns ErrLocked.
func Lock(f *os.File, wait bool) error {
	how := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK)
	if !wait {
		how |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	// The lock is on one byte far behind the end: others cannot read a locked byte.
	at := &windows.Overlapped{Offset: math.MaxUint32, OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// GiveTo does nothing: a new file inherits the rights of its directory.
func GiveTo(string, fs.FileInfo) error { return nil }

// GroupIsOurs is true, because files have no mode: the rights of their directory say who reads them.
func GroupIsOurs(fs.FileInfo) bool { return true }

// SyncDirectory does nothing: Windows cannot flush a directory.
func SyncDirectory(*os.File) error { return nil }
