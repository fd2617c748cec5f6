package handlers

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/fair"
)

// fairSemaphore is a weighted semaphore that is round robin by organization: what becomes free goes to the
// organizations that wait in turn, so that a request waits for one of every other organization at most, however many
// requests these have. Requests of one organization are served in the order of their arrival. It is safe for concurrent
// use.
type fairSemaphore struct {
	most  int // units of all organizations together
	each  int // units of one organization
	alone int // units of one organization while no other asks for any; 0: each
	line  int // requests of one organization that may wait
	// yields: an organization that holds units gets more only where it leaves as many free as it then has, so that a
	// further one gets in whatever these hold.
	yields bool
	// patience is how long a request waits at most; 0: as long as its context lasts.
	patience time.Duration
	// closing, once closed, ends every wait.
	closing <-chan struct{}

	mu     sync.Mutex
	held   int                           // units of all organizations
	of     map[domain.OrganizationID]int // units of each that has some
	queue  fair.Line[domain.OrganizationID, *claimant]
	last   domain.OrganizationID // that asked last
	shared int                   // requests to come for which more than one organization counts as asking
}

// sharedRequests is for how many requests an organization that has asked keeps another from having everything: about a
// second of what a process can do.
const sharedRequests = 4096

type claimant struct {
	n       int
	granted chan struct{}
}

func newFairSemaphore(most, each, line int) *fairSemaphore {
	return &fairSemaphore{most: most, each: each, line: line, of: map[domain.OrganizationID]int{}}
}

// acquire waits for n units. A request for more than one organization may hold gets as many as that. It fails at once
// where too many requests of the organization wait already. release must be called once.
func (s *fairSemaphore) acquire(ctx context.Context, o domain.OrganizationID, n int) (release func(), err error) {
	l, err := s.enter(o, n)
	if err != nil {
		return nil, err
	}
	return s.wait(ctx, o, l)
}

// enter is the beginning of acquire, which does not wait; wait or withdraw must follow.
func (s *fairSemaphore) enter(o domain.OrganizationID, n int) (*claimant, error) {
	l := &claimant{n: min(n, s.each, s.most), granted: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared > 0 {
		s.shared--
	}
	if o != s.last && !s.last.IsZero() {
		s.shared = sharedRequests
	}
	s.last = o
	if s.queue.Len() == 0 && !s.exceeds(o, l.n) && s.held+l.n <= s.most {
		s.grant(o, l)
		return l, nil
	}
	s.queue.Push(o, l)
	s.dispatch()
	if s.queue.LenOf(o) > s.line {
		s.leave(o, l)
		return nil, errors.New("too many requests of the organization wait")
	}
	return l, nil
}

func (l *claimant) isGranted() bool {
	select {
	case <-l.granted:
		return true
	default:
		return false
	}
}

func (s *fairSemaphore) wait(ctx context.Context, o domain.OrganizationID, l *claimant) (release func(), err error) {
	release = func() { s.release(o, l.n) }
	select {
	case <-l.granted:
		return release, nil
	default:
	}
	if s.patience > 0 {
		// Requests that came together must not all give up, and be repeated, together.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.patience-rand.N(s.patience/5)) //nolint:gosec // spreads load; guessing it gains nothing
		defer cancel()
	}
	select {
	case <-l.granted:
		return release, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.closing:
		err = errors.New("the service is shutting down")
	}
	s.withdraw(o, l)
	return nil, err
}

// withdraw takes a request back, granted or not.
func (s *fairSemaphore) withdraw(o domain.OrganizationID, l *claimant) {
	s.mu.Lock()
	waited := s.leave(o, l)
	s.mu.Unlock()
	if !waited { // it was granted meanwhile
		s.release(o, l.n)
	}
}

// dispatch grants what can be granted, one request of an organization after one of another. An organization that holds
// its share is passed over; where everything is held, nobody overtakes the one whose turn it is, or a large request
// would wait for ever.
func (s *fairSemaphore) dispatch() {
	for i := 0; i < len(s.queue.Keys()); {
		o := s.queue.Keys()[i]
		n := s.queue.First(o).n
		if s.exceeds(o, n) {
			i++
			continue
		}
		if s.held+n > s.most {
			return
		}
		s.grant(o, s.queue.Take(o))
	}
}

// exceeds reports whether an organization with n more units would hold more than its share.
func (s *fairSemaphore) exceeds(o domain.OrganizationID, n int) bool {
	each, mine := s.each, s.of[o]
	if s.shared == 0 {
		each = max(each, s.alone)
	}
	return mine+n > each || s.yields && mine > 0 && mine+n > s.most-s.held-n
}

func (s *fairSemaphore) grant(o domain.OrganizationID, l *claimant) {
	s.held += l.n
	s.of[o] += l.n
	close(l.granted)
}

// crowded reports whether another organization waits that holds less than its share.
func (s *fairSemaphore) crowded(o domain.OrganizationID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.queue.Keys(), func(other domain.OrganizationID) bool {
		return other != o && s.of[other] < s.each
	})
}

// leave takes a request that was not granted out of the line.
func (s *fairSemaphore) leave(o domain.OrganizationID, l *claimant) bool {
	if !s.queue.Remove(o, func(other *claimant) bool { return other == l }) {
		return false
	}
	s.dispatch()
	return true
}

