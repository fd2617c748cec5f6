package eventstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// DefaultClockTolerance is the largest difference at which two clocks still agree.
const DefaultClockTolerance = 10 * time.Second

// ClockConfig configures a Clock.
type ClockConfig struct {
	Now func() time.Time // the process's clock, which an operator may set
	// Monotonic advances evenly even if Now is set. Nil means Go's monotonic clock, which stops while the machine is
	// suspended.
	Monotonic func() time.Duration
	Tolerance time.Duration // 0 means DefaultClockTolerance
	// Database changes the time that the database returned. Only tests set it.
	Database func(time.Time) time.Time
}

// Clock compares the process's clock with the database's, and both with the monotonic clock. It trusts no single clock,
// because no event may be dated before an earlier event of its shard. The database's clock belongs to the server that
// connections go to, the coordinator on a cluster, so that all shards share one.
//
// The baseline is the reading at which the clocks last agreed; a step is measured against it. It follows small
// corrections slowly and is never taken from clocks that disagree. A clock that was set is therefore refused until it
// is corrected or the process restarts.
type Clock struct {
	ClockConfig
	epoch time.Time // of the baselines, without a monotonic reading

	// The baseline of the process's clock: its distance from epoch minus the monotonic time. It is valid once the clocks
	// have agreed.
	agreed  atomic.Bool
	process atomic.Int64

	mu       sync.Mutex
	database time.Duration // the baseline of the database's clock
	state    ClockState
	checked  time.Duration // monotonic time of state; before the first, state is zero
	known    bool
	refused  map[ClockCause]int64

	asking chan struct{} // held by the caller that asks the database outside of a group
}

// ClockCause names the clock that is wrong, if known.
type ClockCause string

// Reasons why nothing can be dated.
const (
	ClockProcess  ClockCause = "process"  // the process's clock was set
	ClockDatabase ClockCause = "database" // the database's clock was set
	ClockBoth     ClockCause = "both"     // both were set, as on one machine, or the process was suspended
	ClockApart    ClockCause = "apart"    // they have differed since the process started
	ClockHead     ClockCause = "head"     // both are behind the shard's last event
	// the clock moved so far during a round trip that the month of the decision was not loaded
	ClockPeriod ClockCause = "period"
)

// ClockCauses lists all causes.
func ClockCauses() []ClockCause {
	return []ClockCause{ClockProcess, ClockDatabase, ClockBoth, ClockApart, ClockHead, ClockPeriod}
}

// ClockState holds the differences between the clocks at the last comparison, as exactly as the length of the round
// trip allows.
type ClockState struct {
	Cause        ClockCause    // empty: they agree
	Apart        time.Duration // database's clock minus process's
	ProcessStep  time.Duration // process's clock against the monotonic
	DatabaseStep time.Duration // database's clock against the monotonic
}

// ClockError refuses to date anything.
type ClockError struct {
	Cause ClockCause
	By    time.Duration
}

// clockFaults are formats of sentences that name a time.
var clockFaults = map[ClockCause]say.Word{
	ClockProcess: "this machine's clock was set by %s while the process ran: correct it; if it is correct now, " +
		"restart the process",
	ClockDatabase: "the database's clock was set by %s while the process ran: correct it; if it is correct now, " +
		"restart the process",
	ClockBoth: "this machine's and the database's clock were set by %s while the process ran, or the machine stood " +
		"still: if both are correct now, restart the process",
	ClockApart: "the database's clock differs by %s from this machine's: run integrity doctor to find the wrong one",
	ClockHead: "the shard's last event is dated %s ahead of both clocks: correct the clocks; if they are correct, run " +
		"integrity clock reset",
}

func (e *ClockError) sentence() say.Sentence {
	if e.Cause == ClockPeriod {
		return say.Sentencef("the clock went past the months that were loaded for the decision")
	}
	return say.Sentence{Format: string(clockFaults[e.Cause]), Args: []any{e.By.Round(time.Millisecond)}}
}

func (e *ClockError) Error() string { return e.sentence().String() }

// Say implements say.Phrase.
func (e *ClockError) Say(c say.Catalogue) (string, bool) { return e.sentence().Say(c) }

