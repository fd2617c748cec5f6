package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

func version(document string, version int) body {
	return body{"companyReference": "company-1", "source": "billing", "documentReference": document, "version": version}
}

// reserved reserves a new version and returns its public id.
func (s *service) reserved(document string, number int) string {
	s.t.Helper()
	return s.post(integrity+"/reservations", version(document, number)).is(http.StatusCreated)["publicId"].(string)
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	check(t, err)
	return at
}

// The test follows contract section 3, Reservation, through time.
func TestReservationLife(t *testing.T) {
	s := open(t, options{plan: "gratis"})
	const week = 7 * 24 * time.Hour
	before := s.Now()
	first := read[wire.Reservation](s.post(integrity+"/reservations", version("d", 1)), http.StatusCreated)
	id := first.PublicID
	expires := instant(t, first.ExpiresAt)
	if expires.Before(before.Add(week).Truncate(time.Microsecond)) || expires.After(s.Now().Add(week)) {
		t.Errorf("expires at %s", expires)
	}
	equal(t, "reservation", first, wire.Reservation{
		PublicID: id, VerificationURL: baseURL + "/integrity/" + id, ExpiresAt: first.ExpiresAt,
		Status: domain.ReservationPending,
	})

	pending := func() {
		t.Helper()
		got := s.compared(id, "one")
		equal(t, "pending", got, wire.Comparison{
			PublicID: id, Result: wire.RegistrationPending, CheckedAt: got.CheckedAt, LimitsURL: baseURL + "/limits",
			Checks: wire.ComparisonChecks{VersionState: new(domain.Status("pending"))},
		})
	}
	pending()
	s.skew.Store(int64(6*24*time.Hour + 23*time.Hour + 59*time.Minute))
	again := read[wire.Reservation](s.post(integrity+"/reservations", version("d", 1)), http.StatusOK)
	equal(t, "renewed", []any{again.PublicID, again.Status, again.Replayed}, []any{id, "pending", true})
	if at := instant(t, again.ExpiresAt); at.Sub(expires) < 6*24*time.Hour+23*time.Hour {
		t.Errorf("renewed from %s to %s", expires, at)
	}
	s.skew.Add(int64(30 * 24 * time.Hour))
	pending()
	declared := declaration("d", 1, "one").with(body{"reservationId": id})
	registered := read[wire.Registration](s.post(integrity+"/records", declared), http.StatusCreated)
	equal(t, "registered with an expired reservation", []any{registered.PublicID, registered.Replayed}, []any{id, false})
	replay := read[wire.Registration](s.post(integrity+"/records", declared), http.StatusOK)
	equal(t, "replay", []any{replay.PublicID, replay.Replayed, replay.Consumption.Applied}, []any{id, true, 0})
	if got := s.compared(id, "one"); got.Result != "MATCH_CURRENT" {
		t.Errorf("comparison %v", got)
	}
	final := read[wire.Reservation](s.post(integrity+"/reservations", version("d", 1)), http.StatusOK)
	equal(t, "finalized", []any{final.PublicID, final.Status, final.Replayed}, []any{id, "finalized", true})
	if at := instant(t, final.ExpiresAt); !at.Equal(instant(t, registered.ReceivedAt).Add(week)) {
		t.Errorf("finalized reservation expires at %s", at)
	}
	equal(t, "finalized again", read[wire.Reservation](s.post(integrity+"/reservations", version("d", 1)),
		http.StatusOK), final)

	s.post(
		integrity+"/reservations", version("d", 0).with(body{"source": nil, "x": 1}),
	).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	s.post(
		integrity+"/reservations", version("d", 2).with(body{"companyReference": "other"}),
	).refuses(http.StatusForbidden, domain.CompanyNotAuthorized)
	s.Audit(t)
}

// Only the public comparison distinguishes a reserved public id from an unknown one.
func TestReservationIsNoRecord(t *testing.T) {
	s := open(t, options{})
	s.registered("d", 1, "one")
	unknown := strings.Repeat("a", 26)
	for _, id := range []string{s.reserved("d", 2), s.reserved("alone", 1)} {
		for _, path := range []string{"/records/%s", "/lookup?publicId=%s", "/records/%s/evidence", "/records/%s/revoke"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "revoke") {
				method = http.MethodPost
			}
			ask := func(id string) answer {
				return s.send(method, integrity+fmt.Sprintf(path, id), s.org.Secret, nil, "X-Request-Id", "same")
			}
			got, want := ask(id), ask(unknown)
			want.refuses(http.StatusNotFound, domain.RecordNotFound)
			if got.status != want.status || string(got.body) != string(want.body) {
				t.Errorf("%s: %d %s, an unknown one: %s", path, got.status, got.body, want.body)
			}
		}
		receipt := func(id string) answer {
			return s.send(http.MethodGet, "/api/public/integrity/"+id+"/receipt", "", nil, "X-Request-Id", "same")
		}
		if got, want := receipt(id), receipt(unknown); got.status != http.StatusNotFound ||
			string(got.body) != string(want.body) {
			t.Errorf("receipt: %s, an unknown one: %s", got.body, want.body)
		}
	}
	lookup := integrity + "/lookup?companyReference=company-1&source=billing&documentReference=%s&version=%d"
	for _, q := range []string{fmt.Sprintf(lookup, "d", 2), fmt.Sprintf(lookup, "alone", 1), fmt.Sprintf(lookup, "d", 3)} {
		s.get(q).refuses(http.StatusNotFound, domain.RecordNotFound)
	}
	if events := s.changes("").Events; len(events) != 1 {
		t.Errorf("the feed shows reservations: %v", events)
	}
	if got := s.compared(s.registered("d", 3, "three"), "three"); got.Result != "MATCH_CURRENT" {
		t.Errorf("comparison %v", got)
	}
	s.Audit(t)
}

