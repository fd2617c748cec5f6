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
