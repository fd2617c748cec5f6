package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/migrations"
)

// CitusVariable is the environment variable with the URL of a database of a Citus coordinator.
const CitusVariable = "INTEGRITY_TEST_CITUS_URL"

// Citus skips a test of Citus if there is no cluster.
func Citus(t testing.TB) {
	t.Helper()
	if !OnCitus() {
		t.Skipf("%s is not set", CitusVariable)
	}
}

// OneServer skips a test of a single server if the tests run on a cluster. why gives the reason.
func OneServer(t testing.TB, why string) {
	t.Helper()
	if OnCitus() {
		t.Skip("not on Citus: " + why)
	}
}

// OnCitus reports whether New creates databases in a cluster.
func OnCitus() bool { return os.Getenv(CitusVariable) != "" }

// LockWaits returns a query for the number of sessions on all nodes that wait for another session's lock. It reads
// pg_locks because the service role may not see what a session waits for, but may see locks that are not granted.
// Citus's own list of waits contains only sessions that it opened itself.
func LockWaits() string {
	return OnAllNodes(
		"SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = " +
			"current_database()",
	)
}

// OnAllNodes returns a query that adds up the result of a counting query in the current database and, on Citus, in the
// same database of every other node.
func OnAllNodes(count string) string {
	if OnCitus() {
		return "SELECT sum(result::int)::int FROM run_command_on_all_nodes($count$" + count + "$count$)"
	}
	return count
}

// CitusSettings returns the settings of each server of a cluster.
func CitusSettings() map[string]string {
	return map[string]string{
		"shared_preload_libraries": "citus", "citus.node_conninfo": "sslmode=disable", "citus.shard_count": "4",
		"max_prepared_transactions": "300",
		// Two-phase commits stay listed, so that tests can count them.
		"citus.recover_2pc_interval":         "-1",
		"citus.enable_statistics_collection": "off",
	}
}

// CitusNodes is a coordinator and two workers of Citus on this machine, connected by Unix sockets.
type CitusNodes struct{ servers []*Server }

// StartCitus starts a throwaway cluster. The PostgreSQL installation must have the extension.
func StartCitus(ctx context.Context) (_ *CitusNodes, err error) {
	c := &CitusNodes{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("test cluster of Citus: %w", err), c.Stop(context.WithoutCancel(ctx)))
		}
	}()
	for range 3 {
		server, err := start(ctx, CitusSettings())
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, server)
	}
	nodes := make([]Node, len(c.servers))
	for i, s := range c.servers {
		if nodes[i], err = NodeAt(s.URL()); err != nil {
			return nil, err
		}
	}
	for _, n := range nodes { // a node also connects to itself
		if err := OnNodes(
			ctx, c.URL(), []Node{n}, "postgres", "ALTER SYSTEM SET citus.local_hostname = '"+n.Host+"'",
			"SELECT pg_reload_conf()",
		); err != nil {
			return nil, err
		}
	}
	return c, Join(ctx, c.URL(), "postgres", nodes)
}

// URL returns the value for CitusVariable.
func (c *CitusNodes) URL() string { return c.servers[0].URL() }

// Stop stops and removes the cluster.
func (c *CitusNodes) Stop(ctx context.Context) error {
	var err error
	for _, s := range c.servers {
		err = errors.Join(err, s.Stop(ctx))
	}
	return err
}

// Node is the address at which the other servers of a cluster reach one.
type Node struct {
	Host string
	Port uint16
}

// NodeAt returns the server of a URL.
func NodeAt(url string) (Node, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return Node{}, err
	}
	return Node{config.Host, config.Port}, nil
}

// connectNode connects to a database of one node as the role of the coordinator's URL.
func connectNode(ctx context.Context, coordinator string, n Node, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(coordinator)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CitusVariable, err)
	}
	config.Host, config.Port, config.Database, config.Fallbacks = n.Host, n.Port, database, nil
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("node %s:%d: %w", n.Host, n.Port, err)
	}
	var name string
	if err := conn.QueryRow(ctx, "SELECT current_setting('cluster_name')").Scan(&name); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	if !strings.HasPrefix(name, Prefix) {
		return nil,
			errors.Join(fmt.Errorf("%s points to a cluster that is not one for tests (cluster_name %q does not begin with "+
				"%s): refusing to touch it",
				CitusVariable, name, Prefix), conn.Close(ctx))
	}
	return conn, nil
}

