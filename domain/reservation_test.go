package domain

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestReservationExpiresByTheClock: a reservation is pending up to the last moment of the seventh day and expired
// afterwards, without any action.
func TestReservationExpiresByTheClock(t *testing.T) {
	w := newWorld(t, testSigner(t), 1_000_000)
	start := w.now
	first, _ := w.reserve("d", 1)
	id := first.Outcome.PublicID
	known := w.state.public[id]
	for _, c := range []struct {
		after time.Duration
		want  ReservationStatus
	}{
		{0, ReservationPending},
		{6*24*time.Hour + 23*time.Hour + 59*time.Minute, ReservationPending},
		{7*24*time.Hour - time.Microsecond, ReservationPending},
		{7 * 24 * time.Hour, ReservationExpired},
		{8 * 24 * time.Hour, ReservationExpired},
	} {
		if got := known.Reservation(start.Add(c.after)); got.Status != c.want ||
			!got.ExpiresAt.Equal(start.Add(ReservationLife)) {
			t.Errorf("after %s: %+v, want %s", c.after, got, c.want)
		}
	}
	w.now = start.Add(8 * 24 * time.Hour)
	again, code := w.reserve("d", 1)
	if code != "" || !again.Replayed ||
		again.Outcome != (Reservation{id, w.now.Add(ReservationLife), ReservationPending}) {
		t.Errorf("reserved again: %q %+v", code, again.Outcome)
	}
	w.now = w.now.Add(30 * 24 * time.Hour)
	late, code := w.register("d", 1, "x", &id)
	if code != "" || late.Outcome.PublicID != id || late.Replayed {
		t.Errorf("registration with an expired reservation: %q %+v", code, late.Outcome)
	}
	final, code := w.reserve("d", 1)
	if want := (Reservation{id, late.Outcome.ReceivedAt.Add(ReservationLife), ReservationFinalized}); code != "" ||
		final.Outcome != want {
		t.Errorf("reserved after registration: %q %+v, want %+v", code, final.Outcome, want)
	}
	replay, code := w.register("d", 1, "x", &id)
	if code != "" || !replay.Replayed {
		t.Errorf("a replay that names its reservation: %q %+v", code, replay.Outcome)
	}
}

// TestReservationLimits: 1000 active and 10,000 unfinalized are allowed. Refusals contain the time at which the next
// one can succeed.
func TestReservationLimits(t *testing.T) {
	w := newWorld(t, testSigner(t), 1_000_000)
	refused := func(document string, code Code, after time.Duration) {
		c := &Reserve{
			Origin: w.origin, Key: w.key, Limits: w.limits, Version: VersionReference{"company-1", "billing", document, 1},
			PublicID: NewPublicID(w.registrar.Secret, w.origin.Organization.Shard()),
		}
		_, err := c.Decide(w.state, w.now)
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Code != code || refusal.RetryAfter != after {
			t.Fatalf("%s at %s: %v, want %s after %s", document, w.now, err, code, after)
		}
	}
	start := w.now
	for round := range 10 {
		for i := range MaxPendingReservations {
			w.now = w.now.Add(time.Second)
			if _, code := w.reserve(fmt.Sprintf("d-%d-%d", round, i), 1); code != "" {
				t.Fatalf("reservation %d of round %d: %s", i, round, code)
			}
		}
		first := start.Add(time.Second + ReservationLife)
		if round < 9 {
			refused("one-more", PendingReservationLimit, first.Sub(w.now))
			if _, code := w.reserve(fmt.Sprintf("d-%d-0", round), 1); code != "" {
				// renewed, so the second is now the first to expire
				t.Fatal(code)
			}
			refused("one-more", PendingReservationLimit, first.Add(time.Second).Sub(w.now))
		}
		if round == 1 { // expired: renewing would exceed the limit, so it is returned unchanged
			before := len(w.events)
			c, code := w.reserve("d-0-1", 1)
			if code != "" || !c.Replayed || c.Outcome.Status != ReservationExpired || c.Outcome.ExpiresAt.After(w.now) ||
				len(w.events) != before {
				t.Fatalf("a known version where there is no room: %q %+v", code, c.Outcome)
			}
		}
		w.now = w.now.Add(ReservationLife)
		start = w.now
	}
	refused("one-more", UnfinalizedIdentityLimit, 0)
	if _, code := w.reserve("d-0-1", 1); code != "" { // already known: it only becomes active again
		t.Fatal(code)
	}
	if _, code := w.register("d-5-5", 1, "x", nil); code != "" {
		t.Fatal(code)
	}
	if _, code := w.reserve("one-more", 1); code != "" {
		t.Fatal(code)
	}
	refused("yet-one-more", UnfinalizedIdentityLimit, 0)
	limit := int32(MaxUnfinalized + 1)
	if code := w.execute(&ChangeLimits{Origin: w.origin, Unfinalized: &limit}); code != "" {
		t.Fatal(code)
	}
	if _, code := w.reserve("yet-one-more", 1); code != "" {
		t.Fatal(code)
	}
	refused("the-last", UnfinalizedIdentityLimit, 0)
}

