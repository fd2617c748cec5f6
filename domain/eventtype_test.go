package domain

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
)

// TestEventTableIsComplete fails when a declared type has no row in the table, when two rows share a type or a body, or
// when a row lacks its version, its body or one of the texts that the body names: a text that is missing there would
// never be audited, and never erased.
func TestEventTableIsComplete(t *testing.T) {
	source, err := os.ReadFile("eventtype.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []EventType
	for _, match := range regexp.MustCompile(`(?m)^\s*\w+\s+EventType\s*= "([a-z_.]+)"$`).FindAllSubmatch(source, -1) {
		declared = append(declared, EventType(match[1]))
	}
	if !slices.Equal(declared, EventTypes()) || len(declared) < 36 {
		t.Errorf("declared are %v, the table has %v", declared, EventTypes())
	}
	if len(rowByType) != len(declared) || len(rowByBody) != len(declared) {
		t.Errorf("%d types have %d rows and %d bodies", len(declared), len(rowByType), len(rowByBody))
	}
	with := 0
	for _, row := range eventTable {
		if row.version < 1 || reflect.TypeOf(row.empty()) != row.body {
			t.Errorf("%s: version %d, body %T", row.eventType, row.version, row.empty())
		}
		body := row.empty()
		want := fillTexts(body)
		if got := TextRefs(body); !slices.Equal(got, want) || row.eventType.NamesTexts() != (len(want) > 0) {
			t.Errorf("%s: texts %v, want %v", row.eventType, got, want)
		}
		_, publishes := body.(*CertificateIssuedBody)
		if erasable := ErasableTexts(body); !publishes && !slices.Equal(erasable, want) || publishes && erasable != nil {
			t.Errorf("%s: erasable texts %v, want %v", row.eventType, erasable, want)
		}
		if len(want) > 0 {
			with++
		}
	}
	if with != len(TypesWithTexts()) || with < 10 {
		t.Errorf("%d types name texts, listed are %v", with, TypesWithTexts())
	}
	certificate := &CertificateIssuedBody{Payload: TextRef{ID: TextID{1}}, PublicFields: []string{PublicTitle}}
	if !slices.Equal(ErasableTexts(certificate), []TextRef{certificate.Payload}) {
		t.Error("a published title cannot be erased")
	}
}

// fillTexts sets every reference of a body to a text and returns them in order.
func fillTexts(body Body) (refs []TextRef) {
	value := reflect.ValueOf(body).Elem()
	for i := range value.NumField() {
		ref := TextRef{ID: TextID{byte(i + 1)}}
		switch value.Field(i).Interface().(type) {
		case TextRef:
			value.Field(i).Set(reflect.ValueOf(ref))
		case *TextRef:
			value.Field(i).Set(reflect.ValueOf(&ref))
		default:
			continue
		}
		refs = append(refs, ref)
	}
	return refs
}
