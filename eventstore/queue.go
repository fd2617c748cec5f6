package eventstore

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/eventstore/fair"
)

// item is one command on its way to a group.
type item struct {
	command    domain.Command
	submission *submission
	index      int
	queued     time.Duration       // by the monotonic clock, when it was handed over
	count      *domain.MinuteCount // in which the request was counted; nil: it was not
	used       int                 // which request of its organization's minute it is then
}

// submission is one call of Execute: done is closed when every command has its answer.
type submission struct {
	mu      sync.Mutex
	answers []Answer
	waiting int
	done    chan struct{}
	span    trace.SpanContext // of the caller; the zero value where it is not traced
}

func newSubmission(n int) *submission {
	return &submission{answers: make([]Answer, n), waiting: n, done: make(chan struct{})}
}

func (it item) answer(a Answer) {
	s := it.submission
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[it.index] = a
	if s.waiting--; s.waiting == 0 {
		close(s.done)
	}
}

// queue holds the commands of one shard that no group has taken yet. It is bounded in places: one for a command that
// waits, and one for each that is admitted and yet to come. One organization may hold a quarter of them, and no more
// than it leaves free, so that whatever it and others hold, a further organization gets in; groups are filled round
// robin by organization, so that a busy organization does not delay the others, and in arrival order within an
// organization. An organization that has sent poison is committed alone: see isolate.
type queue struct {
	mu       sync.Mutex
	arrived  *sync.Cond
	waiting  fair.Line[domain.OrganizationID, item]
	held     map[domain.OrganizationID]int
	taken    int // places that are held
	capacity int
	refused  int64 // because the queue, or the organization's share of it, was full
	closed   bool

	last   domain.OrganizationID // the first of the group before
	shared int                   // groups to come in which one organization may have a part only

	now      func() time.Duration                    // the monotonic clock
	isolated map[domain.OrganizationID]time.Duration // until when an organization is committed alone
	alone    bool                                    // the group before was a single command of such an organization
}

// For sharedGroups groups after one that shows more than one organization at work, an organization has at most one
// sharedPart of a group: the next command of a quiet organization waits for a short transaction, not for the longest.
const (
	sharedPart   = 8 // of the weight of a group
	sharedGroups = 512
)

// isolation is for how long an organization is committed alone after its last poison.
const isolation = time.Minute

func newQueue(capacity int) *queue {
	q := &queue{
		held: map[domain.OrganizationID]int{}, capacity: capacity,
		isolated: map[domain.OrganizationID]time.Duration{},
	}
	q.arrived = sync.NewCond(&q.mu)
	return q
}

// QueueFull answers a command for which its queue, or its organization's share of it, has no place.
func QueueFull() *domain.Error {
	return domain.Unavailable("Too many requests are waiting to be committed; send the request again.")
}

// admit takes up to n places for an organization and returns how many.
func (q *queue) admit(organization domain.OrganizationID, n int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hold(organization, n)
}

func (q *queue) hold(organization domain.OrganizationID, n int) (int, error) {
	if q.closed {
		return 0, errShuttingDown
	}
	admitted := fair.Room(n, q.held[organization], q.capacity/4, q.capacity-q.taken)
	q.refused += int64(n - admitted)
	q.taken += admitted
	if admitted > 0 {
		q.held[organization] += admitted
	}
	return admitted, nil
}

// release gives places back that no command has come for.
func (q *queue) release(organization domain.OrganizationID, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free(organization, n)
}

func (q *queue) free(organization domain.OrganizationID, n int) {
	q.taken -= n
	if q.held[organization] -= n; q.held[organization] == 0 {
		delete(q.held, organization)
	}
}

// put takes a command in, into a place that it was admitted to where it has one, or refuses it because the queue is
// full or closed.
func (q *queue) put(it item, admitted bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	organization := it.command.CommandOrigin().Organization
	switch {
	case admitted && q.closed:
		q.free(organization, 1)
		return errShuttingDown
	case !admitted:
		if n, err := q.hold(organization, 1); err != nil {
			return err
		} else if n == 0 {
			return QueueFull()
		}
	}
	q.waiting.Push(organization, it)
	q.arrived.Signal()
	return nil
}

