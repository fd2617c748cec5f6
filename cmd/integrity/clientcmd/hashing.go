package clientcmd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/say"
)

// progressFrom is the file size from which hashing shows a progress bar.
const progressFrom = 64 << 20

// hashed is the part of a declaration that is computed from a file. The file's bytes never leave the machine.
type hashed struct {
	sha256   string
	size     int64
	modified time.Time
	head     []byte // the first 512 bytes
}

// hashFile hashes a file. It fails if the file changes meanwhile: only final bytes can be declared or compared.
func (a *app) hashFile(path string) (hashed, error) {
	f, err := keyfiles.OpenRegular(path)
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

// progress returns a progress bar for size bytes. Without a terminal, or for few bytes, it shows nothing.
func (a *app) progress(title string, size int64) (w io.Writer, done func()) {
	if size < progressFrom {
		return io.Discard, func() {}
	}
	bar := a.NewBar(title, "MB", 1e6, size)
	return bar, bar.Close
}

// hashOpen hashes an open file and copies its bytes to progress. path names the file in errors.
func hashOpen(f *os.File, path string, progress io.Writer) (hashed, error) {
	var h hashed
	before, err := f.Stat()
	if err != nil {
		return h, err
	}
	if !before.Mode().IsRegular() {
		return h, say.Errorf("%s must be a regular file", path)
	}
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, say.Errorf("%s: %w", path, err)
	}
	sum := sha256.New()
	// CopyBuffer must not use WriterTo or ReaderFrom, which bypass the buffer.
	if h.size, err = io.CopyBuffer(
		io.MultiWriter(sum, progress), struct{ io.Reader }{f}, make([]byte, 1<<20),
	); err != nil {
		return h, say.Errorf("%s: %w", path, err)
	}
	after, err := f.Stat()
	if err != nil {
		return h, err
	}
	if h.size != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return h, say.Errorf("%s changed while it was being read: only final bytes can be used", path)
	}
	h.sha256, h.modified, h.head = hex.EncodeToString(sum.Sum(nil)), before.ModTime(), head[:n]
	return h, nil
}

// mimeTypes is fixed in the program. The system's table differs between machines, and a repeated declaration must be
// identical.
var mimeTypes = map[string]string{
	".pdf": "application/pdf", ".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown", ".csv": "text/csv",
	".htm":  "text/html",
	".html": "text/html", ".xml": "application/xml", ".json": "application/json", ".zip": "application/zip",
	".p7m":  "application/pkcs7-mime",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".odt":  "application/vnd.oasis.opendocument.text",
	".png":  "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".tif": "image/tiff", ".tiff": "image/tiff",
}

// mimeType derives the type from the name's extension, or else from the first bytes.
func mimeType(path string, head []byte) string {
	if known, ok := mimeTypes[strings.ToLower(filepath.Ext(path))]; ok {
		return known
	}
	detected, _, _ := strings.Cut(http.DetectContentType(head), ";")
	return detected
}

// notInReferences matches runs of invalid characters, together with a preceding hyphen. Each run becomes one hyphen.
var notInReferences = regexp.MustCompile(`-?[^A-Za-z0-9._-]+`)

// referenceFrom derives a document reference from a file's name. It starts with a letter or digit.
func referenceFrom(path string) (string, error) {
	reference := strings.TrimLeft(notInReferences.ReplaceAllString(filepath.Base(path), "-"), "._-")
	if reference == "" {
		return "", say.Errorf("no reference can be derived from this file's name: give one with --document")
	}
	return reference[:min(128, len(reference))], nil
}
