package keyfiles

import (
	"crypto/x509"
	"fmt"
	"io"
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

// MaxFile is the largest file that ReadFile reads: files of keys, certificates and settings are much smaller.
const MaxFile = 16 << 20

// ReadFile reads a regular file of at most MaxFile bytes.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(text) > MaxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, MaxFile)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// ReadAuthorities reads a file of certificates in PEM whose holders sign those of servers. It holds at least one.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	text, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return pool, nil
}
