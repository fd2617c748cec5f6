package fair

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Limits are the limits of a Semaphore.
type Limits struct {
	Most  int // units of all keys in total
	Each  int // units of one key
	Alone int // units of one key while no other key requests any; 0 means Each
	Line  int // waiting requests of one key
	// Yields makes a key that holds units get more only if it leaves as many free as it would then hold. Another key then
	// always gets in.
	Yields bool
	// Patience is the longest time a request waits; 0 means until its context ends.
	Patience time.Duration
	// Closing, once closed, ends every wait.
	Closing <-chan struct{}
}

// Semaphore is a weighted semaphore that serves waiting keys round robin. A request waits for at most one request of
// every other key, however many requests these have. Requests of one key are served in arrival order. It is safe for
// concurrent use.
type Semaphore[K comparable] struct {
	limits Limits

	mu     sync.Mutex
	held   int       // units of all keys
	of     map[K]int // units by key
	queue  Line[K, *Claimant]
	last   K   // key of the last request
	shared int // number of further requests for which several keys count as active
}

// sharedRequests is the number of requests for which a key's request keeps the other keys from using Alone: about one
// second of a process's work.
const sharedRequests = 4096

// Claimant is a request for units.
type Claimant struct {
	n       int
	granted chan struct{}
}

// NewSemaphore returns a semaphore with all units free.
func NewSemaphore[K comparable](l Limits) *Semaphore[K] {
	return &Semaphore[K]{limits: l, of: map[K]int{}}
}

// Acquire waits for n units, or for the most units that one key may hold if n is more. It fails at once if too many
// requests of the key are waiting. The caller must call release once.
func (s *Semaphore[K]) Acquire(ctx context.Context, o K, n int) (release func(), err error) {
	l, err := s.Enter(o, n)
	if err != nil {
		return nil, err
	}
	return s.Wait(ctx, o, l)
}

// Enter is the first part of Acquire, which does not wait. The caller must call Wait or Withdraw next.
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
		// Spread the timeouts, so that requests that arrived together do not all give up and retry together.
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

// Withdraw cancels a request and releases its units if they were granted.
func (s *Semaphore[K]) Withdraw(o K, l *Claimant) {
	s.mu.Lock()
	waited := s.leave(o, l)
	s.mu.Unlock()
	if !waited { // it was granted meanwhile
		s.release(o, l.n)
	}
}

// dispatch grants requests round robin by key, while they fit. It skips keys that hold their share. If the next request
// does not fit, no other key overtakes it; otherwise a large request might never be served.
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

// Crowded reports whether another key is waiting although it holds less than its share.
func (s *Semaphore[K]) Crowded(o K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.queue.Keys(), func(other K) bool {
		return other != o && s.of[other] < s.limits.Each
	})
}

// leave removes a waiting request from the line and reports whether it was there.
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

// Held returns the number of units held by all keys.
func (s *Semaphore[K]) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Waiting returns the number of waiting requests.
func (s *Semaphore[K]) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len()
}
