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

// The OpenAPI documents of the integrity API, and of certification and the account behind a key.
const (
	OpenAPIFile              = "integrity-openapi.json"
	CertificationOpenAPIFile = "openapi.json"
)

// VectorsFile has receipts and the results required of every verifier; the test of domain/evidence writes it.
// GeneratedAtFile has spellings of generatedAt and their normal forms. WebhookVectorsFile has deliveries of webhooks;
// the test of projections/queue/webhooks writes it. OutcomesFile has error responses to writes and the reaction
// required of every client. KeySetVectorsFile has proofs of published keys, which the test of domain/evidence writes.
// All files but these seven and ReleasesFile are JSON Schemas.
const (
	VectorsFile        = "verification-vectors.json"
	GeneratedAtFile    = "generated-at-vectors.json"
	WebhookVectorsFile = "webhook-vectors.json"
	OutcomesFile       = "outcome-vectors.json"
	KeySetVectorsFile  = "key-set-vectors.json"
)

// IsSchema reports whether a file is a JSON Schema.
func IsSchema(name string) bool { return strings.HasSuffix(name, "-v1.json") }

// base is the placeholder for the service's address in the files, and noRelease for the program's release in the
// OpenAPI documents.
const (
	base      = "https://ledger.example"
	noRelease = `"x-release": "0.0.0"`
)

// File returns a file unchanged. The error wraps fs.ErrNotExist.
func File(name string) ([]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return text, nil
}

// OpenAPI returns an OpenAPI document of a service: baseURL is its server and the prefix of the links in examples,
// except within signed payloads. Each pair of texts in replaced, old before new, is replaced in every description. The
// member x-release of info names the program's newest release.
func OpenAPI(name, baseURL string, replaced ...string) ([]byte, error) {
	text, err := File(name)
	if err != nil {
		return nil, err
	}
	releases, err := Releases()
	if err != nil {
		return nil, err
	}
	// The beginning of a member's value. Signed payloads have no space there, so they do not match.
	const member = `": "`
	release := strings.Replace(noRelease, "0.0.0", releases[0].Version, 1)
	pairs := []string{noRelease, release, member + base, member + inner(baseURL)}
	for _, part := range replaced {
		pairs = append(pairs, inner(part))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text))), nil
}

// inner returns a text as it appears between the quotes of a JSON string.
func inner(text string) string {
	quoted, _ := encode(text) // never fails for a string
	return string(quoted[1 : len(quoted)-1])
}

// encode writes JSON in the style of these files: <, > and & are not escaped.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("schemas: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Schema returns a JSON Schema whose $id is a URL of the service, or another file unchanged.
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

// components holds the components of an OpenAPI document, not yet decoded.
type components struct {
	Schemas, Parameters map[string]json.RawMessage
}

// componentsOf decodes each document once: the documents are large, and a service requests about twenty objects at
// startup.
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

// decode decodes a fresh copy of a component, which the caller may change.
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

// resolve replaces every reference within a schema with its resolved target.
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
