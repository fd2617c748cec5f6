package reference

import (
	"reflect"
	"strings"
	"testing"

	"integrityledger/schemas"
)

const document = `{
	"info": {"title": "T", "version": "1.0.0", "description": "Text.\n\n## Conventions\n\n- One.\n- Two of ` + "`x`" +
	`.\n\n## Other\n\n- Three."},
	"security": [{"apiKey": []}],
	"tags": [{"name": "things of all", "description": "D."}],
	"paths": {"/z/{id}": {"post": {
		"operationId": "make", "tags": ["things of all"], "summary": "Make", "description": "Makes.",
		"parameters": [{"$ref": "#/components/parameters/id"}, {"name": "q", "in": "query", "required": true, "schema": {"type": "integer", "minimum": 1, "default": 5}, "example": 7}],
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}, "example": {"z": "it's", "a": null}}}},
		"responses": {
			"201": {"description": "New.", "headers": {"Etag": {"$ref": "#/components/headers/Etag"}}, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}, "example": {}}}},
			"200": {"description": "Again.", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
			"404": {"$ref": "#/components/responses/None"}
		}}}, "/a": {"get": {"operationId": "read", "tags": ["things of all"], "security": [], "parameters": [
			{"name": "left", "in": "query", "schema": {"type": "string"}, "example": "x"}, {"name": "shown", "in": "query", "x-shown": true, "schema": {"type": "string"}, "example": "y"}], "responses": {"204": {"description": "Nothing."}}}}},
	"webhooks": {"told": {"post": {"operationId": "told", "tags": ["things of all"], "security": [], "responses": {"200": {"description": "Taken."}}}}},
	"components": {
		"parameters": {"id": {"name": "id", "in": "path", "required": true, "description": "Of a thing.", "schema": {"type": "string"}, "example": "a/b"}},
		"headers": {"Etag": {"description": "A tag.", "required": true, "schema": {"type": "string"}}},
		"responses": {"None": {"description": "None.", "content": {"application/json": {"examples": {"NOT_FOUND": {"value": {"error": {"code": "NOT_FOUND", "detail": "No."}}}}}}}},
		"schemas": {
			"Thing": {"type": "object", "required": ["z"], "properties": {
				"z": {"type": "string", "maxLength": 9, "pattern": "^z"},
				"a": {"oneOf": [{"$ref": "#/components/schemas/Part"}, {"type": "null"}]},
				"m": {"type": "array", "maxItems": 3, "uniqueItems": true, "items": {"$ref": "#/components/schemas/Part"}}
			}},
			"Part": {"type": "object", "description": "A part.", "properties": {"k": {"const": "x"}, "at": {"type": ["string", "null"], "format": "date-time", "pattern": "^long$"}}}
		}
	}
}`

