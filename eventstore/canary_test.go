package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestCanaryLeavesNothing: a rehearsal of each shard writes to no table, assigns no position and changes no head's
// date.
func TestCanaryLeavesNothing(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 1, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("before", 1, "x")))
	before := contents(t, l)
	c := eventstore.NewCanary(l.Ledger, l.Installation.Shards)
	if err := c.Ready(context.Background()); err == nil || !strings.Contains(err.Error(), "no shard has been tried") {
		t.Errorf("before the first rehearsal: %v", err)
	}
	watch(t, c)
	tried(t, c)
	if after := contents(t, l); !maps.Equal(before, after) {
		t.Errorf("rows before %v, after %v", before, after)
	}
	l.Must(t, l.Register(t, o, o.Declaration("after", 1, "x")))
	for _, e := range l.Events(t, 1) {
		if e.RequestID == "canary" {
			t.Errorf("an event of the rehearsal: %+v", e)
		}
	}
}

// contents returns the number of rows of each table, and the heads.
func contents(t *testing.T, l *ledgertest.Ledger) map[string]string {
	t.Helper()
	all := map[string]string{}
	var tables []string
	ask := func(into any, sql string) {
		t.Helper()
		if err := l.Pool.QueryRow(context.Background(), sql).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	ask(&tables, `SELECT array_agg(tablename::text) FROM pg_tables WHERE schemaname = 'public'
		AND has_table_privilege(quote_ident(tablename), 'SELECT')`)
	for _, table := range tables {
		var rows string
		ask(&rows, "SELECT count(*)::text FROM "+table)
		all[table] = rows
	}
	var heads string
	ask(
		&heads, "SELECT string_agg(format('%s %s %s', shard, position, occurred_at), ', ' ORDER BY shard) FROM shard_heads",
	)
	all["heads"] = heads
	return all
}

// watch runs a canary until the end of the test.
func watch(t *testing.T, c *eventstore.Canary) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// tried waits until every shard has been tried, and none failed.
func tried(t *testing.T, c *eventstore.Canary) {
	t.Helper()
	pgtest.Eventually(t, "all shards have been tried", func() (bool, error) { return c.Idle(), nil })
	for shard, failing := range c.Failing() {
		if failing {
			t.Fatalf("shard %d fails: %v", shard, c.Ready(context.Background()))
		}
	}
}

// observed opens a ledger whose group reports a canary receives.
func observed(t *testing.T) (*ledgertest.Ledger, *eventstore.Canary) {
	t.Helper()
	var c *eventstore.Canary
	l := ledgertest.New(t, func(config *eventstore.Config) {
		config.Observe = func(r eventstore.GroupReport) { c.Group(r) }
	})
	c = eventstore.NewCanary(l.Ledger, l.Installation.Shards)
	watch(t, c)
	tried(t, c)
	return l, c
}

// TestCanaryFindsMissingTable: a failed group makes the process report that it is not ready, and it becomes ready again
// without another group. Each case lacks one of the tables of a registration.
func TestCanaryFindsMissingTable(t *testing.T) {
	pgtest.OneServer(t, "a renamed table keeps its pieces")
	l, c := observed(t)
	o := l.Organization(t, 2, domain.InternalPlan)
	ready := func() error { return c.Ready(context.Background()) }
	for i, table := range []string{"feed", "versions", "events"} {
		pgtest.Exec(t, l.URL, fmt.Sprintf("ALTER TABLE %[1]s RENAME TO %[1]s_away", table))
		err := l.Do(context.Background(), l.Register(t, o, o.Declaration(table, 1, "x")))
		if refused, ok := errors.AsType[*domain.Error](err); !ok || refused.Code != domain.TemporarilyUnavailable {
			t.Fatalf("%d: without %s: %v", i, table, err)
		}
		pgtest.Eventually(t, "without "+table+" it is not ready", func() (bool, error) { return ready() != nil, nil })
		if err := ready(); !strings.Contains(err.Error(), "a table of the ledger is missing") {
			t.Errorf("without %s: %v", table, err)
		}
		pgtest.Exec(t, l.URL, fmt.Sprintf("ALTER TABLE %[1]s_away RENAME TO %[1]s", table))
		tries := "with " + table + " it is ready again"
		pgtest.Eventually(t, tries, func() (bool, error) { return ready() == nil && c.Idle(), nil })
	}
	l.Must(t, l.Register(t, o, o.Declaration("again", 1, "x")))
}

// TestCanaryJudgesByItself: neither a tenant's commands nor a single failing shard stops the other tenants.
func TestCanaryJudgesByItself(t *testing.T) {
	l, c := observed(t)
	for _, outcome := range []eventstore.GroupOutcome{
		eventstore.GroupFailed, eventstore.GroupUnknown, eventstore.GroupSplit, eventstore.GroupPoisoned,
		eventstore.GroupClocks,
	} {
		c.Group(eventstore.GroupReport{Shard: 1, Commands: 1, Outcome: outcome})
		tried(t, c)
		if err := c.Ready(context.Background()); err != nil {
			t.Errorf("after a group that ended as %s: %v", outcome, err)
		}
	}
	pgtest.Exec(t, l.URL, "DELETE FROM shard_heads WHERE shard = 3")
	c.Group(eventstore.GroupReport{Shard: 3, Commands: 1, Outcome: eventstore.GroupFailed})
	pgtest.Eventually(t, "shard 3 fails", func() (bool, error) { return c.Failing()[3], nil })
	if err := c.Ready(context.Background()); err != nil {
		t.Errorf("with one shard of four: %v", err)
	}
	pgtest.Exec(t, l.URL, "INSERT INTO shard_heads VALUES (3, 0, now())")
	tried(t, c)
}
