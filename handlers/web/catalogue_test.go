package web

import (
	"fmt"
	"reflect"
	"testing"

	"integrityledger/domain/evidence"
	"integrityledger/handlers/web/reference"
	"integrityledger/schemas"
)

// Both languages have every text, and none is the other's.
func TestCatalogueIsWhole(t *testing.T) {
	same := map[string]bool{"Brand": true, "Plan": true, "Bytes": true, "CodeNoRetry": true} // a name, and words of both languages
	var compare func(path string, es, en reflect.Value)
	compare = func(path string, es, en reflect.Value) {
		switch es.Kind() {
		case reflect.String:
			if es.String() == "" || en.String() == "" || es.String() == en.String() && !same[path] {
				t.Errorf("%s: %q and %q", path, es, en)
			}
		case reflect.Slice:
			if es.Len() == 0 || es.Len() != en.Len() {
				t.Errorf("%s: %d and %d texts", path, es.Len(), en.Len())
				return
			}
			for i := range es.Len() {
				compare(fmt.Sprintf("%s[%d]", path, i), es.Index(i), en.Index(i))
			}
		case reflect.Map:
			if es.Len() == 0 || es.Len() != en.Len() {
				t.Errorf("%s: %d and %d texts", path, es.Len(), en.Len())
			}
			for _, key := range es.MapKeys() {
				other := en.MapIndex(key)
				if !other.IsValid() {
					t.Errorf("%s: no English %s", path, key)
					continue
				}
				compare(path+"."+key.String(), es.MapIndex(key), other)
			}
		case reflect.Struct:
			for i := range es.NumField() {
				if es.Type().Field(i).Name == "Summaries" {
					continue // the English ones are those of the OpenAPI documents
				}
				compare(es.Type().Field(i).Name, es.Field(i), en.Field(i))
			}
		default:
			t.Errorf("%s is a %s", path, es.Kind())
		}
	}
	site, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{Record, Certificate} {
		es, en := site.catalogue(evidence.Spanish, kind), site.catalogue(evidence.English, kind)
		compare("", reflect.ValueOf(*es), reflect.ValueOf(*en))
		results := append(kind.fileResults(), HashMatch, HashDiffers)
		for _, result := range results {
			if es.Outcomes[result].Title == "" {
				t.Errorf("%s of a %s is not explained", result, kind)
			}
		}
		if len(es.Outcomes) != len(results) {
			t.Errorf("%d results of a %s are explained", len(es.Outcomes), kind)
		}
	}
}

// Every operation of the contracts has a Spanish summary, and no summary is of an operation that is gone.
func TestSpanishSummariesAreWhole(t *testing.T) {
	loaded, err := loadTexts()
	if err != nil {
		t.Fatal(err)
	}
	summaries := loaded[evidence.Spanish].Summaries
	known := map[string]bool{}
	for _, file := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		text, err := schemas.OpenAPI(file, "https://integrity.example")
		if err != nil {
			t.Fatal(err)
		}
		document, err := reference.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range document.Groups {
			for _, o := range group.Operations {
				known[o.ID] = true
				if summaries[o.ID] == "" {
					t.Errorf("%s has no Spanish summary", o.ID)
				}
			}
		}
	}
	for id := range summaries {
		if !known[id] {
			t.Errorf("the Spanish summary of %s is of no operation", id)
		}
	}
}
