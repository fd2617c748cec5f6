package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// Config is what a Ledger is made of.
type Config struct {
	Pool *pgxpool.Pool // from CommitPool: its size is the number of groups under way
	// Nodes, where the database is distributed by Citus, take the groups to where their shards are; Pool then only tells
	// the time.
	Nodes *cluster.Nodes
	Plans domain.Plans
	Clock *Clock
	Log   *slog.Logger
	// Gate is the process's; nil: one of this program, which is logged when it closes.
	Gate *Gate

	// Count queues the statement that counts requests (Origin.Minute) and sets Used; it is a transaction of its own, so
	// that no reader waits for a group and a group that fails takes nothing back. Refund queues statements that give back
	// the requests that were refused, and that clear earlier minutes if these counts begin one; if it fails, the counts
	// stay as they are, and nothing else is wrong.
	Count  func(b *pgx.Batch, shard domain.Shard, counts []*domain.MinuteCount)
	Refund func(b *pgx.Batch, shard domain.Shard, counts []*domain.MinuteCount)

	// Load queues the queries that bring everything a group needs into the state; organizations may name one twice.
	Load func(
		b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time,
		s *domain.State,
	)
	// Apply queues the writes of the projections. Replay uses the same function.
	Apply func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error
	// Enqueue queues deliveries and mails in the same transaction; replay never calls it. Nil while nothing is to be
	// delivered. It sets queued where a worker on the queue of deliveries has something to do, as late as with the
	// answers to the batch.
	Enqueue func(b *pgx.Batch, shard domain.Shard, events []domain.Event, state *domain.State, queued *bool)

	// Guard stops the ledger where its database has lost what was committed. Nil: one of its own, which nothing but groups
	// tells of a loss.
	Guard *Guard

	// Committed is called for each group with new events, after its commit. It must not wait. It may be nil.
	Committed func(Commit)

	// Observe is called for every group once its callers have their answers. It must not wait. It may be nil.
	Observe func(GroupReport)
	// Tracer makes a span of every group in which a request is traced. Nil: none.
	Tracer trace.Tracer

	// GroupWeight is the most commands in a transaction; 0 means 512.
	GroupWeight int
	// QueueCapacity is the most commands that wait in a shard (see Places); 0 means 8192.
	QueueCapacity int
}

// Commit is what a group that was committed leaves to be done.
type Commit struct {
	Shard   domain.Shard
	Awaited bool // a process has announced that somebody there waits for events of the shard; see Notifier
	Queued  bool // a delivery was queued
}

// Ledger decides commands and appends their events. It is safe for concurrent use, and several processes may each have
// one on the same database.
type Ledger struct {
	Config
	mu      sync.Mutex
	shards  map[domain.Shard]*queue
	closed  bool
	workers sync.WaitGroup
	stop    context.CancelFunc
	running context.Context //nolint:containedctx // the life of the workers, which outlives every call
}

// Places is how many commands may wait in each of so many shards: at least 8192, and 32768 in all, so that a ledger of
// few shards takes in as much at once as one of four.
func Places(shards int) int { return max(8192, 32768/shards) }

