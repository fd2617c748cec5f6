package keyfiles

import (
	"fmt"
	"os"
	"syscall"
)

// OpenRegular opens a regular file for reading. Opening a pipe would wait for its writer, so nothing else is opened for
// longer than it takes to see what it is.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s must be a regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
