package operator

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// TestDoctorSaysWhichClock sets this machine's clock, as the doctor sees it.
func TestDoctorSaysWhichClock(t *testing.T) {
	t.Parallel()
	l := ledgertest.New(t)
	l.Organization(t, 1, domain.InternalPlan)
	conn, err := pgx.Connect(context.Background(), l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	look := func(off time.Duration) string {
		d := &doctor{app: &app{&cli.App{Out: io.Discard, Now: func() time.Time { return time.Now().Round(0).Add(off) }}}}
		d.cfg.ClockTolerance = eventstore.DefaultClockTolerance
		for _, look := range []func(context.Context, *pgx.Conn) error{d.clockOffset, d.heads} {
			if err := look(context.Background(), conn); err != nil {
				t.Fatal(err)
			}
		}
		var all strings.Builder
		for _, f := range d.findings {
			all.WriteString(f.State + " " + f.Check + ": " + f.Found.String() + "\n")
		}
		return all.String()
	}
	const apart = time.Hour + 500*time.Millisecond
	wantFindings(t, look(0), "ok clock: this machine's is ", "ok clock: no shard is dated ahead of it")
	wantFindings(t, look(2500*time.Millisecond), "warn clock: this machine's is 2.")
	wantFindings(
		t, look(apart), "fail clock: this machine's is 1h0m0.", "ahead of the database's",
		"warn clock: no event shows which of the two is wrong",
	)
	wantFindings(
		t, look(-apart), "fail clock: this machine's is 1h0m0.", "behind the database's",
		"fail clock: this machine's is behind the last event",
	)
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	process := l.Process(t, l.URL, func(c *eventstore.Config) { c.Clock = ledgertest.Simulated(ahead) })
	later := *l
	later.Ledger, later.Now = process, ahead
	later.Organization(t, 2, domain.InternalPlan)
	wantFindings(t, look(time.Hour), "fail clock: the database's is behind the last event")
	wantFindings(t, look(0), "fail clock: shard 2 is dated ")
}

func wantFindings(t *testing.T, all string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("the doctor does not say %q:\n%s", w, all)
		}
	}
}
