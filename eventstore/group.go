package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// group is one transaction in progress.
type group struct {
	shard    domain.Shard
	piece    *cluster.Piece // where its statements go
	items    []item
	answers  []Answer // by item, once decided
	state    *domain.State
	position int64     // of the shard's last event
	last     time.Time // of the shard's last event
	now      time.Time // decision time of the whole group
	clock    reading   // at which the clocks agreed after the first round trip
	guarded  *comparison
	events   []domain.Event
	warnings int64  // sent by the server on the connection before the group
	after    Commit // follow-up work once it is committed
}

// errPoison means that the data of a command cannot be written.
var errPoison = say.New("a command cannot be written")

const maxAttempts = 3

// loadTimeout limits the first round trip, in case the server never answers. It is longer than any wait for the shard's
// lock.
const loadTimeout = 12 * time.Second

// commit takes a group through its two round trips and answers all its commands.
//
// A crash before COMMIT reaches the server leaves nothing; a crash afterwards leaves the whole group. If the outcome is
// unknown, no caller is answered with success and nothing is repeated.
func (l *Ledger) commit(held *connection, q *queue, items []item) {
	start, shard := l.Clock.Now(), held.shard
	ctx, span := l.startSpan(shard, items)
	report := GroupReport{Shard: shard, Commands: len(items), Outcome: GroupFailed}
	log := l.Log.With("shard", shard, "commands", len(items), "organization", busiest(items))
	defer func() {
		report.Duration = l.Clock.Now().Sub(start)
		endSpan(span, report)
		if l.Observe != nil {
			l.Observe(report)
		}
	}()
	var g *group
	var err error
	for attempt := 1; ; attempt++ {
		if connecting := l.connect(l.running, held); connecting != nil {
			err = errors.Join(err, connecting)
			break
		}
		g, err = l.attempt(ctx, held, items)
		if err == nil || errors.Is(err, cluster.ErrUnknown) || attempt == maxAttempts || !retryable(err) {
			break
		}
		if held.piece != nil && cluster.Moved(err) {
			l.Nodes.Forget(held.piece)
			held.release()
		}
	}
	clocks, disagree := errors.AsType[*ClockError](err)
	old, outdated := errors.AsType[*OutdatedError](err)
	lost, _ := errors.AsType[*LostError](err)
	switch {
	case err == nil:
		report.Outcome, report.Events = GroupCommitted, g.events
		l.refund(ctx, held, g)
		for i, it := range items {
			if err := g.answers[i].Err; err != nil {
				report.Refused = append(report.Refused, err)
			}
			it.answer(g.answers[i])
		}
		if len(g.events) > 0 && l.Committed != nil {
			l.Committed(g.after)
		}
		log.Info("group committed", "refused", len(report.Refused), "events", len(g.events),
			"position", g.position+int64(len(g.events)), "duration", l.Clock.Now().Sub(start))
	case errors.Is(err, cluster.ErrUnknown):
		report.Outcome = GroupUnknown
		log.Error("outcome of the group is unknown", "error", cluster.Loggable(err))
		answerAll(items, g, errUnknownOutcome)
	case lost != nil: // the guard has logged it
		report.Outcome = GroupLost
		answerAll(items, g, lost.Refusal())
	case disagree:
		report.Outcome = GroupClocks
		l.Clock.refuse(clocks.Cause)
		log.Error("group refused", "error", clocks)
		answerAll(items, g, clocks.Refusal())
	case outdated:
		answerAll(items, g, old.Refusal()) // the gate has logged it
	case errors.Is(err, errPoison) && len(items) > 1:
		report.Outcome = GroupSplit
		log.Warn("group is split to find the command that cannot be written", "error", cluster.Loggable(err))
		l.split(held, q, items)
	case errors.Is(err, errPoison):
		report.Outcome = GroupPoisoned
		by := items[0].command.CommandOrigin()
		q.isolate(by.Organization)
		log.Error("command cannot be written", "requestId", by.RequestID, "error", cluster.Loggable(err))
		answerAll(items, g, errInternal)
	default:
		log.Error("group failed", "error", cluster.Loggable(err))
		answerAll(items, g, domain.Unavailable("The database did not take the change; send the request again."))
	}
}

