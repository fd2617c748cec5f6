package webhooks

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/outbound"
	"integrityledger/projections/internal/statement"
	"integrityledger/projections/queue"
)

// Config configures a Worker.
type Config struct {
	Pool   eventstore.Database // from cluster.QueuePool
	Shards int
	Plans  domain.Plans
	// SecretKeys decrypt the secrets. Without a key nothing can be signed, so nothing is sent.
	SecretKeys func() domain.SecretKeys
	// Allows reports whether an address may be dialled.
	Allows func(netip.Addr) bool
	// Do executes the service's own commands: it disables destinations.
	Do  func(context.Context, domain.Command) error
	Now func() time.Time
	Log *slog.Logger
	// Observe counts deliveries by outcome, once it is recorded: retried, or their final status. It may be nil.
	Observe func(outcome string, deliveries int)

	Resolver *net.Resolver  // nil: the system's
	RootCAs  *x509.CertPool // nil: the system's
	Timeout  time.Duration  // of an attempt; 0: 15 seconds
}

// Limits of every destination (contract, section 5).
const (
	attemptTimeout = 15 * time.Second
	connectTimeout = 5 * time.Second
	// failingLimit is how long all attempts to a destination may fail before it is disabled.
	failingLimit = 5 * 24 * time.Hour

	lease      = 30 * time.Second // more than staleAfter, attemptTimeout and a write
	pollEvery  = time.Second      // finds due deliveries
	watchEvery = 4 * time.Second  // finds deliveries of lost wake-ups in shards without deliveries
	keepLog    = 30 * 24 * time.Hour
	pruneEvery = 10 * time.Minute
	pruneMost  = 1000 // rows per statement
	maxHeld    = 4096 // rows of a process, waiting or being sent
	// maxHeldByOne is the share of one organization, because all its destinations may hang.
	maxHeldByOne = maxHeld / 8
)

// Worker delivers webhooks. Run starts it. It is safe for concurrent use.
type Worker struct {
	Config
	client *outbound.Client
	shards []*shardWorker
	held   atomic.Int64
}

// New returns a Worker.
func New(c Config) (*Worker, error) {
	if c.Pool == nil || c.Plans == nil || c.Allows == nil || c.Do == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("a webhook worker needs Pool, Plans, Allows, Do, Now and Log")
	}
	c.Timeout = cmp.Or(c.Timeout, attemptTimeout)
	w := &Worker{Config: c}
	w.client = newClient(c)
	for shard := range domain.Shard(c.Shards) {
		s := &shardWorker{
			Worker: w, shard: shard, finished: make(chan struct{}, 1), destinations: map[domain.WebhookID]*destination{},
		}
		s.claims = queue.NewLoop(queue.Loop{
			Shards: []domain.Shard{shard}, Work: func(ctx context.Context, _ domain.Shard) (bool, error) { return s.claim(ctx) },
			Quiet: s.empty.Load,
			Every: pollEvery + time.Duration(rand.Int64N(int64(pollEvery/10))), //nolint:gosec // jitter, so that an idle service does not query all shards at once
			Log:   w.Log, Failure: "the queue of webhook deliveries could not be worked off",
		})
		w.shards = append(w.shards, s)
	}
	return w, nil
}

// Wake signals that a shard may have deliveries to send. It never blocks. The process that has queued a delivery wakes
// its own worker after the commit. If that process dies before it sends, another process finds the delivery at its next
// check, at most about four seconds later.
func (w *Worker) Wake(shard domain.Shard) {
	if int(shard) < len(w.shards) {
		w.shards[shard].claims.Wake(shard)
	}
}

// Run sends deliveries until ctx ends. It then claims nothing more, releases rows that it has not begun to send, and
// returns once all attempts in progress have ended, at most attemptTimeout later, and are recorded.
func (w *Worker) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range w.shards {
		all.Go(func() { s.run(ctx) })
	}
	watch := queue.NewLoop(queue.Loop{
		Shards: queue.Shards(w.Shards), Every: watchEvery, Due: w.forgotten, Log: w.Log,
		Failure: "the queues of webhook deliveries could not be watched",
		Work:    func(_ context.Context, shard domain.Shard) (bool, error) { w.Wake(shard); return false, nil },
	})
	all.Go(func() { watch.Run(ctx) })
	prune := queue.NewLoop(queue.Loop{
		Pool: w.Pool, Shards: queue.Shards(w.Shards), Every: pruneEvery, Work: w.prune, Log: w.Log,
		Failure: "old webhook deliveries could not be forgotten",
	})
	all.Go(func() { prune.Run(ctx) })
	all.Wait()
	w.client.CloseIdleConnections()
}

// waiting selects the deliveries of a shard. It uses the same index as findDue.
const waiting = `SELECT FROM {webhook_deliveries} WHERE shard = %s AND webhook_id > '00000000-0000-0000-0000-000000000000'`

var anyWaiting = queue.Due(fmt.Sprintf(waiting, "s.shard"))

// forgotten returns the shards that have a delivery although their last check found none.
func (w *Worker) forgotten(ctx context.Context) ([]domain.Shard, error) {
	if !slices.ContainsFunc(w.shards, func(s *shardWorker) bool { return s.empty.Load() }) {
		return nil, nil
	}
	found, err := queue.DueIn(ctx, w.Pool, w.Shards, anyWaiting)
	return slices.DeleteFunc(found, func(shard domain.Shard) bool { return !w.shards[shard].empty.Load() }), err
}

// shardWorker is the part of a Worker for one shard.
type shardWorker struct {
	*Worker
	shard    domain.Shard
	claims   *queue.Loop
	finished chan struct{} // holds a value when there are results to record; closed after the last
	attempts sync.WaitGroup
	after    domain.WebhookID // where the next search for destinations begins
	empty    atomic.Bool      // the last check has found no delivery, not even one due later

	mu           sync.Mutex
	stopping     bool
	destinations map[domain.WebhookID]*destination
	results      []result
}

func (s *shardWorker) run(ctx context.Context) {
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		s.record(ctx)
	}()
	s.claims.Run(ctx)
	s.giveUp()
	s.attempts.Wait()
	close(s.finished)
	<-recorded
}

// pruneLog finds the oldest rows by their index and deletes each by its place.
var pruneLog = cluster.SQL(`DELETE FROM {webhook_log} l
	USING (SELECT ctid AS place FROM {webhook_log} WHERE shard = $1 AND finished_at < $2 ORDER BY finished_at LIMIT $3 FOR UPDATE SKIP LOCKED) d
	WHERE l.shard = $1 AND l.ctid = d.place`)

// prune deletes deliveries that ended 30 days ago, in small steps.
func (w *Worker) prune(ctx context.Context, shard domain.Shard) (more bool, err error) {
	forgotten, err := statement.Try(
		ctx, w.Pool, "forget old deliveries", pruneLog, shard, w.Now().Add(-keepLog), pruneMost,
	)
	return forgotten == pruneMost, err
}
