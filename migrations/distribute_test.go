package migrations_test

import (
	"context"
	"errors"
	neturl "net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/migrations"
)

func TestDistributeRefusesAServerWithoutCitus(t *testing.T) {
	pgtest.OneServer(t, "it has the extension")
	if _, err := migrations.Distribute(context.Background(), pgtest.New(t), false); !errors.Is(err, migrations.ErrNoCitus) || !strings.Contains(err.Error(), "CREATE EXTENSION citus") {
		t.Errorf("%v", err)
	}
}

// TestDistribute looks at a database that Distribute has made: all tables of a shard are on one node, the guard of the log
// works on the nodes, and Up distributes what a later migration adds.
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
		if err := conn.QueryRow(ctx, `SELECT coalesce(string_agg(c.oid::regclass::text, ' ' ORDER BY c.relname), '') FROM pg_class c
			LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid
			WHERE c.relnamespace IN ('public'::regnamespace, 'rebuild'::regnamespace) AND c.relkind = 'r'
				AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'shard') AND p.colocationid IS DISTINCT FROM
				(SELECT colocationid FROM pg_dist_partition WHERE logicalrelid = 'shard_heads'::regclass)`).Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names
	}
	if names := apart(); names != "" {
		t.Errorf("not beside the heads: %s", names)
	}
	var references string
	if err := conn.QueryRow(ctx, "SELECT string_agg(logicalrelid::text, ' ' ORDER BY logicalrelid::text) FROM pg_dist_partition WHERE partmethod = 'n'").Scan(&references); err != nil || references != "ledger oauth_subjects" {
		t.Errorf("reference tables: %s, %v", references, err)
	}
	// A table without a shard stays on the coordinator.
	if _, err := conn.Exec(ctx, "CREATE TABLE later (shard integer NOT NULL, id uuid NOT NULL, PRIMARY KEY (shard, id)); CREATE TABLE alone (id uuid PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	would, err := migrations.Distribute(ctx, url, true)
	if err != nil || len(would.Steps) != 1 || would.Steps[0] != "distributed table public.later" || apart() != "later" {
		t.Errorf("dry run: %+v, %v", would, err)
	}
	if err := migrations.Up(ctx, url); err != nil {
		t.Fatal(err)
	}
	if names := apart(); names != "" {
		t.Errorf("not beside the heads after Up: %s", names)
	}
	var host, port string
	if err := conn.QueryRow(ctx, "SELECT nodename, nodeport::text FROM pg_dist_node WHERE groupid <> 0 LIMIT 1").Scan(&host, &port); err != nil {
		t.Fatal(err)
	}
	worker := strings.NewReplacer(neturl.QueryEscape(conn.Config().Host), neturl.QueryEscape(host), strconv.Itoa(int(conn.Config().Port)), port).Replace(url)
	for name, enter := range map[string]func() error{
		"Up": func() error { return migrations.Up(ctx, worker) }, "Distribute": func() error { _, err := migrations.Distribute(ctx, worker, true); return err },
	} {
		if err := enter(); err == nil || !strings.Contains(err.Error(), "must be that of its coordinator") {
			t.Errorf("%s at a worker: %v", name, err)
		}
	}
	if _, err := conn.Exec(ctx, "DELETE FROM events WHERE shard = 1"); err == nil || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("DELETE of events: %v", err)
	}
}