// split halves a poisoned group between organizations until it finds the organization that sent the poison. That
// organization's commands return to the queue and are committed one by one. A shared group is therefore split only a
// few times, however much of it is poison.
func (l *Ledger) split(held *connection, q *queue, items []item) {
	if n := boundary(items); n > 0 {
		l.commit(held, q, items[:n])
		l.commit(held, q, items[n:])
		return
	}
	q.isolate(items[0].command.CommandOrigin().Organization, items...)
}

// boundary returns the index nearest to the middle at which the next organization begins, 0 if there is only one.
func boundary(items []item) int {
	differ := func(i int) bool {
		return items[i-1].command.CommandOrigin().Organization != items[i].command.CommandOrigin().Organization
	}
	for low, high := len(items)/2, len(items)/2; low > 0 || high < len(items); low, high = low-1, high+1 {
		if low > 0 && differ(low) {
			return low
		}
		if high < len(items) && high > 0 && differ(high) {
			return high
		}
	}
	return 0
}

// busiest returns the organization with the most commands in a group. Commands must be ordered by organization.
func busiest(items []item) (organization domain.OrganizationID) {
	most, begin := 0, 0
	for i := range items {
		own := items[i].command.CommandOrigin().Organization
		if own != items[begin].command.CommandOrigin().Organization {
			begin = i
		}
		if n := i + 1 - begin; n > most {
			most, organization = n, own
		}
	}
	return organization
}

// connection is the connection that a shard's worker holds, if any.
type connection struct {
	shard domain.Shard
	conn  *pgxpool.Conn
	piece *cluster.Piece // the shard's, if conn leads to a Citus node
}

// connect replaces a lost connection. It releases the lost one first: if the server is lost, so is every worker's
// connection, and the workers would wait for each other.
func (l *Ledger) connect(ctx context.Context, held *connection) (err error) {
	if held.conn != nil && !held.conn.Conn().IsClosed() {
		return nil
	}
	held.release()
	if held.conn, held.piece, err = l.acquire(ctx, held.shard); err != nil {
		held.conn = nil
		return say.Errorf("connect for a group: %w", err)
	}
	return nil
}

func (c *connection) release() {
	if c.conn != nil {
		c.conn.Release()
		c.conn = nil
	}
}

func newGroup(held *connection, items []item, plans domain.Plans) *group {
	return &group{
		shard: held.shard, piece: held.piece, after: Commit{Shard: held.shard}, items: items,
		answers: make([]Answer, len(items)),
		state:   domain.NewState(plans),
	}
}

// attempt runs one transaction. It leaves the connection outside of a transaction, or closed.
func (l *Ledger) attempt(ctx context.Context, held *connection, items []item) (*group, error) {
	conn := held.conn.Conn()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	g := newGroup(held, items, l.Plans)
	loading, cancelLoading := context.WithTimeout(ctx, loadTimeout)
	defer cancelLoading()
	err := cmp.Or(l.Gate.Err(), l.Guard.Err()) // if set, ask nothing
	if err == nil {
		err = l.load(loading, conn, g)
	}
	if err == nil {
		err = l.decide(g)
	}
	if err == nil {
		err = l.write(ctx, conn, g)
	}
	if err != nil {
		rollBack(ctx, conn)
		return g, err
	}
	l.Guard.acknowledged(g)
	return g, nil
}

// rollBack leaves a connection outside of a transaction, or closed.
func rollBack(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			_ = conn.Close(ctx)
		}
	}
}

// load is the first round trip: begin, lock the shard's head, read the state that the commands need.
func (l *Ledger) load(ctx context.Context, conn *pgx.Conn, g *group) error {
	var needs domain.Needs
	var organizations []domain.OrganizationID
	for _, it := range g.items {
		needs.Add(it.command)
		organizations = append(organizations, it.command.CommandOrigin().Organization)
	}
	b := &pgx.Batch{}
	l.count(b, g)
	if err := l.lock(ctx, conn, g, b, func() {
		l.Load(b, g.shard, organizations, needs, l.Clock.Now(), g.state)
	}); err != nil {
		return poisoned(err)
	}
	return g.date()
}