// What the document says is kept whole and in its order.
func TestParse(t *testing.T) {
	d, err := Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	part := func(parent string) []Member {
		return []Member{
			{Parent: parent, Name: "k", Type: "string", Rules: []Rule{{Values, []string{"x"}}}},
			{Parent: parent, Name: "at", Type: "string | null", Rules: []Rule{{Format, []string{"date-time"}}}},
		}
	}
	members := []Member{
		{Name: "z", Type: "string", Required: true, Rules: []Rule{{Length, []string{"≤ 9"}}, {Pattern, []string{"^z"}}}},
		{Name: "a", Type: "object | null"},
	}
	members = append(members, part("a.")...)
	members = append(members, Member{Name: "m", Type: "object[]", Rules: []Rule{{Items, []string{"≤ 3"}}, {Kind: Unique}}})
	members = append(members, part("m[].")...)
	thing := []Variant{{Type: "object", Members: members}}
	want := &Document{
		Version: "1.0.0", Conventions: []string{"One.", "Two of `x`."},
		Groups: []Group{{Name: "things of all", Slug: "things-of-all", Description: "D.", Operations: []Operation{
			{
				ID: "make", Method: "POST", Path: "/z/{id}", Summary: "Make", Description: "Makes.", Key: true,
				Parameters: []Member{
					{Name: "id", In: "path", Type: "string", Required: true, Description: "Of a thing.", Example: "a/b"},
					{
						Name: "q", In: "query", Type: "integer", Required: true,
						Rules: []Rule{{Range, []string{"≥ 1"}}, {Default, []string{"5"}}}, Example: "7",
					},
				},
				Bodies: []Body{
					{MediaType: "application/json", Variants: thing, Example: "{\n  \"z\": \"it's\",\n  \"a\": null\n}"},
				},
				Answers: []Answer{
					{
						Status: "201", Description: "New.",
						Headers: []Member{{Name: "Etag", Type: "string", Required: true, Description: "A tag."}},
						Bodies:  []Body{{"application/json", thing, "{}"}},
					},
					{Status: "200", Description: "Again.", SameAs: "201", Bodies: []Body{{"application/json", thing, ""}}},
				},
				Refusals: []Refusal{{Status: "404", Description: "None.", Codes: []string{"NOT_FOUND"}}},
			},
			{
				ID: "read", Method: "GET", Path: "/a",
				Parameters: []Member{
					{Name: "left", In: "query", Type: "string", Example: "x"},
					{Name: "shown", In: "query", Type: "string", Shown: true, Example: "y"},
				},
				Answers: []Answer{{Status: "204", Description: "Nothing."}},
			},
			{ID: "told", Method: "POST", Delivery: true, Answers: []Answer{{Status: "200", Description: "Taken."}}},
		}}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v\nwant\n%+v", d, want)
	}
	curl := d.Groups[0].Operations[0].Curl()
	if want := "curl -sS -X POST \"$INTEGRITY_BASE_URL/z/a%2Fb?q=7\" \\\n  -H \"Authorization: Bearer " +
		"$INTEGRITY_API_KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{\n  \"z\": \"it'\\''s\",\n  \"a\": " +
		"null\n}'"; curl != want {
		t.Errorf("%s\nwant\n%s", curl, want)
	}
	for scope, key := range map[string]string{
		"integrity:read": "INTEGRITY_API_KEY", "integrity:write": "INTEGRITY_API_KEY", "integrity:revoke": "ADMIN_KEY",
	} {
		o := Operation{Method: "GET", Path: "/a", Key: true, Description: "Does it. Scope " + scope + "; roles owner, admin."}
		if got := o.Curl(); !strings.HasSuffix(got, "Bearer $"+key+`"`) {
			t.Errorf("%s: %s", scope, got)
		}
	}
	if got := d.Groups[0].Operations[1].Curl(); got != `curl -sS "$INTEGRITY_BASE_URL/a?shown=y"` {
		t.Error(got)
	}
	if got := d.Groups[0].Operations[2].Curl(); got != "" {
		t.Errorf("a request that the reader does not make: %s", got)
	}
}

// Nothing that the document says is lost in silence.
func TestParseRefuses(t *testing.T) {
	for what, change := range map[string][2]string{
		"an unknown keyword": {`"maxLength": 9`, `"multipleOf": 9`},
		"a reference to nothing": {
			`"oneOf": [{"$ref": "#/components/schemas/Part"}`, `"oneOf": [{"$ref": "#/components/schemas/Party"}`,
		},
		"a parameter that is not there":  {`parameters/id"`, `parameters/di"`},
		"a response that is not there":   {`responses/None"`, `responses/Nil"`},
		"a schema that holds itself":     {`"k": {"const": "x"}`, `"k": {"$ref": "#/components/schemas/Part"}`},
		"a tag that nothing explains":    {`"tags": ["things of all"], "security"`, `"tags": ["others"], "security"`},
		"an operation without a tag":     {`"tags": ["things of all"], "security"`, `"tags": [], "security"`},
		"an object where members belong": {`"paths": {`, `"paths": [], "x": {`},
		"no JSON":                        {`"info"`, `info`},
	} {
		if _, err := Parse([]byte(strings.Replace(document, change[0], change[1], 1))); err == nil ||
			!strings.Contains(document, change[0]) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPublishedDocuments(t *testing.T) {
	for _, name := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		text, err := schemas.File(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Conventions) < 4 {
			t.Errorf("%s: conventions %q", name, d.Conventions)
		}
		for _, g := range d.Groups {
			if len(g.Operations) == 0 {
				t.Errorf("%s: the tag %s has no operation", name, g.Name)
			}
		}
	}
}