func (s *fairSemaphore) release(o domain.OrganizationID, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= n
	if s.of[o] -= n; s.of[o] == 0 {
		delete(s.of, o)
	}
	s.dispatch()
}

// Large bodies are counted in units of the work that they may be: an item of a batch, or bytesPerUnit. An organization
// may have bodyShare under way, from before a body is read until its answer, which is about its share of a shard's
// queue. What comes beyond that waits unread, and costs next to nothing.
const (
	bytesPerUnit = 8 << 10
	bytesPerItem = 200 // a valid declaration is longer
	bodyShare    = 4 * maxDeclarations
	bodyTotal    = 16 * bodyShare
	bodyLine     = 256
)

// How long a request waits for its admission at most. bodyPatience is for a whole line: a request that gives up comes
// last again, so that with less the same callers give up for ever, and their repetitions are work for nothing. It is
// shorter than the server's read timeout.
const (
	bodyPatience   = 25 * time.Second
	singlePatience = 5 * time.Second
)

func newBodies(closing <-chan struct{}) *fairSemaphore {
	s := newFairSemaphore(bodyTotal, bodyShare, bodyLine)
	s.yields, s.patience, s.closing = true, bodyPatience, closing
	return s
}

func (rule bodyRule) units(bytes int64) int {
	if rule == bodyBatch {
		return min(int(bytes/bytesPerItem)+1, maxDeclarations)
	}
	return int(bytes/bytesPerUnit) + 1
}

// admitBody waits until the organization may have a large body read, and answered.
func (s *server) admitBody(ctx context.Context, c *call, rule bodyRule, bytes int64) error {
	if rule.limit() <= maxMessage {
		return nil
	}
	release, err := s.bodies.acquire(ctx, c.access.Organization, rule.units(bytes))
	if err != nil {
		return domain.Unavailable("Too many large requests of this organization are under way; wait for their answers, then send this one again.")
	}
	c.over = append(c.over, release)
	return nil
}

// Single registrations, reservations and revocations of an organization that are under way at once. Alone it may have
// as many as fill the largest groups; beside others it has so few that theirs wait neither for a processor nor for long
// transactions.
const (
	singlesShare = 64
	singlesAlone = 1024
	singlesLine  = 2048
)

func newSingles(closing <-chan struct{}) *fairSemaphore {
	s := newFairSemaphore(math.MaxInt, singlesShare, singlesLine)
	s.alone, s.patience, s.closing = singlesAlone, singlePatience, closing
	return s
}

// single does a single command once the organization may have one more of them under way.
func single[Input any](s *server, do action[Input]) action[Input] {
	return func(ctx context.Context, c *call, input Input) (any, error) {
		release, err := s.singles.acquire(ctx, c.access.Organization, 1)
		if err != nil {
			return nil, eventstore.QueueFull()
		}
		defer release()
		return do(ctx, c, input)
	}
}

// preparers is how many processors prepare batches: all but one, which stays free for everybody else's requests.
func preparers() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// preparedAtOnce is how many items of a batch are prepared in one turn of its organization.
const preparedAtOnce = 8

// inTurns calls do for every item of 0…n-1, a few in each of the organization's turns with a processor. It stops where
// ctx ends.
func (s *server) inTurns(ctx context.Context, o domain.OrganizationID, n int, do func(item int)) error {
	var turns errgroup.Group
	turns.SetLimit(s.preparing.most)
	for first := 0; first < n; first += preparedAtOnce {
		turns.Go(func() error {
			release, err := s.preparing.acquire(ctx, o, 1)
			if err != nil {
				return unprepared()
			}
			defer release()
			for i := first; i < min(first+preparedAtOnce, n); i++ {
				do(i)
			}
			return nil
		})
	}
	return turns.Wait()
}

func unprepared() error {
	return domain.Unavailable("The service was too busy to take the request up in time; nothing of it was registered. Send it again.")
}

// usedVersions remembers how many new versions organizations have used of the month at least, for those that have a
// limit. The number never falls within a month, so what remains is never more than this says: declarations beyond it
// are not signed before they are decided. It decides nothing: a replay succeeds with an exhausted quota, and Decide
// signs what it accepts. It is safe for concurrent use.
type usedVersions struct {
	organizations *lru.Cache[domain.OrganizationID, domain.Usage]
}

const maxUsedVersions = 10_000

func newUsedVersions() *usedVersions {
	organizations, _ := lru.New[domain.OrganizationID, domain.Usage](maxUsedVersions) // fails for a size below 1 only
	return &usedVersions{organizations}
}

// note learns from a decision. Of two at once the older may be the one that is remembered.
func (u *usedVersions) note(o domain.OrganizationID, usage domain.Usage) {
	known, _ := u.organizations.Get(o)
	if usage.Limit != nil && (usage.Period > known.Period || usage.Period == known.Period && usage.Used > known.Used) {
		u.organizations.Add(o, usage)
	}
}

// remaining is how many of n new versions the quota has room for at most.
func (u *usedVersions) remaining(o domain.OrganizationID, limit *int64, p domain.Period, n int) int {
	if limit == nil {
		return n
	}
	left := *limit
	if known, _ := u.organizations.Get(o); known.Period == p {
		left -= known.Used
	}
	return int(max(0, min(left, int64(n))))
}
