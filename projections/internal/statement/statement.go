// Package statement runs one SQL statement for a reader or a worker: it limits its time, reads its rows, and
// distinguishes an unavailable database from a bug.
package statement

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"

	"integrityledger/domain/say"
)

// Timeout limits one statement, including the wait for a connection.
const Timeout = 10 * time.Second

// All runs a query and reads all its rows. what describes the query in errors.
func All[T any](
	ctx context.Context, from history.Querier, what string, scan pgx.RowToFunc[T], sql string, args ...any,
) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	rows, _ := from.Query(ctx, sql, args...) // CollectRows returns its error
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, Failed(what, err)
	}
	return list, nil
}

// First is All for a query of at most one row. found is false if there is no row.
func First[T any](
	ctx context.Context, from history.Querier, what string, scan pgx.RowToFunc[T], sql string, args ...any,
) (row T, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	rows, _ := from.Query(ctx, sql, args...)
	row, err = pgx.CollectOneRow(rows, scan)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return row, false, nil
	case err != nil:
		return row, false, Failed(what, err)
	}
	return row, true, nil
}

// Map is All for a query of keys and values.
func Map[K comparable, V any](
	ctx context.Context, from history.Querier, what, sql string, args ...any,
) (map[K]V, error) {
	all := map[K]V{}
	_, err := All(ctx, from, what, func(row pgx.CollectableRow) (k K, err error) {
		var v V
		err = row.Scan(&k, &v)
		all[k] = v
		return k, err
	}, sql, args...)
	return all, err
}

// Together sends several statements in one round trip, in which each reads its rows itself.
func Together(ctx context.Context, to eventstore.Database, what string, b *pgx.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := to.SendBatch(ctx, b).Close(); err != nil {
		return Failed(what, err)
	}
	return nil
}

// One is First for a row whose absence is a refusal.
func One[T any](
	ctx context.Context, from history.Querier, what string, missing error, scan pgx.RowToFunc[T], sql string, args ...any,
) (T, error) {
	row, found, err := First(ctx, from, what, scan, sql, args...)
	if err == nil && !found {
		err = missing
	}
	return row, err
}

// Page cuts a list that was read with limit+1 rows. more reports whether there was an extra row. It passes on err.
func Page[T any](list []T, limit int, err error) (page []T, more bool, _ error) {
	switch {
	case err != nil:
		return nil, false, err
	case len(list) > limit:
		return list[:limit], true, nil
	}
	return list, false, nil
}

// Exec runs a statement that completes earlier work. It is not cancelled when the caller disconnects or the process
// shuts down.
func Exec(ctx context.Context, to eventstore.Database, what, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if _, err := to.Exec(ctx, sql, args...); err != nil {
		return Failed(what, err)
	}
	return nil
}

// Try is Exec for a statement that the next round repeats. It is cancelled with ctx. It returns the number of rows
// written.
func Try(ctx context.Context, to eventstore.Database, what, sql string, args ...any) (rows int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	tag, err := to.Exec(ctx, sql, args...)
	if err != nil {
		return 0, Failed(what, err)
	}
	return tag.RowsAffected(), nil
}

// Failed wraps the error of a statement. If the database is unreachable, overloaded or restarting, the result is a
// domain error that is answered as 503. Bugs stay internal errors.
func Failed(what string, err error) error {
	if _, answered := errors.AsType[*pgconn.PgError](err); !answered && (pgconn.Timeout(err) ||
		errors.Is(err, context.DeadlineExceeded)) {
		err = eventstore.UnansweredError{Err: err}
	}
	if unavailable(err) {
		return say.Errorf(
			"%s: %w: %w", say.Word(what), domain.Unavailable("The database cannot be reached; send the request again."), err,
		)
	}
	return say.Errorf("%s: %w", say.Word(what), err)
}

func unavailable(err error) bool {
	if cluster.NotConnected(err) { // including a refused role, or a password that is being rotated
		return true
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch answer.Code[:min(2, len(answer.Code))] {
		case "08", // connection exception
			"40", // transaction rollback
			"53", // insufficient resources
			"55", // lock not available, not in prerequisite state
			"57", // operator intervention: shutdown, statement timeout
			"58": // system error
			return true
		}
		return answer.Code == "25P03" || answer.Code == "25006" // idle too long; a standby
	}
	_, network := errors.AsType[net.Error](err)
	return network || pgconn.Timeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}

// Column returns one column of rows, as an array for unnest.
func Column[R, V any](rows []R, value func(R) V) []V {
	out := make([]V, len(rows))
	for i, r := range rows {
		out[i] = value(r)
	}
	return out
}
