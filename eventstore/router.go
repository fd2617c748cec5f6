package eventstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// Database is what readers and workers send statements to: a pool, or on Citus a Router.
type Database interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Router sends a statement whose first argument is a shard to the node of Citus that holds it, and everything else
// through Citus, but for transactions of a shard (Within) and questions about all shards (Everywhere). A move that is
// being finished is waited for. Safe for concurrent use.
type Router struct {
	*pgxpool.Pool
	nodes *cluster.Nodes
}

// Route is the pool itself where there are no nodes.
func Route(pool *pgxpool.Pool, nodes *cluster.Nodes) Database {
	if nodes == nil {
		return pool
	}
	return &Router{pool, nodes}
}

// NodeOf tells apart the nodes that hold shards. One server holds them all.
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

// NodeOf is the node that is asked for a shard.
func (r *Router) NodeOf(ctx context.Context, shard domain.Shard) (int32, error) {
	return r.nodes.NodeOf(ctx, uint16(shard))
}

// Everywhere asks one question about all shards of a ledger (cluster.Everywhere).
func Everywhere[T any](ctx context.Context, db Database, shards int, scan pgx.RowToFunc[T], question string, args ...any) ([]T, error) {
	if r, ok := db.(*Router); ok {
		return cluster.Everywhere(ctx, r.Pool, r.nodes, shards, scan, question, args...)
	}
	rows, _ := db.Query(ctx, question, args...) // its error is that of the rows
	return pgx.CollectRows(rows, scan)
}

// Query is that of pgx: its error is also that of the rows.
func (r *Router) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !namesShard(args) {
		return r.Pool.Query(ctx, sql, args...)
	}
	results := r.one(ctx, sql, args)
	rows, err := results.Query()
	return &routedRows{Rows: rows, results: results}, err
}

// QueryRow is that of pgx.
func (r *Router) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := r.Query(ctx, sql, args...) // its error is that of the rows
	return routedRow{rows}
}

// Exec is that of pgx.
func (r *Router) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if !namesShard(args) {
		return r.Pool.Exec(ctx, sql, args...)
	}
	results := r.one(ctx, sql, args)
	tag, err := results.Exec()
	return tag, cmp.Or(err, results.Close())
}

func (r *Router) one(ctx context.Context, sql string, args []any) pgx.BatchResults {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	return r.SendBatch(ctx, b)
}

func namesShard(args []any) bool {
	if len(args) == 0 {
		return false
	}
	_, ok := args[0].(domain.Shard)
	return ok
}

// SendBatch is that of pgx, for statements of one shard.
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

// send begins a batch with what holds the shard, at the first statement that names it, and returns the error of that.
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
	aimed := slices.Insert(slices.Clone(b.QueuedQueries), first, held.QueuedQueries...)
	for i, q := range aimed {
		copied := *q
		aimed[i] = &copied
	}
	held.QueuedQueries = aimed
	piece.Aim(held)
	results := routedResults{conn.SendBatch(ctx, held), conn}
	for range before {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	return results, piece, err
}

// routedResults gives the connection back.
type routedResults struct {
	pgx.BatchResults
	conn *pgxpool.Conn
}

func (r routedResults) Close() error {
	err := r.BatchResults.Close()
	r.conn.Release()
	return err
}

// routedRows are the rows of a batch of one query, which ends with them.
type routedRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
	closed  bool
}

func (r *routedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *routedRows) Close() {
	if !r.closed {
		r.closed = true
		r.Rows.Close()
		r.err = r.results.Close()
	}
}

func (r *routedRows) Err() error { return r.err }

// routedRow is the first of the rows.
type routedRow struct{ pgx.Rows }

func (r routedRow) Scan(targets ...any) error {
	defer r.Close()
	if !r.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.Rows.Scan(targets...); err != nil {
		return err
	}
	r.Close()
	return r.Err()
}
