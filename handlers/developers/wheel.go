package developers

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path"
	"strings"
)

const (
	wheelName = "integrity_client-" + Version + "-py3-none-any.whl"
	distInfo  = "integrity_client-" + Version + ".dist-info/"
)

// metadata follows the core metadata of Python packages, version 2.1. The required versions are available in Debian 12.
const metadata = `Metadata-Version: 2.1
Name: integrity-client
Version: ` + Version + `
Summary: Client, offline verifier and webhook receiver of Integrity Ledger.
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Programming Language :: Python :: 3 :: Only
Requires-Python: >=3.11
Requires-Dist: httpx >=0.23
Requires-Dist: cryptography >=38
Provides-Extra: timestamps
Requires-Dist: asn1crypto >=1.5 ; extra == 'timestamps'
Provides-Extra: schemas
Requires-Dist: jsonschema >=4.10 ; extra == 'schemas'
License-File: LICENSE
Description-Content-Type: text/markdown

`

// wheel packs the Python files as a pure wheel (binary distribution format 1.0). The bytes depend only on the files:
// they are not compressed, and every entry has the same time.
func wheel() ([]byte, error) {
	var description []byte
	for _, name := range []string{"python/README.md", changelog} {
		text, err := source(name)
		if err != nil {
			return nil, err
		}
		description = append(append(description, text...), '\n')
	}
	licence, err := source("javascript/LICENSE")
	if err != nil {
		return nil, err
	}
	type entry struct {
		name string
		text []byte
	}
	var entries []entry
	for _, name := range pythonFiles {
		text, err := source(path.Join("python", name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name, text})
	}
	entries = append(entries,
		entry{distInfo + "LICENSE", licence},
		entry{distInfo + "METADATA", append([]byte(metadata), bytes.TrimSuffix(description, []byte("\n"))...)},
		entry{
			distInfo + "WHEEL",
			[]byte("Wheel-Version: 1.0\nGenerator: integrityledger\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
		},
		entry{
			distInfo + "entry_points.txt",
			[]byte("[console_scripts]\nintegrity-webhook = integrity_webhook:main\nverify-integrity = verify_integrity:main\n"),
		},
		entry{distInfo + "top_level.txt", []byte("integrity_client\nintegrity_webhook\nverify_integrity\n")},
	)
	var record strings.Builder
	for _, e := range entries {
		sum := sha256.Sum256(e.text)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", e.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.text))
	}
	record.WriteString(distInfo + "RECORD,,\n")
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	for _, e := range append(entries, entry{distInfo + "RECORD", []byte(record.String())}) {
		header := &zip.FileHeader{Name: e.name, Method: zip.Store, Modified: packed}
		header.SetMode(0o644)
		file, err := archive.CreateHeader(header)
		if err == nil {
			_, err = file.Write(e.text)
		}
		if err != nil {
			return nil, err
		}
	}
	err = archive.Close()
	return b.Bytes(), err
}
