package action

import (
	"context"
	"net/netip"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
)

// A report that is not admitted is refused with 503 before anything is read. A report that waits for the database keeps
// no processor from another organization. An organization that floods fills its own places and its own line only, and
// readers without a key have places of their own.
func TestReportsTakeTurns(t *testing.T) {
	reports, public := newReports(nil), newPublicReports(nil)
	flooder, quiet := domain.OrganizationID{1}, domain.OrganizationID{2}
	reading, answered, ended := make(chan struct{}, 2*reportPlaces), make(chan struct{}), make(chan error)
	render := func(web.Report) (edge.Response, error) { return edge.Response{}, nil }
	ask := func(ctx context.Context, o domain.OrganizationID, read func()) error {
		_, err := reports.take(ctx, o, func() (web.Report, error) { read(); return web.Report{}, nil }, render)
		return err
	}
	slow := func() {
		reading <- struct{}{}
		<-answered
	}
	unavailable := func(what string, err error) {
		t.Helper()
		if r := edge.Refusal(err); r == nil || r.Code != domain.TemporarilyUnavailable || r.RetryAfter == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	const most = reportPlaces / 2
	for range most {
		go func() { ended <- ask(t.Context(), flooder, slow) }()
		<-reading
	}
	impatient, leave := context.WithCancel(t.Context())
	refused := make(chan error)
	for range reportLine {
		go func() { refused <- ask(impatient, flooder, slow) }()
	}
	pgtest.Eventually(t, "the line is full", func() (bool, error) { return reports.admitted.Waiting() == reportLine, nil })
	for range 2 {
		unavailable("a report beyond the line", ask(t.Context(), flooder, slow))
	}
	if len(reading) != 0 {
		t.Errorf("%d more than %d reports read the database", len(reading), most)
	}

	if err := ask(t.Context(), quiet, func() {}); err != nil {
		t.Errorf("while the flooder's reports read, another organization's report: %v", err)
	}
	network := netip.MustParsePrefix("192.0.2.1/32")
	if _, err := public.take(t.Context(), network, func() (r web.Report, err error) { return r, nil }, render); err != nil {
		t.Errorf("a reader without a key: %v", err)
	}
	leave()
	for range reportLine {
		unavailable("a report that gave up", <-refused)
	}

	// All processors render for the flooder: its reports and the other's wait for them, and the other's comes next.
	var places []func()
	for range preparers() {
		release, err := reports.rendering.Acquire(t.Context(), flooder, 1)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, release)
	}
	close(answered)
	pgtest.Eventually(t, "they wait for a processor", func() (bool, error) { return reports.rendering.Waiting() == most, nil })
	turn := make(chan error)
	go func() { turn <- ask(t.Context(), quiet, func() {}) }()
	pgtest.Eventually(t, "the other waits", func() (bool, error) { return reports.rendering.Waiting() == most+1, nil })
	for _, release := range places {
		release()
	}
	for range most {
		if err := <-ended; err != nil {
			t.Errorf("an admitted report: %v", err)
		}
	}
	if err := <-turn; err != nil {
		t.Errorf("the other's report: %v", err)
	}
	if held := reports.admitted.Held() + reports.rendering.Held(); held != 0 {
		t.Errorf("%d places are still taken", held)
	}
}
