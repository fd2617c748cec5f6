package projections

import (
	"net/netip"
	"sync"
	"time"

	"integrityledger/domain"
)

// credential is one request to authenticate; the second half is its answer,
// which may be read once done is closed.
type credential struct {
	key     domain.KeyID
	secret  [32]byte
	client  netip.Addr // for keys that have a network
	at      time.Time
	counted bool

	done      chan struct{}
	access    domain.Access
	perMinute *int32
	found     bool
	err       error
}

// gate brings concurrent requests of a shard together. A request joins only a
// batch that has not been sent: the answer of one under way may be older than
// the request, and a key revoked in between would slip in. A lone request is
// sent at once. The zero gate is ready; it is safe for concurrent use.
type gate struct {
	mu     sync.Mutex
	shards map[domain.Shard]*gateQueue
}

type gateQueue struct {
	waiting []*credential
	sending int
}

const (
	// gateInFlight is how many batches of a shard a process has under way.
	gateInFlight = 1
	gateWeight   = 128
)

// ask has send answer the credential, in a goroutine of its own.
func (g *gate) ask(shard domain.Shard, c *credential, send func(domain.Shard, []*credential)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shards == nil {
		g.shards = map[domain.Shard]*gateQueue{}
	}
	q := g.shards[shard]
	if q == nil {
		q = &gateQueue{}
		g.shards[shard] = q
	}
	q.waiting = append(q.waiting, c)
	if q.sending < gateInFlight {
		q.sending++
		go func() {
			for batch := g.take(q); batch != nil; batch = g.take(q) {
				send(shard, batch)
			}
		}()
	}
}

// take closes a batch: what comes later goes into another. Nil means that
// nothing waits and the sender is done.
func (g *gate) take(q *gateQueue) []*credential {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(q.waiting) == 0 {
		q.sending--
		return nil
	}
	n := min(len(q.waiting), gateWeight)
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return batch
}
