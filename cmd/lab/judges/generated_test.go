package judges

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	_ "github.com/oapi-codegen/runtime" // go.mod needs it for the generated client

	"integrityledger/handlers/wire"
)

// TestGeneratedClient: Go clients generated from the served documents can register, compare and read.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("generates and builds a client")
	}
	s := serve(t)
	dir := t.TempDir()
	program, err := filepath.Abs("testdata/contractclient")
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace := map[string]string{} // the generated files exist in their packages only in this build
	for name, path := range map[string]string{
		"contractclient": "/api/integrity-openapi", "certification": "/api/openapi",
	} {
		answer, err := http.Get(s.base + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		document, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			t.Fatal(err)
		}
		source, err := codegen.Generate(document, codegen.Configuration{
			PackageName: name, Generate: codegen.GenerateOptions{Client: true, Models: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		generated, place := filepath.Join(dir, name+".go"), filepath.Join(program, "client.gen.go")
		if name == "certification" {
			place = filepath.Join(program, name, "client.gen.go")
		}
		write(generated, []byte(source))
		replace[place] = generated
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, file := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "read.json")
	write(overlayFile, overlay)
	run := exec.Command("go", "test", "-vet=off", "-count=1", "-buildvcs=false", "-tags", "contractclient",
		"-overlay", overlayFile, "./testdata/contractclient")
	run.Env = append(os.Environ(), "ADDRESS="+s.base, "KEY="+s.Keys.Worker, "COMPANY="+s.CompanyReference, "READ="+file)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("the generated client: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Me     wire.Me
		Record wire.Record
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	record, err := s.worker.Record(t.Context(), read.Record.PublicID)
	if err != nil || record.DocumentReference != "d-1" || record.Status != "current" ||
		read.Record.PublicID != record.PublicID || read.Record.DocumentReference != record.DocumentReference {
		t.Errorf("the client read %+v, the service has %+v: %v", read.Record, record, err)
	}
	if read.Me.Organization.ID != s.OrganizationID {
		t.Errorf("the account is that of %q, not %q", read.Me.Organization.ID, s.OrganizationID)
	}
}
