package schemas_test

import (
	"slices"
	"strings"
	"testing"

	"integrityledger/schemas"
)

// documents returns the OpenAPI documents by file name.
func documents(t *testing.T) map[string]map[string]any {
	t.Helper()
	read := map[string]map[string]any{}
	for _, file := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		text, err := schemas.File(file)
		check(t, err)
		read[file] = parse(t, text).(map[string]any)
	}
	return read
}

// visit calls see for every object of a document, with its JSON pointer. It skips examples, which are data of the API
// rather than parts of the document.
func visit(value any, pointer string, see func(pointer string, object map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		see(pointer, v)
		for name, member := range v {
			if name != "example" && name != "value" {
				visit(member, pointer+"/"+name, see)
			}
		}
	case []any:
		for _, member := range v {
			visit(member, pointer+"/", see)
		}
	}
}

// operations calls see for every operation of a document.
func operations(document map[string]any, see func(method, path string, operation map[string]any)) {
	for path, item := range document["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			see(method, path, operation.(map[string]any))
		}
	}
}

// TestIntegersAndDefaultsForGenerators: generators treat an integer without a format as 32 bits, and a member with a
// default as always present.
func TestIntegersAndDefaultsForGenerators(t *testing.T) {
	for file, document := range documents(t) {
		integers := 0
		visit(document, file, func(pointer string, o map[string]any) {
			types, _ := o["type"].([]any)
			if o["type"] == "integer" || slices.Contains(types, any("integer")) {
				integers++
				if o["format"] != "int64" {
					t.Errorf("%s is an integer with the format %v", pointer, o["format"])
				}
			}
			if value, is := o["default"]; is && value == nil {
				t.Errorf("%s has the default null", pointer)
			}
		})
		if integers < 60 {
			t.Errorf("%s: %d integers", file, integers)
		}
	}
}

// taken lists names, in lower case, that a language, its standard library or a generator already uses without an
// import: a schema of that name would shadow them or be refused.
var taken = strings.Fields(`
	array arraybuffer bigint blob boolean buffer cache client clients comment console credential crypto date document
	element error event exclude extract file formdata function headers history image infinity instancetype intl iterator
	json key location lock locks map math nan navigator node nonnullable notification number object omit option parameters
	partial performance permissions pick plugin process promise proxy range readonly record reflect regexp report request
	required response returntype screen selection set storage string symbol text undefined url worker
	any bool bytes complex dict exception float frozenset int list memoryview none property slice tuple type warning
	byte character class comparable double enum integer iterable long module override package runnable runtime short
	system thread throwable void
	action attribute boolean char console convert datetime decimal delegate environment func guid index lazy nullable
	progress random task timer timespan uri version
	failure result success
	callback callbacks components contact discriminator encoding example examples header info license link links mediatype
	oauthflow oauthflows operation operations parameter path pathitem paths reference requestbodies requestbody responses
	schema schemas securityscheme server servers tag tags webhook webhooks xml`)

func TestSchemaNamesAreFree(t *testing.T) {
	for file, document := range documents(t) {
		for name := range document["components"].(map[string]any)["schemas"].(map[string]any) {
			if slices.Contains(taken, strings.ToLower(name)) {
				t.Errorf("%s has a schema %s", file, name)
			}
		}
	}
}

// TestOperationsForGenerators: generators create a method for every operation, so OPTIONS, which only browsers send, is
// left out. Every operation documents its errors.
func TestOperationsForGenerators(t *testing.T) {
	for file, document := range documents(t) {
		operations(document, func(method, path string, operation map[string]any) {
			if method == "options" {
				t.Errorf("%s describes OPTIONS %s", file, path)
			}
			for status := range operation["responses"].(map[string]any) {
				if status[0] == '4' {
					return
				}
			}
			t.Errorf("%s: %s %s cannot be refused", file, method, path)
		})
	}
}
