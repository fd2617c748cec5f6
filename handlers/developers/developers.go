// Package developers holds what integrators take home: clients, the offline verifier and samples, embedded in the
// binary and served as they stand under /developers/. Each works without this repository: a Python file as it stands,
// the JavaScript client as the package that npm installs. The package knows nothing of HTTP.
package developers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

//go:embed python/integrity_client.py python/verify_integrity.py python/integrity_webhook.py
//go:embed javascript
var files embed.FS

// Download is a file that is served.
type Download struct {
	Name        string // the last segment of its address
	ContentType string
	Body        []byte
	SHA256      string // lower-case hexadecimal, of Body
}

// Downloads are all files, in the order in which a page shows them. An error means that the program is broken.
func Downloads() ([]Download, error) {
	var list []Download
	add := func(name, contentType string, body []byte) {
		sum := sha256.Sum256(body)
		list = append(list, Download{name, contentType, body, hex.EncodeToString(sum[:])})
	}
	for _, name := range []string{"python/integrity_client.py", "python/verify_integrity.py", "python/integrity_webhook.py"} {
		body, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("developers: %w", err)
		}
		add(path.Base(name), "text/x-python; charset=utf-8", body)
	}
	name, body, err := npmPackage(files, "javascript")
	if err != nil {
		return nil, fmt.Errorf("developers: %w", err)
	}
	add(name, "application/gzip", body)
	return list, nil
}

// packed is the time of everything in a package: the moment that npm itself writes, so that the same files make the
// same bytes.
var packed = time.Date(1985, time.October, 26, 8, 15, 0, 0, time.UTC)

// npmPackage packs what the directory's package.json lists as npm pack would, and names it by the package and its
// version. The bytes follow from the files alone: nothing is compressed, so they do not depend on the compressor
// either.
func npmPackage(files fs.FS, directory string) (name string, body []byte, err error) {
	manifest, err := fs.ReadFile(files, path.Join(directory, "package.json"))
	if err != nil {
		return "", nil, fmt.Errorf("npm package: %w", err)
	}
	var described struct {
		Name, Version string
		Files         []string
	}
	if err := json.Unmarshal(manifest, &described); err != nil {
		return "", nil, fmt.Errorf("npm package: package.json: %w", err)
	}
	var b bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		return "", nil, fmt.Errorf("npm package: %w", err)
	}
	archive := tar.NewWriter(compressor)
	for _, file := range append([]string{"package.json"}, described.Files...) {
		text, err := fs.ReadFile(files, path.Join(directory, file))
		header := tar.Header{Typeflag: tar.TypeReg, Name: "package/" + file, Size: int64(len(text)), Mode: 0o644, ModTime: packed, Format: tar.FormatUSTAR}
		if err == nil {
			err = archive.WriteHeader(&header)
		}
		if err == nil {
			_, err = archive.Write(text)
		}
		if err != nil {
			return "", nil, fmt.Errorf("npm package: %w", err)
		}
	}
	if err := errors.Join(archive.Close(), compressor.Close()); err != nil {
		return "", nil, fmt.Errorf("npm package: %w", err)
	}
	return described.Name + "-" + described.Version + ".tgz", b.Bytes(), nil
}
