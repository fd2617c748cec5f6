package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
	"integrityledger/projections/ledgertest"
)

// guarded is a ledger whose database can be made to lose committed events.
type guarded struct {
	*ledgertest.Ledger
	t     *testing.T
	owner *pgxpool.Pool
	log   bytes.Buffer
	n     int
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{t: t}
	g.Ledger = ledgertest.New(t, func(c *eventstore.Config) {
		c.Guard = eventstore.NewGuard(1, slog.New(slog.NewTextHandler(&g.log, nil)))
	})
	var err error
	if g.owner, err = pgxpool.New(context.Background(), g.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.owner.Close)
	if pgtest.OnCitus() {
		g.exec("SELECT run_command_on_shards('events', 'ALTER TABLE %s DISABLE TRIGGER ALL')")
	} else {
		g.exec("ALTER TABLE events DISABLE TRIGGER ALL")
	}
	return g
}

func (g *guarded) exec(sql string, args ...any) {
	g.t.Helper()
	if _, err := g.owner.Exec(context.Background(), sql, args...); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) look() {
	g.t.Helper()
	if err := g.Guard.Look(context.Background(), g.Routed(g.t), g.Installation.Shards); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) register(o ledgertest.Organization) error {
	g.n++
	return g.Do(context.Background(), g.Register(g.t, o, o.Declaration(fmt.Sprint("d-", g.n), 1, "x")))
}

func (g *guarded) goesOn(organizations ...ledgertest.Organization) {
	g.t.Helper()
	for _, o := range organizations {
		if err := g.register(o); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *guarded) standsStill(organizations ...ledgertest.Organization) {
	g.t.Helper()
	for _, o := range organizations {
		if refused, ok := errors.AsType[*domain.Error](g.register(o)); !ok || refused.Code != domain.TemporarilyUnavailable {
			g.t.Fatalf("a registration: %v", refused)
		}
	}
	if _, err := g.Agreed(context.Background()); err == nil {
		g.t.Error("evidence is signed")
	}
}

// loses removes the last events of a shard and returns a function that restores them.
func (g *guarded) loses(shard domain.Shard, events int64) (back func()) {
	g.t.Helper()
	g.exec("CREATE TABLE kept AS TABLE events")
	g.exec(
		"DELETE FROM kept k USING shard_heads h WHERE h.shard = $1 AND (k.shard <> $1 OR k.position <= h.position - $2)",
		shard, events,
	)
	g.exec("DELETE FROM events WHERE shard = $1 AND position IN (SELECT position FROM kept)", shard)
	g.exec("UPDATE shard_heads SET position = position - $2 WHERE shard = $1", shard, events)
	return func() {
		g.t.Helper()
		g.exec("INSERT INTO events TABLE kept")
		g.exec("UPDATE shard_heads SET position = position + $2 WHERE shard = $1", shard, events)
	}
}

// TestGuardNoticesLostEvents: a group that finds its shard behind stops every shard until the events are back, or a
// raised epoch shows that the operator knows.
func TestGuardNoticesLostEvents(t *testing.T) {
	g := newGuarded(t)
	a, b := g.Organization(t, 1, domain.InternalPlan), g.Organization(t, 2, domain.InternalPlan)
	g.goesOn(a, a, a, b)
	g.look()
	if err := g.Guard.Err(); err != nil || g.log.Len() > 0 {
		t.Fatalf("without a loss: %v %s", err, &g.log)
	}
	back := g.loses(1, 2)
	g.standsStill(a, b)
	g.look()
	g.look()
	if text := g.log.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "integrity restore --external") || !strings.Contains(text, "shard 1 lacks") {
		t.Errorf("log: %s", text)
	}
	if lost := g.Guard.Lost(); !lost[eventstore.ByCommits] || lost[eventstore.BySignedHead] || lost[eventstore.ByWitness] {
		t.Errorf("known by %v", lost)
	}
	g.standsStill(a, b)
	back()
	g.look()
	g.goesOn(a, b)

	g.exec("DROP TABLE kept")
	g.loses(2, 1)
	g.look() // without a group
	g.standsStill(a)
	g.exec("UPDATE ledger SET epoch = 2")
	g.look()
	g.goesOn(a)
	if got := g.Guard.Epoch(); got != 2 {
		t.Errorf("the epoch is %d", got)
	}
	g.exec("UPDATE ledger SET epoch = 1") // an earlier database
	g.look()
	g.standsStill(a)
}

