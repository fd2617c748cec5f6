package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain"
	"integrityledger/migrations"
)

// TestCitusCluster serves a distributed ledger under load: a worker is lost and comes back, another one is added and takes
// its part of the tables, and the ledger is given more shards. The service runs on all the time.
func TestCitusCluster(t *testing.T) {
	pgtest.Citus(t)
	cluster := newCitusCluster(t)
	moves := func() int {
		t.Helper()
		n, err := pgtest.Ask[int](cluster.URL(), "SELECT moves FROM ("+migrations.Uneven+") u (moves, each)")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	env := []string{"INTEGRITY_DATABASE_URL=" + cluster.servers[1].URL("postgres"), "INTEGRITY_SHARDS=8"} // a worker's
	must(t, env, "migrate", "--issuer", "ledger-of-the-drill")
	must(t, env, "distribute")
	if n := moves(); n != 0 {
		t.Errorf("distributed with %d moves left to make", n)
	}
	twoPhase := func() int64 {
		t.Helper()
		n, err := pgtest.Ask[int64](cluster.URL(), "SELECT count(*) FROM pg_dist_transaction")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := twoPhase()
	l := startDrill(t, env...)
	l.hold("on two workers")
	home := cluster.NodeOf(t, shardOf(t, l.key))
	other := externalAccount(t, env)
	for cluster.NodeOf(t, shardOf(t, other)) == home {
		other = externalAccount(t, env)
	}
	if n := twoPhase() - before; n != 0 {
		t.Errorf("%d two-phase commits", n)
	}

	reserve := func(key string) int {
		status, err := call(l.client, http.MethodPost, l.base+"/api/v1/integrity/reservations", key,
			map[string]any{"companyReference": "c", "source": "cluster", "documentReference": "d", "version": 1}, nil)
		if err != nil {
			t.Error(err)
		}
		return status
	}
	cluster.Kill(t, home)
	killed := time.Now()
	eventually(t, "the loss is reported", func() error {
		if status := reserve(l.key); status != http.StatusServiceUnavailable {
			return fmt.Errorf("a reservation on the lost node is answered with %d", status)
		}
		return nil
	})
	eventually(t, "the other node goes on", func() error {
		if status := reserve(other); status != http.StatusCreated && status != http.StatusOK {
			return fmt.Errorf("a reservation is answered with %d", status)
		}
		return nil
	})
	cluster.Return(t, home)
	t.Logf("a worker was away for %s", time.Since(killed).Round(time.Millisecond))
	l.hold("after the worker's return")

	cluster.Add(t)
	if out := integrity(t, env, "doctor").out; moves() == 0 || !strings.Contains(out, "moves make it even") {
		t.Errorf("a node without shards: %d moves, %s", moves(), out)
	}
	began, from := time.Now(), l.count.Load()
	persist(t, cluster.URL(), "u", "LOGGED") // the others cannot be moved while they are written
	conn, err := pgx.Connect(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "SELECT rebalance_table_shards()"); err != nil { // as long as it takes
		t.Fatal(err)
	}
	persist(t, cluster.URL(), "p", "UNLOGGED")
	took := time.Since(began)
	t.Logf("rebalanced in %s, %.0f registrations a second meanwhile", took.Round(time.Millisecond), float64(l.count.Load()-from)/took.Seconds())
	l.hold("on three workers")
	const held = "SELECT count(DISTINCT groupid) FROM pg_dist_placement p JOIN pg_dist_shard s USING (shardid) WHERE s.logicalrelid = 'public.events'::regclass"
	if n, err := pgtest.Ask[int](cluster.URL(), held); err != nil || n != 3 || moves() != 0 {
		t.Errorf("the log stands on %d nodes, %d moves are left: %v", n, moves(), err)
	}

	if out := must(t, append(env, "INTEGRITY_SHARDS=16"), "migrate"); !strings.Contains(out, "16 shards") {
		t.Errorf("shards were not raised: %s", out)
	}
	if shard := shardOf(t, externalAccount(t, env)); shard < 2 {
		t.Errorf("a new organization is in shard %d", shard)
	}
	l.nothingLost(cluster.URL())
}

// persist changes what becomes of the tables of counters and of rebuilds in a crash, as the README says.
func persist(t *testing.T, url, from, to string) {
	t.Helper()
	tables, err := pgtest.Ask[[]string](url, `SELECT coalesce(array_agg(c.oid::regclass::text), '{}') FROM pg_class c
		WHERE c.relkind = 'r' AND c.relpersistence = '`+from+`' AND (c.relnamespace = 'rebuild'::regnamespace OR c.oid = 'public.meters'::regclass)`)
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables to be made %s: %v, %v", to, tables, err)
	}
	for _, table := range tables {
		pgtest.Exec(t, url, "ALTER TABLE "+table+" SET "+to)
	}
}

func shardOf(t *testing.T, key string) int {
	t.Helper()
	id, _, ok := domain.ParseAPIKey(key)
	if !ok {
		t.Fatal("no API key")
	}
	return int(id.Shard())
}
