// Package developers holds what integrators take home: clients, the offline verifier and samples, embedded in the
// binary and served as they stand under /developers/. Each works without this repository: a Python file as it stands,
// the JavaScript client as the package that npm installs. The package knows nothing of HTTP.
package developers

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
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

// Downloads are all files, immutable and safe for concurrent use.
type Downloads struct {
	list []Download
}

// New reads the embedded files. An error means that the program is broken.
func New() (*Downloads, error) {
	d := &Downloads{}
	for _, name := range []string{"python/integrity_client.py", "python/verify_integrity.py", "python/integrity_webhook.py"} {
		body, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("developers: %w", err)
		}
		d.add(path.Base(name), "text/x-python; charset=utf-8", body)
	}
	name, body, err := npmPackage(files, "javascript")
	if err != nil {
		return nil, fmt.Errorf("developers: %w", err)
	}
	d.add(name, "application/gzip", body)
	return d, nil
}

func (d *Downloads) add(name, contentType string, body []byte) {
	sum := sha256.Sum256(body)
	d.list = append(d.list, Download{name, contentType, body, hex.EncodeToString(sum[:])})
}

// List is every download, in the order in which a page shows them.
func (d *Downloads) List() []Download { return slices.Clone(d.list) }

// Find looks up a download by its exact name.
func (d *Downloads) Find(name string) (Download, bool) {
	i := slices.IndexFunc(d.list, func(f Download) bool { return f.Name == name })
	if i < 0 {
		return Download{}, false
	}
	return d.list[i], true
}
