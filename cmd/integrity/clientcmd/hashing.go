package clientcmd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"integrityledger/cmd/integrity/cli"
)

// progressFrom is the size from which hashing takes long enough to show.
const progressFrom = 64 << 20

// hashed is what is declared of a file. Its bytes never leave the machine.
type hashed struct {
	sha256   string
	size     int64
	modified time.Time
	head     []byte // the first 512 bytes
}

// hashFile streams a file. One that changes meanwhile is refused: only final bytes can be declared or compared.
func (a *app) hashFile(path string) (hashed, error) {
	f, err := os.Open(path)
	if err != nil {
		return hashed{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return hashed{}, err
	}
	progress, done := a.progress(filepath.Base(path), info.Size())
	defer done()
	return hashOpen(f, path, progress)
}

// progress is a bar of so many bytes where there is a terminal and they take long enough to show; else it shows nothing.
func (a *app) progress(title string, size int64) (w io.Writer, done func()) {
	if size < progressFrom || !cli.IsTerminal(a.Errs) {
		return io.Discard, func() {}
	}
	bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(a.Errs), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription(title), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
	return bar, func() { _ = bar.Close() } // it only draws
}

// hashOpen streams an open file, which path names in errors, and writes its bytes to progress too.
func hashOpen(f *os.File, path string, progress io.Writer) (hashed, error) {
	var h hashed
	before, err := f.Stat()
	if err != nil {
		return h, err
	}
	if !before.Mode().IsRegular() {
		return h, fmt.Errorf("%s must be a regular file", path)
	}
	sum := sha256.New()
	head := &headWriter{}
	if h.size, err = io.CopyBuffer(io.MultiWriter(sum, head, progress), onlyReader{f}, make([]byte, 1<<20)); err != nil {
		return h, fmt.Errorf("%s: %w", path, err)
	}
	after, err := f.Stat()
	if err != nil {
		return h, err
	}
	if h.size != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return h, fmt.Errorf("%s changed while it was read: only final bytes can be used", path)
	}
	h.sha256, h.modified, h.head = hex.EncodeToString(sum.Sum(nil)), before.ModTime(), head.bytes
	return h, nil
}

// onlyReader hides the ways past the buffer.
type onlyReader struct{ io.Reader }

type headWriter struct{ bytes []byte }

func (w *headWriter) Write(p []byte) (int, error) {
	if room := 512 - len(w.bytes); room > 0 {
		w.bytes = append(w.bytes, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// mimeType follows from the name's extension, else by the first bytes. The table is ours, because the system's differs from
// machine to machine and a declaration sent again must be the same.
func mimeType(path string, head []byte) string {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".pdf":
		return "application/pdf"
	case ".txt", ".log":
		return "text/plain"
	case ".md":
		return "text/markdown"
	case ".csv":
		return "text/csv"
	case ".htm", ".html":
		return "text/html"
	case ".xml":
		return "application/xml"
	case ".json":
		return "application/json"
	case ".zip":
		return "application/zip"
	case ".p7m":
		return "application/pkcs7-mime"
	case ".docx":
		return "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	case ".xlsx":
		return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	case ".odt":
		return "application/vnd.oasis.opendocument.text"
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".tif", ".tiff":
		return "image/tiff"
	}
	detected, _, _ := strings.Cut(http.DetectContentType(head), ";")
	return detected
}

// referenceFrom makes a reference of a file's name.
func referenceFrom(path string) (string, error) {
	var b strings.Builder
	for _, r := range filepath.Base(path) {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() == 0:
			// a reference begins with a letter or digit
		case r == '.' || r == '_' || r == '-':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	reference := b.String()
	if reference == "" {
		return "", errors.New("no reference can be made of this file's name: give one with --document")
	}
	return reference[:min(128, len(reference))], nil
}
