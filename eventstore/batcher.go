package eventstore

import (
	"context"
	"sync"
)

// Batcher brings concurrent questions to one place, such as a shard, together into one statement. A question joins only
// a batch that has not been sent: the answer of one under way may be older than the question, and a key revoked in
// between would slip in. A lone question is sent at once, without a timer. Q holds question and answer, by pointer. The
// zero Batcher is ready; it is safe for concurrent use.
type Batcher[P comparable, Q any] struct {
	mu     sync.Mutex
	queues map[P]*batchQueue[Q]
}

type batchQueue[Q any] struct {
	waiting []*batch[Q] // all but the last are full
	sending bool
}

type batch[Q any] struct {
	questions []Q
	answered  chan struct{}
}

// maxBatch is the most questions of a statement. One statement a place is under way: what arrives meanwhile goes
// together.
const maxBatch = 128

// Ask has send answer the question, in a goroutine of its own that belongs to no single question: one that goes away
// takes no other with it. send bounds its time itself. Ask returns once the question is answered, or with the error of
// ctx: then the answer may still be written, and must not be read.
func (g *Batcher[P, Q]) Ask(ctx context.Context, place P, question Q, send func(P, []Q)) error {
	batch := g.join(place, question, send)
	select {
	case <-batch.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Batcher[P, Q]) join(place P, question Q, send func(P, []Q)) *batch[Q] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queues == nil {
		g.queues = map[P]*batchQueue[Q]{}
	}
	q := g.queues[place]
	if q == nil {
		q = &batchQueue[Q]{}
		g.queues[place] = q
	}
	if n := len(q.waiting); n == 0 || len(q.waiting[n-1].questions) == maxBatch {
		q.waiting = append(q.waiting, &batch[Q]{answered: make(chan struct{})})
	}
	batch := q.waiting[len(q.waiting)-1]
	batch.questions = append(batch.questions, question)
	if !q.sending {
		q.sending = true
		go func() {
			for batch := g.take(q); batch != nil; batch = g.take(q) {
				send(place, batch.questions)
				close(batch.answered)
			}
		}()
	}
	return batch
}

// take closes a batch: what comes later goes into another. Nil means that nothing waits and the sender is done.
func (g *Batcher[P, Q]) take(q *batchQueue[Q]) *batch[Q] {
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
