package eventstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/clustertest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections/ledgertest"
)

// Statements on the table consumers, which any transaction may write.
var (
	putRow  = cluster.SQL("INSERT INTO {consumers} (shard, consumer, position) VALUES ($1, $2, $3)")
	moveRow = cluster.SQL(
		"UPDATE {consumers} SET position = position + 1 WHERE shard = $1 AND consumer = $2 RETURNING position",
	)
	countIn = cluster.SQL("SELECT count(*) FROM {consumers} WHERE shard = $1 AND consumer = $2")
)

// TestWithin: several round trips on one shard are committed together or not at all, and the connection is always
// released.
func TestWithin(t *testing.T) {
	l := ledgertest.New(t)
	db, ctx, shard := l.Routed(t), context.Background(), domain.Shard(2)
	broken := errors.New("broken on purpose")
	for range 20 { // more than a pool has connections
		if err := eventstore.Within(ctx, db, shard, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, putRow, shard, "within", 1); err != nil {
				return err
			}
			return broken
		}); !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	if err := eventstore.Within(ctx, db, shard, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, putRow, shard, "within", 1); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(moveRow, shard, "within")
		b.Queue(moveRow, shard, "within")
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		var position, rows int
		if err := tx.QueryRow(ctx, moveRow, shard, "within").Scan(&position); err != nil || position != 4 {
			t.Errorf("position %d, %v", position, err)
		}
		found, err := tx.Query(ctx, countIn, shard, "within")
		if err != nil {
			return err
		}
		if rows, err = pgx.CollectExactlyOneRow(found, pgx.RowTo[int]); err != nil || rows != 1 {
			t.Errorf("%d rows, %v", rows, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := pgtest.Ask[int](
		l.URL, "SELECT sum(position)::int FROM consumers WHERE consumer = 'within'",
	); err != nil || n != 4 {
		t.Errorf("kept %d, %v", n, err)
	}
}

// TestWithinHoldsAMove: a move waits for a transaction of its shard, and the next transaction goes to the other node,
// although this process was not informed.
func TestWithinHoldsAMove(t *testing.T) {
	pgtest.Citus(t)
	l := ledgertest.New(t)
	db, ctx, shard := l.Routed(t), context.Background(), domain.Shard(0)
	holders := commits(t, l.URL)
	moved := make(chan error, 1)
	if err := eventstore.Within(ctx, db, shard, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, putRow, shard, "within", 1); err != nil {
			return err
		}
		go func() { moved <- clustertest.Move(ctx, l.URL, uint16(shard)) }()
		pgtest.Eventually(t, "the move waits", func() (bool, error) {
			conn, _, err := holders.Acquire(ctx, uint16(shard))
			if err != nil {
				return false, err
			}
			defer conn.Release()
			var waits bool
			err = conn.QueryRow(
				ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
			).Scan(&waits)
			return waits, err
		})
		_, err := tx.Exec(ctx, moveRow, shard, "within")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	for want := range 3 {
		var position int
		if err := eventstore.Within(ctx, db, shard, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, moveRow, shard, "within").Scan(&position)
		}); err != nil || position != want+3 {
			t.Errorf("after %d moves: position %d, %v", want+1, position, err)
		}
		if err := clustertest.Move(ctx, l.URL, uint16(shard)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEverywhereFollowsMoves: a query over all shards is answered by the nodes that currently hold them, although a
// former node keeps a copy for a while after a move.
func TestEverywhereFollowsMoves(t *testing.T) {
	l := ledgertest.New(t)
	db, ctx := l.Routed(t), context.Background()
	shards := l.Installation.Shards
	var orgs []ledgertest.Organization
	for shard := range domain.Shard(shards) {
		orgs = append(orgs, l.Organization(t, shard, domain.InternalPlan))
	}
	heads := cluster.SQL("SELECT shard * 1000 + position FROM {shard_heads} WHERE position > 0")
	for move := range int32(4) {
		if move > 0 && pgtest.OnCitus() {
			if err := clustertest.Move(ctx, l.URL, uint16(move)); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range orgs {
			l.Must(t, l.Register(t, o, o.Declaration("d", move+1, "copy")))
		}
		got, err := eventstore.Everywhere(ctx, db, shards, pgx.RowTo[int], heads)
		if err != nil {
			t.Fatal(err)
		}
		want, err := eventstore.Everywhere(ctx, l.Pool, shards, pgx.RowTo[int], heads)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) || len(got) != shards {
			t.Errorf("after %d moves the heads are %v, want %v", move, got, want)
		}
	}
}
