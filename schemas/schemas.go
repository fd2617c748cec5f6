// Package schemas holds the published contract: the OpenAPI documents and the JSON Schemas, as files that are served as
// they are. It knows nothing of the code that follows them; tests compare the two.
package schemas

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.json
var files embed.FS

// The OpenAPI documents: of the integrity API, and of certification with the account behind a key.
const (
	OpenAPIFile              = "integrity-openapi.json"
	CertificationOpenAPIFile = "openapi.json"
)

// VectorsFile holds receipts and what every verifier must find in them; the test of domain/evidence writes it.
// GeneratedAtFile holds forms of generatedAt and what is kept of them. Every file but these four is a JSON Schema.
const (
	VectorsFile     = "verification-vectors.json"
	GeneratedAtFile = "generated-at-vectors.json"
)

// base stands in the files for the address of the service.
const base = "https://ledger.example"

// File returns a file unchanged, or an error that is fs.ErrNotExist.
func File(name string) ([]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return text, nil
}

// OpenAPI returns an OpenAPI document of a service: baseURL is its server and begins the links of the examples, except
// in what signatures cover. Each pair of texts in replaced, old before new, is replaced in every description.
func OpenAPI(name, baseURL string, replaced ...string) ([]byte, error) {
	text, err := File(name)
	if err != nil {
		return nil, err
	}
	// A member's value begins like this; inside a signed payload there is no space.
	const member = `": "`
	pairs := []string{member + base, member + inner(baseURL)}
	for _, part := range replaced {
		pairs = append(pairs, inner(part))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text))), nil
}

// inner is a text between the quotes of a JSON string in these files, which do not escape <, > and &.
func inner(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return "" // a string can always be encoded
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// Schema returns a JSON Schema whose $id is an address of the service, or the test vectors unchanged.
func Schema(name, baseURL string) ([]byte, error) {
	if name == OpenAPIFile || name == CertificationOpenAPIFile {
		return nil, fmt.Errorf("schemas: %s: %w", name, fs.ErrNotExist)
	}
	text, err := File(name)
	if err != nil {
		return nil, err
	}
	return []byte(strings.Replace(string(text), `"$id": "`+base, `"$id": "`+inner(baseURL), 1)), nil
}
