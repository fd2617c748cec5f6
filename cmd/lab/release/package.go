package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

const packageName = "integrity-ledger"

// writePackage writes the Debian package of the service.
func writePackage(s source, p platform, program, to string) (err error) {
	ops := filepath.Join(s.root, "cmd/integrity/ops")
	content := func(kind, source, destination string, mode os.FileMode) *files.Content {
		return &files.Content{
			Type: kind, Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{
				Owner: "root", Group: "root", Mode: mode, MTime: s.time,
			},
		}
	}
	script := func(name string) string { return filepath.Join(ops, "package", name) }
	const documents = "/usr/share/doc/" + packageName
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: packageName, Arch: p.arch, Platform: p.os, Version: s.version.String(), Section: "net", Priority: "optional",
		Maintainer: "Integrity Ledger", License: "Apache-2.0", MTime: s.time, DisableGlobbing: true,
		Description: "Records and signs SHA-256 declarations of document versions\n" +
			"Origin systems register the hash of each file. Anyone compares a copy with it.\n" +
			"The package has the service and all commands, as one static program.",
		Overridables: nfpm.Overridables{
			// Without an external database the service runs a PostgreSQL of its own.
			Recommends: []string{"postgresql-18 | postgresql-17 | postgresql-16 | postgresql-15"},
			Depends:    []string{"passwd"},
			Umask:      0o022,
			Contents: files.Contents{
				content(files.TypeFile, program, "/usr/bin/integrity", 0o755),
				content(
					files.TypeFile, filepath.Join(ops, packageName+".service"),
					"/usr/lib/systemd/system/"+packageName+".service", 0o644,
				),
				content(files.TypeConfigNoReplace, script("environment"), "/etc/integrity/environment", 0o640),
				content(files.TypeFile, filepath.Join(s.root, "LICENSE"), documents+"/copyright", 0o644),
				content(files.TypeFile, filepath.Join(s.root, "README.md"), documents+"/README.md", 0o644),
				content(files.TypeFile, filepath.Join(ops, "alerts.yml"), documents+"/alerts.yml", 0o644),
				content(files.TypeFile, filepath.Join(ops, "dashboard.json"), documents+"/dashboard.json", 0o644),
			},
			Scripts: nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return deb.Default.Package(info, f)
}