// OnNodes runs statements in a database of every node, the coordinator first.
func OnNodes(ctx context.Context, coordinator string, nodes []Node, database string, statements ...string) error {
	for _, n := range nodes {
		conn, err := connectNode(ctx, coordinator, n, database)
		if err != nil {
			return err
		}
		for _, s := range statements {
			if _, err = conn.Exec(ctx, s); err != nil {
				err = fmt.Errorf("node %s:%d: %s: %w", n.Host, n.Port, s, err)
				break
			}
		}
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// Join makes a cluster of the databases with the same name on every node.
func Join(ctx context.Context, coordinator, database string, nodes []Node) error {
	if err := OnNodes(ctx, coordinator, nodes, database, "CREATE EXTENSION citus"); err != nil {
		return err
	}
	statements := []string{fmt.Sprintf("SELECT citus_set_coordinator_host('%s', %d)", nodes[0].Host, nodes[0].Port)}
	for _, n := range nodes[1:] {
		statements = append(statements, fmt.Sprintf("SELECT citus_add_node('%s', %d)", n.Host, n.Port))
	}
	return OnNodes(ctx, coordinator, nodes[:1], database, statements...)
}

// nodesOf lists the nodes of the cluster, the coordinator first.
func nodesOf(ctx context.Context, conn *pgx.Conn) ([]Node, error) {
	rows, err := conn.Query(
		ctx, "SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND noderole = 'primary' ORDER BY groupid",
	)
	if err != nil {
		return nil, fmt.Errorf("nodes of the cluster: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Node])
}

func newOnCitus(t testing.TB, coordinator string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // the template has a thousand tables
	defer cancel()
	name, nodes, err := createOnCitus(ctx, coordinator)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		if err := OnNodes(
			context.Background(), coordinator, nodes, "postgres", "DROP DATABASE "+name+" WITH (FORCE)",
		); err != nil {
			t.Error("pgtest:", err)
		}
	})
	database, err := withDatabase(coordinator, name)
	if err == nil {
		_, err = migrations.Distribute(ctx, database, false) // the role's settings are not part of the template
	}
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	return database
}

// createOnCitus clones the template on every node. The clones work together, because the nodes' catalogues name
// servers, not databases.
func createOnCitus(ctx context.Context, coordinator string) (name string, nodes []Node, err error) {
	conn, err := pgx.Connect(ctx, coordinator)
	if err != nil {
		return "", nil, fmt.Errorf("test cluster: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if nodes, err = nodesOf(ctx, conn); err != nil {
		return "", nil, err
	}
	if len(nodes) < 2 {
		return "", nil, fmt.Errorf("%s: the coordinator has no worker", CitusVariable)
	}
	hash, err := migrations.Hash()
	if err != nil {
		return "", nil, err
	}
	template := "template_" + hash[:32]
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", template); err != nil {
		return "", nil, fmt.Errorf("lock the template: %w", err)
	}
	var found bool
	if err := conn.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", template,
	).Scan(&found); err != nil {
		return "", nil, err
	}
	if !found {
		if err := makeTemplate(ctx, coordinator, nodes, template); err != nil {
			return "", nil, fmt.Errorf("make the template: %w", err)
		}
	}
	name = "test_" + strings.ToLower(rand.Text())
	if err := OnNodes(ctx, coordinator, nodes, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return "", nil, err
	}
	return name, nodes, nil
}

// makeTemplate renames the template last, on the workers and then on the coordinator, so that an existing template is
// complete.
func makeTemplate(ctx context.Context, coordinator string, nodes []Node, template string) error {
	unfinished := template + "_new"
	if err := OnNodes(ctx, coordinator, nodes, "postgres", "DROP DATABASE IF EXISTS "+template+" WITH (FORCE)",
		"DROP DATABASE IF EXISTS "+unfinished+" WITH (FORCE)", "CREATE DATABASE "+unfinished); err != nil {
		return err
	}
	if err := Join(ctx, coordinator, unfinished, nodes); err != nil {
		return err
	}
	database, err := withDatabase(coordinator, unfinished)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, database); err != nil {
		return err
	}
	if _, err := migrations.Distribute(ctx, database, false); err != nil {
		return err
	}
	last := append(append([]Node{}, nodes[1:]...), nodes[0])
	end := fmt.Sprintf("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '%s'", unfinished)
	return OnNodes(ctx, coordinator, last, "postgres", end, "ALTER DATABASE "+unfinished+" RENAME TO "+template)
}

var subquery = regexp.MustCompile(`\(\s*SELECT (?:[^()]|\([^()]*\))*\)`)

// Pushable fails if an INSERT … SELECT has a subquery without a relation. It needs no cluster. For such a statement,
// Citus would copy the rows from the coordinator in a two-phase commit (MultiTaskRouterSelectQuerySupported).
func Pushable(t *testing.T, statements map[string]string) {
	t.Helper()
	for name, statement := range statements {
		for _, q := range subquery.FindAllString(statement, -1) {
			if strings.HasPrefix(statement, "INSERT") && !strings.Contains(q, "FROM") {
				t.Errorf("%s selects from no relation: %s", name, q)
			}
		}
	}
}

// Routed fails unless Citus runs each query, whose first parameter is a shard, as one task on one node without work on
// the coordinator. The query named "never" must not be routed, to show that the check works.
func Routed(t *testing.T, pool *pgxpool.Pool, queries map[string]string) {
	t.Helper()
	for name, query := range queries {
		plan, err := explain(context.Background(), pool, query)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		routed := strings.HasPrefix(plan, "Custom Scan (Citus Adaptive)") && strings.Contains(plan, "Task Count: 1\n") &&
			!strings.Contains(plan, "Distributed Subplan") && !strings.Contains(plan, "INSERT/SELECT method")
		if routed != (name != "never") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// Direct fails unless PostgreSQL itself plans each query on a connection to the node that holds a shard.
func Direct(t *testing.T, conn *pgxpool.Conn, text func(string) (string, error), queries map[string]string) {
	t.Helper()
	for name, query := range queries {
		if name == "never" {
			continue
		}
		placed, err := text(query)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if plan, err := explainOn(context.Background(), conn, placed); err != nil || strings.Contains(plan, "Citus") {
			t.Errorf("%s: %v\n%s", name, err, plan)
		}
	}
}
