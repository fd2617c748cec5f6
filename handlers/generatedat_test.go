package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
	"integrityledger/schemas"
)

func meter() *strictjson.Meter { return new(strictjson.Meter) }

// manyNames are n unknown members.
func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"n%d":0`, i)
	}
	return b.String()
}

// Every published form of generatedAt is stored as the vectors say, the same instant in another spelling is a replay,
// and any other form is refused by name.
func TestGeneratedAtForms(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	text, err := schemas.File(schemas.GeneratedAtFile)
	check(t, err)
	var file struct {
		Vectors []struct {
			Name, Text string
			Normalized *string
		}
	}
	check(t, json.Unmarshal(text, &file))
	if a := s.public("/schemas/" + schemas.GeneratedAtFile); string(a.body) != string(text) ||
		a.header.Get("Content-Type") != "application/json" {
		t.Errorf("published: %v", a.header)
	}
	var refused []body
	for i, v := range file.Vectors {
		declared := declaration(fmt.Sprint("d-", i), 1, "one").with(body{"generatedAt": v.Text})
		if v.Normalized == nil {
			refused = append(refused, declared)
			continue
		}
		if got := s.post(integrity+"/records", declared).is(http.StatusCreated)["generatedAt"]; got != *v.Normalized {
			t.Errorf("%s: %s became %v", v.Name, v.Text, got)
		}
		again := s.post(
			integrity+"/records", declared.with(body{"generatedAt": *v.Normalized, "reservationId": json.RawMessage("null")}),
		).is(http.StatusOK)
		equal(t, v.Name, []any{again["replayed"], again["generatedAt"]}, []any{true, *v.Normalized})
		s.post(integrity+"/records", declared).is(http.StatusOK)
	}
	differs := declaration("d-0", 1, "one").with(body{"generatedAt": "2026-11-20T10:00:01Z"})
	if got := pointers(s.post(integrity+"/records", differs).refuses(
		http.StatusConflict, domain.VersionConflict,
	)); got != "/generatedAt DIFFERS" {
		t.Errorf("another instant: %s", got)
	}
	if len(refused) < 50 {
		t.Fatalf("only %d forms to refuse", len(refused))
	}
	answer := s.post(integrity+"/records/batch", body{"declarations": refused})
	for i, item := range read[wire.Results[wire.Registration]](answer, http.StatusOK).Results {
		if item.Error == nil || pointers(*item.Error) != "/generatedAt FORMAT" {
			t.Errorf("%v: %v", refused[i]["generatedAt"], item)
		}
	}
}

// A null reservationId means no reservation, in a request, in a batch and for a model.
func TestNullReservation(t *testing.T) {
	s := open(t, options{})
	id := s.post(integrity+"/reservations", version("d", 1)).is(http.StatusCreated)["publicId"]
	none := declaration("d", 1, "one").with(body{"reservationId": json.RawMessage("null")})
	registered := s.post(integrity+"/records", none).is(http.StatusCreated)
	if registered["publicId"] != id {
		t.Errorf("%v in the place of the reserved %v", registered["publicId"], id)
	}
	results := s.sendBatch(none, none.with(body{"version": 2}))
	equal(t, "batch", []any{results[0].Status, results[1].Status}, []any{200, 201})
	object, isError := s.tool(integrityMCP, s.org.Secret, "integrity_register", none)
	equal(t, "tool", []any{isError, object["replayed"]}, []any{false, true})
	for _, wrong := range []string{`""`, `"null"`, `0`, `false`, `[]`} {
		s.post(
			integrity+"/records", none.with(body{"reservationId": json.RawMessage(wrong)}),
		).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	}
}