// Open starts a ledger; Close ends it.
func Open(c Config) (*Ledger, error) {
	if c.Pool == nil || c.Plans == nil || c.Clock == nil || c.Log == nil || c.Count == nil || c.Refund == nil ||
		c.Load == nil || c.Apply == nil {
		return nil, errors.New("a ledger needs Pool, Plans, Clock, Log, Count, Refund, Load and Apply")
	}
	c.GroupWeight, c.QueueCapacity = cmp.Or(c.GroupWeight, 512), cmp.Or(c.QueueCapacity, 8192)
	if c.Gate == nil {
		c.Gate = NewGate(ThisProgram(), func(e *OutdatedError) { c.Log.Error("nothing is committed any more", "error", e) })
	}
	if c.Guard == nil {
		c.Guard = NewGuard(0, c.Log)
	}
	l := &Ledger{Config: c, shards: map[domain.Shard]*queue{}}
	l.running, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Do executes one command. Nil means decided and committed: the command's Outcome may be read. A *domain.Error is a
// refusal, or 503 where the outcome is not known.
func (l *Ledger) Do(ctx context.Context, c domain.Command) error {
	return l.Execute(ctx, c)[0].Err
}

// Answer is what became of one command.
type Answer struct {
	Err error // as Do returns it
	// Sequence is its organization's, right after the command was committed or changed nothing.
	Sequence int64
	// Used is which request of its organization's minute a command is that its group counted and whose credential it
	// found good, and Most how many there may be. Used is 0 of any other.
	Used, Most int
	// Counted is true of a request that its group has counted, or will, where no more than that may be known.
	Counted bool
}

// Execute decides each command as if it had been sent alone and returns one answer for each, in order. Commands of one
// organization are decided in the order given. A caller that goes away cancels nothing: its commands may still be
// committed, and their Outcome must not be read.
func (l *Ledger) Execute(ctx context.Context, commands ...domain.Command) []Answer {
	return l.execute(ctx, nil, commands)
}

func (l *Ledger) execute(ctx context.Context, admission *Admission, commands []domain.Command) []Answer {
	if len(commands) == 0 {
		return nil
	}
	s := newSubmission(len(commands))
	if l.Tracer != nil {
		s.span = trace.SpanContextFromContext(ctx)
	}
	queued := l.Clock.Monotonic()
	for i, c := range commands {
		it := item{command: c, submission: s, index: i, queued: queued}
		q, err := l.queue(c.CommandOrigin().Organization.Shard())
		if err == nil {
			err = q.put(it, admission.use(it))
		}
		if err != nil {
			it.answer(Answer{Err: err})
		}
	}
	select {
	case <-s.done:
		return s.answers
	case <-ctx.Done():
	}
	left := make([]Answer, len(commands))
	for i, c := range commands {
		left[i] = Answer{Err: errUnknownOutcome, Counted: c.CommandOrigin().Minute != 0}
	}
	return left
}

// Close refuses new commands, finishes what was accepted and stops. When ctx ends first, groups under way are broken
// off; their callers learn that the outcome is unknown.
func (l *Ledger) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	for _, q := range l.shards {
		q.close()
	}
	l.mu.Unlock()

	finished := make(chan struct{})
	go func() {
		l.workers.Wait()
		close(finished)
	}()
	defer l.stop()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		l.stop()
		<-finished
		return fmt.Errorf("close ledger: %w", ctx.Err())
	}
}

// queue finds a shard's queue and starts its worker with the first command.
func (l *Ledger) queue(shard domain.Shard) (*queue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errShuttingDown
	}
	q := l.shards[shard]
	if q == nil {
		q = newQueue(l.QueueCapacity)
		q.now = l.Clock.Monotonic
		l.shards[shard] = q
		l.workers.Go(func() { l.work(shard, q) })
	}
	return q, nil
}

// work commits groups until the queue is closed and empty. A group is taken when the one before it is committed and a
// connection is there for it, so that it holds all that came until then: one that waited for the lock of the shard,
// which the group before it holds, would be closed to what arrives meanwhile.
func (l *Ledger) work(shard domain.Shard, q *queue) {
	for q.wait() {
		held := connection{shard: shard}
		err := l.connect(l.running, &held)
		group := q.take(l.GroupWeight)
		switch {
		case err != nil:
			l.Log.Error("no database connection for a group", "shard", shard, "commands", len(group), "error", err)
			answerAll(group, nil, domain.Unavailable("The database cannot be reached; send the request again."))
			if l.Observe != nil {
				l.Observe(GroupReport{Shard: shard, Commands: len(group), Outcome: GroupFailed})
			}
		case len(group) > 0:
			l.commit(&held, q, group)
		}
		held.release()
	}
}

func (l *Ledger) acquire(
	ctx context.Context, shard domain.Shard,
) (conn *pgxpool.Conn, piece *cluster.Piece, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if l.Nodes != nil {
		return l.Nodes.Acquire(ctx, uint16(shard))
	}
	conn, err = l.Pool.Acquire(ctx)
	return conn, nil, err
}

