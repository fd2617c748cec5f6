package handlers_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/action"
)

// TestBatch: each item is answered as if it had been sent alone.
func TestBatch(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	s.hold()
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
		if result["status"] != float64(201) ||
			result["data"].(map[string]any)["documentReference"] != fmt.Sprintf("many-%d", i) {
			t.Fatalf("item %d: %v", i, result)
		}
	}
	for _, wrong := range []any{
		body{}, body{"declarations": []any{}}, body{"declarations": append(many, many[0])},
		body{"declarations": many, "x": 1}, body{"declarations": body{}},
	} {
		s.post(integrity+"/records/batch", wrong).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	}
	s.post(integrity+"/records/batch", strings.Repeat(" ", 4<<20)+"{}").refuses(
		http.StatusRequestEntityTooLarge, domain.PayloadTooLarge,
	)
	s.keys.Store(&action.Keys{Trusted: s.Trusted})
	s.post(integrity+"/records/batch", body{"declarations": many[:1]}).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	s.Audit(t)
}

// TestBatchListsFewProblems: whatever the items hold, the answer stays about as large as the body may be.
func TestBatchListsFewProblems(t *testing.T) {
	s := open(t, options{})
	item := "{" + manyNames(100)[1:] + "}"
	a := s.post(integrity+"/records/batch", `{"declarations":[`+strings.Repeat(item+",", 499)+item+`]}`)
	for i, r := range a.is(http.StatusOK)["results"].([]any) {
		list := strings.Split(pointers(r.(map[string]any)["error"].(map[string]any)), ", ")
		if len(list) != 20 || list[19] != " MORE" {
			t.Fatalf("item %d: %d problems, the last %s", i, len(list), list[len(list)-1])
		}
	}
	if len(a.body) > 2<<20 {
		t.Errorf("%d bytes of answer", len(a.body))
	}
}

// TestBatchSaysWhenToRetry: an item has no header, so its error says what Retry-After would.
func TestBatchSaysWhenToRetry(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 1000, "versionsPerMonth": 1}}`)})
	s.hold()
	items := body{"declarations": []any{declaration("d", 1, "one"), declaration("d", 2, "two"), 7}}
	alone := func() float64 {
		a := s.post(integrity+"/records", declaration("d", 2, "two"))
		if e := a.refuses(http.StatusTooManyRequests, domain.RegistrationQuotaExhausted); e["retryAfter"] != nil {
			t.Errorf("an answer with a header has the member too: %v", e)
		}
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		check(t, err)
		return float64(seconds)
	}
	s.post(integrity+"/records/batch", items).is(http.StatusOK)
	before := alone()
	results := s.post(integrity+"/records/batch", items).is(http.StatusOK)["results"].([]any)
	after := alone()
	var waits []any
	for _, r := range results {
		e, _ := r.(map[string]any)["error"].(map[string]any)
		waits = append(waits, e["retryAfter"])
	}
	wait, _ := waits[1].(float64)
	if waits[0] != nil || waits[2] != nil || wait > before || wait < after {
		t.Errorf("retryAfter %v, alone %v and then %v", waits, before, after)
	}
}
