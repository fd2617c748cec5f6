package eventstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/ledgertest"
)

// within fails where somebody is not woken in time.
func within(t *testing.T, what string, woken <-chan struct{}) {
	t.Helper()
	const limit = 4 * time.Minute
	select {
	case <-woken:
	case <-time.After(limit):
		t.Fatalf("%s: nobody was woken within %s", what, limit)
	}
}

func quiet(t *testing.T, what string, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
		t.Errorf("%s: woken", what)
	default:
	}
}

// TestNotifierWakesByCompany: two processes; the one that commits wakes the waiters of the other, those of the company
// alone.
func TestNotifierWakesByCompany(t *testing.T) {
	l := ledgertest.Attach(t, pgtest.New(t))
	here, there := l.Notifier(t), l.Notifier(t)
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) { c.Committed = here.Committed })
	o := l.Organization(t, 1, domain.InternalPlan)
	other := l.Company(t, o, "company-2")

	mine, leaveMine := there.Wait(1, o.Company.ID)
	within(t, "the tail begins", mine) // once, for what may have come before
	ofAnother, leaveOther := there.Wait(1, other.ID)
	own, leaveOwn := here.Wait(1, o.Company.ID)
	within(t, "the tail of the own process begins", own)
	for version := range int32(5) {
		l.Must(t, l.Register(t, o, o.Declaration("a", version+1, fmt.Sprint(version))))
		within(t, "another process", mine)
		within(t, "the own process", own)
	}
	quiet(t, "another company", ofAnother)
	leaveMine()
	leaveOther()
	leaveOwn()

	// Whoever comes when all have left is served anew, whether the tail has noticed or not.
	again, leave := there.Wait(1, o.Company.ID)
	defer leave()
	l.Must(t, l.Register(t, o, o.Declaration("b", 1, "x")))
	within(t, "after a rest", again)
}

// A lost notification is covered by a look every second, and a lost connection by a new one.
func TestNotifierSurvivesLostNotifications(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t) // tells nobody of its commits
	notifier := l.Notifier(t)
	o := l.Organization(t, 2, domain.InternalPlan)
	woken, leave := notifier.Wait(2, o.Company.ID)
	defer leave()
	within(t, "the tail begins", woken)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	within(t, "no notification came", woken)

	owner, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	if _, err := owner.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
		t.Fatal(err)
	}
	for version := int32(2); version < 5; version++ {
		if err := l.Do(ctx, l.Register(t, o, o.Declaration("a", version, fmt.Sprint(version)))); err != nil {
			t.Logf("version %d: %v", version, err) // a connection that was cut
			continue
		}
		within(t, "connections were cut", woken)
	}
}

// TestNotifierSparesTheDatabase: however many groups commit, a process sends at most one notification a shard and 5 ms.
func TestNotifierSparesTheDatabase(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	notifier := l.Notifier(t)
	listener, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(ctx)
	if _, err := listener.Exec(ctx, "LISTEN integrity_committed"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for time.Since(start) < 100*time.Millisecond {
		notifier.Committed(1)
	}
	most := int(time.Since(start)/(5*time.Millisecond)) + 2
	got, patience := 0, 4*time.Minute
	for ; ; patience = 200 * time.Millisecond {
		waiting, cancel := context.WithTimeout(ctx, patience)
		_, err := listener.WaitForNotification(waiting)
		cancel()
		if err != nil {
			break
		}
		got++
	}
	if got < 1 || got > most {
		t.Errorf("%d notifications, must be at most %d", got, most)
	}
}
