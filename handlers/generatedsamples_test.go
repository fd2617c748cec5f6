package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// generatedSample runs a language's sample with a client generated from the served document.
type generatedSample struct {
	t         *testing.T
	directory string   // for generated files
	packages  string   // of npm
	environ   []string // for the sample
}

// newGeneratedSample skips the test if a tool is missing and may be missing.
func newGeneratedSample(t *testing.T, s *service, tools ...string) *generatedSample {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") != "true" {
			fmt.Fprintf(
				os.Stderr, "%s: %s is missing (.ci/tools names the packages), so the sample is NOT run.\n", t.Name(), tool,
			)
			t.Skip(err)
		}
	}
	packages, ok := generators(t, "the sample with a generated client")
	if !ok {
		t.Skip(errNoNPM)
	}
	// a locale with another calendar
	return &generatedSample{t, t.TempDir(), packages, append(os.Environ(), "LC_ALL=th_TH.UTF-8",
		"INTEGRITY_BASE_URL="+s.http.URL, "INTEGRITY_API_KEY="+s.org.Secret, "INTEGRITY_COMPANY="+s.org.Company.Reference)}
}

func (g *generatedSample) run(name string, args ...string) (string, error) {
	g.t.Helper()
	command := exec.Command(name, args...)
	command.Dir, command.Env = g.directory, g.environ
	out, err := command.CombinedOutput()
	return string(out), err
}

func (g *generatedSample) must(name string, args ...string) string {
	g.t.Helper()
	out, err := g.run(name, args...)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", name, err, out[max(0, len(out)-4000):])
	}
	return out
}

func (g *generatedSample) write(name string, text []byte) string {
	path := filepath.Join(g.directory, name)
	check(g.t, os.WriteFile(path, text, 0o600))
	return path
}

// tried registers a file and requires the public result from the sample. Another file under the same name must be
// refused.
func (g *generatedSample) tried(s *service, source, name string, args ...string) {
	g.t.Helper()
	said := g.must(name, append(args, g.write("one.txt", []byte("one")), "d-1")...)
	if result, rest, _ := strings.Cut(strings.TrimSpace(said), " "); !strings.EqualFold(
		strings.ReplaceAll(result, "_", ""), "MATCHCURRENT",
	) ||
		!strings.HasPrefix(strings.ToLower(rest), "current ") {
		g.t.Errorf("the sample says %q", said)
	}
	query := url.Values{
		"companyReference": {s.org.Company.Reference}, "source": {source}, "documentReference": {"d-1"}, "version": {"1"},
	}
	record := s.get(integrity + "/lookup?" + query.Encode()).is(http.StatusOK)
	equal(g.t, "the record", []any{record["sha256"], record["sizeBytes"]}, []any{hash("one"), 3.0})
	if at, err := time.Parse(time.RFC3339, record["generatedAt"].(string)); err != nil ||
		time.Since(at).Abs() > time.Hour {
		g.t.Errorf("generatedAt is %v", record["generatedAt"])
	}
	said, err := g.run(name, append(args, g.write("two.txt", []byte("another")), "d-1")...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said, "409") ||
		!strings.Contains(said, "VERSION_CONFLICT") {
		g.t.Errorf("another file: %v, %q", err, said)
	}
}

// The C# sample works with a client of NSwag, which runs on Mono here as it does on .NET.
func TestCSharpSample(t *testing.T) {
	if testing.Short() {
		t.Skip("generates and compiles a client")
	}
	t.Parallel()
	s := open(t, options{})
	g := newGeneratedSample(t, s, "mono", "mcs")
	document := g.write("integrity.json", s.public("/api/integrity-openapi").is200().body)
	nswag := filepath.Join(g.packages, "node_modules/nswag/bin/binaries/Win")
	g.must("mono", filepath.Join(nswag, "NSwag.exe"), "openapi2csclient", "/input:"+document, "/output:Client.cs",
		"/namespace:Integrity", "/classname:IntegrityClient",
		"/OperationGenerationMode:SingleClientFromOperationId")
	library := filepath.Join(nswag, "Newtonsoft.Json.dll")
	g.write("Newtonsoft.Json.dll", contents(t, library))
	g.write("Register.cs", contents(t, "developers/csharp/Register.cs"))
	g.must("mcs", "-langversion:latest", "-out:Register.exe", "-r:"+library, "-r:System.Net.Http.dll",
		"-r:System.Runtime.Serialization.dll",
		"-r:System.ComponentModel.DataAnnotations.dll", "Client.cs", "Register.cs")
	g.tried(s, "csharp", "mono", "Register.exe")
}

// The Java sample works with a client of OpenAPI Generator. The generator on npm is older than OpenAPI 3.1, so it reads
// the served document converted to 3.0. Its archive also contains the libraries that its clients need.
func TestJavaSample(t *testing.T) {
	if testing.Short() {
		t.Skip("generates and compiles a client")
	}
	t.Parallel()
	s := open(t, options{})
	g := newGeneratedSample(t, s, "java", "javac")
	var contract map[string]any
	check(t, json.Unmarshal(s.public("/api/integrity-openapi").is200().body, &contract))
	contract["openapi"] = "3.0.3"
	inTermsOf30(contract)
	document, err := json.Marshal(contract)
	check(t, err)
	generator := filepath.Join(g.packages, "node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar")
	g.must("java", "-jar", generator, "generate", "--skip-validate-spec", "-g", "java", "--library", "native", "-i",
		g.write("integrity.json", document), "-o", "client",
		"--additional-properties=apiPackage=integrity.api,modelPackage=integrity.model,invokerPackage=integrity,openApiNullable=false")
	g.write("Register.java", contents(t, "developers/java/Register.java"))
	g.must(
		"javac", "-nowarn", "-encoding", "UTF-8", "-cp", generator, "-sourcepath", "client/src/main/java", "-d", "classes",
		"Register.java",
	)
	g.tried(s, "java", "java", "-cp", generator+string(os.PathListSeparator)+"classes", "Register")
}

// inTermsOf30 writes nullable for the type null of OpenAPI 3.1, and no type for several types.
func inTermsOf30(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			inTermsOf30(element)
		}
	case map[string]any:
		delete(value, "oneOf")
		if value["type"] == "null" {
			value["type"], value["nullable"] = "object", true
		}
		if types, ok := value["type"].([]any); ok {
			value["type"], value["nullable"] = types[0], true
		}
		if values, ok := value["enum"].([]any); ok {
			value["enum"] = slices.DeleteFunc(values, func(v any) bool { return v == nil })
		}
		for _, member := range value {
			inTermsOf30(member)
		}
	}
}
