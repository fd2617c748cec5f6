package main

import (
	"cmp"
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
func writeComponents(s source, programs map[platform]string, to string) (err error) {
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
			c, err := module(m.Path, m.Version, m.Sum)
			if err != nil {
				return err
			}
			found[c.BOMRef] = c
		}
	}
	standard, err := module("std", s.toolchain[len("go"):], "")
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

// module is a Go module. sum is its hash in go.sum: h1 and base64 of a SHA-256.
func module(path, version, sum string) (cdx.Component, error) {
	url := "pkg:golang/" + path + "@" + version
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: url, PackageURL: url, Name: path, Version: version,
		Scope: cdx.ScopeRequired,
	}
	if sum == "" {
		return c, nil
	}
	hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	return c, err
}

// browserComponents lists the packages whose code the worker that hashes in the browser contains.
func browserComponents(s source) (list []cdx.Component, err error) {
	text, err := os.ReadFile(filepath.Join(s.root, "handlers/web/build/package.json"))
	if err != nil {
		return nil, err
	}
	var bundled struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &bundled); err != nil {
		return nil, fmt.Errorf("package.json: %w", err)
	}
	for name, version := range bundled.Dependencies {
		url := "pkg:npm/" + name + "@" + version
		list = append(list, cdx.Component{
			Type: cdx.ComponentTypeLibrary, BOMRef: url, PackageURL: url, Name: name, Version: version,
			Scope: cdx.ScopeRequired,
		})
	}
	return list, nil
}
