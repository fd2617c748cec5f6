package client

import (
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = time.Second
	mostBackoff  = time.Minute
)

// Backoff says how long to wait between attempts: 1 s, doubled up to a minute, each up to a quarter longer so that
// clients do not come back at once.
type Backoff struct{ failures int }

// Next is the wait after one more failure.
func (b *Backoff) Next(err error) time.Duration {
	wait := min(firstBackoff<<min(b.failures, 10), mostBackoff)
	b.failures++
	wait += rand.N(wait / 4) //nolint:gosec // spreads load; guessing it gains nothing
	return max(wait, RetryAfter(err))
}
