package projections_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

// TestStandbys: who receives the log to keep up with it counts, whoever copies a backup does not. An alert remembers the
// number of standbys for a day.
func TestStandbys(t *testing.T) {
	l := ledgertest.New(t)
	ctx := context.Background()
	const standby = "a standby of TestStandbys"
	for _, name := range []string{standby, "pg_basebackup"} {
		config, err := pgconn.ParseConfig(l.URL)
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams["replication"] = "true"
		config.RuntimeParams["application_name"] = name
		conn, err := pgconn.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
	}
	list, err := projections.Standbys(ctx, l.Pool)
	if err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(list, func(s projections.Standby) bool { return s.Name == name })
	}
	if !has(standby) || has("pg_basebackup") {
		t.Errorf("standbys: %+v", list)
	}
}

// What the tables hold is told of all nodes of a cluster, where the coordinator's own are empty.
func TestTableSizes(t *testing.T) {
	ctx := context.Background()
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	l.Must(t, l.Register(t, o, o.Declaration("d", 1, "x")))
	size := "SELECT pg_total_relation_size('events')"
	if pgtest.OnCitus() {
		size = "SELECT citus_total_relation_size('events')"
	}
	want, err := pgtest.Ask[int64](l.URL, size)
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := projections.TableSizes(ctx, l.Pool)
	if err != nil || want == 0 || sizes["events"] < want || sizes["rebuild"] == 0 {
		t.Errorf("events %d of %d bytes, rebuild %d: %v", sizes["events"], want, sizes["rebuild"], err)
	}
}
