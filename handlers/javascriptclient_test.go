package handlers_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/developers"
	"integrityledger/schemas"
)

const (
	clientAddress = "/developers/integrity-client-" + developers.Version + ".tgz"
	clientSource  = "developers/javascript"
	clientTests   = "developers/testdata"
)

// installedClient is a folder in which the client has been installed from an address or a file.
func installedClient(t *testing.T, from string) string {
	t.Helper()
	npm := needsNPM(t, "the JavaScript client")
	directory := t.TempDir()
	install := exec.Command(npm, "install", "--prefix", directory, "--no-audit", "--no-fund", "--no-update-notifier", from)
	install.Dir = directory
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	return directory
}

// runTests runs a file of tests in a folder.
func runTests(t *testing.T, directory, path, setup string) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	name := strings.Replace(filepath.Base(path), ".js", ".mjs", 1)
	check(t, os.WriteFile(filepath.Join(directory, name), text, 0o600))
	command := exec.Command("node", "--no-warnings", "--test", "--test-reporter=tap", name)
	command.Dir, command.Env = directory, append(os.Environ(), "SETUP="+setup)
	out, err := command.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^# pass [1-9]`).Match(out) ||
		!regexp.MustCompile(`(?m)^# skipped 0$`).Match(out) {
		t.Errorf("%s: %v\n%s", path, err, out)
	}
}

// The client that npm installs from the service performs all its operations against the service, and handles services
// that do not answer as they should.
func TestJavaScriptClient(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	directory := installedClient(t, s.http.URL+clientAddress)
	s.javaScriptStory(directory, clientTests)
	s.logged(`"client":"integrity-javascript/` + developers.Version + `"`)
	outcomes, err := filepath.Abs("../schemas/" + schemas.OutcomesFile)
	check(t, err)
	setup, err := json.Marshal(body{"outcomes": outcomes})
	check(t, err)
	runTests(t, directory, clientTests+"/failures.test.js", string(setup))
}

// javaScriptStory runs the tests of a folder that need a service, with the client installed in directory.
func (s *service) javaScriptStory(directory, tests string) {
	s.t.Helper()
	s.javaScriptStoryAt(s.http.URL, directory, tests)
}

// javaScriptStoryAt is javaScriptStory through another address of the service.
func (s *service) javaScriptStoryAt(address, directory, tests string) {
	t := s.t
	t.Helper()
	s.hold() // within one month
	worker, workerSecret := s.Key(t, s.org, domain.IntegrityRead, domain.IntegrityWrite)
	_, certificate := s.certificate("work", "the work")
	webhook := s.post(integrity+"/webhooks", body{"url": "https://receiver.example/hook"}).is(http.StatusCreated)
	setup, err := json.Marshal(body{
		"baseUrl": address, "owner": s.org.Secret, "ownerId": s.org.Key.ID.String(), "worker": workerSecret,
		"workerId":    worker.ID.String(),
		"certificate": body{"publicId": certificate, "text": "the work"}, "webhookId": webhook["id"],
	})
	check(t, err)
	runTests(t, directory, filepath.Join(tests, "service.test.js"), string(setup))
}

// The package contains its sources with their version, and nothing that depends on the time or place of packing, so the
// same sources give the same package.
func TestJavaScriptClientPackage(t *testing.T) {
	compressed := open(t, options{}).public(clientAddress).is200().body
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	check(t, err)
	archive := tar.NewReader(reader)
	var names []string
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		packed, err := io.ReadAll(archive)
		check(t, err)
		name := strings.TrimPrefix(header.Name, "package/")
		source, err := os.ReadFile(filepath.Join(clientSource, name))
		if name == "CHANGELOG.md" {
			source, err = os.ReadFile(filepath.Join(clientSource, "..", name))
		}
		check(t, err)
		if !bytes.Equal(packed, bytes.ReplaceAll(source, []byte("@VERSION@"), []byte(developers.Version))) {
			t.Errorf("%s is not its source", name)
		}
		equal(t, name, []any{header.ModTime.Year(), header.Mode, header.Uid, header.Uname}, []any{1985, 0o644, 0, ""})
		names = append(names, header.Name)
	}
	equal(
		t, "files", names,
		[]string{
			"package/package.json", "package/client.js", "package/client.d.ts", "package/README.md", "package/CHANGELOG.md",
			"package/LICENSE",
		},
	)
	if !reader.ModTime.IsZero() {
		t.Error("the package says when it was packed")
	}
	licence, err := os.ReadFile("../LICENSE")
	check(t, err)
	packed, err := os.ReadFile(clientSource + "/LICENSE")
	check(t, err)
	if !bytes.Equal(licence, packed) {
		t.Error("the client's licence is not the project's")
	}
}

// A correct project in strict TypeScript compiles against the installed types, and an incorrect one does not.
func TestJavaScriptClientTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages of npm")
	}
	packages, ok := packages(t, "the types of the JavaScript client")
	if !ok {
		t.Skip(errNoNPM)
	}
	directory := installedClient(t, open(t, options{}).http.URL+clientAddress)
	text, err := os.ReadFile(filepath.Join(clientTests, "consumer.ts"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(directory, "consumer.mts"), text, 0o600))
	command := exec.Command("node", filepath.Join(packages, "node_modules/typescript/bin/tsc"),
		"--noEmit", "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--target", "es2022", "--lib",
		"es2022,dom", "--module", "nodenext",
		"consumer.mts")
	command.Dir = directory
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}

// The interfaces of the client's types have the members of the schemas with the same names.
func TestJavaScriptClientTypesAreTheContract(t *testing.T) {
	p, err := published()
	check(t, err)
	text, err := os.ReadFile(clientSource + "/client.d.ts")
	check(t, err)
	declared := map[string]map[string]bool{} // members of an interface, true if optional
	for _, found := range regexp.MustCompile(
		`(?ms)^export interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}`,
	).FindAllStringSubmatch(string(text), -1) {
		members := map[string]bool{}
		maps.Copy(members, declared[found[2]])
		for _, member := range regexp.MustCompile(`(?m)^  (\w+)(\??):`).FindAllStringSubmatch(found[3], -1) {
			members[member[1]] = member[2] == "?"
		}
		declared[found[1]] = members
	}
	names := map[string]string{"ItemError": "ApiError"}
	notOfTheContract := []string{"CallOptions", "ClientOptions", "ChangesPage"}
	for name, members := range declared {
		if slices.Contains(notOfTheContract, name) {
			continue
		}
		schemaName := name
		if other := names[name]; other != "" {
			schemaName = other
		}
		schema := p.document.Components.Schemas[schemaName]
		if schema == nil {
			schema = p.older.Components.Schemas[schemaName]
		}
		if schema == nil {
			t.Errorf("there is no schema %s", schemaName)
			continue
		}
		want := map[string]bool{}
		for member := range schema.Value.Properties {
			want[member] = !slices.Contains(schema.Value.Required, member)
		}
		equal(t, name, members, want)
	}
	if len(declared) < 25 {
		t.Errorf("%d interfaces", len(declared))
	}
}
