package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"integrityledger/domain"
)

// TestContents: the program names its release and commit, the image is valid with its own hashes, and the list of
// components has each module that go says the program is made of.
func TestContents(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the program")
	}
	b := need(t)
	output := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}
	if said := output(b.files[0].path, "version"); said !=
		"integrity "+domain.ThisRelease.String()+" (commit "+b.source.commit+")\n" {
		t.Errorf("version: %s", said)
	}

	image := t.TempDir()
	output("tar", "-x", "-f", b.files[2].path, "-C", image)
	index, err := layout.ImageIndexFromPath(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Errorf("%+v", manifest)
	}

	f, err := os.Open(b.files[3].path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&list); err != nil {
		t.Fatal(err)
	}
	licences := map[string][]string{}
	for _, c := range *list.Components {
		licences[c.PackageURL] = nil
		for _, l := range *c.Licenses {
			licences[c.PackageURL] = append(licences[c.PackageURL], l.License.ID)
		}
		if licences[c.PackageURL] == nil {
			t.Errorf("%s has no licence", c.PackageURL)
		}
	}
	modules := 0
	for line := range strings.Lines(output("go", "version", "-m", b.files[0].path)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "dep" {
			modules++
			if licences["pkg:golang/"+words[1]+"@"+words[2]] == nil {
				t.Errorf("the list lacks %s", line)
			}
		}
	}
	if modules < 40 {
		t.Errorf("%d modules", modules)
	}
	for name, want := range map[string][]string{
		"pkg:golang/std@" + strings.TrimPrefix(b.source.toolchain, "go"): {"BSD-3-Clause"},
		"pkg:golang/github.com/jackc/pgx/v5@":                            {"MIT"},
		"pkg:golang/github.com/klauspost/compress@":                      {"Apache-2.0", "BSD-3-Clause", "MIT"},
		"pkg:npm/hash-wasm@":                                             {"MIT"},
		"pkg:npm/%40peculiar/utils@":                                     {"MIT"}, // of asn1js
	} {
		found := false
		for url, has := range licences {
			found = found || strings.HasPrefix(url, name) && slices.Equal(has, want)
		}
		if !found {
			t.Errorf("%s: no %q in %v", name, want, licences)
		}
	}
}

// TestLicences: what is not recognized is an error, not a component without a licence.
func TestLicences(t *testing.T) {
	if ids, err := licencesIn("../../.."); err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) {
		t.Errorf("this repository: %q %v", ids, err)
	}
	for text, file := range map[string]string{"": "README", "All rights reserved. Ask us.": "LICENSE.txt"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if ids, err := licencesIn(dir); err == nil {
			t.Errorf("%s %q: %q", file, text, ids)
		}
	}
}