// count queues the count of the requests that no earlier attempt has counted. A request counted on a connection that
// was then lost is counted again.
func (l *Ledger) count(b *pgx.Batch, g *group) {
	type minute struct {
		organization domain.OrganizationID
		minute       int64
	}
	of := map[minute]*domain.MinuteCount{}
	var counts []*domain.MinuteCount
	counted := make([]*domain.MinuteCount, len(g.items))
	ordinals := make([]int, len(g.items)) // within the count
	for i, it := range g.items {
		by := it.command.CommandOrigin()
		if by.Minute == 0 || it.count != nil {
			continue
		}
		c := of[minute{by.Organization, by.Minute}]
		if c == nil {
			c = &domain.MinuteCount{Organization: by.Organization, Minute: by.Minute}
			of[minute{by.Organization, by.Minute}], counts = c, append(counts, c)
		}
		c.Requests++
		counted[i], ordinals[i] = c, c.Requests
	}
	if counts == nil {
		return
	}
	b.Queue("BEGIN")
	g.piece.Hold(b)
	l.Count(b, g.shard, counts)
	b.Queue("COMMIT").Exec(func(pgconn.CommandTag) error {
		for i, c := range counted {
			if c != nil {
				g.items[i].count, g.items[i].used = c, c.Used-c.Requests+ordinals[i]
			}
		}
		return nil
	})
}

// refund removes refused requests from the count before the callers get their answers.
func (l *Ledger) refund(ctx context.Context, held *connection, g *group) {
	var counts []*domain.MinuteCount
	for i, it := range g.items {
		if it.count == nil {
			continue
		}
		if invalidKey(g.answers[i].Err) {
			it.count.Refused++
		}
		if (it.count.Refused > 0 || it.count.Used == it.count.Requests) && !slices.Contains(counts, it.count) {
			counts = append(counts, it.count)
		}
	}
	if counts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b := &pgx.Batch{} // one transaction, as it is sent at once
	g.piece.Hold(b)
	l.Refund(b, g.shard, counts)
	if err := g.piece.Send(ctx, held.conn.Conn(), b).Close(); err != nil {
		l.Log.Warn("refused requests stay counted", "shard", g.shard, "error", cluster.Loggable(err))
	}
	for _, c := range counts {
		c.Refused = 0 // the other half of a split group shares the count
	}
}

func invalidKey(err error) bool {
	refused, ok := errors.AsType[*domain.Error](err)
	return ok && refused.Code == domain.InvalidKey
}

// lock begins a transaction, locks the shard's head and compares the clocks; more may queue further queries for the
// same round trip. Lock first, in a separate statement: a statement keeps the snapshot from before it waited.
func (l *Ledger) lock(ctx context.Context, conn *pgx.Conn, g *group, b *pgx.Batch, more func()) error {
	g.warnings = cluster.Warnings(conn)
	b.Queue("BEGIN")
	g.piece.Hold(b)
	b.Queue(lockHead, g.shard).QueryRow(func(row pgx.Row) error {
		var head headGate
		if err := row.Scan(&g.position, &g.last, &head.Minimum, &head.Rules); err != nil {
			return say.Errorf("lock shard %d: %w", g.shard, err)
		}
		g.state.Follow(head.Rules...)
		return l.Gate.pass(l.Gate.admit(head.Minimum, head.Rules))
	})
	g.guarded = l.Guard.begin(b, conn, g.shard)
	var database time.Time
	l.Clock.queueAwaited(b, &database, &g.after)
	more()
	sent := l.Clock.Monotonic()
	if err := g.piece.Send(ctx, conn, b).Close(); err != nil {
		return say.Errorf("load the state of a group: %w", err)
	}
	g.clock = l.Clock.read()
	if g.position == 0 {
		g.last = time.Time{} // the head of an empty log has its creation time, which restricts nothing
	}
	if err := l.Guard.compare(g); err != nil {
		return err
	}
	return l.Clock.compare(sent, g.clock, database, g.last)
}

// date sets the decision time of the whole group: the reading at which the clocks agreed, or the head's time if that is
// slightly ahead. Its month must have been loaded, or quotas would see no usage.
func (g *group) date() error {
	g.now = g.clock.wall.Truncate(time.Microsecond)
	if g.now.Before(g.last) {
		g.now = g.last.UTC()
	}
	if !g.state.Covers(domain.PeriodOf(g.now)) {
		return &ClockError{Cause: ClockPeriod}
	}
	return nil
}

