package webhooks

import (
	"time"

	"integrityledger/domain"
)

const (
	firstParallel = 8  // attempts at once to a destination that is new
	mostParallel  = 32 // to one that answers quickly
	firstWindow   = 16
	mostWindow    = 512
	// quick is the longest answer time of a destination that is not slow.
	quick = time.Second
	// staleAfter is how long a claimed row may wait for its turn: it is then claimed again, because an authorization
	// may have been withdrawn.
	staleAfter = 2 * time.Second
)

// target is what an attempt needs to know about a destination, as of the last claim.
type target struct {
	organization   domain.OrganizationID
	status         string
	url            string
	secrets        []string // the present one first
	unreadable     bool     // the secret cannot be opened
	plan           string
	internal       bool
	sealed         []byte
	sealedPrevious []byte
	previousUntil  *time.Time
}

// item is a claimed row.
type item struct {
	destination *destination
	target      *target
	id          domain.DeliveryID
	company     domain.CompanyID // zero for a test
	sequence    int64
	eventType   domain.EventType
	body        []byte
	attempts    int // before this one
	authorized  bool
	claimedAt   time.Time
	leasedUntil time.Time
	charged     bool // an attempt was taken from the month's allowance
}

// destination is what this process knows about a destination; guarded by the shard's mutex.
type destination struct {
	id       domain.WebhookID
	queue    []*item
	running  int
	parallel int // attempts at once
	window   int // rows to hold
	claimed  time.Time
	more     bool // the last claim found as much as there was room for
}

// room is how many rows to claim; 0 while enough are waiting.
func (d *destination) room() int {
	if len(d.queue) > d.window/2 {
		return 0
	}
	return d.window - len(d.queue)
}

// begin starts as many attempts as the destination may have at once. The caller holds the mutex.
func (s *shardWorker) begin(d *destination) {
	now := s.Now()
	for len(d.queue) > 0 && (d.running < d.parallel || s.stopping) {
		it := d.queue[0]
		d.queue = d.queue[1:]
		if stale := now.Sub(it.claimedAt) > staleAfter; stale || s.stopping {
			if stale {
				d.window = max(d.parallel, d.window/2)
			}
			s.put(result{item: it, kind: released, attempts: it.attempts})
			continue
		}
		d.running++
		s.attempts.Go(func() { s.send(it) })
	}
}

// send makes one attempt and lets the destination go on.
func (s *shardWorker) send(it *item) {
	started := time.Now()
	a := s.attempt(it)
	took := time.Since(started)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := it.destination
	d.running--
	switch {
	case a.reason != "":
		d.parallel = max(1, d.parallel/2)
	case took > quick:
		d.parallel = max(2, d.parallel/2)
	default:
		d.parallel = min(mostParallel, d.parallel+1)
	}
	s.put(s.judge(it, a))
	s.begin(d)
	if d.more && d.room() > 0 {
		if d.more = false; took < quick && s.Now().Sub(d.claimed) < quick {
			d.window = min(mostWindow, 2*d.window)
		}
		s.claims.Wake(s.shard)
	}
}

// put hands a result to the recorder. The caller holds the mutex.
func (s *shardWorker) put(r result) {
	s.results = append(s.results, r)
	wake(s.finished)
}

// giveUp releases the rows that wait; attempts under way continue.
func (s *shardWorker) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for _, d := range s.destinations {
		s.begin(d)
	}
}

// forget drops destinations that have nothing to do, so that a process remembers only those that it serves. The caller
// holds the mutex.
func (s *shardWorker) forget(now time.Time) {
	for id, d := range s.destinations {
		if len(d.queue) == 0 && d.running == 0 && now.Sub(d.claimed) > time.Minute {
			delete(s.destinations, id)
		}
	}
}
