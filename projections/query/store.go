package query

import (
	"context"

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
