package statement

import (
	"context"
	"errors"
	"fmt"

	"integrityledger/domain"
	"integrityledger/eventstore"
)

// EachShard is one round of upkeep: it does something in each shard, goes on where that fails, and tells all that
// failed. A node that did not answer a statement in time is asked nothing more in the round, for its other shards
// neither, so that it costs the others one wait.
func EachShard(ctx context.Context, db eventstore.Database, shards []domain.Shard, do func(context.Context, domain.Shard) error) (failed error) {
	silent, leftOut := map[int32]bool{}, 0
	for _, shard := range shards {
		if err := ctx.Err(); err != nil {
			return errors.Join(failed, err)
		}
		node, err := eventstore.NodeOf(ctx, db, shard)
		if err == nil {
			if silent[node] {
				leftOut++
				continue
			}
			err = do(ctx, shard)
			silent[node] = errors.As(err, &unanswered{})
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("shard %d: %w", shard, err))
		}
	}
	if leftOut > 0 {
		failed = errors.Join(failed, fmt.Errorf("%d more shards of the nodes that did not answer are left for the next round", leftOut))
	}
	return failed
}

// unanswered marks the error of a statement that was not answered in time.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }
