package migrations_test

import (
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
)

func TestDistributeRefusesAServerWithoutCitus(t *testing.T) {
	pgtest.OneServer(t, "it has the extension")
	if _, err := migrations.Distribute(context.Background(), pgtest.New(t), false); !errors.Is(
		err, migrations.ErrNoCitus,
	) || !strings.Contains(err.Error(), "CREATE EXTENSION citus") {
		t.Errorf("%v", err)
	}
}

// TestDistribute looks at a database that Distribute has made: all tables of a shard are on one node, the guard of the
// log works on the nodes, and Up distributes what a later migration adds.
func TestDistribute(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	url := pgtest.New(t)
	again, err := migrations.Distribute(ctx, url, false)
	if err != nil || len(again.Steps) != 0 || again.Nodes != 2 || again.Version == "" {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	apart := func() (names string) {
		t.Helper()
		if err := conn.QueryRow(ctx,
			`SELECT coalesce(string_agg(c.oid::regclass::text, ' ' ORDER BY c.relname), '') FROM pg_class c
			LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid
			WHERE c.relnamespace IN ('public'::regnamespace, 'rebuild'::regnamespace) AND c.relkind = 'r'
				AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'shard') AND p.colocationid IS DISTINCT FROM
				(SELECT colocationid FROM pg_dist_partition WHERE logicalrelid = 'shard_heads'::regclass)`).Scan(&names); err !=
			nil {
			t.Fatal(err)
		}
		return names
	}
	if names := apart(); names != "" {
		t.Errorf("not beside the heads: %s", names)
	}
	var references string
	if err := conn.QueryRow(
		ctx,
		"SELECT string_agg(logicalrelid::text, ' ' ORDER BY logicalrelid::text) FROM pg_dist_partition WHERE partmethod "+
			"= 'n'",
	).Scan(&references); err != nil || references != "ledger oauth_subjects" {
		t.Errorf("reference tables: %s, %v", references, err)
	}
	// A table without a shard stays on the coordinator.
	if _, err := conn.Exec(
		ctx,
		"CREATE TABLE later (shard integer NOT NULL, id uuid NOT NULL, PRIMARY KEY (shard, id)); CREATE TABLE alone (id "+
			"uuid PRIMARY KEY)",
	); err != nil {
		t.Fatal(err)
	}
	would, err := migrations.Distribute(ctx, url, true)
	if err != nil || len(would.Steps) != 1 || would.Steps[0].String() != "distributed table public.later" || apart() != "later" {
		t.Errorf("dry run: %+v, %v", would, err)
	}
	if err := migrations.Up(ctx, url); err != nil {
		t.Fatal(err)
	}
	if names := apart(); names != "" {
		t.Errorf("not beside the heads after Up: %s", names)
	}
	var host, port string
	if err := conn.QueryRow(
		ctx, "SELECT nodename, nodeport::text FROM pg_dist_node WHERE groupid <> 0 LIMIT 1",
	).Scan(&host, &port); err != nil {
		t.Fatal(err)
	}
	worker := strings.NewReplacer(
		neturl.QueryEscape(conn.Config().Host), neturl.QueryEscape(host), strconv.Itoa(int(conn.Config().Port)), port,
	).Replace(url)
	for name, enter := range map[string]func() error{
		"Up": func() error { return migrations.Up(ctx, worker) }, "Distribute": func() error {
			_, err := migrations.Distribute(ctx, worker, true)
			return err
		},
	} {
		if err := enter(); err == nil || !strings.Contains(err.Error(), "must be that of its coordinator") {
			t.Errorf("%s at a worker: %v", name, err)
		}
	}
	if _, err := conn.Exec(ctx, "DELETE FROM events WHERE shard = 1"); err == nil ||
		!strings.Contains(err.Error(), "append-only") {
		t.Errorf("DELETE of events: %v", err)
	}
}

// whole is a ledger on a cluster of Citus that is not distributed yet, and the cluster's workers.
func whole(t *testing.T) (url string, workers []pgtest.Node) {
	t.Helper()
	ctx := context.Background()
	other := connect(t, pgtest.New(t))
	// CollectRows returns its error
	rows, _ := other.Query(
		ctx, "SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND noderole = 'primary' ORDER BY groupid",
	)
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pgtest.Node])
	if err != nil {
		t.Fatal(err)
	}
	coordinator := other.Config().ConnString()
	const name = "whole"
	if err := pgtest.OnNodes(
		ctx, coordinator, nodes, "postgres", "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)", "CREATE DATABASE "+name,
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pgtest.OnNodes(ctx, coordinator, nodes, "postgres", "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	if err := pgtest.Join(ctx, coordinator, name, nodes); err != nil {
		t.Fatal(err)
	}
	url = strings.Replace(coordinator, other.Config().Database, name, 1)
	if err := migrations.Up(ctx, url); err != nil {
		t.Fatal(err)
	}
	return url, nodes[1:]
}

// TestDistributeMovesPieces: where Citus's placement is uneven, pieces are moved before the ledger's tables are put
// beside them.
func TestDistributeMovesPieces(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	url, _ := whole(t)
	conn := connect(t, url)
	if _, err := conn.Exec(
		ctx,
		"INSERT INTO ledger (id, issuer, secret, shards, epoch, created_at) VALUES (1, 'moves', decode(repeat('00', 32), "+
			"'hex'), 32, 1, now())",
	); err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Distribute(ctx, url, false); err != nil {
		t.Fatal(err)
	}
	var moves int
	if err := conn.QueryRow(ctx, "SELECT moves FROM ("+migrations.Uneven+") u (moves, each)").Scan(&moves); err != nil ||
		moves != 0 {
		t.Errorf("%d moves are left to make, %v", moves, err)
	}
}

