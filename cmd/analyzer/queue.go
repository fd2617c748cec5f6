package analyzer

import (
	"slices"
	"sync"
	"time"

	"integrityledger/domain"
)

// queue hands out the workers, one organization after the other: the one with the fewest analyses under way is next, of
// those the one that was served longest ago. Within an organization the order is that of arrival.
type queue struct {
	mu       sync.Mutex
	free     int // workers without an analysis
	capacity int // analyses that wait
	waiting  int
	served   uint64
	lines    map[domain.OrganizationID]*line // those that wait or run
}

// line is what an organization has in the queue.
type line struct {
	waiting []*place
	running int
	served  uint64 // when it was served last
}

// place is one analysis in the queue.
type place struct {
	organization domain.OrganizationID
	turn         chan struct{} // closed when it may run
}

func newQueue(workers, capacity int) *queue {
	return &queue{free: workers, capacity: capacity, lines: map[domain.OrganizationID]*line{}}
}

// enter takes an analysis in. An organization may have as many waiting as it leaves places free, so that however many
// it and others have there, a further organization gets in.
func (q *queue) enter(o domain.OrganizationID) (*place, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[o]
	if l == nil {
		l = &line{}
	}
	if q.free == 0 && len(l.waiting)+1 > q.capacity-q.waiting {
		refused := domain.Unavailable("As many files of your organization as possible are waiting for their analysis; send the request again later.")
		refused.RetryAfter = 5 * time.Second
		return nil, refused
	}
	p := &place{o, make(chan struct{})}
	l.waiting = append(l.waiting, p)
	q.lines[o] = l
	q.waiting++
	q.next()
	return p, nil
}

// leave gives up a place, waiting or running.
func (q *queue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[p.organization]
	select {
	case <-p.turn:
		l.running--
		q.free++
	default:
		l.waiting = slices.DeleteFunc(l.waiting, func(w *place) bool { return w == p })
		q.waiting--
	}
	if l.running == 0 && len(l.waiting) == 0 {
		delete(q.lines, p.organization)
	}
	q.next()
}

// next lets those run that there are workers for.
func (q *queue) next() {
	for q.free > 0 && q.waiting > 0 {
		var best *line
		for _, l := range q.lines {
			if len(l.waiting) > 0 && (best == nil || l.running < best.running || l.running == best.running && l.served < best.served) {
				best = l
			}
		}
		q.served++
		best.served = q.served
		best.running++
		close(best.waiting[0].turn)
		best.waiting = best.waiting[1:]
		q.waiting--
		q.free--
	}
}
