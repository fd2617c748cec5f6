package eventstore_test

import (
	"context"
	"errors"
	"testing"

	"integrityledger/domain"
	"integrityledger/projections/ledgertest"
)

func TestRegisterSupersedeRevoke(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, "gratis")

	first := l.Register(t, o, o.Declaration("invoice-1", 1, "one"))
	l.Must(t, first)
	if got := first; got.Replayed || got.Outcome.Status != domain.StatusCurrent || got.Usage.Used != 1 || got.CompanyUsed != 1 {
		t.Fatalf("first registration: %+v", got)
	}
	again := l.Register(t, o, o.Declaration("invoice-1", 1, "one"))
	l.Must(t, again)
	if got := again; !got.Replayed || got.Outcome != first.Outcome || got.Usage.Used != 1 {
		t.Fatalf("replay: %+v, want the record %+v", got, first.Outcome)
	}
	var refusal *domain.Error
	err := l.Do(context.Background(), l.Register(t, o, o.Declaration("invoice-1", 1, "other")))
	if !errors.As(err, &refusal) || refusal.Code != domain.VersionConflict || len(refusal.Fields) != 2 ||
		refusal.Existing.PublicID != first.Outcome.PublicID {
		t.Fatalf("conflict: %v", err)
	}
	third := l.Register(t, o, o.Declaration("invoice-1", 3, "three"))
	l.Must(t, third)
	late := l.Register(t, o, o.Declaration("invoice-1", 2, "two"))
	l.Must(t, late)
	if got := late.Outcome; got.Status != domain.StatusSuperseded || *got.SupersededByVersion != 3 {
		t.Fatalf("late lower version: %+v", got)
	}
	revoke := l.Revoke(t, o, third.Outcome.PublicID)
	l.Must(t, revoke)
	if got := revoke; got.Replayed || got.Outcome.Status != domain.StatusRevoked {
		t.Fatalf("revocation: %+v", got)
	}
	twice := l.Revoke(t, o, third.Outcome.PublicID)
	l.Must(t, twice)
	if got := twice; !got.Replayed || !got.Outcome.RevokedAt.Equal(*revoke.Outcome.RevokedAt) {
		t.Fatalf("second revocation: %+v", got)
	}
	fourth := l.Register(t, o, o.Declaration("invoice-1", 4, "four"))
	l.Must(t, fourth)
	if got := fourth.Outcome; got.Status != domain.StatusCurrent {
		t.Fatalf("after a revoked version: %+v", got)
	}

	var types []domain.EventType
	for _, e := range l.Events(t, 1) {
		if e.Company == o.Company.ID && e.Subject != o.Key.ID.String() && e.Subject != o.Company.ID.String() {
			types = append(types, e.Type)
		}
	}
	want := []domain.EventType{
		domain.RecordRegistered,                          // 1
		domain.RecordRegistered, domain.RecordSuperseded, // 3 supersedes 1
		domain.RecordRegistered, // 2, superseded from birth
		domain.RecordRevoked,    // 3
		domain.RecordRegistered, // 4: nothing is current that it could supersede
	}
	if len(types) != len(want) {
		t.Fatalf("events %v, want %v", types, want)
	}
	for i := range want {
		if types[i] != want[i] {
			t.Fatalf("events %v, want %v", types, want)
		}
	}
}