// TestGuardNoticesAnotherHistory: if another process has continued from the earlier state, the head reveals nothing. A
// new connection compares the event itself.
func TestGuardNoticesAnotherHistory(t *testing.T) {
	g := newGuarded(t)
	a := g.Organization(t, 1, domain.InternalPlan)
	g.goesOn(a, a)
	g.exec(
		"UPDATE events SET hash = sha256(hash) WHERE shard = 1 AND position = (SELECT position FROM shard_heads WHERE " +
			"shard = 1)",
	)
	other := g.Process(t, g.URL)
	if err := other.Do(context.Background(), g.Register(t, a, a.Declaration("other", 1, "x"))); err != nil {
		t.Fatal(err)
	}
	g.exec(pgtest.OnAllNodes("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity " +
		"WHERE application_name = 'integrity commit' AND datname = current_database()"))
	g.standsStill(a)
	g.look()
	if !g.Guard.Lost()[eventstore.ByCommits] {
		t.Error("nothing is lost")
	}
}

// TestGuardBelievesTheEvent: a head whose date was changed stops a shard only until the event itself is found.
func TestGuardBelievesTheEvent(t *testing.T) {
	g := newGuarded(t)
	a := g.Organization(t, 1, domain.InternalPlan)
	g.goesOn(a)
	g.exec("UPDATE shard_heads SET occurred_at = 'epoch' WHERE shard = 1")
	g.standsStill(a)
	g.look()
	g.goesOn(a, a)
}

// TestGuardTellsServersApart: while two servers accept commits, an earlier connection to the former primary commits
// nothing after a commit on the new one, although the shard's head is already past it.
func TestGuardTellsServersApart(t *testing.T) {
	pgtest.OneServer(t, "a primary and its standby are servers of their own")
	c, ctx := pgtest.NewCluster(t, false), context.Background()
	if err := migrations.Up(ctx, c.PrimaryURL()); err != nil {
		t.Fatal(err)
	}
	l := ledgertest.Attach(t, c.PrimaryURL())
	l.Ledger = l.Process(t, l.URL)
	o := l.Organization(t, 1, domain.InternalPlan)
	process := l.Process(t, l.URL)
	former, document := process.Pool, 0
	register := func(by *eventstore.Ledger) error {
		document++
		return by.Do(ctx, l.Register(t, o, o.Declaration(fmt.Sprint(document), 1, "x")))
	}
	registers := func(by *eventstore.Ledger) {
		t.Helper()
		if err := register(by); err != nil {
			t.Fatal(err)
		}
	}
	registers(process)
	const head = "SELECT position FROM shard_heads WHERE shard = 1"
	pgtest.Eventually(t, "the standby has the event", func() (bool, error) {
		at, err := pgtest.Ask[int64](c.PrimaryURL(), head)
		there, err2 := pgtest.Ask[int64](c.StandbyURL(), head)
		return at == there, errors.Join(err, err2)
	})
	c.Promote(t)
	promoted, err := cluster.At(c.StandbyURL()).CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer promoted.Close()
	process.Pool = promoted
	registers(process)
	registers(l.Ledger) // on the former primary, as another process
	registers(l.Ledger)
	process.Pool = former
	if err, ok := errors.AsType[*domain.Error](register(process)); !ok || err.Code != domain.TemporarilyUnavailable {
		t.Errorf("a registration on a server that lacks the last one: %v", err)
	}
}

// TestGuardIgnoresCommitsOfOthers: commits of another process, acknowledged or not, may be lost without an alarm.
func TestGuardIgnoresCommitsOfOthers(t *testing.T) {
	g := newGuarded(t)
	a, b := g.Organization(t, 1, domain.InternalPlan), g.Organization(t, 2, domain.InternalPlan)
	g.goesOn(a)
	other := g.Process(t, g.URL)
	if err := other.Do(context.Background(), g.Register(t, a, a.Declaration("other", 1, "x"))); err != nil {
		t.Fatal(err)
	}
	refused := g.Register(t, a, a.Declaration("other", 1, "y"))
	if err, ok := errors.AsType[*domain.Error](g.Do(context.Background(), refused)); !ok ||
		err.Code != domain.VersionConflict {
		t.Fatalf("a refused registration, whose group reads the head: %v", err)
	}
	g.loses(1, 1)
	g.look()
	g.goesOn(b)
	if g.log.Len() > 0 {
		t.Errorf("log: %s", &g.log)
	}
}
