package cluster_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// TestWarningAtACommit: a commit that the server warned about has an unknown outcome, even if another transaction
// begins on the same connection before the commit is checked.
func TestWarningAtACommit(t *testing.T) {
	l := ledgertest.New(t)
	pgtest.Exec(t, l.URL, `CREATE TABLE warned (n int);
		CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'not replicated'; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON warned DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn();
		GRANT ALL ON warned TO PUBLIC`)
	ctx := context.Background()
	pool, err := cluster.At(l.URL).CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	begin := func(statement string) pgx.Tx {
		t.Helper()
		tx, err := pool.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, statement)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	next := func() {
		if err := cluster.Commit(ctx, begin("SELECT 1")); err != nil {
			t.Errorf("a commit without a warning: %v", err)
		}
	}
	if err := cluster.Commit(
		ctx, overtaken{begin("INSERT INTO warned VALUES (1)"), next},
	); !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("a commit with a warning: %v", err)
	}
}

// overtaken is a transaction whose connection has already served the next transaction when its commit returns.
type overtaken struct {
	pgx.Tx
	next func()
}

func (tx overtaken) Commit(ctx context.Context) error {
	err := tx.Tx.Commit(ctx)
	tx.next()
	return err
}

// TestIsolation: a group reads rows committed while it waited for its shard, even if the database's default isolation
// level would give it an older snapshot.
func TestIsolation(t *testing.T) {
	url := pgtest.New(t)
	pgtest.Exec(
		t, url,
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', current_database(), "+
			"'repeatable read'); END $$",
	)
	ctx := context.Background()
	pool, err := cluster.At(url).CommitPool(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var isolation string
	if err := pool.QueryRow(ctx, "SHOW transaction_isolation").Scan(&isolation); err != nil ||
		isolation != "read committed" {
		t.Errorf("%q, %v", isolation, err)
	}
}
