package projections

import (
	"context"
	"sync"

	"integrityledger/domain"
)

// gate brings concurrent questions of a shard together into one statement. A
// question joins only a batch that has not been sent: the answer of one under
// way may be older than the question, and a key revoked in between would slip
// in. A lone question is sent at once, without a timer. T holds question and
// answer, by pointer. The zero gate is ready; it is safe for concurrent use.
type gate[T any] struct {
	mu     sync.Mutex
	shards map[domain.Shard]*gateQueue[T]
}

type gateQueue[T any] struct {
	waiting []*gateBatch[T] // all but the last are full
	sending bool
}

type gateBatch[T any] struct {
	questions []T
	answered  chan struct{}
}

// gateWeight is the most questions of a statement. One statement a shard is under
// way: what arrives meanwhile goes together.
const gateWeight = 128

// ask has send answer the question, in a goroutine of its own that belongs to no
// single question: one that goes away takes no other with it. It returns once
// the question is answered, or with the error of ctx.
func (g *gate[T]) ask(ctx context.Context, shard domain.Shard, question T, send func(domain.Shard, []T)) error {
	batch := g.join(shard, question, send)
	select {
	case <-batch.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate[T]) join(shard domain.Shard, question T, send func(domain.Shard, []T)) *gateBatch[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shards == nil {
		g.shards = map[domain.Shard]*gateQueue[T]{}
	}
	q := g.shards[shard]
	if q == nil {
		q = &gateQueue[T]{}
		g.shards[shard] = q
	}
	if n := len(q.waiting); n == 0 || len(q.waiting[n-1].questions) == gateWeight {
		q.waiting = append(q.waiting, &gateBatch[T]{answered: make(chan struct{})})
	}
	batch := q.waiting[len(q.waiting)-1]
	batch.questions = append(batch.questions, question)
	if !q.sending {
		q.sending = true
		go func() {
			for batch := g.take(q); batch != nil; batch = g.take(q) {
				send(shard, batch.questions)
				close(batch.answered)
			}
		}()
	}
	return batch
}

// take closes a batch: what comes later goes into another. Nil means that
// nothing waits and the sender is done.
func (g *gate[T]) take(q *gateQueue[T]) *gateBatch[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(q.waiting) == 0 {
		q.sending = false
		return nil
	}
	batch := q.waiting[0]
	q.waiting = q.waiting[1:]
	return batch
}
