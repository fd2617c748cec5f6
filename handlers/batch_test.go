package handlers_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/action"
	"integrityledger/handlers/wire"
)

// sendBatch sends declarations in a batch.
func (s *service) sendBatch(items ...any) []wire.Result[wire.Registration] {
	s.t.Helper()
	a := s.post(integrity+"/records/batch", body{"declarations": items})
	return read[wire.Results[wire.Registration]](a, http.StatusOK).Results
}

// Each item is answered as if it had been sent alone.
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
	var got []any
	results := s.sendBatch(items...)
	for _, result := range results {
		code, detail := any(nil), any(nil)
		if e := result.Error; e != nil {
			code, detail = e.Code, pointers(*e)
			if result.Data != nil || e.Status != result.Status {
				t.Errorf("result %v", result)
			}
		}
		got = append(got, []any{result.Status, code, detail})
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
	equal(t, "adopted", results[5].Data.PublicID, id)
	if used := s.usage().Organization.Used; used != 2 {
		t.Errorf("the batch consumed %d", used)
	}
	// A null item is refused.
	equal(t, "statuses", s.sendBatch([]any{nil}...)[0].Status, 422)

	var many []any
	for i := range 500 {
		many = append(many, declaration(fmt.Sprintf("many-%d", i), 1, "x"))
	}
	for i, result := range s.sendBatch(many...) {
		if result.Status != http.StatusCreated || result.Data.DocumentReference != fmt.Sprintf("many-%d", i) {
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

// Whatever the items contain, the answer is no larger than about the largest body.
func TestBatchListsFewProblems(t *testing.T) {
	s := open(t, options{})
	item := "{" + manyNames(100)[1:] + "}"
	a := s.post(integrity+"/records/batch", `{"declarations":[`+strings.Repeat(item+",", 499)+item+`]}`)
	for i, result := range read[wire.Results[wire.Registration]](a, http.StatusOK).Results {
		list := strings.Split(pointers(*result.Error), ", ")
		if len(list) != 20 || list[19] != " MORE" {
			t.Fatalf("item %d: %d problems, the last %s", i, len(list), list[len(list)-1])
		}
	}
	if len(a.body) > 2<<20 {
		t.Errorf("%d bytes of answer", len(a.body))
	}
}

// An item has no header, so its error contains the value of Retry-After.
func TestBatchSaysWhenToRetry(t *testing.T) {
	s := open(t, options{plan: "gratis", plans: parsePlans(t, `{"gratis": {"perMinute": 1000, "versionsPerMonth": 1}}`)})
	s.hold()
	items := []any{declaration("d", 1, "one"), declaration("d", 2, "two"), 7}
	alone := func() int64 {
		a := s.post(integrity+"/records", declaration("d", 2, "two"))
		if e := a.refuses(http.StatusTooManyRequests, domain.RegistrationQuotaExhausted); e.RetryAfter != 0 {
			t.Errorf("an answer with a header has the member too: %v", e)
		}
		seconds, err := strconv.ParseInt(a.header.Get("Retry-After"), 10, 64)
		check(t, err)
		return seconds
	}
	s.sendBatch(items...)
	before := alone()
	results := s.sendBatch(items...)
	after := alone()
	wait := results[1].Error.RetryAfter
	if results[0].Error != nil || results[2].Error.RetryAfter != 0 || wait > before || wait < after {
		t.Errorf("results %v, alone %d and then %d", results, before, after)
	}
}

// elsewhere is a key that another program keeps.
type elsewhere struct{ ed25519.PrivateKey }

func (k elsewhere) Sign(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	return k.PrivateKey.Sign(rand.Reader, message, opts)
}

// If another program keeps the signing key, a declaration that does not name its reservation is signed a second time,
// outside the group. The caller notices nothing: it gets the reserved public id, for one request.
func TestReservedVersionsSignedElsewhere(t *testing.T) {
	s := open(t, options{})
	ids := []string{s.reserved("a", 1), s.reserved("b", 1), s.reserved("c", 1)}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	signer, err := evidence.NewSigner(elsewhere{private})
	check(t, err)
	trusted, err := s.Trusted.Add(signer.Key(), "")
	check(t, err)
	s.Trusted = trusted
	s.keys.Store(&action.Keys{Signer: signer, Trusted: trusted})

	s.hold()
	left := func(a answer) (requests int) {
		_, err := fmt.Sscanf(a.header.Get("RateLimit"), `"minute";r=%d;`, &requests)
		check(t, err)
		return requests
	}
	before := left(s.post(integrity+"/records", declaration("d", 1, "four")))
	a := s.post(integrity+"/records", declaration("a", 1, "one"))
	equal(t, "the public id", a.is(http.StatusCreated)["publicId"], any(ids[0]))
	equal(t, "requests", before-left(a), 1)
	for i, result := range s.sendBatch(declaration("b", 1, "two"), declaration("e", 1, "five"), declaration("c", 1, "three")) {
		if want := []string{ids[1], "", ids[2]}[i]; result.Status != http.StatusCreated ||
			want != "" && result.Data.PublicID != want {
			t.Errorf("%d: %+v, want the public id %s", i, result, want)
		}
	}
	s.Audit(t)
}