// Refusal returns the error for clients. It reveals nothing about the machines or other organizations.
func (e *ClockError) Refusal() *domain.Error {
	return domain.Unavailable(
		"The clocks of the service disagree, so that nothing can be dated and nothing was written; send the request " +
			"again later.",
	)
}

// NewClock returns a Clock without a baseline.
func NewClock(c ClockConfig) *Clock {
	c.Tolerance = cmp.Or(c.Tolerance, DefaultClockTolerance)
	if c.Monotonic == nil {
		start := time.Now()
		c.Monotonic = func() time.Duration { return time.Since(start) }
	}
	return &Clock{ClockConfig: c, epoch: c.Now().Round(0), refused: map[ClockCause]int64{}, asking: make(chan struct{}, 1)}
}

// reading is one moment on the process's clock and on the monotonic clock.
type reading struct {
	wall time.Time
	mono time.Duration
}

// read reads both clocks at one moment. If the process was suspended in between, it reads again.
func (c *Clock) read() (r reading) {
	for range 3 {
		before := c.Monotonic()
		r = reading{c.ClockConfig.Now().UTC().Round(0), c.Monotonic()}
		if r.mono-before < c.Tolerance/10 {
			break
		}
	}
	return r
}

func (c *Clock) offset(r reading) time.Duration { return r.wall.Sub(c.epoch) - r.mono }

// Now returns the process's time. Once the clocks have agreed, it ignores a step beyond the tolerance and follows the
// monotonic clock.
func (c *Clock) Now() time.Time {
	wall := c.ClockConfig.Now()
	if !c.agreed.Load() {
		return wall
	}
	steady := c.epoch.Add(time.Duration(c.process.Load()) + c.Monotonic())
	if wall.Sub(steady).Abs() > c.Tolerance {
		return steady.In(wall.Location())
	}
	return wall
}

// State returns the result of the last comparison and the number of groups refused for each cause.
func (c *Clock) State() (ClockState, map[ClockCause]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	refused := make(map[ClockCause]int64, len(ClockCauses()))
	for _, cause := range ClockCauses() {
		refused[cause] = c.refused[cause]
	}
	return c.state, refused
}

func (c *Clock) refuse(cause ClockCause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[cause]++
}

// compare checks the clocks after a round trip that was sent at a monotonic time and ended with a reading. The database
// read its clock in between, after any wait for a lock. head is the date of the last event, zero if the log is empty.
func (c *Clock) compare(sent time.Duration, received reading, database, head time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	trip := received.mono - sent
	since := database.Sub(c.epoch)
	process, late, early := c.offset(received), since-received.mono, since-sent
	s := ClockState{Apart: -outside(received.wall.Sub(database), 0, trip)}
	if c.agreed.Load() {
		s.ProcessStep = process - time.Duration(c.process.Load())
		s.DatabaseStep = -outside(c.database, late, early)
	}
	stepped, moved := s.ProcessStep.Abs() > c.Tolerance, s.DatabaseStep.Abs() > c.Tolerance
	by := s.Apart
	switch {
	case stepped && moved:
		s.Cause, by = ClockBoth, s.ProcessStep
	case stepped:
		s.Cause, by = ClockProcess, s.ProcessStep
	case moved:
		s.Cause, by = ClockDatabase, s.DatabaseStep
	case s.Apart.Abs() > c.Tolerance:
		s.Cause = ClockApart
	}
	elapsed := received.mono - c.checked
	c.state, c.checked, c.known = s, received.mono, true
	if s.Cause != "" {
		return &ClockError{s.Cause, by}
	}
	if ahead := min(head.Sub(received.wall), head.Sub(database)); !head.IsZero() && ahead > c.Tolerance {
		return &ClockError{ClockHead, ahead}
	}
	if !c.agreed.Load() {
		if trip > c.Tolerance {
			return nil // a baseline could be off by half of it
		}
		c.process.Store(int64(process))
		c.database = late + trip/2
		c.agreed.Store(true)
		return nil
	}
	// A tenth of the elapsed time: clocks are slewed more slowly, and steps cannot add up.
	most := max(0, elapsed/10)
	c.process.Add(int64(min(max(s.ProcessStep, -most), most)))
	c.database += min(max(s.DatabaseStep, -most), most)
	return nil
}

