package eventstore

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Config configures a Ledger.
type Config struct {
	Pool *pgxpool.Pool // from CommitPool; its size limits the groups in progress
	// Nodes is set if Citus distributes the database. Groups then run on the nodes of their shards, and Pool is used only
	// to read the time.
	Nodes *cluster.Nodes
	Plans domain.Plans
	Clock *Clock
	Log   *slog.Logger
	// Gate is the process's gate. Nil means a new gate for this program, whose closing is logged.
	Gate *Gate

	// Count queues the statement that counts requests (Origin.Minute) and sets Used. It runs in a separate transaction, so
	// that no reader waits for a group and a failed group does not undo the count. Refund queues statements that subtract
	// refused requests, and that clear earlier minutes if these counts begin a new one. If it fails, the requests stay
	// counted and nothing else is affected.
	Count  func(b *pgx.Batch, shard domain.Shard, counts []*domain.MinuteCount)
	Refund func(b *pgx.Batch, shard domain.Shard, counts []*domain.MinuteCount)

	// Load queues the queries that read everything a group needs into the state. organizations may contain duplicates.
	Load func(
		b *pgx.Batch, shard domain.Shard, organizations []domain.OrganizationID, needs domain.Needs, now time.Time,
		s *domain.State,
	)
	// Apply queues the writes of the projections. Replay uses the same function.
	Apply func(b *pgx.Batch, shard domain.Shard, events []domain.Event) error
	// Enqueue queues deliveries and mails in the same transaction. Replay never calls it. It may be nil if nothing is
	// delivered. It sets queued if a delivery worker has something to do, at the latest while the results of the batch are
	// read.
	Enqueue func(b *pgx.Batch, shard domain.Shard, events []domain.Event, state *domain.State, queued *bool)

	// Guard stops the ledger if its database has lost committed events. Nil means a new Guard, which only groups inform of
	// a loss.
	Guard *Guard

	// Committed is called for each group with new events, after its commit. It must not block. It may be nil.
	Committed func(Commit)

	// Observe is called for every group once its callers have their answers. It must not block. It may be nil.
	Observe func(GroupReport)
	// Tracer starts a span for every group that contains a traced request. Nil disables tracing.
	Tracer trace.Tracer

	// GroupWeight is the maximum number of commands in a transaction; 0 means 512.
	GroupWeight int
	// QueueCapacity is the maximum number of commands waiting in a shard (see Places); 0 means 8192.
	QueueCapacity int
}

// Commit describes the follow-up work of a committed group.
type Commit struct {
	Shard   domain.Shard
	Awaited bool // a process has announced that readers wait for events of the shard; see Notifier
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

// Places returns the number of commands that may wait in each of several shards: at least 8192, and 32768 in total, so
// that a ledger with fewer than four shards accepts as many at once as a ledger with four.
func Places(shards int) int { return max(8192, 32768/shards) }

// Open starts a ledger; Close ends it.
func Open(c Config) (*Ledger, error) {
	if c.Pool == nil || c.Plans == nil || c.Clock == nil || c.Log == nil || c.Count == nil || c.Refund == nil ||
		c.Load == nil || c.Apply == nil {
		return nil, errors.New("a ledger needs Pool, Plans, Clock, Log, Count, Refund, Load and Apply") //nolint:forbidigo // a bug
	}
	c.GroupWeight, c.QueueCapacity = cmp.Or(c.GroupWeight, 512), cmp.Or(c.QueueCapacity, 8192)
	if c.Gate == nil {
		c.Gate = NewGate(ThisProgram(), func(e *OutdatedError) { c.Log.Error("commits stopped", "error", e) })
	}
	if c.Guard == nil {
		c.Guard = NewGuard(0, c.Log)
	}
	l := &Ledger{Config: c, shards: map[domain.Shard]*queue{}}
	l.running, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Do executes one command. Nil means that the command was decided and committed, and its Outcome may be read. A
// *domain.Error is a refusal, or 503 if the outcome is unknown.
func (l *Ledger) Do(ctx context.Context, c domain.Command) error {
	return l.Execute(ctx, c)[0].Err
}

// Answer is the result of one command.
type Answer struct {
	Err error // as Do returns it
	// Sequence is the organization's sequence right after the command was committed or changed nothing.
	Sequence int64
	// Used is the ordinal of the request within its organization's minute, and Most the limit. Used is 0 if the group did
	// not count the request or found its credential invalid.
	Used, Most int
	// Counted reports that the group has counted the request, or will, if nothing more is known about it.
	Counted bool
}

// Execute decides each command as if it had been sent alone and returns one answer per command, in order. Commands of
// one organization are decided in the order given. Cancelling ctx does not cancel the commands: they may still be
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

// Close refuses new commands, finishes accepted ones and stops. If ctx ends first, it cancels the groups in progress,
// whose callers learn that the outcome is unknown.
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
		return say.Errorf("close ledger: %w", ctx.Err())
	}
}

// queue returns a shard's queue. The first call for a shard also starts its worker.
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

// work commits groups until the queue is closed and empty. It takes a group only once the previous group is committed
// and a connection is available, so that the group includes every command that has arrived by then. A group taken
// earlier would wait for the shard's lock, and later commands could not join it.
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

// answerAll answers the items of a failed group. g is its last attempt, or nil if there was none.
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

// GroupOutcome is the outcome of a group.
type GroupOutcome string

// Outcomes of groups. A split group is followed by groups of the same commands.
const (
	GroupCommitted GroupOutcome = "committed"
	GroupFailed    GroupOutcome = "failed"   // nothing was committed
	GroupUnknown   GroupOutcome = "unknown"  // no caller was answered with success
	GroupSplit     GroupOutcome = "split"    // one of its commands is poison: PostgreSQL refused the command's data
	GroupPoisoned  GroupOutcome = "poisoned" // its only command is poison
	GroupClocks    GroupOutcome = "clocks"   // refused because clocks disagree; nothing was committed
	GroupLost      GroupOutcome = "lost"     // refused because the database lacks earlier commits; nothing was committed
)

// GroupOutcomes lists all outcomes.
func GroupOutcomes() []GroupOutcome {
	return []GroupOutcome{GroupCommitted, GroupFailed, GroupUnknown, GroupSplit, GroupPoisoned, GroupClocks, GroupLost}
}

// GroupReport describes a finished group. Receivers must not modify it.
type GroupReport struct {
	Shard    domain.Shard
	Commands int
	Outcome  GroupOutcome
	Refused  []error        // refusals of commands in a committed group
	Events   []domain.Event // of a committed group
	// Duration starts when a connection is available and includes retries.
	Duration time.Duration
}

// QueueState is the fill level of a shard's queue.
type QueueState struct {
	Waiting, Capacity int
	Refused           int64 // commands refused because it was full, since the start
}

// Queues returns the state of the queue of every shard that has had a command.
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

// startSpan starts a group's span if any of its requests is traced. The span belongs to the trace of the first traced
// request, shares its sampling decision, and links to all of them. The context is the workers', not a request's.
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