// decide decides the commands in arrival order; each sees the effects of the earlier commands. A refusal or a panic
// affects only its command.
func (l *Ledger) decide(g *group) error {
	for i, it := range g.items {
		drafts, err := l.decideOne(it, g)
		if most, _ := g.state.PerMinute(it.command.CommandOrigin().Organization); it.count != nil && !invalidKey(err) {
			g.answers[i].Used, g.answers[i].Most = it.used, most
		}
		if err != nil {
			g.answers[i].Err = err
			continue
		}
		events, err := g.state.Append(it.command.CommandOrigin(), g.now, drafts)
		if err != nil {
			return say.Errorf("%w: %w", errPoison, err)
		}
		g.events = append(g.events, events...)
		if o := g.state.Organization(it.command.CommandOrigin().Organization); o != nil {
			g.answers[i].Sequence = o.Sequence
		}
	}
	for i := range g.events {
		g.events[i].Shard = g.shard
		g.events[i].Position = g.position + 1 + int64(i)
	}
	return nil
}

func (l *Ledger) decideOne(it item, g *group) (drafts []domain.Draft, err error) {
	c := it.command
	defer func() {
		if p := recover(); p != nil {
			l.Log.Error(
				"panic in a decision", "command", fmt.Sprintf("%T", c), "requestId", c.CommandOrigin().RequestID, "stack",
				string(debug.Stack()),
			)
			err = errInternal
		}
	}()
	if at, ok := domain.DatedAt(c); ok {
		if err := l.Clock.prepared(at, g.clock.wall, g.clock.mono-it.queued); err != nil {
			l.Log.Error(
				"a command carries a signed time that is wrong", "requestId", c.CommandOrigin().RequestID, "error", err,
			)
			return nil, cmp.Or[error](g.state.Judge(c.CommandOrigin(), it.used, g.now), err.Refusal())
		}
	}
	drafts, err = g.state.Decide(c, it.used, g.now)
	if _, refused := errors.AsType[*domain.Error](err); err != nil && !refused {
		l.Log.Error(
			"decision failed", "command", fmt.Sprintf("%T", c), "requestId", c.CommandOrigin().RequestID, "error", err,
		)
		err = errInternal
	}
	return drafts, err
}

// write is the second round trip: write events, projections, queues and head, then commit.
func (l *Ledger) write(ctx context.Context, conn *pgx.Conn, g *group) error {
	b := &pgx.Batch{}
	written, tag := false, "" // all rows were accepted; the answer to COMMIT
	if len(g.events) > 0 {
		if err := l.queueWrites(b, g, func() { written = true }); err != nil {
			return say.Errorf("%w: %w", errPoison, err)
		}
	}
	b.Queue("COMMIT").Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	err := g.piece.Send(ctx, conn, b).Close()
	pgErr, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil && tag == "COMMIT" && cluster.Warnings(conn) == g.warnings:
		return nil
	case err == nil && tag == "ROLLBACK":
		return say.New("the server rolled the group back")
	case err == nil:
		return say.Errorf("%w: answer %q, or a warning of the server", cluster.ErrUnknown, tag)
	case refused && !written:
		return poisoned(say.Errorf("write a group: %w", err))
	case refused && pgErr.SeverityUnlocalized == "ERROR":
		return say.Errorf("commit a group: %w", err)
	default:
		return say.Errorf("%w: %w", cluster.ErrUnknown, err)
	}
}

// queueWrites queues the writes of a group, with the head last. written is called once all rows were accepted; it may
// be nil.
func (l *Ledger) queueWrites(b *pgx.Batch, g *group, written func()) error {
	appendEvents(b, g.shard, g.events)
	if err := l.Apply(b, g.shard, g.events); err != nil {
		return err
	}
	if l.Enqueue != nil {
		l.Enqueue(b, g.shard, g.events, g.state, &g.after.Queued)
	}
	b.Queue(moveHead, g.shard, g.position+int64(len(g.events)), g.now).Exec(func(pgconn.CommandTag) error {
		if written != nil {
			written()
		}
		return nil
	})
	return nil
}

