package eventstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// Within runs do in a transaction on the rows of a shard, which may take several round trips: on Citus on the node that
// holds them, where they stay until its end. Its statements name tables of shards alone.
func Within(ctx context.Context, db Database, shard domain.Shard, do func(pgx.Tx) error) error {
	if r, ok := db.(*Router); ok {
		return pgx.BeginFunc(ctx, onShard{r, shard}, do)
	}
	return pgx.BeginFunc(ctx, db, do)
}

// onShard begins transactions on the node of a shard.
type onShard struct {
	*Router
	shard domain.Shard
}

// Begin follows a move: nothing has run before it knows that the node holds the shard.
func (s onShard) Begin(ctx context.Context) (pgx.Tx, error) {
	for attempt := 1; ; attempt++ {
		tx, piece, err := s.begin(ctx)
		switch {
		case err == nil:
			return tx, nil
		case !cluster.Moved(err) || attempt == maxAttempts:
			return nil, err
		}
		s.nodes.Forget(piece)
	}
}

func (s onShard) begin(ctx context.Context) (*aimedTx, *cluster.Piece, error) {
	conn, piece, err := s.nodes.Acquire(ctx, uint16(s.shard))
	if err != nil {
		return nil, nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, nil, err
	}
	aimed := &aimedTx{tx, piece, conn.Release}
	held := &pgx.Batch{}
	piece.Hold(held)
	if err := tx.SendBatch(ctx, held).Close(); err != nil {
		_ = aimed.Rollback(ctx) // or the connection ends with it
		return nil, piece, err
	}
	return aimed, piece, nil
}

// aimedTx is a transaction whose statements go to a piece.
type aimedTx struct {
	pgx.Tx
	piece   *cluster.Piece
	release func() // nil: the connection was given back
}

// Begin implements pgx.Tx.
func (t *aimedTx) Begin(context.Context) (pgx.Tx, error) {
	return nil, errors.New("a transaction of a shard has no others within it")
}

// Exec implements pgx.Tx.
func (t *aimedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(ctx, t.piece.Aimed(sql), args...)
}

// Query implements pgx.Tx.
func (t *aimedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, t.piece.Aimed(sql), args...)
}

// QueryRow implements pgx.Tx.
func (t *aimedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, t.piece.Aimed(sql), args...)
}

// SendBatch implements pgx.Tx.
func (t *aimedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	aimed := &pgx.Batch{}
	for _, q := range b.QueuedQueries {
		copied := *q
		aimed.QueuedQueries = append(aimed.QueuedQueries, &copied)
	}
	t.piece.Aim(aimed)
	return t.Tx.SendBatch(ctx, aimed)
}

// Commit implements pgx.Tx.
func (t *aimedTx) Commit(ctx context.Context) error {
	defer t.end()
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *aimedTx) Rollback(ctx context.Context) error {
	defer t.end()
	return t.Tx.Rollback(ctx)
}

// end gives the connection back, once: who has committed may also roll back.
func (t *aimedTx) end() {
	if t.release != nil {
		t.release()
		t.release = nil
	}
}
