// Package query answers readers: every question that handlers, the MCP server and operators ask of the projections, and
// authentication, which is asked before each of them. It never writes what Apply writes; the few rows that it writes
// (meters, claims of Idempotency-Keys, last uses of keys, replays of deliveries) are no projections. Every statement
// names the shard.
package query

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/statement"
)

// Store answers the questions of readers. Nothing is kept between two calls, so every answer is the database's at that
// moment.
type Store struct {
	Pool   *pgxpool.Pool // authentication and authenticated reads
	Public *pgxpool.Pool // public comparison and receipt, so that they cannot starve the others
	Scans  *pgxpool.Pool // what may read much (scan); nil: Pool

	// Replica answers readers where it is new enough. Nil: the primary answers all.
	Replica *Replica

	Installation eventstore.Installation
	Plans        domain.Plans
	// RequestsReached is called with each shard in which a request has reached a part of its month's allowance; it must
	// not wait. It may be nil.
	RequestsReached func(domain.Shard)

	scanning    turns
	keys, links credentials
	comparisons eventstore.Batcher[domain.Shard, *evidenceQuestion]
	evidence    eventstore.Batcher[domain.Shard, *evidenceQuestion]
}

// known reports whether the ledger has such a shard; an id from outside may name any.
func (s *Store) known(shard domain.Shard) bool { return int(shard) < s.Installation.Shards }

type credentials = eventstore.Batcher[domain.Shard, *credential]

// places numbers the questions of a batch: rows come back in any order, and not for every question.
func places[Q any](batch []Q) []int32 {
	list := make([]int32, len(batch))
	for i := range list {
		list[i] = int32(i)
	}
	return list
}

// allShards runs a query whose first argument is the shard on one shard after the other.
func allShards[T any](ctx context.Context, s *Store, what string, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	for shard := range s.Installation.Shards {
		list, err := statement.All(ctx, s.Pool, what, scan, sql, append([]any{shard}, args...)...)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// turns admits one question of an organization at a time. The zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[domain.OrganizationID]*turn
}

type turn struct {
	held  chan struct{} // full while a question is under way
	users int           // the question under way and those that wait
}

// take waits for an organization's turn until ctx ends; give ends the turn.
func (t *turns) take(ctx context.Context, o domain.OrganizationID) (give func(), err error) {
	t.mu.Lock()
	own := t.of[o]
	if own == nil {
		if t.of == nil {
			t.of = map[domain.OrganizationID]*turn{}
		}
		own = &turn{held: make(chan struct{}, 1)}
		t.of[o] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.of, o)
		}
	}
	select {
	case own.held <- struct{}{}:
		return func() { <-own.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%w: %w", domain.Unavailable("Other questions of this organization that read much are still being answered; send the request again."), ctx.Err())
	}
}

// scan asks a question that may read many rows: one of an organization at a time, and never on a connection that
// authentication needs.
func scan[T any](ctx context.Context, s *Store, o domain.OrganizationID, ask func(*pgxpool.Pool) (T, error)) (answer T, err error) {
	waiting, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	give, err := s.scanning.take(waiting, o)
	if err != nil {
		return answer, err
	}
	defer give()
	return ask(cmp.Or(s.Scans, s.Pool))
}