// outside returns the distance of x below low (negative) or above high, and 0 in between.
func outside(x, low, high time.Duration) time.Duration {
	return x - min(max(x, low), high)
}

// preparation is the longest time from the arrival of a request until it is queued: admission and a signature. Requests
// time out soon afterwards.
const preparation = 30 * time.Second

// prepared checks a time that was read before its command waited in the queue. If it differs from now by more than the
// wait, preparation and the tolerance explain, the clock was wrong then or is wrong now.
func (c *Clock) prepared(at, now time.Time, waited time.Duration) *ClockError {
	if off := outside(now.Sub(at), 0, max(0, waited)+preparation); off.Abs() > c.Tolerance {
		return &ClockError{ClockProcess, -off}
	}
	return nil
}

// databaseTime is a separate statement: in the statement that locks the head, it would be computed before the wait for
// the lock.
const databaseTime = "SELECT clock_timestamp()"

func (c *Clock) queue(b *pgx.Batch, to *time.Time) { c.ask(b.Queue(databaseTime), to) }

// queueAwaited also asks whether any process waits for events of the shard. The group must hold the shard's head.
func (c *Clock) queueAwaited(b *pgx.Batch, to *time.Time, after *Commit) {
	c.ask(
		b.Queue(databaseTime+", NOT pg_try_advisory_xact_lock($1, $2)", awaitedLock, int32(after.Shard)), to, &after.Awaited,
	)
}

func (c *Clock) ask(q *pgx.QueuedQuery, to *time.Time, more ...any) {
	q.QueryRow(func(row pgx.Row) error {
		if err := row.Scan(append([]any{to}, more...)...); err != nil {
			return say.Errorf("ask for the database's time: %w", err)
		}
		if *to = to.UTC(); c.Database != nil {
			*to = c.Database(*to)
		}
		return nil
	})
}

// fresh is how long callers that commit nothing rely on a comparison.
const fresh = time.Second

// Agreed returns the time if the clocks agree. Every group compares them; if no group did recently, Agreed asks the
// database. It returns a *ClockError if they disagree and a *LostError if nothing may be signed.
func (l *Ledger) Agreed(ctx context.Context) (time.Time, error) {
	if err := l.Guard.Err(); err != nil {
		return time.Time{}, err
	}
	c := l.Clock
	if c.stale() {
		select {
		case c.asking <- struct{}{}:
			defer func() { <-c.asking }()
		case <-ctx.Done():
			return time.Time{}, say.Errorf("wait for the database's time: %w", ctx.Err())
		}
		if c.stale() {
			err := l.Ready(ctx)
			// The state has the result of the comparison, and a head restricts only events.
			if _, disagree := errors.AsType[*ClockError](err); err != nil && !disagree {
				return time.Time{}, err
			}
		}
	}
	return c.now()
}

func (c *Clock) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.known || c.Monotonic()-c.checked > fresh
}

// now returns the time, unless the last comparison or the baseline contradicts it.
func (c *Clock) now() (time.Time, error) {
	r := c.read()
	c.mu.Lock()
	cause, by := c.state.Cause, c.state.Apart
	c.mu.Unlock()
	if step := c.offset(r) - time.Duration(c.process.Load()); cause == "" && c.agreed.Load() && step.Abs() > c.Tolerance {
		cause, by = ClockProcess, step
	}
	if cause != "" {
		return time.Time{}, &ClockError{cause, by}
	}
	return r.wall, nil
}

// earliestHead returns the earliest date of the shards' heads. If it is ahead of the clocks, no shard can commit.
var earliestHead = cluster.SQL("SELECT coalesce(min(occurred_at), 'epoch') FROM {shard_heads} WHERE position > 0")

const readyTimeout = 5 * time.Second

