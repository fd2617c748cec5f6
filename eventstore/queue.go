package eventstore

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
)

// item is one command on its way to a group.
type item struct {
	command    domain.Command
	submission *submission
	index      int
}

// submission is one call of Execute: done is closed when every command has its answer.
type submission struct {
	mu      sync.Mutex
	errs    []error
	waiting int
	done    chan struct{}
	span    trace.SpanContext // of the caller; the zero value where it is not traced
}

func newSubmission(n int) *submission {
	return &submission{errs: make([]error, n), waiting: n, done: make(chan struct{})}
}

func (it item) answer(err error) {
	s := it.submission
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs[it.index] = err
	if s.waiting--; s.waiting == 0 {
		close(s.done)
	}
}

// queue holds the commands of one shard that no group has taken yet. It is
// bounded; one organization may hold a quarter of it; groups are filled round
// robin by organization, so that a busy organization does not delay the others,
// and in arrival order within an organization.
type queue struct {
	// turn is held by the worker that takes a group, until it has decided it.
	// Another that took its group meanwhile could only wait for the shard's lock,
	// with a group that is closed to what arrives.
	turn sync.Mutex

	mu       sync.Mutex
	arrived  *sync.Cond
	waiting  map[domain.OrganizationID][]item
	turns    []domain.OrganizationID // every organization in waiting, whose turn is next first
	size     int
	capacity int
	refused  int64 // because the queue, or the organization's quarter of it, was full
	closed   bool
}

func newQueue(capacity int) *queue {
	q := &queue{waiting: map[domain.OrganizationID][]item{}, capacity: capacity}
	q.arrived = sync.NewCond(&q.mu)
	return q
}

// put takes a command in, or refuses it because the queue is full or closed.
func (q *queue) put(it item) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	organization := it.command.By().Organization
	mine := q.waiting[organization]
	switch {
	case q.closed:
		return domain.Unavailable("The service is shutting down; send the request again.")
	case q.size >= q.capacity || len(mine) >= q.capacity/4:
		q.refused++
		return domain.Unavailable("Too many requests are waiting to be committed; send the request again.")
	}
	if len(mine) == 0 {
		q.turns = append(q.turns, organization)
	}
	q.waiting[organization] = append(mine, it)
	q.size++
	q.arrived.Signal()
	return nil
}

// wait blocks until a command is there, and reports false once the queue is
// closed and empty.
func (q *queue) wait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size == 0 {
		if q.closed {
			return false
		}
		q.arrived.Wait()
	}
	return true
}

// take removes up to weight commands, one of each organization in turn.
func (q *queue) take(weight int) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	group := make([]item, 0, min(weight, q.size))
	for len(group) < weight && len(q.turns) > 0 {
		organization := q.turns[0]
		mine := q.waiting[organization]
		group = append(group, mine[0])
		mine[0] = item{}
		q.turns = q.turns[1:]
		if len(mine) == 1 {
			delete(q.waiting, organization)
		} else {
			q.waiting[organization] = mine[1:]
			q.turns = append(q.turns, organization)
		}
		q.size--
	}
	return group
}

// close refuses what comes from now on; what is waiting is still taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.arrived.Broadcast()
}
