package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
)

// Lease is the right to do a thing that one process at a time may do: to be the
// consumer of a name in a shard. It ends by itself, by the database's clock, where
// its holder does not renew it. A holder that was frozen for longer may believe
// that it still has it, so what it writes must be guarded besides.
type Lease struct {
	pool   *pgxpool.Pool
	shard  domain.Shard
	name   string
	length time.Duration
	holder uuid.UUID
}

// NewLease makes one that is not held yet. Its row is kept under the name for ever.
func NewLease(pool *pgxpool.Pool, shard domain.Shard, name string, length time.Duration) (*Lease, error) {
	holder, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("name the holder of a lease: %w", err)
	}
	return &Lease{pool, shard, name, length, holder}, nil
}

// Two statements, because Citus allows no clock in ON CONFLICT. Of two processes
// that both find no row, one inserts it.
const (
	takeLease = `UPDATE consumers SET holder = $3, leased_until = now() + make_interval(secs => $4)
		WHERE shard = $1 AND consumer = $2 AND (holder = $3 OR leased_until < now())
		RETURNING position`
	beginLease = `INSERT INTO consumers (shard, consumer, position, holder, leased_until)
		VALUES ($1, $2, 0, $3, now() + make_interval(secs => $4))
		ON CONFLICT (shard, consumer) DO NOTHING
		RETURNING position`
	advanceLease = `UPDATE consumers SET position = $4, leased_until = now() + make_interval(secs => $5)
		WHERE shard = $1 AND consumer = $2 AND holder = $3`
)

// Take takes or renews the lease; held is false where another process has it.
// position is what its holders have recorded last.
func (l *Lease) Take(ctx context.Context) (position int64, held bool, err error) {
	for _, sql := range []string{takeLease, beginLease} {
		err = l.pool.QueryRow(ctx, sql, l.shard, l.name, [16]byte(l.holder), l.length.Seconds()).Scan(&position)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("take the lease: %w", err)
	}
	return position, true, nil
}

// advance records a position and renews the lease; held is false where it went to
// another process, and then nothing is recorded.
func (l *Lease) advance(ctx context.Context, position int64) (held bool, err error) {
	tag, err := l.pool.Exec(ctx, advanceLease, l.shard, l.name, [16]byte(l.holder), position, l.length.Seconds())
	return tag.RowsAffected() > 0, err
}

// Give ends the lease where it is held. It also works once ctx has ended, within five seconds.
func (l *Lease) Give(ctx context.Context) error {
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	const sql = `UPDATE consumers SET leased_until = '-infinity' WHERE shard = $1 AND consumer = $2 AND holder = $3`
	_, err := l.pool.Exec(giving, sql, l.shard, l.name, [16]byte(l.holder))
	return err
}