// answerAll answers the items of a group that failed; g is its last try, nil where there was none.
func answerAll(items []item, g *group, err error) {
	for i, it := range items {
		a := Answer{Err: err, Counted: it.count != nil}
		if g != nil {
			a.Used, a.Most = g.answers[i].Used, g.answers[i].Most
		}
		it.answer(a)
	}
}

var (
	errUnknownOutcome = domain.Unavailable(
		"The outcome is unknown. Look up the version; if it is not there, send the same request again.",
	)
	errShuttingDown = domain.Unavailable("The service is shutting down; send the request again.")
	errInternal     = domain.Refuse(
		domain.Internal, "The service failed on this request; the failure was logged under the request id.",
	)
)

// GroupOutcome is how a transaction of commands ended.
type GroupOutcome string

// Outcomes of groups. One that was split is followed by groups of the same commands.
const (
	GroupCommitted GroupOutcome = "committed"
	GroupFailed    GroupOutcome = "failed"   // nothing was committed
	GroupUnknown   GroupOutcome = "unknown"  // no caller was answered with success
	GroupSplit     GroupOutcome = "split"    // one of its commands is poison
	GroupPoisoned  GroupOutcome = "poisoned" // its only command is poison: PostgreSQL refused the command's data
	GroupClocks    GroupOutcome = "clocks"   // refused because clocks disagree; nothing was committed
	GroupLost      GroupOutcome = "lost"     // refused because the database lacks earlier commits; nothing was committed
)

// GroupOutcomes lists all outcomes.
func GroupOutcomes() []GroupOutcome {
	return []GroupOutcome{GroupCommitted, GroupFailed, GroupUnknown, GroupSplit, GroupPoisoned, GroupClocks, GroupLost}
}

// GroupReport is what became of a group. Nothing in it may be changed.
type GroupReport struct {
	Shard    domain.Shard
	Commands int
	Outcome  GroupOutcome
	Refused  []error        // answers of a committed group's commands that were refused
	Events   []domain.Event // of a committed group
	// Duration is from the moment at which a connection was there, repetitions included.
	Duration time.Duration
}

// QueueState is how full the queue of a shard is.
type QueueState struct {
	Waiting, Capacity int
	Refused           int64 // commands turned away because it was full, since the start
}

// Queues are the states of the queues of all shards that had a command.
func (l *Ledger) Queues() map[domain.Shard]QueueState {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := map[domain.Shard]QueueState{}
	for shard, q := range l.shards {
		q.mu.Lock()
		states[shard] = QueueState{q.waiting.Len(), q.capacity, q.refused}
		q.mu.Unlock()
	}
	return states
}

// startSpan begins a group's span where any of its requests is traced: in the trace of the first of these, whose
// sampling it shares, and linked to all of them. The context is that of the workers, not of any request.
func (l *Ledger) startSpan(shard domain.Shard, items []item) (context.Context, trace.Span) {
	if l.Tracer == nil {
		return l.running, nil
	}
	var links []trace.Link
	seen := map[*submission]bool{}
	for _, it := range items {
		if s := it.submission; s.span.IsSampled() && !seen[s] {
			seen[s] = true
			links = append(links, trace.Link{SpanContext: s.span})
		}
	}
	if links == nil {
		return l.running, nil
	}
	return l.Tracer.Start(trace.ContextWithSpanContext(l.running, links[0].SpanContext), "group",
		trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("integrity.shard", int(shard)), attribute.Int("integrity.commands", len(items))))
}

func endSpan(span trace.Span, r GroupReport) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String("integrity.outcome", string(r.Outcome)),
		attribute.Int("integrity.refused", len(r.Refused)), attribute.Int("integrity.events", len(r.Events)))
	if r.Outcome == GroupFailed || r.Outcome == GroupClocks || r.Outcome == GroupUnknown || r.Outcome == GroupPoisoned ||
		r.Outcome == GroupLost {
		span.SetStatus(codes.Error, string(r.Outcome))
	}
	span.End()
}