// poisoned marks PostgreSQL errors that are caused by a command's data: class 22 is data exception, 23 integrity
// constraint violation, 54 program limit exceeded.
func poisoned(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if ok && slices.Contains([]string{"22", "23", "54"}, pgErr.Code[:min(2, len(pgErr.Code))]) {
		return say.Errorf("%w: %w", errPoison, err)
	}
	return err
}

// retryable reports whether an error left nothing behind and another attempt may succeed: serialization failure,
// deadlock, a lock lost while this process was frozen, a server that became a standby, or a connection that was lost
// before the commit was sent (or refused by a restarting server).
func retryable(err error) bool {
	if errors.Is(err, errPoison) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if _, clocks := errors.AsType[*ClockError](err); clocks {
		return false
	}
	if _, outdated := errors.AsType[*OutdatedError](err); outdated {
		return false
	}
	if _, lost := errors.AsType[*LostError](err); lost {
		return false
	}
	pgErr, refused := errors.AsType[*pgconn.PgError](err)
	return !refused || cluster.Moved(err) ||
		slices.Contains([]string{"40001", "40P01", "25P03", cluster.ReadOnly}, pgErr.Code) ||
		strings.HasPrefix(pgErr.Code, "57P")
}

// Every statement that inserts rows from arrays selects from the shard's head. On Citus, a SELECT without a distributed
// table runs on the coordinator, and its rows are copied to the node in a two-phase commit; with the head in it, the
// whole statement runs on the shard's node. The arrays have equal lengths and are unnested in the select list: in FROM,
// each would first be materialized, and a subquery over them would name no table.

var insertEvents = cluster.SQL(`INSERT INTO {events} (shard, position, organization_id, sequence, id, v, company_id, type,
		subject, occurred_at, actor, request_id, data, nonce, hash)
	SELECT s.shard, unnest($2::bigint[]), unnest($3::uuid[]), unnest($4::bigint[]), unnest($5::uuid[]), unnest($6::smallint[]),
		unnest($7::uuid[]), unnest($8::text[]), unnest($9::text[]), unnest($10::timestamptz[]), unnest($11::text[]),
		unnest($12::text[]), unnest($13::bytea[]), unnest($14::bytea[]), unnest($15::bytea[])
	FROM {shard_heads} s WHERE s.shard = $1`)

var insertTexts = cluster.SQL(`INSERT INTO {texts} (shard, organization_id, id, salt, body)
	SELECT s.shard, unnest($2::uuid[]), unnest($3::uuid[]), unnest($4::bytea[]), unnest($5::text[])
	FROM {shard_heads} s WHERE s.shard = $1`)

// appendEvents queues the inserts of new events and their erasable texts.
func appendEvents(b *pgx.Batch, shard domain.Shard, events []domain.Event) {
	n := len(events)
	positions, sequences, versions := make([]int64, n), make([]int64, n), make([]int16, n)
	organizations, ids, companies := make([][16]byte, n), make([][16]byte, n), make([]*[16]byte, n)
	types, subjects, actors, requests := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	times := make([]time.Time, n)
	data, nonces, hashes := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	var textOrganizations, textIDs [][16]byte
	var salts [][]byte
	var bodies []string
	for i := range events {
		e := &events[i]
		positions[i], organizations[i], sequences[i], ids[i], versions[i] = e.Position, e.Organization, e.Sequence, e.ID, e.V
		if !e.Company.IsZero() {
			companies[i] = (*[16]byte)(&e.Company)
		}
		types[i], subjects[i], times[i], actors[i], requests[i] = string(e.Type), e.Subject, e.OccurredAt, e.Actor.String(),
			e.RequestID
		data[i], nonces[i], hashes[i] = e.Data, e.Nonce[:], e.Hash[:]
		for _, t := range e.Texts {
			textOrganizations, textIDs = append(textOrganizations, e.Organization), append(textIDs, t.ID)
			salts, bodies = append(salts, t.Salt[:]), append(bodies, t.Body)
		}
	}
	b.Queue(insertEvents, shard, positions, organizations, sequences, ids, versions, companies, types, subjects, times,
		actors, requests, data, nonces, hashes)
	if len(textIDs) > 0 {
		b.Queue(insertTexts, shard, textOrganizations, textIDs, salts, bodies)
	}
}
