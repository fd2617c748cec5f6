package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"testing"

	"integrityledger/cmd/postgres"
	"integrityledger/cmd/postgres/pgtest"
)

// citusCluster is a coordinator, which is node 0, and workers. All of them keep what was committed when they are killed.
type citusCluster struct {
	servers []*postgres.Server
	dirs    []string
}

// newCitusCluster starts a cluster with two workers and an empty database, which is stopped when the test ends. It needs the
// extension in the installation of PostgreSQL.
func newCitusCluster(t testing.TB) *citusCluster {
	t.Helper()
	c := &citusCluster{}
	nodes := []pgtest.Node{c.begin(t), c.begin(t), c.begin(t)}
	if err := pgtest.Join(context.Background(), c.URL(), "postgres", nodes); err != nil {
		t.Fatal("pgtest:", err)
	}
	return c
}

// URL is the database at the coordinator.
func (c *citusCluster) URL() string { return c.servers[0].URL("postgres") }

// Add starts one more worker, which holds nothing until the tables are rebalanced.
func (c *citusCluster) Add(t testing.TB) {
	t.Helper()
	n := c.begin(t)
	if err := pgtest.OnNodes(context.Background(), c.URL(), []pgtest.Node{n}, "postgres", "CREATE EXTENSION citus"); err != nil {
		t.Fatal("pgtest:", err)
	}
	pgtest.Exec(t, c.URL(), fmt.Sprintf("SELECT citus_add_node('%s', %d)", n.Host, n.Port))
}

// Kill ends a node as the loss of its machine does.
func (c *citusCluster) Kill(t testing.TB, node int) {
	t.Helper()
	pgtest.Kill(t, c.servers[node])
}

// Return starts a node that was killed.
func (c *citusCluster) Return(t testing.TB, node int) {
	t.Helper()
	c.servers[node] = pgtest.StartMortal(t, c.dirs[node], mortalCitus())
}

// NodeOf returns the node that holds a shard of the ledger.
func (c *citusCluster) NodeOf(t testing.TB, shard int) int {
	t.Helper()
	host, err := pgtest.Ask[string](c.URL(), fmt.Sprintf(`SELECT n.nodename FROM pg_dist_placement p JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
		WHERE p.shardid = get_shard_id_for_distribution_column('public.shard_heads', %d)`, shard))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range c.servers {
		if n, err := pgtest.NodeAt(s.URL("postgres")); err == nil && n.Host == host {
			return i
		}
	}
	t.Fatalf("pgtest: shard %d is on %s, which is no node of this cluster", shard, host)
	return 0
}

func (c *citusCluster) begin(t testing.TB) pgtest.Node {
	t.Helper()
	dir := pgtest.ClusterDir(t)
	server := pgtest.StartMortal(t, dir, mortalCitus())
	c.servers, c.dirs = append(c.servers, server), append(c.dirs, dir)
	n, err := pgtest.NodeAt(server.URL("postgres"))
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	// A node also connects to itself.
	pgtest.Exec(t, server.URL("postgres"), fmt.Sprintf("ALTER SYSTEM SET citus.local_hostname = '%s'", n.Host))
	pgtest.Exec(t, server.URL("postgres"), "SELECT pg_reload_conf()")
	return n
}

// mortalCitus are settings under which committed transactions survive a killed server, and shards move while they are written.
func mortalCitus() map[string]string {
	settings := pgtest.ClusterSettings()
	maps.Copy(settings, pgtest.CitusSettings())
	maps.Copy(settings, map[string]string{"cluster_name": pgtest.Prefix + rand.Text(), "max_connections": "200", "wal_level": "logical", "max_locks_per_transaction": "256"})
	return settings
}
