package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Object returns a self-contained JSON Schema of an object: a component of an OpenAPI document with all its references
// resolved, and the named parameters of that document as further members. With an empty component the parameters are its
// only members. Like the objects of the document it refuses unknown members.
func Object(file, component string, parameters ...string) (json.RawMessage, error) {
	var document struct {
		Components struct {
			Schemas    map[string]any `json:"schemas"`
			Parameters map[string]struct {
				Name        string         `json:"name"`
				Required    bool           `json:"required"`
				Description string         `json:"description"`
				Schema      map[string]any `json:"schema"`
			} `json:"parameters"`
		} `json:"components"`
	}
	text, err := File(file)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 would lose digits of integer bounds
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("schemas: %s: %w", file, err)
	}
	object := map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	if component != "" {
		resolved, err := resolve(document.Components.Schemas, map[string]any{"$ref": reference + component})
		if err != nil {
			return nil, fmt.Errorf("schemas: %s: %w", file, err)
		}
		object = resolved.(map[string]any)
	}
	properties, _ := object["properties"].(map[string]any)
	required, _ := object["required"].([]any)
	for _, name := range parameters {
		p, ok := document.Components.Parameters[name]
		if !ok {
			return nil, fmt.Errorf("schemas: %s has no parameter %s", file, name)
		}
		schema := maps.Clone(p.Schema)
		schema["description"] = p.Description
		properties[p.Name] = schema
		if p.Required {
			required = append(required, p.Name)
		}
	}
	delete(object, "required")
	if len(required) > 0 {
		object["required"] = required
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		return nil, fmt.Errorf("schemas: %s: %w", component, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

const reference = "#/components/schemas/"

// resolve copies a schema and replaces every reference by a copy of its target.
func resolve(schemas map[string]any, schema any) (any, error) {
	switch s := schema.(type) {
	case map[string]any:
		name, refers := s["$ref"].(string)
		if refers {
			target, ok := schemas[strings.TrimPrefix(name, reference)]
			if !ok {
				return nil, fmt.Errorf("%s refers to nothing", name)
			}
			return resolve(schemas, target)
		}
		object := make(map[string]any, len(s))
		for member, value := range s {
			var err error
			if object[member], err = resolve(schemas, value); err != nil {
				return nil, err
			}
		}
		return object, nil
	case []any:
		list := make([]any, len(s))
		for i, value := range s {
			var err error
			if list[i], err = resolve(schemas, value); err != nil {
				return nil, err
			}
		}
		return list, nil
	default:
		return schema, nil
	}
}
