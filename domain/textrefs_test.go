package domain

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
)

// TestTextRefsAreAll holds TextRefs and NamesTexts against the fields of every body: a
// text that they missed would never be audited.
func TestTextRefsAreAll(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^\s*\w+\s+EventType\s*= "([a-z_.]+)"$`)
	var types []EventType
	for _, name := range []string{"event.go", "artifactevent.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range constant.FindAllSubmatch(source, -1) {
			types = append(types, EventType(match[1]))
		}
	}
	with := 0
	for _, eventType := range types {
		var body Body = new(RecordRegisteredBody)
		if eventType != RecordRegistered {
			var err error
			if body, err = DecodeBody(eventType, eventVersion, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		var want []TextRef
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
			want = append(want, ref)
		}
		if certificate, ok := body.(*CertificateIssuedBody); ok {
			certificate.PublicFields = []string{PublicTitle}
		}
		if got := TextRefs(body); !slices.Equal(got, want) || NamesTexts(eventType) != (len(want) > 0) {
			t.Errorf("%s: texts %v, want %v", eventType, got, want)
		}
		if len(want) > 0 {
			with++
		}
	}
	if len(types) < 30 || with < 10 {
		t.Errorf("%d types, %d with texts", len(types), with)
	}
}
