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

// item is a queued command.
type item struct {
	command    domain.Command
	submission *submission
	index      int
	queued     time.Duration       // monotonic time at which it was queued
	count      *domain.MinuteCount // the count that includes the request; nil if not counted
	used       int                 // the ordinal of the request in its organization's minute, if counted
}

// submission is one call of Execute. done is closed once every command has an answer.
type submission struct {
	mu      sync.Mutex
	answers []Answer
	waiting int
	done    chan struct{}
	span    trace.SpanContext // the caller's; zero if it is not traced
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

// queue holds the commands of one shard that no group has taken yet. It has a fixed number of places: one for each
// waiting command and one for each admitted command that has not arrived. One organization may hold at most a quarter
// of them, and no more than it leaves free, so that another organization always gets in. Groups are filled round robin
// by organization, so that a busy organization does not delay the others, and in arrival order within an organization.
// An organization that has sent poison is committed alone (see isolate).
type queue struct {
	mu       sync.Mutex
	arrived  *sync.Cond
	waiting  fair.Line[domain.OrganizationID, item]
	held     map[domain.OrganizationID]int
	taken    int // places held
	capacity int
	refused  int64 // commands refused because the queue, or the organization's share of it, was full
	closed   bool

	last   domain.OrganizationID // the first organization of the previous group
	shared int                   // number of groups to come in which an organization gets only a part

	now      func() time.Duration                    // the monotonic clock
	isolated map[domain.OrganizationID]time.Duration // end of the isolation
	alone    bool                                    // the previous group was a single command of an isolated organization
}

// After a group shows that more than one organization is active, an organization gets at most 1/sharedPart of each of
// the next sharedGroups groups. A command of a quiet organization then waits for a short transaction, not for the
// longest one.
const (
	sharedPart   = 8 // fraction of a group's weight
	sharedGroups = 512
)

// isolation is how long an organization is committed alone after its last poison.
const isolation = time.Minute

func newQueue(capacity int) *queue {
	q := &queue{
		held: map[domain.OrganizationID]int{}, capacity: capacity,
		isolated: map[domain.OrganizationID]time.Duration{},
	}
	q.arrived = sync.NewCond(&q.mu)
	return q
}

// QueueFull returns the refusal of a command whose queue, or whose organization's share of it, is full.
func QueueFull() *domain.Error {
	return domain.Unavailable("Too many requests are waiting to be committed; send the request again.")
}

// admit takes up to n places for an organization and returns the number taken.
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

// release returns unused places.
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

// put adds a command, using an admitted place if it has one. It refuses the command if the queue is full or closed.
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

// wait blocks until a command is waiting. It returns false once the queue is closed and empty.
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

// isolate makes an organization commit alone for a while: its commands form groups of one, and every second group is
// for the other organizations while they have commands. Poison thus costs the others only one short transaction between
// two groups, however many organizations send it. The commands in back were taken without an answer and return to the
// front.
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

// parted returns the organizations that share groups and the isolated ones, both in turn order.
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

// take removes up to weight commands in fair shares: one of each organization in turn, until the group is full or each
// has its part. The result is ordered by organization, then by arrival. That is the order of the rows on disk, so a
// page of an organization's feed reads few disk pages. It also finds poison sooner.
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

// close refuses new commands. Waiting commands are still taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.arrived.Broadcast()
}

// Admission reserves places in a shard's queue for commands of one organization. Reserve them before expensive work
// such as signing. Otherwise an organization that exceeds its share makes the service work for commands that are then
// refused. The caller must call Release. An Admission is not safe for concurrent use.
type Admission struct {
	ledger       *Ledger
	queue        *queue
	organization domain.OrganizationID
	places       int
}

// Admit reserves places for up to n commands of an organization. It reserves fewer, or none, if the queue or the
// organization's share of it is full. It never blocks. It returns an error only if the ledger is closing.
func (l *Ledger) Admit(organization domain.OrganizationID, n int) (*Admission, error) {
	q, err := l.queue(organization.Shard())
	if err != nil {
		return nil, err
	}
	a := &Admission{ledger: l, queue: q, organization: organization}
	a.places, err = q.admit(organization, n)
	return a, err
}

// Places returns the number of places left.
func (a *Admission) Places() int { return a.places }

// Execute is Ledger.Execute for admitted commands. Commands beyond the places left, or of another organization, are
// treated as not admitted.
func (a *Admission) Execute(ctx context.Context, commands ...domain.Command) []Answer {
	return a.ledger.execute(ctx, a, commands)
}

// use takes a place for a command and reports whether there was one.
func (a *Admission) use(it item) bool {
	if a == nil || a.places == 0 || it.command.CommandOrigin().Organization != a.organization {
		return false
	}
	a.places--
	return true
}

// Release returns the unused places.
func (a *Admission) Release() {
	a.queue.release(a.organization, a.places)
	a.places = 0
}
