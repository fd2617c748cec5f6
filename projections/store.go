package projections

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/history"
)

// Store answers the questions of readers. Nothing is kept between two calls, so
// every answer is the database's at that moment.
type Store struct {
	Pool   *pgxpool.Pool // authentication and authenticated reads
	Public *pgxpool.Pool // public comparison and receipt, so that they cannot starve the others
	Scans  *pgxpool.Pool // what may read much (scan); nil: Pool

	// Replica answers readers where it is new enough. Nil: the primary answers all.
	Replica *Replica

	Installation eventstore.Installation
	Plans        domain.Plans
	// RequestsReached is called with each shard in which a request has reached a part of its
	// month's allowance; it must not wait. It may be nil.
	RequestsReached func(domain.Shard)

	scanning    turns
	credentials eventstore.Batcher[domain.Shard, *credential]
	comparisons eventstore.Batcher[domain.Shard, *comparison]
	evidence    eventstore.Batcher[domain.Shard, *evidenceQuestion]
}

// readTimeout bounds one question, the wait for a connection included.
const readTimeout = 10 * time.Second

// collect runs a query and reads all its rows. what names the question in errors.
func collect[T any](ctx context.Context, from history.Querier, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := from.Query(ctx, sql, args...)
	if err != nil {
		return nil, databaseError(what, err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, databaseError(what, err)
	}
	return list, nil
}

// first is collect for a query of at most one row; found is false for none.
func first[T any](ctx context.Context, from history.Querier, what string, scan pgx.RowToFunc[T], sql string, args ...any) (row T, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := from.Query(ctx, sql, args...)
	if err != nil {
		return row, false, databaseError(what, err)
	}
	row, err = pgx.CollectOneRow(rows, scan)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return row, false, nil
	case err != nil:
		return row, false, databaseError(what, err)
	}
	return row, true, nil
}

// databaseError tells a database that is away, overloaded or restarting, which
// the caller is told as 503, from a fault of ours, which stays internal.
func databaseError(what string, err error) error {
	if unavailable(err) {
		return fmt.Errorf("%s: %w: %w", what, domain.Unavailable("The database cannot be reached; send the request again."), err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func unavailable(err error) bool {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
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
	var connecting *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connecting) || errors.As(err, &network) || pgconn.Timeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// known reports whether the ledger has such a shard; an id from outside may name any.
func (s *Store) known(shard domain.Shard) bool { return int(shard) < s.Installation.Shards }

// utc is what a timestamptz means to us; nil stays nil.
func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC()
	return &at
}
