package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// writeImage writes the container image of the service for all platforms, as a tar of an OCI image layout. The image
// has the program, the roots of the public certification authorities and an account without rights; no shell.
func writeImage(s source, platforms []platform, programs map[platform]string, to string) (err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := platformImage(s, p, programs[p])
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: p.os, Architecture: p.arch},
			Annotations: map[string]string{
				"org.opencontainers.image.ref.name": s.version.String(),
			},
		}})
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), "image")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	// WalkDir goes in lexical order.
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return entry(w, s.time, tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		}
		text, err := os.ReadFile(path) //nolint:gosec // only this process writes there
		if err != nil {
			return err
		}
		return entry(w, s.time, tar.Header{Name: name, Mode: 0o644}, text)
	}); err != nil {
		return err
	}
	return w.Close()
}

func platformImage(s source, p platform, program string) (v1.Image, error) {
	var config v1.Config
	text, err := os.ReadFile(filepath.Join(s.root, "cmd/integrity/ops/image.json"))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		return nil, fmt.Errorf("settings of the image: %w", err)
	}
	config.Labels = map[string]string{
		"org.opencontainers.image.version": s.version.String(), "org.opencontainers.image.revision": s.commit,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	content, err := imageFiles(s.time, program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: s.time}
	image, err := mutate.ConfigFile(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		&v1.ConfigFile{OS: p.os, Architecture: p.arch, Created: created, Config: config, RootFS: v1.RootFS{Type: "layers"}},
	)
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: "make release"},
	})
}

// imageFiles returns the root directory of the image as a tar.
func imageFiles(at time.Time, program string) ([]byte, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file of certificates cannot express it
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	const account = "nonroot:x:65532:"
	for _, f := range []struct {
		name string
		mode int64
		text []byte
	}{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte(account + "\n")},
		{"etc/integrity/", 0o755, nil},
		{"etc/passwd", 0o644, []byte(account + "65532::/:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"usr/bin/integrity", 0o755, binary},
	} {
		header := tar.Header{Name: f.name, Mode: f.mode}
		if f.text == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := entry(w, at, header, f.text); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// entry writes a file or a directory of root's.
func entry(w *tar.Writer, at time.Time, h tar.Header, text []byte) error {
	h.ModTime, h.Size, h.Format = at, int64(len(text)), tar.FormatUSTAR
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}