// A reservationId is adopted, or refused as a mismatch, foreign or malformed, and other checks come first.
func TestReservationID(t *testing.T) {
	s := open(t, options{})
	one, two := s.reserved("d", 1), s.reserved("d", 2)
	send := func(document string, number int, content string, id any) answer {
		t.Helper()
		return s.post(integrity+"/records", declaration(document, number, content).with(body{"reservationId": id}))
	}
	unknown := func(a answer) {
		t.Helper()
		if got := pointers(a.refuses(http.StatusUnprocessableEntity, domain.InvalidData)); got != "/reservationId UNKNOWN" {
			t.Errorf("errors %s", got)
		}
	}
	send("d", 1, "one", two).refuses(http.StatusConflict, domain.ReservationMismatch)
	send("fresh", 1, "one", two).refuses(http.StatusConflict, domain.ReservationMismatch)
	unknown(send("d", 1, "one", strings.Repeat("a", 26)))
	if got := pointers(send("d", 1, "one", strings.ToUpper(one)).refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	)); got != "/reservationId FORMAT" {
		t.Errorf("errors %s", got)
	}

	// Reservations of another company, and of organizations in the same and in another shard.
	company := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, company.ID, true)
	elsewhere := s.post(
		integrity+"/reservations", version("d", 1).with(body{"companyReference": "company-2"}),
	).is(http.StatusCreated)["publicId"]
	unknown(send("d", 1, "one", elsewhere))
	for _, shard := range []domain.Shard{1, 2} {
		other := s.Organization(t, shard, domain.InternalPlan)
		foreign := s.send(
			http.MethodPost, integrity+"/reservations", other.Secret, version("d", 1),
		).is(http.StatusCreated)["publicId"]
		unknown(send("d", 1, "one", foreign))
	}

	adopted := s.post(integrity+"/records", declaration("d", 1, "one")).is(http.StatusCreated)
	equal(t, "adopted", adopted["publicId"], one)
	receipt := s.public("/api/public/integrity/" + one + "/receipt")
	document := &evidence.Document{SHA256: hash("one"), Size: 3}
	if f := evidence.Verify(
		receipt.body, s.Trusted, evidence.Options{Now: s.Now(), Document: document},
	); f.ExitCode() != 0 {
		t.Errorf("receipt of an adopted public id: %v", f.Reasons)
	}
	equal(t, "named", send("d", 2, "two", two).is(http.StatusCreated)["publicId"], two)

	// Replay and conflict come first.
	equal(t, "replay", send("d", 1, "one", two).is(http.StatusOK)["replayed"], true)
	send("d", 1, "other", strings.Repeat("a", 26)).refuses(http.StatusConflict, domain.VersionConflict)
	send("d", 3, "three", one).refuses(http.StatusConflict, domain.ReservationMismatch)
	s.Audit(t)
}

// The remaining reservations are given out once.
func TestReservationLimitsUnderConcurrency(t *testing.T) {
	s := open(t, options{})
	s.hold()
	reserve := func(n int, prefix string, want domain.Code) (given int) {
		t.Helper()
		var mu sync.Mutex
		var wg sync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				for i := worker; i < n; i += 16 {
					err := s.Do(t.Context(), s.Reserve(t, s.org, fmt.Sprintf("%s-%d", prefix, i), 1))
					mu.Lock()
					if err == nil {
						given++
					} else if !strings.HasPrefix(err.Error(), string(want)) {
						t.Errorf("%v, want %s", err, want)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return given
	}
	start := s.Now()
	if given := reserve(1_050, "a", domain.PendingReservationLimit); given != domain.MaxPendingReservations {
		t.Errorf("%d reservations are active", given)
	}
	full := s.post(integrity+"/reservations", version("one-more", 1))
	full.refuses(http.StatusTooManyRequests, domain.PendingReservationLimit)
	wait, err := time.ParseDuration(full.header.Get("Retry-After") + "s")
	check(t, err)
	if left := domain.ReservationLife - s.Now().Sub(start); wait < left-time.Second || wait > left+time.Minute {
		t.Errorf("Retry-After %s, the first expires in %s", wait, left)
	}
	// A known version still gets its link, and is not renewed.
	known := s.post(integrity+"/reservations", version("a-0", 1)).is(http.StatusOK)["publicId"].(string)
	s.send(http.MethodDelete, integrity+"/reservations/"+known, s.org.Secret, nil).is(http.StatusOK)
	s.reserved("one-more", 1)
	again := read[wire.Reservation](s.post(integrity+"/reservations", version("a-0", 1)), http.StatusOK)
	equal(t, "released, while 1,000 are pending", []any{again.PublicID, again.Status, again.Replayed},
		[]any{known, "released", true})
	limit := int32(domain.MaxPendingReservations + 21)
	must(s, &domain.ChangeLimits{Origin: s.org.Operator(), Unfinalized: &limit})
	s.skew.Add(int64(domain.ReservationLife + time.Minute))
	if given := reserve(100, "b", domain.UnfinalizedIdentityLimit); given != 20 {
		t.Errorf("%d more versions were reserved, want 20", given)
	}
	full = s.post(integrity+"/reservations", version("yet-one-more", 1))
	full.refuses(http.StatusTooManyRequests, domain.UnfinalizedIdentityLimit)
	s.Audit(t)
}
