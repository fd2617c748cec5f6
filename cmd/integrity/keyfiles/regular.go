package keyfiles

import (
	"crypto/x509"
	"io"
	"os"

	"integrityledger/cmd/integrity/internal/system"
	"integrityledger/domain/say"
)

// OpenRegular opens a regular file for reading. Anything else is closed at once, without blocking: opening a pipe
// normally waits for its writer.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|system.NonBlock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = say.Errorf("%s must be a regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// MaxFile is the largest file that ReadFile reads. Files with keys, certificates and settings are much smaller.
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
		err = say.Errorf("%s is larger than %d bytes", path, MaxFile)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// ReadAuthorities reads a file of PEM certificates of authorities that sign server certificates. It must hold at least
// one.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	text, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, say.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}
