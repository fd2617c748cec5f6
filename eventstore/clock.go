package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore/cluster"
)

// DefaultClockTolerance is how far apart clocks may be that count as agreeing.
const DefaultClockTolerance = 10 * time.Second

// ClockConfig is what a Clock is made of.
type ClockConfig struct {
	Now func() time.Time // the process's clock, which may be set
	// Monotonic goes on evenly whatever is done to Now; nil means that of Go, which stands still while the machine is
	// suspended.
	Monotonic func() time.Duration
	Tolerance time.Duration // 0 means DefaultClockTolerance
	// Database changes the time that the database has answered. Nil, but in tests.
	Database func(time.Time) time.Time
}

// Clock compares the process's clock with the database's, and both with the monotonic clock, because an event's date
// binds every later event of its shard: no single clock is believed. The database's clock is that of the server that
// connections go to, on a cluster the coordinator, so that there is one for all shards.
//
// What the clocks were when they last agreed is the baseline that a step shows against. It follows small corrections
// slowly, and is never taken from clocks that disagree: one that was set stays refused until it is put right or the
// process is restarted.
type Clock struct {
	ClockConfig
	epoch time.Time // of the baselines, without a monotonic reading

	// The baseline of the process's clock: its distance from epoch less the monotonic time. It holds once the clocks
	// have agreed.
	agreed  atomic.Bool
	process atomic.Int64

	mu       sync.Mutex
	database time.Duration // the same of the database's clock
	state    ClockState
	checked  time.Duration // monotonic time of state; before the first, state is zero
	known    bool
	refused  map[ClockCause]int64

	asking chan struct{} // held by the one that asks the database besides groups
}

// ClockCause says which clock is wrong, as far as that is known.
type ClockCause string

// Why nothing can be dated.
const (
	ClockProcess  ClockCause = "process"  // the process's clock was set
	ClockDatabase ClockCause = "database" // the database's clock was set
	ClockBoth     ClockCause = "both"     // both were, as one machine's are, or the process stood still without knowing
	ClockApart    ClockCause = "apart"    // they have differed since the process started
	ClockHead     ClockCause = "head"     // both are behind the shard's last event
	// the clock went so far during a round trip that the decision's month was not loaded
	ClockPeriod ClockCause = "period"
)

// ClockCauses lists all causes.
func ClockCauses() []ClockCause {
	return []ClockCause{ClockProcess, ClockDatabase, ClockBoth, ClockApart, ClockHead, ClockPeriod}
}

// ClockState is how far clocks were apart at the last comparison, as far as the length of the round trip lets one say.
type ClockState struct {
	Cause        ClockCause    // empty: they agree
	Apart        time.Duration // database's clock less process's
	ProcessStep  time.Duration // process's clock against the monotonic
	DatabaseStep time.Duration // database's clock against the monotonic
}

// ClockError refuses to date anything.
type ClockError struct {
	Cause ClockCause
	By    time.Duration
}

func (e *ClockError) Error() string {
	if e.Cause == ClockPeriod {
		return "the clock went past the months that were loaded for the decision"
	}
	return fmt.Sprintf(map[ClockCause]string{
		ClockProcess: "this machine's clock was set by %s while the process ran: put it right; if it is right now, " +
			"restart the process",
		ClockDatabase: "the database's clock was set by %s while the process ran: put it right; if it is right now, " +
			"restart the process",
		ClockBoth: "this machine's and the database's clock were set by %s while the process ran, or the machine stood " +
			"still: if both are right now, restart the process",
		ClockApart: "the database's clock differs by %s from this machine's: integrity doctor says what is known of both",
		ClockHead: "the shard's last event is dated %s ahead of both clocks: put the clocks right; if they are right, " +
			"integrity clock reset",
	}[e.Cause], e.By.Round(time.Millisecond))
}

// Refusal is the answer to callers: it says nothing of the machines, nor of other organizations.
func (e *ClockError) Refusal() *domain.Error {
	return domain.Unavailable(
		"The clocks of the service disagree, so that nothing can be dated and nothing was written; send the request " +
			"again later.",
	)
}

// NewClock makes a clock that has no baseline yet.
func NewClock(c ClockConfig) *Clock {
	c.Tolerance = cmp.Or(c.Tolerance, DefaultClockTolerance)
	if c.Monotonic == nil {
		start := time.Now()
		c.Monotonic = func() time.Duration { return time.Since(start) }
	}
	return &Clock{ClockConfig: c, epoch: c.Now().Round(0), refused: map[ClockCause]int64{}, asking: make(chan struct{}, 1)}
}

// reading is one moment on the process's and on the monotonic clock.
type reading struct {
	wall time.Time
	mono time.Duration
}

// read takes both clocks at one moment: a process that is stopped between them reads again.
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

// Now is the process's time. Once the clocks have agreed, a step beyond the tolerance does not move it: it goes on with
// the monotonic clock.
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

// State is what the last comparison has found, and how many groups were refused by cause.
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

// compare judges a round trip, which was sent at a monotonic time and ended with a reading; the database read its clock
// in between, after any wait for a lock. head is the date of the last event, zero where the log is empty.
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
			return nil // half of it is how far a baseline could be off
		}
		c.process.Store(int64(process))
		c.database = late + trip/2
		c.agreed.Store(true)
		return nil
	}
	// A tenth of the time: faster than any clock is slewed, and too slow for steps to add up.
	most := max(0, elapsed/10)
	c.process.Add(int64(min(max(s.ProcessStep, -most), most)))
	c.database += min(max(s.DatabaseStep, -most), most)
	return nil
}