// TestReleaseGivesThePlaceBack: a release works at once, once, and only for a key that may use the version. Version and
// link stay, and so does the place among the unregistered versions.
func TestReleaseGivesThePlaceBack(t *testing.T) {
	w := newWorld(t, testSigner(t), 1_000_000)
	limit := int32(MaxPendingReservations + 1)
	w.execute(&ChangeLimits{Origin: w.origin, Unfinalized: &limit})
	var ids []PublicID
	for i := range MaxPendingReservations {
		c, code := w.reserve(fmt.Sprint("d-", i), 1)
		if code != "" {
			t.Fatal(code)
		}
		ids = append(ids, c.Outcome.PublicID)
	}
	release := func(id PublicID, limits KeyLimits, want Code, status ReservationStatus, events int) {
		t.Helper()
		before := len(w.events)
		c := &ReleaseReservation{Origin: w.origin, Key: w.key, Limits: limits, PublicID: id}
		if code := w.execute(c); code != want || c.Outcome.Status != status || len(w.events)-before != events ||
			code == "" && c.Replayed != (events == 0) {
			t.Fatalf("%q %+v with %d events, want %q %s with %d", code, c, len(w.events)-before, want, status, events)
		}
	}
	refused := func(document string, want Code) {
		t.Helper()
		if _, code := w.reserve(document, 1); code != want {
			t.Fatalf("%s: %q, want %q", document, code, want)
		}
	}
	refused("one-more", PendingReservationLimit)
	release(ids[0], KeyLimits{Source: new("erp")}, InvalidData, "", 0)
	release(PublicID{1}, KeyLimits{}, NotFound, "", 0)
	release(ids[0], KeyLimits{Source: new("billing")}, "", ReservationReleased, 1)
	release(ids[0], KeyLimits{}, "", ReservationReleased, 0)
	refused("one-more", "") // at the moment of the release
	full, code := w.reserve("d-0", 1)
	if code != "" || full.Outcome != (Reservation{ids[0], w.now, ReservationReleased}) || !full.Replayed {
		t.Fatalf("released, where there is no room: %q %+v", code, full.Outcome)
	}
	release(ids[1], KeyLimits{}, "", ReservationReleased, 1)
	refused("yet-one-more", UnfinalizedIdentityLimit)
	again, code := w.reserve("d-0", 1)
	if code != "" || again.Outcome != (Reservation{ids[0], w.now.Add(ReservationLife), ReservationPending}) ||
		!again.Replayed {
		t.Fatalf("reserved again: %q %+v", code, again.Outcome)
	}
	registered, code := w.register("d-1", 1, "x", &ids[1])
	if code != "" || registered.Outcome.PublicID != ids[1] {
		t.Fatalf("a released version: %q %+v", code, registered.Outcome)
	}
	release(ids[1], KeyLimits{}, InvalidState, "", 0)
	release(ids[5], KeyLimits{}, "", ReservationReleased, 1)
	refused("yet-one-more", "")
	w.now = w.now.Add(-time.Hour) // the clock was set back
	release(ids[2], KeyLimits{}, "", ReservationReleased, 1)
	w.now = w.now.Add(-time.Hour)
	release(ids[2], KeyLimits{}, "", ReservationReleased, 0)
	refused("d-2", "")
	release(ids[2], KeyLimits{}, "", ReservationReleased, 1)
	w.now = w.now.Add(ReservationLife + time.Hour*3)
	release(ids[2], KeyLimits{}, "", ReservationReleased, 0)
	release(ids[3], KeyLimits{}, "", ReservationExpired, 0)
	w.execute(&SetAccess{
		Origin: w.origin, Company: w.state.companies[w.state.public[ids[4]].Document.Company].ID, Key: w.key,
	})
	release(ids[4], KeyLimits{}, NotFound, "", 0)
}
