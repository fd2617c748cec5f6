package eventstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestProbeOfARealDatabase: a ledger without traffic reports whether it can commit, without taking a shard's lock or
// leaving a row behind.
func TestProbeOfARealDatabase(t *testing.T) {
	pgtest.OneServer(t, "it reads the statistics of the server that it asks")
	l := ledgertest.New(t)
	ctx := context.Background()
	owner, err := pgx.Connect(ctx, l.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Close(ctx) })
	do := func(sql string) {
		t.Helper()
		if _, err := owner.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	probe, err := eventstore.OpenProbe(ctx, cluster.At(l.URL), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(probe.Close)

	do("BEGIN")
	do("SELECT FROM shard_heads FOR UPDATE")
	if err := probe.Ready(ctx); err != nil {
		t.Errorf("while another holds every shard: %v", err)
	}
	do("COMMIT")
	var temporary int64
	for deadline := time.Now().Add(time.Minute); temporary < 1<<20 && time.Now().Before(deadline); {
		// statistics come late
		if err := owner.QueryRow(
			ctx, "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()",
		).Scan(&temporary); err != nil {
			t.Fatal(err)
		}
	}
	if temporary < 1<<20 {
		t.Errorf("it asked for room for %d bytes", temporary)
	}

	var name string
	if err := owner.QueryRow(ctx, "SELECT quote_ident(current_database())").Scan(&name); err != nil {
		t.Fatal(err)
	}
	refused := func(when, why string) {
		t.Helper()
		now = now.Add(time.Second)
		var refused *domain.Error
		if err := probe.Ready(ctx); !errors.As(err, &refused) || refused.Code != domain.TemporarilyUnavailable ||
			!strings.Contains(refused.Message, why) {
			t.Errorf("%s: %v", when, err)
		}
	}
	do("ALTER DATABASE " + name + " SET default_transaction_read_only = on")
	do(
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'integrity probe' AND datname = " +
			"current_database()",
	)
	now = now.Add(time.Second)
	_ = probe.Ready(ctx) // may only have noticed that its connection was lost
	refused("read-only by its settings", "takes no writes")
	do("BEGIN READ WRITE")
	do("ALTER DATABASE " + name + " RESET default_transaction_read_only")
	do("COMMIT")
	now = now.Add(time.Second)
	if err := probe.Ready(ctx); err != nil {
		t.Errorf("after the setting is gone: %v", err)
	}
}
