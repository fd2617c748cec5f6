package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEventTableIsComplete fails if two rows share a type or a body, or if a row lacks its version or one of the texts
// that its body names. A missing text would never be audited or erased.
func TestEventTableIsComplete(t *testing.T) {
	if len(eventTable) < 36 || len(rowByType) != len(eventTable) || len(rowByBody) != len(eventTable) {
		t.Errorf("%d rows have %d types and %d bodies", len(eventTable), len(rowByType), len(rowByBody))
	}
	with := 0
	for _, row := range eventTable {
		if row.version < 1 || rowByBody[reflect.TypeOf(row.empty())] != row {
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

// TestEventsKeepTheirBytes compares the data of every event type, empty and filled, with bytes written earlier: a
// stored event must be written again unchanged, or its hash would no longer match.
func TestEventsKeepTheirBytes(t *testing.T) {
	golden, err := os.ReadFile("testdata/events.golden")
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	for _, row := range eventTable {
		empty, filled := row.empty(), row.empty()
		fill(reflect.ValueOf(filled).Elem(), new(byte))
		for _, body := range []Body{empty, filled} {
			data, err := appendCanonical(nil, body)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&written, "%s %s\n", row.eventType, data)
		}
	}
	if !bytes.Equal(written.Bytes(), golden) {
		t.Errorf("the data of events is\n%s, want\n%s", written.Bytes(), golden)
	}
}

// TestEarlierVersionsKeepTheirBytes parses the event data of earlier versions, which must be written again byte for
// byte. Future versions are refused.
func TestEarlierVersionsKeepTheirBytes(t *testing.T) {
	golden, err := os.ReadFile("testdata/events-earlier.golden")
	if err != nil {
		t.Fatal(err)
	}
	earlier := map[EventType]int16{}
	for line := range strings.Lines(string(golden)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		v, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		e := Event{Type: EventType(fields[0]), V: int16(v)}
		if e.Body, err = DecodeBody(e.Type, e.V, []byte(fields[2])); err != nil {
			t.Fatal(err)
		}
		if data, err := e.Canonical(); err != nil || string(data) != fields[2] {
			t.Errorf("%s of version %d is written as\n%s, want\n%s", e.Type, e.V, data, fields[2])
		}
		earlier[e.Type] = max(earlier[e.Type], e.V)
	}
	for _, row := range eventTable {
		if earlier[row.eventType] != row.version-1 {
			t.Errorf("%s has version %d, and the file its versions up to %d", row.eventType, row.version, earlier[row.eventType])
		}
		for _, v := range []int16{-1, 0, row.version + 1} {
			if _, err := DecodeBody(row.eventType, v, []byte("{}")); err == nil {
				t.Errorf("%s was read with version %d", row.eventType, v)
			}
		}
	}
}

// fill gives every member of a value a different content.
func fill(v reflect.Value, n *byte) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, int(*n)%60, 5000, time.UTC)))
		return
	case Period:
		v.SetInt(202611)
		return
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"b":"<%d>\u2028","a":[1,null]}`, *n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d<&>\u2028é\"", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n) % 3)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(*n) + uint64(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Tag.Get("json") == "-": // not part of the data
			case f.Anonymous: // its members belong to the body
				*n--
				fill(v.Field(i), n)
			case f.Name == "Payload" && f.Type.Kind() == reflect.Slice:
				v.Field(i).SetBytes([]byte(`{"a":1}`))
			default:
				fill(v.Field(i), n)
			}
		}
	}
}

// TestAuditDetailsOfEveryType: the history shows every member that the table lists for a type, and nothing that is
// secret or erasable.
func TestAuditDetailsOfEveryType(t *testing.T) {
	if len(auditDetails) != len(eventTable) {
		t.Errorf("%d rows for %d types", len(auditDetails), len(eventTable))
	}
	for _, row := range eventTable {
		names := AuditDetailNames(row.eventType)
		if len(names) == 0 && row.eventType != KeysPublished { // no tenant's history has it
			t.Errorf("%s has no row in auditDetails", row.eventType)
			continue
		}
		empty, filled := row.empty(), row.empty()
		fill(reflect.ValueOf(filled).Elem(), new(byte))
		if r := Registration(filled); r != nil {
			r.Payload = []byte(`{"sha256":"h","sizeBytes":1,"mimeType":"a/b","generatedAt":"g","receivedAt":"r"}`)
			Registration(empty).Payload = []byte("{}")
		}
		if r, ok := empty.(*RecordAliasedBody); ok {
			r.Statement.Payload = []byte("{}")
		}
		for _, references := range []bool{false, true} {
			members := detailsOf(t, row.eventType, filled, references)
			shown := slices.Sorted(maps.Keys(members))
			if want := slices.Sorted(slices.Values(names)); !slices.Equal(shown, want) {
				t.Errorf("%s shows %v, want %v", row.eventType, shown, want)
			}
			for _, d := range auditRows[row.eventType] {
				if hidden := string(members[d.name]) == "null"; hidden != (d.reference && !references) {
					t.Errorf("%s, references %t: %s is %s", row.eventType, references, d.name, members[d.name])
				}
				if slices.Contains([]string{"secret", "secretSha256", "salt", "identity", "signature"}, d.member) {
					t.Errorf("%s shows %s", row.eventType, d.member)
				}
				if bytes.HasPrefix(members[d.name], []byte("{")) {
					t.Errorf("%s shows %s as it is stored: %s", row.eventType, d.name, members[d.name])
				}
			}
		}
		detailsOf(t, row.eventType, empty, true)
	}
	if _, err := AuditDetails(KeyRevoked, CompanyID{}, []byte("["), true); err == nil {
		t.Error("data that cannot be read has details")
	}
}

func detailsOf(t *testing.T, kind EventType, body Body, references bool) (members map[string]json.RawMessage) {
	t.Helper()
	data, err := appendCanonical(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	details, err := AuditDetails(kind, CompanyID{1}, data, references)
	if err == nil {
		members, err = jsonMembers(details)
	}
	if err != nil {
		t.Fatal(err)
	}
	return members
}
