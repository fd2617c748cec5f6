package eventstore

import (
	"context"
	"sync"
)

// Batcher combines concurrent questions about one place, such as a shard, into one statement. A question never joins a
// batch that was already sent: that answer may be older than the question, and a key revoked in between would slip
// through. A lone question is sent at once, without a timer. Q points to a question and its answer. The zero Batcher is
// ready for use and safe for concurrent use.
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

// maxBatch is the largest number of questions in a statement. Each place has one statement in progress; questions that
// arrive meanwhile form the next batch.
const maxBatch = 128

// Ask returns once send has answered the question. send runs in its own goroutine, so a caller that gives up does not
// cancel the questions of others, and it must limit its own time. If ctx ends first, Ask returns its error; the answer
// may still be written then and must not be read.
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

// take removes the next batch; later questions start another. It returns nil if no question waits, and the sender ends.
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