// wait blocks until a command is there, and reports false once the queue is closed and empty.
func (q *queue) wait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.waiting.Len() == 0 {
		if q.closed {
			return false
		}
		q.arrived.Wait()
	}
	return true
}

// isolate makes an organization commit alone from now on: its commands go into groups of one, and every second group is
// for the other organizations as long as these have commands. So poison costs the others one short transaction between
// two groups, however many organizations send it. The commands in back were taken and have no answer: they come first
// again.
func (q *queue) isolate(organization domain.OrganizationID, back ...item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	maps.DeleteFunc(q.isolated, func(_ domain.OrganizationID, until time.Duration) bool { return now >= until })
	q.isolated[organization] = now + isolation
	if len(back) > 0 {
		q.waiting.PushFront(organization, back...)
		q.taken += len(back)
		q.held[organization] += len(back)
	}
}

// parted returns the organizations that share groups and those that are committed alone, each in turn.
func (q *queue) parted() (sharing, alone []domain.OrganizationID) {
	if len(q.isolated) == 0 {
		return q.waiting.Keys(), nil
	}
	now := q.now()
	for _, organization := range q.waiting.Keys() {
		if until, found := q.isolated[organization]; found && now < until {
			alone = append(alone, organization)
		} else {
			sharing = append(sharing, organization)
		}
	}
	return sharing, alone
}

// take removes up to weight commands, in fair shares: one of each organization in turn, until the group is full or each
// has its part. The group has them by organization, and in arrival order within one, because that is the order of its
// rows on disk: a page of an organization's feed then reads few of them. Poison is also found sooner by organization.
func (q *queue) take(weight int) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.Len() == 0 {
		return nil
	}
	sharing, alone := q.parted()
	if q.alone = len(alone) > 0 && (len(sharing) == 0 || !q.alone); q.alone {
		q.free(alone[0], 1)
		return []item{q.waiting.Take(alone[0])}
	}
	if len(sharing) > 1 || !q.last.IsZero() && sharing[0] != q.last {
		q.shared = sharedGroups
	}
	part := weight
	if q.shared > 0 {
		q.shared--
		part = max(1, weight/sharedPart)
	}
	q.last = sharing[0]
	group := q.waiting.Deal(sharing, weight, part, func(a, b domain.OrganizationID) int {
		return bytes.Compare(a[:], b[:])
	})
	for i, first := 1, 0; i <= len(group); i++ {
		organization := group[first].command.CommandOrigin().Organization
		if i == len(group) || group[i].command.CommandOrigin().Organization != organization {
			q.free(organization, i-first)
			first = i
		}
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

// Admission is places in the queue of a shard for commands of one organization that are yet to be made. What is
// expensive, a signature above all, is spent on admitted commands only: otherwise an organization that sends more than
// its share has the service work for answers that refuse. Release must be called; it is not safe for concurrent use.
type Admission struct {
	ledger       *Ledger
	queue        *queue
	organization domain.OrganizationID
	places       int
}

// Admit takes places for up to n commands of an organization: fewer, or none, where the queue or the organization's
// share of it is full. It never waits. The error is that of a ledger which is being closed.
func (l *Ledger) Admit(organization domain.OrganizationID, n int) (*Admission, error) {
	q, err := l.queue(organization.Shard())
	if err != nil {
		return nil, err
	}
	a := &Admission{ledger: l, queue: q, organization: organization}
	a.places, err = q.admit(organization, n)
	return a, err
}

// Places is how many commands may still come.
func (a *Admission) Places() int { return a.places }

// Execute is Ledger.Execute for commands that have their places. One too many, or of another organization, is taken in
// as if it had not been admitted.
func (a *Admission) Execute(ctx context.Context, commands ...domain.Command) []Answer {
	return a.ledger.execute(ctx, a, commands)
}

// use takes the place of a command, where there is one.
func (a *Admission) use(it item) bool {
	if a == nil || a.places == 0 || it.command.CommandOrigin().Organization != a.organization {
		return false
	}
	a.places--
	return true
}

// Release gives back the places that no command has come for.
func (a *Admission) Release() {
	a.queue.release(a.organization, a.places)
	a.places = 0
}
