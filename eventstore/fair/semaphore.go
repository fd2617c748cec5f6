package fair

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Limits are the bounds of a Semaphore.
type Limits struct {
	Most  int // units of all keys together
	Each  int // units of one key
	Alone int // units of one key while no other asks for any; 0: Each
	Line  int // requests of one key that may wait
	// Yields: a key that holds units gets more only where it leaves as many free as it then has, so that a further one
	// gets in whatever these hold.
	Yields bool
	// Patience is how long a request waits at most; 0: as long as its context lasts.
	Patience time.Duration
	// Closing, once closed, ends every wait.
	Closing <-chan struct{}
}

// Semaphore is a weighted semaphore that is round robin by key: what becomes free goes to the keys that wait in turn,
// so that a request waits for one of every other key at most, however many requests these have. Requests of one key are
// served in the order of their arrival. It is safe for concurrent use.
type Semaphore[K comparable] struct {
	limits Limits

	mu     sync.Mutex
	held   int       // units of all keys
	of     map[K]int // units of each that has some
	queue  Line[K, *Claimant]
	last   K   // that asked last
	shared int // requests to come for which more than one key counts as asking
}

// sharedRequests is for how many requests a key that has asked keeps another from having everything: about a
// second of what a process can do.
const sharedRequests = 4096

// Claimant is a request for units.
type Claimant struct {
	n       int
	granted chan struct{}
}

// NewSemaphore makes a semaphore of which nothing is held.
func NewSemaphore[K comparable](l Limits) *Semaphore[K] {
	return &Semaphore[K]{limits: l, of: map[K]int{}}
}

// Acquire waits for n units. A request for more than one key may hold gets as many as that. It fails at once
// where too many requests of the key wait already. release must be called once.
func (s *Semaphore[K]) Acquire(ctx context.Context, o K, n int) (release func(), err error) {
	l, err := s.Enter(o, n)
	if err != nil {
		return nil, err
	}
	return s.Wait(ctx, o, l)
}

// Enter is the beginning of acquire, which does not wait; wait or withdraw must follow.
func (s *Semaphore[K]) Enter(o K, n int) (*Claimant, error) {
	l := &Claimant{n: min(n, s.limits.Each, s.limits.Most), granted: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared > 0 {
		s.shared--
	}
	if o != s.last && s.last != *new(K) {
		s.shared = sharedRequests
	}
	s.last = o
	if s.queue.Len() == 0 && !s.exceeds(o, l.n) && s.held+l.n <= s.limits.Most {
		s.grant(o, l)
		return l, nil
	}
	s.queue.Push(o, l)
	s.dispatch()
	if s.queue.LenOf(o) > s.limits.Line {
		s.leave(o, l)
		return nil, errors.New("too many requests of the key wait")
	}
	return l, nil
}

func (l *Claimant) IsGranted() bool {
	select {
	case <-l.granted:
		return true
	default:
		return false
	}
}

func (s *Semaphore[K]) Wait(ctx context.Context, o K, l *Claimant) (release func(), err error) {
	release = func() { s.release(o, l.n) }
	select {
	case <-l.granted:
		return release, nil
	default:
	}
	if s.limits.Patience > 0 {
		// Requests that came together must not all give up, and be repeated, together.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.limits.Patience-rand.N(s.limits.Patience/5)) //nolint:gosec // spreads load; guessing it gains nothing
		defer cancel()
	}
	select {
	case <-l.granted:
		return release, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.limits.Closing:
		err = errors.New("the service is shutting down")
	}
	s.Withdraw(o, l)
	return nil, err
}

// Withdraw takes a request back, granted or not.
func (s *Semaphore[K]) Withdraw(o K, l *Claimant) {
	s.mu.Lock()
	waited := s.leave(o, l)
	s.mu.Unlock()
	if !waited { // it was granted meanwhile
		s.release(o, l.n)
	}
}

// dispatch grants what can be granted, one request of a key after one of another. A key that holds
// its share is passed over; where everything is held, nobody overtakes the one whose turn it is, or a large request
// would wait for ever.
func (s *Semaphore[K]) dispatch() {
	for i := 0; i < len(s.queue.Keys()); {
		o := s.queue.Keys()[i]
		n := s.queue.First(o).n
		if s.exceeds(o, n) {
			i++
			continue
		}
		if s.held+n > s.limits.Most {
			return
		}
		s.grant(o, s.queue.Take(o))
	}
}

// exceeds reports whether a key with n more units would hold more than its share.
func (s *Semaphore[K]) exceeds(o K, n int) bool {
	each, mine := s.limits.Each, s.of[o]
	if s.shared == 0 {
		each = max(each, s.limits.Alone)
	}
	return mine+n > each || s.limits.Yields && mine > 0 && mine+n > s.limits.Most-s.held-n
}

func (s *Semaphore[K]) grant(o K, l *Claimant) {
	s.held += l.n
	s.of[o] += l.n
	close(l.granted)
}

// Crowded reports whether another key waits that holds less than its share.
func (s *Semaphore[K]) Crowded(o K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.queue.Keys(), func(other K) bool {
		return other != o && s.of[other] < s.limits.Each
	})
}

// leave takes a request that was not granted out of the line.
func (s *Semaphore[K]) leave(o K, l *Claimant) bool {
	if !s.queue.Remove(o, func(other *Claimant) bool { return other == l }) {
		return false
	}
	s.dispatch()
	return true
}

func (s *Semaphore[K]) release(o K, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= n
	if s.of[o] -= n; s.of[o] == 0 {
		delete(s.of, o)
	}
	s.dispatch()
}

// Held returns the units that all keys hold together.
func (s *Semaphore[K]) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Waiting returns the number of requests that wait.
func (s *Semaphore[K]) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len()
}
