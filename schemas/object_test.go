package schemas_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"integrityledger/schemas"
)

// TestObject: a resolved component keeps its bounds, holds no reference and is closed.
func TestObject(t *testing.T) {
	text, err := schemas.Object(schemas.OpenAPIFile, "RevokeRequest", "publicId", "sequence")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Properties map[string]map[string]any
		Required   []string
	}
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Properties) != 3 || len(object.Required) != 1 || object.Required[0] != "publicId" || object.Properties["after"]["description"] == "" {
		t.Errorf("%s", text)
	}
	if !bytes.Contains(text, []byte(`"maximum":9007199254740991`)) {
		t.Errorf("a bound has lost digits: %s", text)
	}

	evidence, err := schemas.Object(schemas.OpenAPIFile, "Evidence")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(evidence, []byte("$ref")) || !bytes.Contains(evidence, []byte(`"payloadSha256"`)) && !bytes.Contains(evidence, []byte(`"leafIndex"`)) {
		t.Errorf("%s", evidence)
	}
	for _, schema := range []json.RawMessage{text, evidence} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("https://ledger.example/object.json", document); err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile("https://ledger.example/object.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(map[string]any{"other": 1}); err == nil {
			t.Errorf("the object is not closed: %s", schema)
		}
	}
	for _, missing := range []func() (json.RawMessage, error){
		func() (json.RawMessage, error) { return schemas.Object("no.json", "") },
		func() (json.RawMessage, error) { return schemas.Object(schemas.OpenAPIFile, "Nothing") },
		func() (json.RawMessage, error) { return schemas.Object(schemas.OpenAPIFile, "", "nothing") },
	} {
		if schema, err := missing(); err == nil {
			t.Errorf("%s", schema)
		}
	}
}