// Ready compares the clocks and returns nil if a group could be committed.
func (l *Ledger) Ready(ctx context.Context) error {
	var database, head time.Time
	b := &pgx.Batch{}
	l.Clock.queue(b, &database)
	b.Queue(earliestHead).QueryRow(func(row pgx.Row) error { return row.Scan(&head) })
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	conn, err := l.Pool.Acquire(ctx)
	if err != nil {
		return say.Errorf("connect to ask for the time: %w", err)
	}
	defer conn.Release()
	sent := l.Clock.Monotonic()
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return say.Errorf("ask for the database's time: %w", err)
	}
	return l.Clock.compare(sent, l.Clock.read(), database, head.UTC())
}

// ClockReset is the result of resetting one shard.
type ClockReset struct {
	Shard         domain.Shard
	From, To      time.Time
	Organizations []domain.OrganizationID // that got an event for the reset
}

// ErrClockRight means that a shard's head is not dated ahead of the clocks.
var ErrClockRight = say.New("the shard's last event is not dated ahead of the clocks by more than the tolerance")

// datedLater lists the organizations with a last event later than a time.
var datedLater = cluster.SQL(`SELECT o.organization_id FROM {organization_state} o
	JOIN LATERAL (SELECT occurred_at FROM {events} WHERE shard = $1 AND organization_id = o.organization_id
		AND sequence >= o.sequence AND sequence <= o.sequence ORDER BY sequence LIMIT 1) e ON true
	WHERE o.shard = $1 AND e.occurred_at > $2 ORDER BY o.organization_id`)

// ResetClock sets a shard whose head is dated ahead of the clocks back to their time. The clocks must agree. One
// transaction appends an event for each organization that has a later one, so that each organization's history shows
// why its time goes back. Nothing else changes: wrong dates and charges stay.
func (l *Ledger) ResetClock(ctx context.Context, shard domain.Shard, requestID string) (ClockReset, error) {
	connecting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := l.Pool.Acquire(connecting)
	if err != nil {
		return ClockReset{}, say.Errorf("connect to reset a shard: %w", err)
	}
	defer conn.Release()
	g := &group{shard: shard, after: Commit{Shard: shard}, state: domain.NewState(l.Plans)}
	reset, err := l.resetClock(ctx, conn.Conn(), g, requestID)
	if err != nil {
		rollBack(context.WithoutCancel(ctx), conn.Conn())
	} else if l.Committed != nil {
		l.Committed(g.after)
	}
	return reset, err
}

func (l *Ledger) resetClock(ctx context.Context, conn *pgx.Conn, g *group, requestID string) (ClockReset, error) {
	err := l.lock(ctx, conn, g, &pgx.Batch{}, func() {})
	if err == nil {
		return ClockReset{}, ErrClockRight
	}
	if clocks, ok := errors.AsType[*ClockError](err); !ok || clocks.Cause != ClockHead { // only a future head is reset
		return ClockReset{}, err
	}
	reset := ClockReset{Shard: g.shard, From: g.last.UTC(), To: g.clock.wall.Truncate(time.Microsecond)}
	rows, _ := conn.Query(ctx, datedLater, g.shard, reset.To) // rows carry its error
	if reset.Organizations, err = pgx.CollectRows(rows, pgx.RowTo[domain.OrganizationID]); err != nil {
		return reset, say.Errorf("look for events dated in the future: %w", err)
	}
	if len(reset.Organizations) == 0 {
		return reset, say.New(
			"no event is dated as late as the shard's head: the database was changed by another program. Run integrity audit " +
				"to see what differs, then stop the service and restore a backup (integrity restore)",
		)
	}
	for _, o := range reset.Organizations {
		cause := domain.Origin{Organization: o, Actor: domain.OperatorActor, RequestID: requestID}
		g.items = append(g.items, item{command: &domain.ResetClock{Origin: cause, From: reset.From}})
	}
	g.answers = make([]Answer, len(g.items))
	b := &pgx.Batch{}
	l.Load(b, g.shard, reset.Organizations, domain.Needs{}, reset.To, g.state)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return reset, say.Errorf("load the state of a reset: %w", err)
	}
	g.now = reset.To
	if err := l.decide(g); err != nil {
		return reset, err
	}
	for _, answer := range g.answers {
		if answer.Err != nil {
			return reset, answer.Err
		}
	}
	return reset, l.write(ctx, conn, g)
}
