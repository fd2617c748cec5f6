package main

import (
	"os"
	"os/exec"
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
	var urls []string
	for _, c := range *list.Components {
		urls = append(urls, c.PackageURL)
	}
	modules := 0
	for line := range strings.Lines(output("go", "version", "-m", b.files[0].path)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "dep" {
			modules++
			if !slices.Contains(urls, "pkg:golang/"+words[1]+"@"+words[2]) {
				t.Errorf("the list lacks %s", line)
			}
		}
	}
	if modules < 40 || !slices.Contains(urls, "pkg:golang/std@"+strings.TrimPrefix(b.source.toolchain, "go")) ||
		!slices.ContainsFunc(urls, func(url string) bool { return strings.HasPrefix(url, "pkg:npm/hash-wasm@") }) {
		t.Errorf("%d modules in %q", modules, urls)
	}
}
