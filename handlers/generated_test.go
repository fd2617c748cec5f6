package handlers_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	_ "github.com/oapi-codegen/runtime" // what the generated client needs stays in go.mod

	"integrityledger/schemas"
)

// A client that a generator makes of the document registers and reads a record.
func TestGeneratedClient(t *testing.T) {
	if testing.Short() {
		t.Skip("generates and builds a client")
	}
	s := open(t, options{})
	text, err := schemas.OpenAPI(schemas.OpenAPIFile, baseURL)
	check(t, err)
	document, err := openapi3.NewLoader().LoadFromData(text)
	check(t, err)
	source, err := codegen.Generate(document, codegen.Configuration{
		PackageName: "contractclient", Generate: codegen.GenerateOptions{Client: true, Models: true},
	})
	check(t, err)

	// The generated file lies in the package for this build only.
	dir := t.TempDir()
	generated := filepath.Join(dir, "client.gen.go")
	check(t, os.WriteFile(generated, []byte(source), 0o600))
	program, err := filepath.Abs("testdata/contractclient")
	check(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(program, "client.gen.go"): generated}})
	check(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	check(t, os.WriteFile(overlayFile, overlay, 0o600))
	file := filepath.Join(dir, "read.json")
	run := exec.Command("go", "test", "-vet=off", "-count=1", "-buildvcs=false", "-tags", "contractclient", "-overlay", overlayFile, "./testdata/contractclient")
	run.Env = append(os.Environ(), "ADDRESS="+s.http.URL, "KEY="+s.org.Secret, "COMPANY="+s.org.Company.Reference, "READ="+file)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("the generated client: %v\n%s", err, out)
	}
	out, err := os.ReadFile(file)
	check(t, err)
	var read map[string]any
	check(t, json.Unmarshal(out, &read))
	equal(t, "what the client read", []any{read["source"], read["documentReference"], read["status"]}, []any{"generated", "d-1", "current"})
	equal(t, "the record", s.get(integrity+"/records/"+read["publicId"].(string)).is(http.StatusOK), read)
}
