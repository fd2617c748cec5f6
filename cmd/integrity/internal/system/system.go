// Package system holds the calls that differ between the operating systems on which the client commands run. The
// service needs Linux.
package system

import "integrityledger/domain/say"

// ErrLocked means that another process has locked the file.
var ErrLocked = say.New("another process has locked the file")