// TestDistributeWholeOrNotAtAll: what cannot be distributed, or must not be, is a ledger on one server afterwards, and
// may be distributed later.
func TestDistributeWholeOrNotAtAll(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	url, workers := whole(t)
	conn := connect(t, url)
	set := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	onWorkers := func(statements ...string) {
		t.Helper()
		if err := pgtest.OnNodes(ctx, url, workers, "whole",
			append([]string{"SET citus.enable_ddl_propagation = off"}, statements...)...); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(why string) {
		t.Helper()
		if _, err := migrations.Distribute(ctx, url, false); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v; must say: %s", err, why)
		}
		var distributed, guarded bool
		if err := conn.QueryRow(ctx,
			`SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid <> to_regclass('public.placement')),
			to_regproc('public.hold_piece') IS NOT NULL`).Scan(&distributed, &guarded); err != nil || distributed || guarded {
			t.Errorf("%s: distributed %t, function %t, %v", why, distributed, guarded, err)
		}
		if _, err := conn.Exec(ctx, "SELECT count(*) FROM events"); err != nil {
			t.Errorf("%s: %v", why, err)
		}
	}

	serving := connect(t, url)
	if _, err := serving.Exec(ctx, "SET application_name = 'integrity commit'"); err != nil {
		t.Fatal(err)
	}
	refused("stop the service first, everywhere (sessions: integrity commit from this machine: 1)")
	if err := serving.Close(ctx); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, "the session ends", func() (bool, error) {
		return pgtest.Ask[bool](
			url,
			"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'integrity %' AND datname = "+
				"current_database())",
		)
	})

	set("ALTER DATABASE whole SET citus.shard_replication_factor = 2")
	refused("citus.shard_replication_factor is 2")
	set("ALTER DATABASE whole RESET citus.shard_replication_factor")

	onWorkers("REVOKE CONNECT ON DATABASE whole FROM PUBLIC")
	refused("the nodes cannot be used yet, and the ledger is as it was")
	onWorkers("GRANT CONNECT ON DATABASE whole TO PUBLIC")

	set("CREATE TABLE zebra (shard int PRIMARY KEY, other int UNIQUE)") // which comes last
	refused("distributed table public.zebra")
	set("DROP TABLE zebra")

	// Somebody who comes while the tables are distributed.
	set(`CREATE TABLE zebra (shard int PRIMARY KEY)`,
		`CREATE FUNCTION come() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_advisory_xact_lock_shared(7); END $$`,
		"CREATE EVENT TRIGGER come ON ddl_command_end WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION come()",
		"SELECT pg_advisory_lock(7)")
	result := make(chan error, 1)
	go func() {
		_, err := migrations.Distribute(ctx, url, false)
		result <- err
	}()
	pgtest.Eventually(t, "the tables are distributed", func() (bool, error) {
		return pgtest.Ask[bool](
			url, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted)",
		)
	})
	late := connect(t, url)
	if _, err := late.Exec(ctx, "SET application_name = 'integrity read'"); err != nil {
		t.Fatal(err)
	}
	set("SELECT pg_advisory_unlock(7)")
	if err := <-result; err == nil || !strings.Contains(err.Error(), "integrity read from this machine: 1") {
		t.Errorf("somebody has come: %v", err)
	}
	refused("integrity read from this machine: 1")
	if err := late.Close(ctx); err != nil {
		t.Fatal(err)
	}
	set("DROP EVENT TRIGGER come", "DROP FUNCTION come")
	pgtest.Eventually(t, "it is distributed", func() (bool, error) {
		_, err := migrations.Distribute(ctx, url, false)
		return err == nil, err
	})
}

// TestHoldPieceWorksForNobodyElse: it runs as its owner, and reads the catalogue of Citus, whatever its caller has of
// the same name.
func TestHoldPieceWorksForNobodyElse(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	conn := connect(t, pgtest.New(t))
	var piece, group int64
	if err := conn.QueryRow(ctx, `SELECT shardid, groupid FROM pg_dist_placement JOIN pg_dist_shard USING (shardid)
		WHERE logicalrelid = 'shard_heads'::regclass AND groupid <> 0 LIMIT 1`).Scan(&piece, &group); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"SET ROLE integrity_service", "CREATE TEMP TABLE met (who text)",
		fmt.Sprintf(
			`CREATE FUNCTION pg_temp.meet() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO pg_temp.met VALUES (current_user); RETURN %d; END $$`,
			group,
		),
		"CREATE TEMP VIEW pg_dist_local_group AS SELECT pg_temp.meet() AS groupid",
		"CREATE TEMP VIEW pg_dist_placement AS SELECT " + strconv.FormatInt(piece, 10) +
			"::bigint AS shardid, 1 AS shardstate, pg_temp.meet() AS groupid",
		"SET search_path = pg_temp, public",
	} {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if _, err := conn.Exec(ctx, "SELECT public.hold_piece($1)", piece); code(err) != "IL001" {
		t.Errorf("the coordinator holds the piece %d: %v", piece, err)
	}
	var met string
	if err := conn.QueryRow(ctx, "SELECT coalesce(string_agg(who, ' '), '') FROM pg_temp.met").Scan(&met); err != nil ||
		met != "" {
		t.Errorf("a caller's function ran as %s: %v", met, err)
	}
}
