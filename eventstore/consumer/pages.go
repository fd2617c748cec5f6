package consumer

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// Pages is the log of a shard as a Sharded source, whose row is one of the table consumers.
type Pages struct {
	Pool  Querier // that the events are read with
	Name  string  // of the consumer; its positions are kept under it for ever
	Shard domain.Shard
	Limit int // most events of a page

	// Take takes further events, in order, and says how many of them it is done with. Those after them come again, with
	// an error after a pause. It must be idempotent, and must change nothing once the deadline of ctx has passed.
	Take func(ctx context.Context, shard domain.Shard, events []domain.Event) (done int, err error)

	limit    int
	position int64
	head     int64
}

var (
	beginPages = cluster.SQL(`INSERT INTO {consumers} (shard, consumer, position) VALUES ($1, $2, 0) ON CONFLICT (shard, consumer) DO NOTHING`)
	// A position that another process has moved since the snapshot is compared again, so a head of the snapshot can be
	// behind it, and never seems to have lost events.
	claimPages = cluster.SQL(`SELECT c.position, h.position FROM {consumers} c JOIN {shard_heads} h ON h.shard = c.shard
		WHERE c.shard = $1 AND c.consumer = $2 AND h.position > c.position FOR UPDATE OF c SKIP LOCKED`)
	advancePages = cluster.SQL(`UPDATE {consumers} SET position = $3 WHERE shard = $1 AND consumer = $2`)
	// behindPages is asked about all shards.
	behindPages = cluster.SQL(`SELECT h.shard FROM {shard_heads} h LEFT JOIN {consumers} c ON c.shard = h.shard AND c.consumer = $1 WHERE h.position > coalesce(c.position, 0)`)
)

// Behind answers the News of Pages of a name, of which each is the source of the same number as its shard.
func Behind(ctx context.Context, pool *pgxpool.Pool, nodes *Nodes, shards int, name string) ([]int, error) {
	return cluster.Everywhere(ctx, pool, nodes, shards, pgx.RowTo[int], behindPages, name)
}

// InShard implements Sharded.
func (p *Pages) InShard() domain.Shard { return p.Shard }

// Begin implements Source.
func (p *Pages) Begin() Query { return Query{Query: beginPages, Args: []any{p.Shard, p.Name}} }

// Claim implements Source.
func (p *Pages) Claim(failures int) Query {
	p.limit = max(1, p.Limit>>min(failures, 30))
	return Query{Query: claimPages, Args: []any{p.Shard, p.Name}}
}

// Scan implements Source.
func (p *Pages) Scan(row Row) (int64, error) {
	err := row.Scan(&p.position, &p.head)
	return p.position, err
}

// Handle implements Source.
func (p *Pages) Handle(ctx context.Context, _ *sql.Tx) (Progress, error) {
	events, err := history.NewTail(p.Pool, p.Shard, p.position).Next(ctx, p.limit)
	if err == nil && len(events) == 0 {
		err = fmt.Errorf("shard %d has no event after position %d, and its head says %d: %w", p.Shard, p.position, p.head, history.ErrDamaged)
	}
	if err != nil {
		return Progress{Position: p.position}, err
	}
	done, err := p.Take(ctx, p.Shard, events)
	p.position += int64(done)
	return Progress{Position: p.position, More: p.position < p.head}, err
}

// Advance implements Source.
func (p *Pages) Advance() Query {
	return Query{Query: advancePages, Args: []any{p.Shard, p.Name, p.position}}
}

// Lag is how far a consumer is behind the log of a shard.
type Lag struct {
	Events int64
	Since  time.Time // when the first event that it has not handled was decided; zero: it has handled all
}

// ReadLag is the lag of each shard's consumer of a name.
func ReadLag(ctx context.Context, pool *pgxpool.Pool, name string) (map[domain.Shard]Lag, error) {
	query := cluster.SQL(`SELECT h.shard, h.position - coalesce(c.position, 0), e.occurred_at FROM {shard_heads} h
		LEFT JOIN {consumers} c ON c.shard = h.shard AND c.consumer = $1
		LEFT JOIN {events} e ON e.shard = h.shard AND e.position = coalesce(c.position, 0) + 1`)
	rows, _ := pool.Query(ctx, query, name)
	lag := map[domain.Shard]Lag{}
	var shard domain.Shard
	var l Lag
	if _, err := pgx.ForEachRow(rows, []any{&shard, &l.Events, (*zeronull.Timestamptz)(&l.Since)}, func() error {
		lag[shard] = l
		return nil
	}); err != nil {
		return nil, fmt.Errorf("lag of consumer %s: %w", name, err)
	}
	return lag, nil
}
