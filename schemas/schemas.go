// Package schemas holds the published contract as embedded files: the OpenAPI documents, the JSON Schemas and test vectors.
// It imports nothing of the code that implements them; tests compare the two.
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

// Every embedded file except these four is a JSON Schema.
const (
	// OpenAPIFile describes the integrity API.
	OpenAPIFile = "integrity-openapi.json"
	// OlderOpenAPIFile describes everything beside it: certification, organizations, OAuth links, webhooks.
	OlderOpenAPIFile = "openapi.json"
	// VectorsFile holds receipts and the findings that every verifier must have. The test of domain/evidence makes it.
	VectorsFile = "verification-vectors.json"
	// GeneratedAtFile holds forms of generatedAt and what is kept of each.
	GeneratedAtFile = "generated-at-vectors.json"
)

// base is the address of the service in the files.
const base = "https://ledger.example"

// File returns a file unchanged, or an error that is fs.ErrNotExist.
func File(name string) ([]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return text, nil
}

// Schemas lists the names of the JSON Schemas.
func Schemas() ([]string, error) {
	names, err := fs.Glob(files, "*-v1.json")
	if err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return names, nil
}

// OpenAPI returns the OpenAPI document of a service at baseURL, which replaces the address of the server and of the links in
// examples, but not in signed payloads. replaced is pairs of texts, old before new, that are replaced in descriptions.
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

// inner encodes a text as it is written between the quotes of a JSON string. These files do not escape <, > and &.
func inner(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return "" // a string can always be encoded
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// Schema returns a JSON Schema whose $id is an address of the service at baseURL, or test vectors unchanged.
func Schema(name, baseURL string) ([]byte, error) {
	if name == OpenAPIFile || name == OlderOpenAPIFile {
		return nil, fmt.Errorf("schemas: %s: %w", name, fs.ErrNotExist)
	}
	text, err := File(name)
	if err != nil {
		return nil, err
	}
	return []byte(strings.Replace(string(text), `"$id": "`+base, `"$id": "`+inner(baseURL), 1)), nil
}