// outside is how far x lies before low (negative) or after high; 0 between.
func outside(x, low, high time.Duration) time.Duration {
	return x - min(max(x, low), high)
}

// preparation is the longest time from the arrival of a request to its hand-over to the queue: a signature, and
// admission. Requests are cut off soon after it.
const preparation = 30 * time.Second

// prepared judges a time that was read before the queue, in which the command has waited for so long: outside of that,
// and of the tolerance, the clock was wrong then or is now.
func (c *Clock) prepared(at, now time.Time, waited time.Duration) *ClockError {
	if off := outside(now.Sub(at), 0, max(0, waited)+preparation); off.Abs() > c.Tolerance {
		return &ClockError{ClockProcess, -off}
	}
	return nil
}

// databaseTime is asked in a statement of its own: in the one that locks the head it would be computed before the wait
// for the lock.
const databaseTime = "SELECT clock_timestamp()"

func (c *Clock) queue(b *pgx.Batch, to *time.Time) { c.ask(b.Queue(databaseTime), to) }

// queueAwaited asks besides, in a group that holds the shard's head, whether somebody waits.
func (c *Clock) queueAwaited(b *pgx.Batch, to *time.Time, after *Commit) {
	c.ask(
		b.Queue(databaseTime+", NOT pg_try_advisory_xact_lock($1, $2)", awaitedLock, int32(after.Shard)), to, &after.Awaited,
	)
}

func (c *Clock) ask(q *pgx.QueuedQuery, to *time.Time, more ...any) {
	q.QueryRow(func(row pgx.Row) error {
		if err := row.Scan(append([]any{to}, more...)...); err != nil {
			return fmt.Errorf("ask for the database's time: %w", err)
		}
		if *to = to.UTC(); c.Database != nil {
			*to = c.Database(*to)
		}
		return nil
	})
}

// fresh is how long a comparison is believed by callers that commit nothing.
const fresh = time.Second

// Agreed is the time, once the clocks agree: every group compares them, and where none did lately, this asks. A
// *ClockError says that they disagree, a *LostError that nothing may be signed.
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
			return time.Time{}, fmt.Errorf("wait for the database's time: %w", ctx.Err())
		}
		if c.stale() {
			err := l.Ready(ctx)
			// What the clocks say is in the state, and a head binds events alone.
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

// now is the time, unless the last comparison or the baseline speaks against it.
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

// earliestHead is the earliest of the dates that bind shards: ahead of the clocks, it leaves none in which anything can
// be committed.
var earliestHead = cluster.SQL("SELECT coalesce(min(occurred_at), 'epoch') FROM {shard_heads} WHERE position > 0")

const readyTimeout = 5 * time.Second

// Ready compares the clocks, and says whether a group could be committed.
func (l *Ledger) Ready(ctx context.Context) error {
	var database, head time.Time
	b := &pgx.Batch{}
	l.Clock.queue(b, &database)
	b.Queue(earliestHead).QueryRow(func(row pgx.Row) error { return row.Scan(&head) })
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	conn, err := l.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to ask for the time: %w", err)
	}
	defer conn.Release()
	sent := l.Clock.Monotonic()
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("ask for the database's time: %w", err)
	}
	return l.Clock.compare(sent, l.Clock.read(), database, head.UTC())
}

// ClockReset is what a reset of one shard has done.
type ClockReset struct {
	Shard         domain.Shard
	From, To      time.Time
	Organizations []domain.OrganizationID // with an event of it
}

// ErrClockRight says that a shard's head is not dated ahead of the clocks.
var ErrClockRight = errors.New("the shard's last event is not dated ahead of the clocks by more than the tolerance")

// datedLater lists the organizations whose last event is later than a time.
var datedLater = cluster.SQL(`SELECT o.organization_id FROM {organization_state} o
	JOIN LATERAL (SELECT occurred_at FROM {events} WHERE shard = $1 AND organization_id = o.organization_id
		AND sequence >= o.sequence AND sequence <= o.sequence ORDER BY sequence LIMIT 1) e ON true
	WHERE o.shard = $1 AND e.occurred_at > $2 ORDER BY o.organization_id`)

// ResetClock takes a shard whose head is dated ahead of the clocks, while these agree, back to their time: in one
// transaction, an event for each organization that has a later one, so that every history by itself shows why its time
// goes back. Nothing else changes: what was dated and charged wrongly stays so.
func (l *Ledger) ResetClock(ctx context.Context, shard domain.Shard, requestID string) (ClockReset, error) {
	connecting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := l.Pool.Acquire(connecting)
	if err != nil {
		return ClockReset{}, fmt.Errorf("connect to reset a shard: %w", err)
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
	if clocks, ok := errors.AsType[*ClockError](err); !ok || clocks.Cause != ClockHead { // any other head is left alone
		return ClockReset{}, err
	}
	reset := ClockReset{Shard: g.shard, From: g.last.UTC(), To: g.clock.wall.Truncate(time.Microsecond)}
	rows, _ := conn.Query(ctx, datedLater, g.shard, reset.To) // its error is that of the rows
	if reset.Organizations, err = pgx.CollectRows(rows, pgx.RowTo[domain.OrganizationID]); err != nil {
		return reset, fmt.Errorf("look for histories of the future: %w", err)
	}
	if len(reset.Organizations) == 0 {
		return reset, errors.New(
			"no event is dated as late as the shard's head: the database was changed behind the ledger's back",
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
		return reset, fmt.Errorf("load the state of a reset: %w", err)
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
