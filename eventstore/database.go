package eventstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Database executes the statements of readers and workers: it is a pool, or a Router on Citus. Package cluster
// describes how statements are routed.
type Database interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Router sends a statement whose first argument is a shard to the Citus node that holds the shard, and every other
// statement to the coordinator. It waits while a move of the shard is being finished. It is safe for concurrent use.
type Router struct {
	*pgxpool.Pool
	nodes *cluster.Nodes
}

// Route returns a Router, or the pool itself if nodes is nil.
func Route(pool *pgxpool.Pool, nodes *cluster.Nodes) Database {
	if nodes == nil {
		return pool
	}
	return &Router{pool, nodes}
}

// NodeOf returns the number of the node that holds a shard. One server holds all shards and has the number 0.
func NodeOf(ctx context.Context, db Database, shard domain.Shard) (node int32, err error) {
	if nodes, ok := db.(finder); ok {
		return nodes.NodeOf(ctx, shard)
	}
	return 0, nil
}

// Routed reports whether several nodes hold the shards.
func Routed(db Database) bool {
	_, ok := db.(finder)
	return ok
}

type finder interface {
	NodeOf(ctx context.Context, shard domain.Shard) (node int32, err error)
}

// NodeOf returns the number of the node that serves a shard.
func (r *Router) NodeOf(ctx context.Context, shard domain.Shard) (int32, error) {
	return r.nodes.NodeOf(ctx, uint16(shard))
}

// Query implements Database.
func (r *Router) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !namesShard(args) {
		return r.Pool.Query(ctx, sql, args...)
	}
	return query(ctx, r, sql, args)
}

// QueryRow implements Database.
func (r *Router) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := r.Query(ctx, sql, args...) // rows carry its error
	return firstRow{rows}
}

// Exec implements Database.
func (r *Router) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if !namesShard(args) {
		return r.Pool.Exec(ctx, sql, args...)
	}
	return exec(ctx, r, sql, args)
}

func namesShard(args []any) bool {
	if len(args) == 0 {
		return false
	}
	_, ok := args[0].(domain.Shard)
	return ok
}

// SendBatch implements Database. The statements of a batch that name a shard must all name the same one.
func (r *Router) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	first := slices.IndexFunc(b.QueuedQueries, func(q *pgx.QueuedQuery) bool { return namesShard(q.Arguments) })
	if first < 0 {
		return r.Pool.SendBatch(ctx, b)
	}
	for attempt := 1; ; attempt++ {
		results, piece, err := r.send(ctx, b, first)
		if !cluster.Moved(err) || attempt == maxAttempts {
			return results
		}
		_ = results.Close() // the same error
		r.nodes.Forget(piece)
	}
}

// send locks the piece just before the first statement that names the shard, and returns the error of any statement up
// to that point.
func (r *Router) send(ctx context.Context, b *pgx.Batch, first int) (pgx.BatchResults, *cluster.Piece, error) {
	shard := b.QueuedQueries[first].Arguments[0].(domain.Shard) //nolint:forcetypeassert // the caller has looked
	conn, piece, err := r.nodes.Acquire(ctx, uint16(shard))
	if err != nil {
		return pgx.FailedBatchResults(b, err), nil, err
	}
	held := &pgx.Batch{}
	if !piece.HeldIn(ctx) {
		piece.Hold(held)
	}
	before := first + held.Len()
	held.QueuedQueries = slices.Insert(slices.Clone(b.QueuedQueries), first, held.QueuedQueries...)
	results := releasing{piece.Send(ctx, conn, held), conn}
	for range before {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	return results, piece, err
}

// releasing releases the connection when the results are closed.
type releasing struct {
	pgx.BatchResults
	conn *pgxpool.Conn
}

func (r releasing) Close() error {
	err := r.BatchResults.Close()
	r.conn.Release()
	return err
}

// Within runs do in a transaction on the rows of a shard. On Citus the transaction runs on the node that holds the
// shard, and the shard cannot move until it ends. All its statements must name distributed tables.
func Within(ctx context.Context, db Database, shard domain.Shard, do func(pgx.Tx) error) error {
	r, ok := db.(*Router)
	if !ok {
		return pgx.BeginFunc(ctx, db, do)
	}
	for attempt := 1; ; attempt++ {
		piece, begun, err := r.within(ctx, shard, do)
		if begun || !cluster.Moved(err) || attempt == maxAttempts {
			return err
		}
		r.nodes.Forget(piece)
	}
}

// within also reports whether do was called, which means that the node held the shard.
func (r *Router) within(ctx context.Context, shard domain.Shard, do func(pgx.Tx) error) (
	piece *cluster.Piece, begun bool, err error,
) {
	conn, piece, err := r.nodes.Acquire(ctx, uint16(shard))
	if err != nil {
		return nil, false, err
	}
	defer conn.Release()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		piece.Hold(b)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		begun = true
		return do(pieceTx{tx, piece})
	})
	return piece, begun, err
}

