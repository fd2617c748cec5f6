package projections_test

import (
	"context"
	"testing"

	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/domain"
	"integrityledger/projections"
	"integrityledger/projections/ledgertest"
)

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
