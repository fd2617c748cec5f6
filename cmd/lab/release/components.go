package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeComponents writes the list of components in CycloneDX: the modules that are linked into any of the programs, as
// they say themselves, the Go standard library, and what the page in the browser contains.
func writeComponents(ctx context.Context, s source, programs map[platform]string, to string) (err error) {
	dirs, err := moduleDirs(ctx, s)
	if err != nil {
		return err
	}
	found := map[string]cdx.Component{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				return fmt.Errorf("%s is replaced by %s, which the list cannot show", m.Path, m.Replace.Path)
			}
			c, err := module(m.Path, m.Version, m.Sum, dirs[m.Path])
			if err != nil {
				return err
			}
			found[c.BOMRef] = c
		}
	}
	standard, err := module("std", s.toolchain[len("go"):], "", dirs["std"])
	if err != nil {
		return err
	}
	worker, err := browserComponents(s)
	if err != nil {
		return err
	}
	components := []cdx.Component{standard}
	for _, c := range found {
		components = append(components, c)
	}
	components = append(components, worker...)
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	product := cdx.Component{
		Type: cdx.ComponentTypeApplication, BOMRef: "pkg:generic/" + packageName + "@" + s.version.String(),
		Name: packageName, Version: s.version.String(), Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: &[]cdx.Property{{Name: "commit", Value: s.commit}},
	}
	product.PackageURL = product.BOMRef
	bom := cdx.NewBOM()
	// CycloneDX wants a UUID of the list. One of the commit names the same list each time (RFC 9562, version 8).
	id := sha256.Sum256([]byte(packageName + s.version.String() + s.commit))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	bom.Metadata = &cdx.Metadata{Timestamp: s.time.Format("2006-01-02T15:04:05Z"), Component: &product}
	bom.Components, bom.Dependencies = &components, &[]cdx.Dependency{{Ref: product.BOMRef, Dependencies: &refs}}

	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// library is a component with licences by their names in SPDX.
func library(url, name, version string, licences ...string) cdx.Component {
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: url, PackageURL: url, Name: name, Version: version,
		Scope: cdx.ScopeRequired, Licenses: &cdx.Licenses{},
	}
	for _, id := range licences {
		*c.Licenses = append(*c.Licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return c
}

// hashed adds the hash of a component, given in base64.
func hashed(c cdx.Component, algorithm cdx.HashAlgorithm, base string) (cdx.Component, error) {
	hash, err := base64.StdEncoding.DecodeString(base)
	c.Hashes = &[]cdx.Hash{{Algorithm: algorithm, Value: hex.EncodeToString(hash)}}
	return c, err
}

// module is a Go module, whose files are in a directory. sum is its hash in go.sum: h1 and base64 of a SHA-256.
func module(path, version, sum, dir string) (cdx.Component, error) {
	licences, err := licencesIn(dir)
	if err != nil {
		return cdx.Component{}, fmt.Errorf("licence of %s: %w", path, err)
	}
	c := library("pkg:golang/"+path+"@"+version, path, version, licences...)
	if sum == "" {
		return c, nil
	}
	return hashed(c, cdx.HashAlgoSHA256, strings.TrimPrefix(sum, "h1:"))
}

// browserComponents lists the packages whose code the worker that hashes in the browser contains.
func browserComponents(s source) (list []cdx.Component, err error) {
	text, err := os.ReadFile(filepath.Join(s.root, "handlers/web/build/package-lock.json"))
	if err != nil {
		return nil, err
	}
	var locked struct {
		Packages map[string]struct {
			Version, License, Integrity string
			Dev                         bool // a tool, which the worker does not contain
		}
	}
	if err := json.Unmarshal(text, &locked); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	for path, p := range locked.Packages {
		name, found := strings.CutPrefix(path, "node_modules/")
		if !found || p.Dev {
			continue
		}
		url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + p.Version
		c, err := hashed(
			library(url, name, p.Version, p.License), cdx.HashAlgoSHA512, strings.TrimPrefix(p.Integrity, "sha512-"),
		)
		if err != nil || p.License == "" {
			return nil, fmt.Errorf("package-lock.json: licence %q and hash of %s: %w", p.License, name, err)
		}
		list = append(list, c)
	}
	return list, nil
}
