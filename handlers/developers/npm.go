package developers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"path"
)

const npmName = "integrity-client-" + Version + ".tgz"

// npmPackage packs the files that package.json lists and the changelog, as npm pack would. The bytes depend only on the
// files: they are not compressed, so the compressor has no influence either.
func npmPackage() ([]byte, error) {
	manifest, err := source("javascript/package.json")
	if err != nil {
		return nil, err
	}
	var described struct{ Files []string }
	if err := json.Unmarshal(manifest, &described); err != nil {
		return nil, fmt.Errorf("package.json: %w", err)
	}
	var b bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressor)
	for _, file := range append([]string{"package.json"}, described.Files...) {
		from := path.Join("javascript", file)
		if file == changelog {
			from = file
		}
		text, err := source(from)
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: "package/" + file, Size: int64(len(text)), Mode: 0o644, ModTime: packed,
			Format: tar.FormatUSTAR,
		}
		if err == nil {
			err = archive.WriteHeader(&header)
		}
		if err == nil {
			_, err = archive.Write(text)
		}
		if err != nil {
			return nil, err
		}
	}
	err = errors.Join(archive.Close(), compressor.Close())
	return b.Bytes(), err
}

const changelog = "CHANGELOG.md"
