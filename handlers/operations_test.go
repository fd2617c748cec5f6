package handlers_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"integrityledger/handlers/client"
	"integrityledger/handlers/web"
	"integrityledger/schemas"
)

// noClient are operations that the clients do not have: they are not needed for emission or verification, or other
// programs do them, such as reading evidence, documents and pages, pinned keys, and requests of operators and agents.
var noClient = []string{
	"getInclusion", "getContract", "getSchema", "getDownload", "getTrustedKeys", "getLimits", "getErrorPage",
	"getHealth", "getReadiness", "callIntegrityMcp", "getIndependence", "getPublisherStatement", "getLogKeys",
}

// The Go, JavaScript and Python clients have every operation of the integrity contract, and share some of the
// certification API, under one name in the spelling of each language. Pages have a method that walks them.
func TestClientOperations(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		check(t, err)
		return string(text)
	}
	python, javaScript, types := read("developers/python/integrity_client.py"), read(
		"developers/javascript/client.js",
	), read("developers/javascript/client.d.ts")
	inGo := reflect.TypeFor[*client.Client]()
	defined := func(language, source, pattern, name string) {
		if !regexp.MustCompile("(?m)" + strings.ReplaceAll(pattern, "NAME", name)).MatchString(source) {
			t.Errorf("the %s client has no %s", language, name)
		}
	}
	documented := map[string]bool{}
	for _, file := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		text, err := schemas.File(file)
		check(t, err)
		var contract struct {
			Paths map[string]map[string]json.RawMessage
		}
		check(t, json.Unmarshal(text, &contract))
		for path, methods := range contract.Paths {
			for method, operation := range methods {
				var o struct{ OperationID string }
				if method == "parameters" || json.Unmarshal(operation, &o) != nil || o.OperationID == "" {
					continue
				}
				documented[o.OperationID] = true
				made, known := web.ClientOperations()[o.OperationID]
				name := made.JavaScript
				if !known && !slices.Contains(noClient, o.OperationID) && (file == schemas.OpenAPIFile ||
					strings.HasPrefix(path, "/api/v1/organization")) {
					t.Errorf("%s is an operation of the contract: say which method of the clients it is", o.OperationID)
				}
				if name == "" {
					continue
				}
				walked := []string{name}
				if page, ok := strings.CutSuffix(name, "Page"); ok {
					walked = append(walked, page)
				}
				for _, name := range walked {
					defined("JavaScript", javaScript, `^  (async )?\*?NAME\(`, name)
					defined("TypeScript", types, `^  NAME\(`, name)
					defined(
						"Python", python, `^    async def NAME\($|^    async def NAME\(self`,
						web.ClientOperation{JavaScript: name}.Python(),
					)
				}
				if _, ok := inGo.MethodByName(made.Go()); !ok {
					t.Errorf("the Go client has no %s", made.Go())
				}
			}
		}
	}
	for operation := range web.ClientOperations() {
		if !documented[operation] {
			t.Errorf("%s is no operation of the contract", operation)
		}
	}
}

// The page of downloads shows every operation of the clients in both languages, and the page of errors shows every
// member of an error.
func TestPagesListOperationsAndMembersOfErrors(t *testing.T) {
	s := open(t, options{})
	document, err := published()
	check(t, err)
	for _, prefix := range []string{"", "/en"} {
		text := string(s.page(prefix + "/developers/downloads").body)
		rows := regexp.MustCompile(`<tr><th scope="row"><a href="[^"]*#(\w+)">.*</tr>`).FindAllStringSubmatch(text, -1)
		shown := map[string]string{}
		for _, row := range rows {
			shown[row[1]] = row[0]
		}
		for id, o := range web.ClientOperations() {
			want := []string{o.Python(), o.JavaScript, o.Go()}
			for _, name := range append(want, o.Commands...) {
				if !strings.Contains(shown[id], "<code>"+name+"</code>") {
					t.Errorf("%s/developers/downloads does not show %s of %s: %s", prefix, name, id, shown[id])
				}
			}
			delete(shown, id)
		}
		if len(shown) != 0 {
			t.Errorf("%s/developers/downloads shows %v, which no client has", prefix, shown)
		}
		text = string(s.page(prefix + "/developers/errors").body)
		members := document.document.Components.Schemas["ApiError"].Value.Properties
		for name := range members {
			if strings.Count(text, "<dt><code>"+name+"</code></dt>") != 1 {
				t.Errorf("%s/developers/errors does not explain the member %s once", prefix, name)
			}
		}
	}
}
