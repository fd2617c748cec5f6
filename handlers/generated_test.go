package handlers_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	_ "github.com/oapi-codegen/runtime" // what the generated client needs stays in go.mod
)

// generators are those for TypeScript, with programs that use what they make.
var generators = nodeRoom("testdata/generators", "generate.mjs", "environment.ts", "openapi-fetch.ts", "hey-api.ts", "orval.ts", "tsconfig.json", "tsconfig.exact.json")

// usedBy requires of a program with a generated client that it has registered version 1 of its document d-1, and has read
// the record and the account as the service has them.
func usedBy(t *testing.T, s *service, source string, out []byte) {
	t.Helper()
	var read struct{ Me, Record map[string]any }
	check(t, json.Unmarshal(out, &read))
	equal(t, "what the client of "+source+" read", []any{read.Record["source"], read.Record["documentReference"], read.Record["status"]}, []any{source, "d-1", "current"})
	equal(t, "the record", s.get(integrity+"/records/"+read.Record["publicId"].(string)).is(http.StatusOK), read.Record)
	me := s.get("/api/v1/me").is(http.StatusOK)
	maps.DeleteFunc(me, func(name string, _ any) bool { return name == "quota" }) // of which each request takes one
	delete(read.Me, "quota")
	equal(t, "the account", me, read.Me)
}

func environmentOf(s *service) []string {
	return append(os.Environ(), "ADDRESS="+s.http.URL, "KEY="+s.org.Secret, "COMPANY="+s.org.Company.Reference)
}

// Clients that a generator for Go makes of the documents register, compare and read.
func TestGeneratedClient(t *testing.T) {
	if testing.Short() {
		t.Skip("generates and builds a client")
	}
	s := open(t, options{})
	dir := t.TempDir()
	program, err := filepath.Abs("testdata/contractclient")
	check(t, err)
	replace := map[string]string{} // the generated files lie in their packages for this build only
	for name, path := range map[string]string{"contractclient": "/api/integrity-openapi", "certification": "/api/openapi"} {
		document, err := openapi3.NewLoader().LoadFromData(s.public(path).body)
		check(t, err)
		source, err := codegen.Generate(document, codegen.Configuration{
			PackageName: name, Generate: codegen.GenerateOptions{Client: true, Models: true},
		})
		check(t, err)
		generated, place := filepath.Join(dir, name+".go"), filepath.Join(program, "client.gen.go")
		if name == "certification" {
			place = filepath.Join(program, name, "client.gen.go")
		}
		check(t, os.WriteFile(generated, []byte(source), 0o600))
		replace[place] = generated
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	check(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	check(t, os.WriteFile(overlayFile, overlay, 0o600))
	file := filepath.Join(dir, "read.json")
	run := exec.Command("go", "test", "-vet=off", "-count=1", "-buildvcs=false", "-tags", "contractclient", "-overlay", overlayFile, "./testdata/contractclient")
	run.Env = append(environmentOf(s), "READ="+file)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("the generated client: %v\n%s", err, out)
	}
	usedBy(t, s, "oapi-codegen", contents(t, file))
}

// Clients that the generators for TypeScript make of the served documents compile strictly, register, compare and read.
func TestGeneratedTypeScript(t *testing.T) {
	if testing.Short() {
		t.Skip("installs generators")
	}
	directory, ok := generators(t, "what generators for TypeScript make")
	if !ok {
		t.Skip(errNoNPM)
	}
	s := open(t, options{})
	node := func(args ...string) []byte {
		t.Helper()
		run := exec.Command("node", args...)
		run.Dir, run.Env = directory, environmentOf(s)
		out, err := run.Output()
		if err != nil {
			var exit *exec.ExitError
			errors.As(err, &exit)
			t.Fatalf("node %s: %v\n%s%s", strings.Join(args, " "), err, out, exit.Stderr)
		}
		return out
	}
	node("generate.mjs")
	for _, settings := range []string{"tsconfig.json", "tsconfig.exact.json"} {
		node("node_modules/typescript/bin/tsc", "-p", settings)
	}
	for _, source := range []string{"openapi-fetch", "hey-api", "orval"} {
		usedBy(t, s, source, node("built/"+source+".js"))
	}
}
