//go:build contractclient

// Package contractclient uses clients generated from the OpenAPI documents. The test beside the handlers generates them
// into a separate directory, overlays them on this package and on certification, and runs it. No other build uses this
// package.
package contractclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	_ "github.com/oapi-codegen/runtime" // for the generated file

	"integrityledger/cmd/lab/judges/testdata/contractclient/certification"
)

// TestUse registers a version, reads it back and compares it. The file READ receives the record and the account.
func TestUse(t *testing.T) {
	if err := use(os.Getenv("ADDRESS"), os.Getenv("KEY"), os.Getenv("COMPANY")); err != nil {
		t.Fatal(err)
	}
}

func use(address, key, company string) error {
	ctx := context.Background()
	authorized := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}
	client, err := NewClientWithResponses(address, WithRequestEditorFn(authorized))
	if err != nil {
		return err
	}
	hash := strings.Repeat("a0", 32)
	declaration := Declaration{
		CompanyReference: company, Source: "oapi-codegen", DocumentReference: "d-1", Version: 1,
		Sha256: hash, SizeBytes: 5_000_000_000, MimeType: "text/plain", GeneratedAt: "2026-11-01T10:00:00Z",
	}
	registered, err := client.RegisterRecordWithResponse(ctx, &RegisterRecordParams{}, declaration)
	if err != nil {
		return err
	}
	if registered.JSON201 == nil {
		return fmt.Errorf("register: %s %s", registered.Status(), registered.Body)
	}
	id := registered.JSON201.Data.PublicId
	read, err := client.GetRecordWithResponse(ctx, id, &GetRecordParams{})
	if err != nil {
		return err
	}
	if read.JSON200 == nil || read.JSON200.Data.Sha256 != hash {
		return fmt.Errorf("read: %s %s", read.Status(), read.Body)
	}
	compared, err := client.ComparePubliclyWithResponse(ctx, id, &ComparePubliclyParams{Sha256: &hash})
	if err != nil {
		return err
	}
	if compared.JSON200 == nil || !compared.JSON200.Data.Verified {
		return fmt.Errorf("compare: %s %s", compared.Status(), compared.Body)
	}
	declaration.SizeBytes++
	conflict, err := client.RegisterRecordWithResponse(ctx, &RegisterRecordParams{}, declaration)
	if err != nil {
		return err
	}
	if conflict.JSON409 == nil || conflict.JSON409.Error.Existing.PublicId != id {
		return fmt.Errorf("conflict: %s %s", conflict.Status(), conflict.Body)
	}
	account, err := certification.NewClientWithResponses(address, certification.WithRequestEditorFn(authorized))
	if err != nil {
		return err
	}
	me, err := account.GetMeWithResponse(ctx, &certification.GetMeParams{})
	if err != nil {
		return err
	}
	if me.JSON200 == nil {
		return fmt.Errorf("me: %s %s", me.Status(), me.Body)
	}
	text, err := json.Marshal(map[string]any{"record": read.JSON200.Data, "me": me.JSON200.Data})
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv("READ"), text, 0o600)
}
