package eventstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// within fails the test if a reader is not woken in time.
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

// neverLooks leaves everything to notifications.
func neverLooks(c *eventstore.NotifierConfig) { c.Poll = time.Hour }

// announcements waits until there are n locks of announcements, granted or still waiting.
func announcements(t *testing.T, l *ledgertest.Ledger, granted bool, n int) {
	t.Helper()
	counted := fmt.Sprintf(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid <= 2 AND mode = 'ShareLock'
		AND granted = %t AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, granted)
	pgtest.Eventually(t, fmt.Sprintf("%d announcements", n), func() (bool, error) {
		found, err := pgtest.Ask[int](l.URL, pgtest.OnAllNodes(counted))
		return found == n, err
	})
}

// TestNotifierWakesByCompany: the process that commits wakes readers in another process, but only those waiting for the
// company.
func TestNotifierWakesByCompany(t *testing.T) {
	l := ledgertest.Attach(t, pgtest.New(t))
	here, there := l.Notifier(t, neverLooks), l.Notifier(t, neverLooks)
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) { c.Committed = here.Committed })
	o := l.Organization(t, 1, domain.InternalPlan)
	other := l.Company(t, o, "company-2")

	mine, leaveMine := there.Wait(o.ID, o.Company.ID)
	within(t, "the tail begins", mine) // once, for earlier events
	ofAll, leaveAll := there.Wait(o.ID, domain.CompanyID{})
	ofForeign, leaveForeign := there.Wait(domain.NewOrganizationID(time.Now(), 1), domain.CompanyID{}) // of the shard
	ofAnother, leaveOther := there.Wait(o.ID, other.ID)
	own, leaveOwn := here.Wait(o.ID, o.Company.ID)
	within(t, "the tail of the own process begins", own)
	for version := range int32(5) {
		l.Must(t, l.Register(t, o, o.Declaration("a", version+1, fmt.Sprint(version))))
		within(t, "another process", mine)
		within(t, "all companies", ofAll)
		within(t, "the own process", own)
	}
	quiet(t, "another company", ofAnother)
	quiet(t, "another organization", ofForeign)
	leaveAll()
	leaveForeign()
	leaveMine()
	leaveOther()
	leaveOwn()

	// A reader that arrives after all others have left is served again, whether or not the tail has noticed.
	again, leave := there.Wait(o.ID, o.Company.ID)
	defer leave()
	l.Must(t, l.Register(t, o, o.Declaration("b", 1, "x")))
	within(t, "after a rest", again)
}

// TestNotifierSurvivesLostNotifications: polling every second makes up for a lost notification, and a new connection
// for a lost one.
func TestNotifierSurvivesLostNotifications(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t) // sends no notifications
	notifier := l.Notifier(t)
	o := l.Organization(t, 2, domain.InternalPlan)
	woken, leave := notifier.Wait(o.ID, o.Company.ID)
	defer leave()
	within(t, "the tail begins", woken)
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	within(t, "no notification came", woken)

	owner, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	if _, err := owner.Exec(
		ctx,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "+
			"pg_backend_pid()",
	); err != nil {
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

// TestNotifierSparesTheDatabase: however many groups commit, a process sends at most one notification per shard every 5
// ms.
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
		notifier.Committed(eventstore.Commit{Shard: 1, Awaited: true})
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

// TestNotifierIsSilent: nothing is sent unless a reader waits, and nothing once the last reader has left. A process
// that starts later is notified.
func TestNotifierIsSilent(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	here := l.Notifier(t, neverLooks)
	commits := make(chan eventstore.Commit, 1)
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) {
		c.Committed = func(c eventstore.Commit) { here.Committed(c); commits <- c }
	})
	listener, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(ctx)
	if _, err := listener.Exec(ctx, "LISTEN integrity_committed"); err != nil {
		t.Fatal(err)
	}
	silent := func(when string) {
		t.Helper()
		l.Must(t, l.Register(t, o, o.Declaration(when, 1, when)))
		if c := <-commits; c.Awaited {
			t.Errorf("%s: %+v", when, c)
		}
		here.Committed(eventstore.Commit{Shard: 3, Awaited: true})
		waiting, cancel := context.WithTimeout(ctx, 4*time.Minute)
		defer cancel()
		if n, err := listener.WaitForNotification(waiting); err != nil || n.Payload != "3" {
			t.Fatalf("%s: %+v, %v; must be of what comes after", when, n, err)
		}
	}
	silent("nobody-waits")

	there := l.Notifier(t, func(c *eventstore.NotifierConfig) { c.Poll = time.Millisecond })
	woken, leave := there.Wait(domain.NewOrganizationID(time.Now(), 2), domain.CompanyID{})
	within(t, "the tail begins", woken)
	announcements(t, l, true, 1)
	silent("another-shard-is-awaited")
	leave()
	announcements(t, l, true, 0)

	there = l.Notifier(t, neverLooks)
	woken, leave = there.Wait(o.ID, o.Company.ID)
	defer leave()
	within(t, "the tail of a new process begins", woken)
	announcements(t, l, true, 1)
	l.Must(t, l.Register(t, o, o.Declaration("c", 1, "x")))
	within(t, "a process that started later", woken)
	if c := <-commits; !c.Awaited {
		t.Errorf("%+v: must be awaited", c)
	}
}

// TestNotifierMissesNoWaiter: a reader that arrives during a group, too late for the group to see it, is still woken.
func TestNotifierMissesNoWaiter(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	here, there := l.Notifier(t, neverLooks), l.Notifier(t, neverLooks)
	commits, writing, write := make(chan eventstore.Commit, 1), make(chan bool), make(chan bool)
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) {
		c.Committed = func(c eventstore.Commit) { here.Committed(c); commits <- c }
		c.Enqueue = func(*pgx.Batch, domain.Shard, []domain.Event, *domain.State, *bool) {
			writing <- true
			<-write
		}
	})
	done := make(chan error, 1)
	register := l.Register(t, o, o.Declaration("a", 1, "x"))
	go func() { done <- l.Do(context.Background(), register) }()
	<-writing
	woken, leave := there.Wait(o.ID, o.Company.ID)
	defer leave()
	within(t, "the tail begins", woken) // and its reader finds nothing
	announcements(t, l, false, 1)
	write <- true
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	within(t, "committed without a notification", woken)
	if c := <-commits; c.Awaited {
		t.Errorf("%+v: the group had asked before anybody waited", c)
	}
}

// TestNotifierListensAgain: events committed while the connection, and with it the announcement, was lost are found on
// the next connection, and wake-ups work again from then on.
func TestNotifierListensAgain(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.Attach(t, pgtest.New(t))
	here, there := l.Notifier(t, neverLooks), l.Notifier(t, neverLooks)
	l.Ledger = l.Process(t, l.URL, func(c *eventstore.Config) { c.Committed = here.Committed })
	o := l.Organization(t, 1, domain.InternalPlan)
	woken, leave := there.Wait(o.ID, o.Company.ID)
	defer leave()
	within(t, "the tail begins", woken)
	announcements(t, l, true, 1)
	owner, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	if _, err := owner.Exec(ctx, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'integrity wake'`); err != nil {
		t.Fatal(err)
	}
	l.Must(t, l.Register(t, o, o.Declaration("a", 1, "x")))
	within(t, "committed while nobody listened", woken)
	announcements(t, l, true, 1)
	l.Must(t, l.Register(t, o, o.Declaration("a", 2, "y")))
	within(t, "the connection is back", woken)
}
