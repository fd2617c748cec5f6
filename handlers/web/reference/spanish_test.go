package reference

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"integrityledger/schemas"
)

// shown returns the texts of a document that its pages show.
func shown(document any) []string {
	var texts []string
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			walk(v.Elem())
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			refusal, ok := v.Interface().(Refusal)
			if ok && len(refusal.Codes) > 0 { // a page shows the codes instead of the description
				return
			}
			for field, value := range v.Fields() {
				switch text, isText := value.Interface().(string); {
				case !isText:
					walk(value)
				case text != "" && slices.Contains([]string{"Summary", "Description"}, field.Name):
					texts = append(texts, text)
				}
			}
		}
	}
	walk(reflect.ValueOf(document))
	return texts
}

// fact is a part of a text that is the same in every language: code, a number, or a name.
var fact = regexp.MustCompile("`[^`]+`|" + // code
	`[A-Za-z0-9_]+(?:[._:/-][A-Za-z0-9_]+)*`)

// name is a fact outside code. A hyphenated word is a name if both parts begin with a capital, as in a header.
var name = regexp.MustCompile(`[0-9_:/]|[a-z][A-Z]|[a-z]\.[a-z]|^[A-Z]{2,}$|^[A-Z][a-z]+-[A-Z]`)

// thousands is the separator in a number: a comma in English and a hard space in Spanish.
var thousands = regexp.MustCompile(`(\d)[,\x{a0}](\d{3})\b`)

// facts returns the code, the numbers and the names in a text, sorted.
func facts(text string) (list []string) {
	for again := ""; again != text; {
		again, text = text, thousands.ReplaceAllString(text, "$1$2")
	}
	for _, found := range fact.FindAllString(text, -1) {
		if found[0] == '`' || name.MatchString(found) {
			list = append(list, found)
		}
	}
	slices.Sort(list)
	return list
}

// Each text of the published documents that a page shows has a Spanish text with the same code, numbers and names, and
// there is no other Spanish text.
func TestDescriptionsAreTranslated(t *testing.T) {
	translated, err := Spanish()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, file := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		text, err := schemas.File(file)
		if err != nil {
			t.Fatal(err)
		}
		document, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, english := range slices.Concat(document.Conventions, shown(document)) {
			used[english] = true
		}
	}
	for _, english := range slices.Sorted(maps.Keys(used)) {
		spanish := translated[english]
		if spanish == "" {
			t.Errorf("reference.es.json lacks %q", english)
			continue
		}
		if got, want := facts(spanish), facts(english); !slices.Equal(got, want) {
			t.Errorf("%q has %q\nand %q has %q", spanish, got, english, want)
		}
		if strings.TrimSuffix(spanish, ".") == strings.TrimSuffix(english, ".") {
			t.Errorf("%q is the same in both languages", english)
		}
	}
	for english := range translated {
		if !used[english] {
			t.Errorf("reference.es.json has %q, which no page shows", english)
		}
	}
	if len(used) < 500 {
		t.Errorf("only %d texts were found in the documents", len(used))
	}
}
