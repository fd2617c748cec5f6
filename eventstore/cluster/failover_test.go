package cluster_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/pgtest"
	"integrityledger/migrations"
	"integrityledger/projections/ledgertest"
)

// TestServerBecomesReadOnly: a connection whose server accepts no more writes is dropped, and the group is written on
// another.
func TestServerBecomesReadOnly(t *testing.T) {
	l := ledgertest.New(t)
	o := l.Organization(t, 0, domain.InternalPlan)
	ctx := context.Background()
	var pool *pgxpool.Pool
	process := l.Process(t, l.URL, func(c *eventstore.Config) {
		var err error
		if pool, err = cluster.At(l.URL).CommitPool(ctx, 1); err != nil {
			t.Fatal(err)
		}
		c.Pool.Close()
		c.Pool = pool
	})
	t.Cleanup(pool.Close)
	readOnly := func(conn *pgx.Conn) {
		t.Helper()
		if _, err := conn.Exec(ctx, "SET default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
	}
	if err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		readOnly(conn.Conn())
		_, err := conn.Exec(ctx, "UPDATE shard_heads SET position = position")
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || answer.Code != "25006" || !conn.Conn().IsClosed() {
			t.Errorf("answer %v, closed %t", err, conn.Conn().IsClosed())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { readOnly(conn.Conn()); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := process.Do(ctx, l.Register(t, o, o.Declaration("a", 1, "x"))); err != nil {
		t.Errorf("a registration on a connection that has become read-only: %v", err)
	}
	l.Audit(t)
}

// TestFormerPrimaryComesBack: pools that share a Primary never use a replaced primary, even if they never met its
// successor and the URL names the replaced primary first.
func TestFormerPrimaryComesBack(t *testing.T) {
	c := pgtest.NewCluster(t, true)
	ctx := context.Background()
	url := c.URL(t) + "&target_session_attrs=read-write"
	if err := migrations.Up(ctx, url); err != nil {
		t.Fatal(err)
	}
	shared, err := cluster.Find(ctx, connect.Fixed(url))
	if err != nil {
		t.Fatal(err)
	}
	read, err := shared.ReadPool(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	commit, err := shared.CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer commit.Close()
	where := func(pool *pgxpool.Pool) (timeline string, err error) {
		err = pool.QueryRow(ctx, "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)").Scan(&timeline)
		return timeline, err
	}
	for _, pool := range []*pgxpool.Pool{read, commit} {
		if timeline, err := where(pool); err != nil || timeline != "00000001" {
			t.Fatalf("at first: %q %v", timeline, err)
		}
	}
	c.Kill(t, c.Primary)
	pgtest.Eventually(t, "the processes of the killed primary have ended", func() (bool, error) {
		_, err := where(read)
		return err != nil, nil
	})
	c.Promote(t)
	pgtest.Eventually(t, "the new primary is found", func() (bool, error) {
		timeline, err := where(read)
		return timeline == "00000002", err
	})
	c.ReturnPrimary(t)
	pgtest.Eventually(t, "the pool that never met the new primary finds it", func() (bool, error) {
		timeline, err := where(commit) // its first connection is dead
		if timeline == "00000001" {
			t.Fatal("a former primary is used")
		}
		return timeline == "00000002", err
	})
	// A process that starts now checks both before it chooses.
	if again, err := cluster.Find(ctx, connect.Fixed(url)); err != nil {
		t.Fatal(err)
	} else if fresh, err := again.ReadPool(ctx, 1); err != nil {
		t.Fatal(err)
	} else {
		defer fresh.Close()
		if timeline, err := where(fresh); err != nil || timeline != "00000002" {
			t.Errorf("a process that starts: %q %v", timeline, err)
		}
	}
	// A former primary does not serve readers either.
	replica, err := shared.ReplicaPool(ctx, connect.Fixed(c.PrimaryURL()), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer replica.Close()
	if timeline, err := where(replica); err == nil {
		t.Errorf("a replica on timeline %s", timeline)
	}
	c.Kill(t, c.Standby)
	for range 3 {
		if timeline, err := where(commit); err == nil {
			t.Errorf("with the former primary alone, a connection to timeline %s", timeline)
		}
	}
}
