package action

import (
	"context"
	"net/netip"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/edge"
)

// A report that finds no place is refused with 503 before anything is read. An organization that floods fills its own
// line only, and readers without a key have places of their own.
func TestReportsTakeTurns(t *testing.T) {
	s := &Service{reports: newReports(nil), publicReports: newPublicReports(nil)}
	flooder, quiet := domain.OrganizationID{1}, domain.OrganizationID{2}
	var places []func()
	for range preparers() {
		release, err := s.reports.Acquire(t.Context(), flooder, 1)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, release)
	}
	ask := func(ctx context.Context, o domain.OrganizationID) error {
		c := &edge.Call{}
		c.Access.Organization = o
		_, err := (&Proofs{s}).Report(ctx, c, ReportQuestion{})
		return err
	}
	refused := make(chan error)
	impatient, leave := context.WithCancel(t.Context())
	for range reportLine {
		go func() { refused <- ask(impatient, flooder) }()
	}
	pgtest.Eventually(t, "the line is full", func() (bool, error) { return s.reports.Waiting() == reportLine, nil })
	for range 2 {
		if r := edge.Refusal(ask(t.Context(), flooder)); r == nil || r.Code != domain.TemporarilyUnavailable || r.RetryAfter == 0 {
			t.Errorf("a report beyond the line: %v", r)
		}
	}
	turn := make(chan func())
	go func() {
		release, err := s.reports.Acquire(t.Context(), quiet, 1)
		if err != nil {
			t.Error(err)
		}
		turn <- release
	}()
	pgtest.Eventually(t, "the other waits", func() (bool, error) { return s.reports.Waiting() == reportLine+1, nil })
	if release, err := s.publicReports.Acquire(t.Context(), netip.MustParsePrefix("192.0.2.1/32"), 1); err != nil {
		t.Error(err)
	} else {
		release()
	}
	leave()
	for range reportLine {
		if r := edge.Refusal(<-refused); r == nil || r.Code != domain.TemporarilyUnavailable {
			t.Errorf("a report that gave up: %v", r)
		}
	}
	places[0]()
	(<-turn)()
}