// pieceTx is a transaction on the node of a piece.
type pieceTx struct {
	pgx.Tx
	piece *cluster.Piece
}

// Begin implements pgx.Tx.
func (t pieceTx) Begin(context.Context) (pgx.Tx, error) {
	return nil, errors.New("a transaction on a shard cannot contain another transaction") //nolint:forbidigo // a bug
}

// SendBatch implements pgx.Tx.
func (t pieceTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.piece.Send(ctx, t.Tx, b)
}

// Query implements pgx.Tx.
func (t pieceTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return query(ctx, t, sql, args)
}

// QueryRow implements pgx.Tx.
func (t pieceTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...) // rows carry its error
	return firstRow{rows}
}

// Exec implements pgx.Tx.
func (t pieceTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return exec(ctx, t, sql, args)
}

// query sends one statement as a batch.
func query(ctx context.Context, to cluster.Sender, sql string, args []any) (pgx.Rows, error) {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	results := to.SendBatch(ctx, b)
	rows, err := results.Query()
	return &onlyRows{Rows: rows, results: results}, err
}

func exec(ctx context.Context, to cluster.Sender, sql string, args []any) (pgconn.CommandTag, error) {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	results := to.SendBatch(ctx, b)
	tag, err := results.Exec()
	return tag, cmp.Or(err, results.Close())
}

// onlyRows are the rows of a batch with one query. Closing them closes the batch.
type onlyRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
	closed  bool
}

func (r *onlyRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *onlyRows) Close() {
	if !r.closed {
		r.closed = true
		r.Rows.Close()
		r.err = r.results.Close()
	}
}

func (r *onlyRows) Err() error { return r.err }

// firstRow is the first row of a query.
type firstRow struct{ pgx.Rows }

func (r firstRow) Scan(targets ...any) error {
	defer r.Close()
	if !r.Next() {
		return cmp.Or(r.Err(), pgx.ErrNoRows)
	}
	if err := r.Rows.Scan(targets...); err != nil {
		return err
	}
	r.Close()
	return r.Err()
}

// Everywhere runs one query over all shards of a ledger: on the one server, or on each node (cluster.Everywhere).
func Everywhere[T any](
	ctx context.Context, db Database, shards int, scan pgx.RowToFunc[T], question string, args ...any,
) ([]T, error) {
	if r, ok := db.(*Router); ok {
		return cluster.Everywhere(ctx, r.Pool, r.nodes, shards, scan, question, args...)
	}
	rows, _ := db.Query(ctx, question, args...) // rows carry its error
	return pgx.CollectRows(rows, scan)
}

// EachShard calls do for one shard after another. It continues after an error and returns all errors joined. After an
// UnansweredError it skips the other shards of that node, so that a silent node delays the round only once.
func EachShard(
	ctx context.Context, db Database, shards []domain.Shard, do func(context.Context, domain.Shard) error,
) (failed error) {
	silent, leftOut := map[int32]bool{}, 0
	for _, shard := range shards {
		if err := ctx.Err(); err != nil {
			return errors.Join(failed, err)
		}
		node, err := NodeOf(ctx, db, shard)
		if err == nil {
			if silent[node] {
				leftOut++
				continue
			}
			err = do(ctx, shard)
			silent[node] = errors.As(err, &UnansweredError{})
		}
		if err != nil {
			failed = errors.Join(failed, say.Errorf("shard %d: %w", shard, err))
		}
	}
	if leftOut > 0 {
		failed = errors.Join(failed, say.Errorf(
			"skipped %d more shards of nodes that did not answer until the next round", leftOut))
	}
	return failed
}

// UnansweredError means that a statement was not answered in time.
type UnansweredError struct{ Err error }

func (u UnansweredError) Error() string { return u.Err.Error() }

func (u UnansweredError) Unwrap() error { return u.Err }
