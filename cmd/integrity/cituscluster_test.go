package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
)

// citusCluster is a coordinator, node 0, and workers, each with a synchronous standby. All of them keep committed data
// when they are killed.
type citusCluster struct {
	nodes []*citusNode
}

type citusNode struct {
	*postgres.Server
	dir     string
	standby *postgres.Server // nil: it has taken the node's place
	host    string           // where the other nodes look for it
}

func (n *citusNode) URL() string { return n.Server.URL("postgres") }

// newCitusCluster starts a cluster with two workers and an empty database. It stops when the test ends. It needs
// PostgreSQL with the Citus extension.
func newCitusCluster(t testing.TB) *citusCluster {
	t.Helper()
	c := &citusCluster{}
	nodes := []pgtest.Node{c.begin(t), c.begin(t), c.begin(t)}
	if err := pgtest.Join(context.Background(), c.URL(), "postgres", nodes); err != nil {
		t.Fatal("pgtest:", err)
	}
	return c
}

// URL returns the URL of the coordinator's database.
func (c *citusCluster) URL() string { return c.nodes[0].URL() }

// Exec runs a statement on the coordinator, without a time limit.
func (c *citusCluster) Exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// node returns a statement about a node.
func (c *citusCluster) node(node int, sql string) string {
	return fmt.Sprintf("%s FROM pg_dist_node WHERE nodename = '%s'", sql, c.nodes[node].host)
}

func (c *citusCluster) must(t testing.TB, sql string) {
	t.Helper()
	if err := c.Exec(sql); err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

// Add starts another worker, which holds nothing until the tables are rebalanced.
func (c *citusCluster) Add(t testing.TB) {
	t.Helper()
	n := c.begin(t)
	if err := pgtest.OnNodes(
		context.Background(), c.URL(), []pgtest.Node{n}, "postgres", "CREATE EXTENSION citus",
	); err != nil {
		t.Fatal("pgtest:", err)
	}
	c.must(t, fmt.Sprintf("SELECT citus_add_node('%s', %d)", n.Host, n.Port))
}

// Remove removes a drained worker from the cluster and stops it.
func (c *citusCluster) Remove(t testing.TB, node int) {
	t.Helper()
	c.must(t, "CALL citus_cleanup_orphaned_resources()") // remains of shard moves
	c.must(t, c.node(node, "SELECT citus_remove_node(nodename, nodeport)"))
	pgtest.Kill(t, c.nodes[node].Server)
	pgtest.Kill(t, c.nodes[node].standby)
}

// Kill ends a node like the loss of its machine.
func (c *citusCluster) Kill(t testing.TB, node int) {
	t.Helper()
	pgtest.Kill(t, c.nodes[node].Server)
}

// Return restarts a killed node.
func (c *citusCluster) Return(t testing.TB, node int) {
	t.Helper()
	c.nodes[node].Server = pgtest.StartMortal(t, c.nodes[node].dir, mortalCitus())
}

// Promote replaces a killed node with its standby.
func (c *citusCluster) Promote(t testing.TB, node int) {
	t.Helper()
	n := c.nodes[node]
	n.Server, n.standby = n.standby, nil
	pgtest.Promote(t, n.URL())
	at := known(t, n.Server)
	c.must(
		t,
		c.node(
			node,
			fmt.Sprintf("SELECT citus_update_node(nodeid, '%s', %d, force => true, lock_cooldown => 1000)", at.Host, at.Port),
		),
	)
	n.host = at.Host
}

// NodeOf returns the node with a shard of the ledger.
func (c *citusCluster) NodeOf(t testing.TB, shard int) int {
	t.Helper()
	return c.ask(
		t, fmt.Sprintf("AND p.shardid = get_shard_id_for_distribution_column('public.shard_heads', %d)", shard),
	)[0]
}

// Holding returns the nodes that hold a part of the log.
func (c *citusCluster) Holding(t testing.TB) []int {
	t.Helper()
	return c.ask(t, "")
}

func (c *citusCluster) ask(t testing.TB, which string) (nodes []int) {
	t.Helper()
	hosts, err := pgtest.Ask[[]string](c.URL(),
		`SELECT array_agg(DISTINCT n.nodename) FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid)
		JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' WHERE s.logicalrelid IN ('public.shard_heads'::regclass, 'public.events'::regclass) `+which)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		for i, n := range c.nodes {
			if n.host == host {
				nodes = append(nodes, i)
			}
		}
	}
	if len(nodes) != len(hosts) {
		t.Fatalf("pgtest: %v are not all nodes of this cluster", hosts)
	}
	return nodes
}

func (c *citusCluster) begin(t testing.TB) pgtest.Node {
	t.Helper()
	n := &citusNode{dir: pgtest.ClusterDir(t)}
	n.Server = pgtest.StartMortal(t, n.dir, mortalCitus())
	at := known(t, n.Server)
	n.host = at.Host
	n.Server, n.standby = pgtest.WithStandby(t, n.Server, n.dir, mortalCitus())
	pgtest.Synchronous(t, n.URL())
	c.nodes = append(c.nodes, n)
	return at
}

// known returns a server as the other nodes reach it. A node also connects to itself.
func known(t testing.TB, server *postgres.Server) pgtest.Node {
	t.Helper()
	url := server.URL("postgres")
	n, err := pgtest.NodeAt(url)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	pgtest.Exec(t, url, fmt.Sprintf("ALTER SYSTEM SET citus.local_hostname = '%s'", n.Host))
	pgtest.Exec(t, url, "SELECT pg_reload_conf()")
	return n
}

// mortalCitus returns settings under which committed transactions survive a killed server, shards move while they are
// written, and a standby reconnects to its primary at once.
func mortalCitus() map[string]string {
	settings := pgtest.ClusterSettings()
	maps.Copy(settings, pgtest.CitusSettings())
	maps.Copy(
		settings,
		map[string]string{
			"cluster_name": pgtest.Prefix + rand.Text(), "max_connections": "200", "wal_level": "logical",
			"max_locks_per_transaction": "256", "wal_retrieve_retry_interval": "200ms",
		},
	)
	return settings
}
