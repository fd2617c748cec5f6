// Package schemas embeds the published contract: the OpenAPI documents and the JSON Schemas, which are served
// unchanged. It knows nothing about the code that implements them; tests compare the two.
package schemas

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

//go:embed *.json
var files embed.FS

// The OpenAPI documents: of the integrity API, and of certification with the account behind a key.
const (
	OpenAPIFile              = "integrity-openapi.json"
	CertificationOpenAPIFile = "openapi.json"
)

// VectorsFile holds receipts and what every verifier must find in them; the test of domain/evidence writes it.
// GeneratedAtFile holds forms of generatedAt and what is kept of them, WebhookVectorsFile deliveries of webhooks; the
// test of projections/queue/webhooks writes it. OutcomesFile holds answers to writes that did not succeed, and what
// every client must make of them. Every file but these six is a JSON Schema.
const (
	VectorsFile        = "verification-vectors.json"
	GeneratedAtFile    = "generated-at-vectors.json"
	WebhookVectorsFile = "webhook-vectors.json"
	OutcomesFile       = "outcome-vectors.json"
)

// IsVectors reports whether a file holds test vectors.
func IsVectors(name string) bool { return strings.HasSuffix(name, "-vectors.json") }

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

// inner is a text between the quotes of a JSON string.
func inner(text string) string {
	quoted, _ := encode(text) // a string can always be encoded
	return string(quoted[1 : len(quoted)-1])
}

// encode writes JSON as these files have it: <, > and & are not escaped.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
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

// components are those of an OpenAPI document, each of them still as text.
type components struct {
	Schemas, Parameters map[string]json.RawMessage
}

// componentsOf reads each document once: it is large, and a service asks for some twenty objects when it starts.
var componentsOf = map[string]func() (components, error){
	OpenAPIFile: sync.OnceValues(func() (components, error) { return readComponents(OpenAPIFile) }),
	CertificationOpenAPIFile: sync.OnceValues(func() (components, error) {
		return readComponents(CertificationOpenAPIFile)
	}),
}

func readComponents(file string) (components, error) {
	var document struct{ Components components }
	text, err := File(file)
	if err != nil {
		return components{}, err
	}
	return document.Components, json.Unmarshal(text, &document)
}

// Object returns a self-contained JSON Schema of an object: a component of an OpenAPI document with all its references
// resolved, and the named parameters of that document as further members. With an empty component the parameters are
// its only members. Like the objects of the document it refuses unknown members.
func Object(file, component string, parameters ...string) (json.RawMessage, error) {
	read, ok := componentsOf[file]
	if !ok {
		return nil, fmt.Errorf("schemas: %s: %w", file, fs.ErrNotExist)
	}
	document, err := read()
	if err != nil {
		return nil, fmt.Errorf("schemas: %s: %w", file, err)
	}
	object := map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	if component != "" {
		resolved, err := document.resolve(map[string]any{"$ref": reference + component})
		if err != nil {
			return nil, fmt.Errorf("schemas: %s: %w", file, err)
		}
		object = resolved.(map[string]any)
	}
	properties, _ := object["properties"].(map[string]any)
	required, _ := object["required"].([]any)
	for _, name := range parameters {
		var p struct {
			Name        string
			Required    bool
			Description string
			Schema      map[string]any
		}
		if err := decode(document.Parameters, name, &p); err != nil {
			return nil, fmt.Errorf("schemas: %s: parameter %w", file, err)
		}
		p.Schema["description"] = p.Description
		properties[p.Name] = p.Schema
		if p.Required {
			required = append(required, p.Name)
		}
	}
	delete(object, "required")
	if len(required) > 0 {
		object["required"] = required
	}
	return encode(object)
}

// decode reads one of the components anew, so that the caller may change what it gets.
func decode(from map[string]json.RawMessage, name string, into any) error {
	text, ok := from[name]
	if !ok {
		return fmt.Errorf("%s does not exist", name)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 would lose digits of integer bounds
	return decoder.Decode(into)
}

const reference = "#/components/schemas/"

// resolve replaces every reference within a schema by its target, which is resolved as well.
func (c components) resolve(schema any) (resolved any, err error) {
	switch s := schema.(type) {
	case map[string]any:
		if name, refers := s["$ref"].(string); refers {
			var target any
			if err := decode(c.Schemas, strings.TrimPrefix(name, reference), &target); err != nil {
				return nil, err
			}
			return c.resolve(target)
		}
		for member, value := range s {
			if s[member], err = c.resolve(value); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, value := range s {
			if s[i], err = c.resolve(value); err != nil {
				return nil, err
			}
		}
	}
	return schema, nil
}
