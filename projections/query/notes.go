package query

import (
	"context"
	"maps"
	"slices"
	"sync"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/projections/internal/statement"
)

// notes gathers values in memory until flush writes them, so that noting one costs a request no statement. A process
// that is killed loses the values noted since its last flush. notes is safe for concurrent use; its zero value is
// empty.
type notes[K comparable, V any] struct {
	mu    sync.Mutex
	noted map[K]V
}

// add notes a value; merge joins it with an earlier one for the same key.
func (n *notes[K, V]) add(key K, value V, merge func(a, b V) V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noted == nil {
		n.noted = map[K]V{}
	}
	if earlier, found := n.noted[key]; found {
		value = merge(earlier, value)
	}
	n.noted[key] = value
}

// drop forgets the noted values whose key is old.
func (n *notes[K, V]) drop(old func(K) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.noted, func(key K, _ V) bool { return old(key) })
}

// flush calls write once per shard with the values noted since the last flush. Values that were not written stay noted.
func (n *notes[K, V]) flush(ctx context.Context, s *Store, shardOf func(K) domain.Shard, merge func(a, b V) V,
	write func(context.Context, domain.Shard, []K, []V) error,
) error {
	n.mu.Lock()
	noted := n.noted
	n.noted = nil
	n.mu.Unlock()
	if len(noted) == 0 {
		return nil
	}
	shards := map[domain.Shard][]K{}
	for key := range noted {
		shards[shardOf(key)] = append(shards[shardOf(key)], key)
	}
	values := func(keys []K) []V { return statement.Column(keys, func(key K) V { return noted[key] }) }
	err := eventstore.EachShard(ctx, s.Pool, slices.Sorted(maps.Keys(shards)),
		func(ctx context.Context, shard domain.Shard) error {
			err := write(ctx, shard, shards[shard], values(shards[shard]))
			if err == nil {
				delete(shards, shard)
			}
			return err
		})
	for _, keys := range shards {
		for _, key := range keys {
			n.add(key, noted[key], merge)
		}
	}
	return err
}
