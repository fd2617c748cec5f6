// Package developers has the files that integrators download from /developers/: clients, the offline verifier, samples,
// the tables of an outbox, and the running program. Each works without this repository: a Python file on its own, all
// Python files as a wheel for pip, and the JavaScript client as a package for npm. The package knows nothing about
// HTTP.
//
// All clients share one [Version], written as @VERSION@ in their sources. Files served under a version never change. To
// change a client, choose a new version, describe it in CHANGELOG.md, and run
//
//	go generate ./handlers/developers
//
// which stores the version in testdata/released. Tests run every stored version against all later services.
package developers

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"integrityledger/handlers/client/outbox"
)

//go:generate go test -count=1 -run ^TestVersionIsReleased$ . -update

// Version is the version of the Python and JavaScript clients.
const Version = "0.3.24"

//go:embed CHANGELOG.md javascript java/Register.java csharp/Register.cs php/integrity.php
//go:embed python/integrity_client.py python/verify_integrity.py python/integrity_webhook.py python/README.md
var sources embed.FS

// Packages of earlier versions remain at their addresses, so a project that names one with its hash can still install
// it.
//
//go:embed testdata/released/*/*.tgz testdata/released/*/*.whl
var released embed.FS

// specifiedName is the JavaScript client that the specification describes: pages show it in addition to the current
// one.
const specifiedName = "integrity-client-0.2.0.tgz"

var pythonFiles = []string{"integrity_client.py", "verify_integrity.py", "integrity_webhook.py"}

// Download is a file to download.
type Download struct {
	Name        string // the last segment of its address
	Kind        string // the name without a version
	ContentType string
	Body        []byte
	SHA256      string // lower-case hexadecimal, of Body
	Earlier     bool   // a package of an earlier version that no page shows
}

// SumsFile is the download with the SHA-256 of all others, in the format of sha256sum.
const SumsFile = "SHA256SUMS"

// Downloads returns all files in the order in which a page lists them. An error means that the program is broken.
func Downloads() ([]Download, error) {
	var list []Download
	var sums strings.Builder
	add := func(name, kind, contentType string, body []byte, earlier bool) {
		sum := sha256.Sum256(body)
		hash := hex.EncodeToString(sum[:])
		list = append(list, Download{name, kind, contentType, body, hash, earlier})
		fmt.Fprintf(&sums, "%s  %s\n", hash, name)
	}
	for _, name := range pythonFiles {
		body, err := source(path.Join("python", name))
		if err != nil {
			return nil, fmt.Errorf("developers: %w", err)
		}
		add(name, name, "text/x-python; charset=utf-8", body, false)
	}
	wheel, err := wheel()
	if err != nil {
		return nil, fmt.Errorf("developers: the wheel: %w", err)
	}
	add(wheelName, "wheel", "application/zip", wheel, false)
	npm, err := npmPackage()
	if err != nil {
		return nil, fmt.Errorf("developers: the npm package: %w", err)
	}
	add(npmName, "npm", contentTypes[".tgz"], npm, false)
	specified, err := released.ReadFile("testdata/released/0.2.0/" + specifiedName)
	if err != nil {
		return nil, fmt.Errorf("developers: %w", err)
	}
	add(specifiedName, "npm 0.2.0", contentTypes[".tgz"], specified, false)
	for _, name := range []string{"php/integrity.php", "java/Register.java", "csharp/Register.cs"} {
		body, err := source(name)
		if err != nil {
			return nil, fmt.Errorf("developers: %w", err)
		}
		add(path.Base(name), path.Base(name), "text/plain; charset=utf-8", body, false)
	}
	for _, d := range []outbox.Dialect{outbox.PostgreSQL(), outbox.MariaDB(), outbox.SQLite()} {
		name := "integrity-outbox-" + strings.ToLower(d.Name) + ".sql"
		add(name, name, "text/plain; charset=utf-8", []byte(d.DDL), false)
	}
	earlier, err := fs.Glob(released, "testdata/released/*/*.*")
	if err != nil {
		return nil, fmt.Errorf("developers: %w", err)
	}
	for _, name := range earlier {
		body, err := released.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("developers: %w", err)
		}
		if base := path.Base(name); base != wheelName && base != npmName && base != specifiedName {
			add(base, "", contentTypes[path.Ext(base)], body, true)
		}
	}
	add(SumsFile, SumsFile, "text/plain; charset=utf-8", []byte(sums.String()), false)
	return list, nil
}

var contentTypes = map[string]string{".tgz": "application/gzip", ".whl": "application/zip"}

// source returns a file with the version filled in.
func source(name string) ([]byte, error) {
	text, err := sources.ReadFile(name)
	return bytes.ReplaceAll(text, []byte("@VERSION@"), []byte(Version)), err
}

// packed is the modification time of every entry in a package. It is the time that npm itself writes. A fixed time
// makes the same files give the same bytes.
var packed = time.Date(1985, time.October, 26, 8, 15, 0, 0, time.UTC)
