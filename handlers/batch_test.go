package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers"
)

// TestBatch: each item is answered as if it had been sent alone.
func TestBatch(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	id := s.reserved("d", 3)
	items := []any{
		declaration("d", 1, "one"),
		declaration("d", 1, "one"),
		declaration("d", 1, "other"),
		declaration("d", 2, "two").with(body{"sha256": "x", "unknown": true}),
		7,
		declaration("d", 3, "three"),
		declaration("d", 2, "two").with(body{"companyReference": "absent"}),
		declaration("d", 4, "four").with(body{"reservationId": id}),
	}
	send := func(items []any) []any {
		t.Helper()
		return s.post(integrity+"/records/batch", body{"declarations": items}).is(http.StatusOK)["results"].([]any)
	}
	var got []any
	results := send(items)
	for _, r := range results {
		result := r.(map[string]any)
		code, detail := any(nil), any(nil)
		if e, ok := result["error"].(map[string]any); ok {
			code, detail = e["code"], pointers(e)
			if result["data"] != nil || e["status"] != result["status"] {
				t.Errorf("result %v", result)
			}
		}
		got = append(got, []any{result["status"], code, detail})
	}
	equal(t, "results", got, []any{
		[]any{201, nil, nil},
		[]any{200, nil, nil},
		[]any{409, "VERSION_CONFLICT", "/sha256 DIFFERS, /sizeBytes DIFFERS"},
		[]any{422, "INVALID_DATA", "/sha256 FORMAT, /unknown UNKNOWN_MEMBER"},
		[]any{422, "INVALID_DATA", " TYPE"},
		[]any{201, nil, nil},
		[]any{403, "COMPANY_NOT_AUTHORIZED", ""},
		[]any{409, "RESERVATION_MISMATCH", ""},
	})
	equal(t, "adopted", results[5].(map[string]any)["data"].(map[string]any)["publicId"], id)
	if used := s.get(integrity + "/usage").is(http.StatusOK)["organization"].(map[string]any)["used"]; used != float64(2) {
		t.Errorf("the batch consumed %v", used)
	}
	// Nothing of it can be sent.
	equal(t, "statuses", send([]any{nil})[0].(map[string]any)["status"], 422)

	var many []any
	for i := range 500 {
		many = append(many, declaration(fmt.Sprintf("many-%d", i), 1, "x"))
	}
	for i, r := range send(many) {
		result := r.(map[string]any)
		if result["status"] != float64(201) || result["data"].(map[string]any)["documentReference"] != fmt.Sprintf("many-%d", i) {
			t.Fatalf("item %d: %v", i, result)
		}
	}
	for _, wrong := range []any{body{}, body{"declarations": []any{}}, body{"declarations": append(many, many[0])}, body{"declarations": many, "x": 1}, body{"declarations": body{}}} {
		s.post(integrity+"/records/batch", wrong).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	}
	s.post(integrity+"/records/batch", strings.Repeat(" ", 4<<20)+"{}").refuses(http.StatusRequestEntityTooLarge, domain.PayloadTooLarge)
	s.keys.Store(&handlers.Keys{Trusted: s.Trusted})
	s.post(integrity+"/records/batch", body{"declarations": many[:1]}).refuses(http.StatusServiceUnavailable, domain.TemporarilyUnavailable)
	s.Audit(t)
}
