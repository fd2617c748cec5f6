package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
	"integrityledger/projections/ledgertest"
)

// TestCitusCluster serves two organizations of a distributed ledger under load, each on a separate worker with a
// synchronous standby; the URL names a worker. A worker is killed and restarted. The URL's worker is lost and its
// standby promoted. The coordinator is killed and restarted, then lost, and its standby promoted. A worker is added and
// takes its part of the tables. Another is drained, while the ledger gets more shards, and leaves. The service runs
// throughout.
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
	env := []string{"INTEGRITY_DATABASE_URL=" + cluster.nodes[1].URL(), "INTEGRITY_SHARDS=8"}
	must(t, env, "migrate", "--issuer", "ledger-of-the-drill")
	must(t, env, "distribute")
	if n := moves(); n != 0 {
		t.Errorf("distributed with %d moves left to make", n)
	}
	const twoPhase = "SELECT count(*) FROM pg_dist_transaction"
	before, err := pgtest.Ask[int64](cluster.URL(), twoPhase)
	if err != nil {
		t.Fatal(err)
	}
	home := cluster.NodeOf(t, 0) // of the first organization
	far := 3 - home
	env[0] = "INTEGRITY_DATABASE_URL=" + pgtest.URLOf(
		t, cluster.nodes[far].URL(), cluster.nodes[far].standby.URL("postgres"),
	)
	l := startDrill(t, env...)
	key := externalAccount(t, env)
	for cluster.NodeOf(t, shardOf(t, key)) == home {
		key = externalAccount(t, env)
	}
	other := l.beside(key, 6)
	type phase struct {
		name string
		at   time.Time
	}
	var phases []phase
	begin := func(name string) { phases = append(phases, phase{name, time.Now()}) }
	hold := func(name string) {
		t.Helper()
		from := other.count.Load()
		l.hold(name)
		eventually(t, name+": the other organization registers", func() error {
			if n := other.count.Load() - from; n < 50 {
				return fmt.Errorf("%d acknowledged", n)
			}
			return nil
		})
	}
	begin("two workers")
	hold("on two workers")
	if n, err := pgtest.Ask[int64](cluster.URL(), twoPhase); err != nil || n != before {
		t.Errorf("%d two-phase commits: %v", n-before, err)
	}
	reserve := func(key string) int {
		status, err := call(l.client, http.MethodPost, l.base+"/api/v1/integrity/reservations", key,
			map[string]any{"companyReference": "c", "source": "cluster", "documentReference": "d", "version": 1}, nil)
		if err != nil {
			t.Error(err)
		}
		return status
	}
	lost := func(node int, of, others string) {
		t.Helper()
		cluster.Kill(t, node)
		eventually(t, "the loss is reported", func() error {
			if status := reserve(of); status != http.StatusServiceUnavailable {
				return fmt.Errorf("a reservation on the lost node is answered with %d", status)
			}
			return nil
		})
		eventually(t, "the other node goes on", func() error {
			if status := reserve(others); status != http.StatusCreated && status != http.StatusOK {
				return fmt.Errorf("a reservation is answered with %d", status)
			}
			return nil
		})
	}

	begin("a worker killed and back")
	began := time.Now()
	lost(home, l.key, other.key)
	cluster.Return(t, home)
	t.Logf("a worker was away for %s", time.Since(began).Round(time.Millisecond))
	hold("after the worker's return")

	begin("the URL's worker killed, its standby promoted")
	began = time.Now()
	lost(far, other.key, l.key)
	cluster.Promote(t, far)
	t.Logf("its standby has its place %s after the loss", time.Since(began).Round(time.Millisecond))
	hold("after the promotion")

	begin("the coordinator killed and back")
	cluster.Kill(t, 0)
	hold("without the coordinator")
	cluster.Return(t, 0)
	hold("after the coordinator's return")

	begin("the coordinator lost, its standby promoted")
	cluster.Kill(t, 0)
	hold("without the coordinator again")
	cluster.Promote(t, 0)
	began = time.Now()
	pgtest.Eventually(t, "the service finds the coordinator through the URL's worker", func() (bool, error) {
		return pgtest.Ask[bool](
			cluster.URL(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'integrity wake')",
		)
	})
	t.Logf("the service has found the coordinator %s after its promotion", time.Since(began).Round(time.Millisecond))
	hold("after the coordinator's promotion")

	begin("a worker added, rebalanced")
	cluster.Add(t)
	if out := integrity(t, env, "doctor").out; moves() == 0 || !strings.Contains(out, "moves make it even") {
		t.Errorf("a node without shards: %d moves, %s", moves(), out)
	}
	persist(t, cluster.URL(), "u", "LOGGED") // the others cannot be moved while they are being written
	l.during("rebalanced", func() error { return cluster.Exec("SELECT rebalance_table_shards()") })
	hold("on three workers")
	if held := cluster.Holding(t); len(held) != 3 || moves() != 0 {
		t.Errorf("the log stands on the nodes %v, %d moves are left", held, moves())
	}

	begin("a worker drained, more shards, the worker removed")
	drained := make(chan error, 1)
	go func() { drained <- cluster.Exec(cluster.node(home, "SELECT citus_drain_node(nodename, nodeport)")) }()
	if out := must(t, append(slices.Clone(env), "INTEGRITY_SHARDS=16"), "migrate"); !strings.Contains(out, "16 shards") {
		t.Errorf("shards were not raised: %s", out)
	}
	l.during("drained", func() error { return <-drained })
	persist(t, cluster.URL(), "p", "UNLOGGED")
	cluster.Remove(t, home)
	if held := cluster.Holding(t); len(held) != 2 || slices.Contains(held, home) {
		t.Errorf("the log stands on the nodes %v, not on two others than %d", held, home)
	}
	hold("on two workers again")
	if status := reserve(externalAccount(t, env)); status != http.StatusCreated {
		t.Errorf("a new organization's reservation is answered with %d", status)
	}
	begin("")
	for _, d := range []*drill{l, other} {
		d.end()
	}
	for i, p := range phases[:len(phases)-1] {
		t.Logf(
			"%s: longest silence %s, of the other organization %s", p.name,
			l.silence(p.at, phases[i+1].at).Round(time.Millisecond),
			other.silence(p.at, phases[i+1].at).Round(time.Millisecond),
		)
	}
	if t.Failed() {
		return
	}
	logs := ledgertest.Attach(t, cluster.URL()).Audit(t)
	l.found(logs)
	other.found(logs)
	audit := must(t, env, "audit", "--data-dir", l.dir)
	if t.Log(audit); strings.Contains(audit, "no checkpoint") {
		t.Error("the transparency log was not audited")
	}
}

// during reports how fast registrations were acknowledged in the meantime.
func (l *drill) during(what string, do func() error) {
	l.t.Helper()
	began, from := time.Now(), l.count.Load()
	if err := do(); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	took := time.Since(began)
	l.t.Logf(
		"%s in %s, %.0f registrations a second meanwhile", what, took.Round(time.Millisecond),
		float64(l.count.Load()-from)/took.Seconds(),
	)
}

// persist sets whether the tables of counters and rebuilds survive a crash, as in the README.
func persist(t *testing.T, url, from, to string) {
	t.Helper()
	tables, err := pgtest.Ask[[]string](url, `SELECT coalesce(array_agg(c.oid::regclass::text), '{}') FROM pg_class c
		WHERE c.relkind = 'r' AND c.relpersistence = '`+from+
		`' AND (c.relnamespace = 'rebuild'::regnamespace OR c.oid = 'public.meters'::regclass)`)
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
