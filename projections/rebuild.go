package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// Rebuild derives projections from the log again and repairs the rows that differ, while the service writes.
//
// A shard's log is replayed by Apply into the tables of the schema rebuild. Both are compared, a range of keys at a
// time, each in one snapshot in which the replay is at the exact position of the live tables. Rows that differ are
// copied under the lock of the shard's head, a few thousand per lock, after the replay has caught up with the head: no
// writer sees half of a copy, and none waits longer than one copy takes. Queues are never touched.
//
// A check replays into temporary tables of its own session, so a role that may only read can run it, and it neither
// waits for a rebuild nor leaves anything behind. Only on Citus, where temporary tables cannot be distributed, it uses
// the schema rebuild too.
//
// After a crash each live row is either unchanged or repaired. Replayed rows stay, with their position in the same
// transaction, and the next Rebuild of the same program and scope continues there.
type Rebuild struct {
	Pool *pgxpool.Pool // from cluster.RebuildPool, for the number of concurrent shards times Parts
	// Program names the program that projects. Another program's replay is not continued.
	Program string

	Organization domain.OrganizationID // rebuild only this one; zero: the whole shard
	Only         []string              // projections to compare; empty: all
	Check        bool                  // compare, change nothing
	Parts        int                   // sessions that share the check of a shard, from PartsOf; 0 means one

	RangeRows int // rows that one snapshot compares; 0 means 20,000
	MendRows  int // rows that one lock copies; 0 means 2,000

	// Found receives every row that differs, in the order of tables and keys, whatever Parts is. Replayed receives the
	// number of a shard's events replayed so far. It must be safe for concurrent use, because several shards call it.
	Found    func(Difference)
	Replayed func(shard domain.Shard, events, of int64)
}

// Difference is a row that differs from the log.
type Difference struct {
	Shard      domain.Shard
	Projection string
	Key        map[string]string // without the shard
	Kind       DifferenceKind
	Columns    []string // of DifferentRow

	order string // by table and key
}

// DifferenceKind names the kind of difference in a row.
type DifferenceKind string

const (
	MissingRow   DifferenceKind = "missing" // in the log, but not in the table
	ExtraRow     DifferenceKind = "extra"   // in the table, but not in the log
	DifferentRow DifferenceKind = "differs"
)

// Rebuilt is the result for one shard.
type Rebuilt struct {
	Events      int64 // replayed by this call
	Resumed     int64 // replayed by an earlier call that was interrupted
	Differences int64
	Mended      int64
	// LongestPause is the longest time that writers of the shard had to wait.
	LongestPause time.Duration
}

// replayGroup is the number of events replayed in a transaction.
const replayGroup = 2000

// rebuildLock is the class of the advisory locks that prevent two concurrent rebuilds of a shard.
const rebuildLock = 0x72656275

// ErrRebuilding means that another rebuild of the shard is running.
var ErrRebuilding = say.New("another rebuild of this shard is running")

// ErrNoOrganization means that the log has no event of the organization.
var ErrNoOrganization = say.New("the log has no event of the organization")

// Projections lists the tables that can be rebuilt from the log, in alphabetical order.
func Projections(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	tables, err := projected(ctx, pool)
	return column(tables, func(t table) string { return t.name }), err
}

// maxParts limits the sessions of a check: they read the live tables at full speed beside the service, and the first
// has all rows that are not divided.
const maxParts = 8

// PartsOf returns the number of sessions that share each of so many shards on a machine that does jobs at once.
func PartsOf(jobs, shards int) int { return min(jobs, maxParts) / shards }

// Shards rebuilds shards, at most jobs at once, and calls done with the result of each. It calls neither done nor Found
// concurrently. A check finds the differences of one shard after another shard's, whatever jobs is.
func (r *Rebuild) Shards(
	ctx context.Context, shards []domain.Shard, jobs int, done func(Rebuilt, error) error,
) error {
	var mu sync.Mutex // locked during done and Found
	found := func(d Difference) {
		mu.Lock()
		defer mu.Unlock()
		r.Found(d)
	}
	each := make([]differences, len(shards))
	for i := range each {
		each[i] = make(differences, differencesAhead)
	}
	var passing sync.WaitGroup
	passing.Go(func() {
		for _, all := range each {
			for d := range all {
				found(d)
			}
		}
	})
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(jobs) // the shards start in order, so the first that has not ended never waits for another
	for i, shard := range shards {
		group.Go(func() error {
			defer close(each[i])
			one := *r
			if one.Found = found; r.Check { // a repair must not wait for another shard
				one.Found = each[i].send(running)
			}
			result, err := one.Shard(running, shard)
			mu.Lock()
			defer mu.Unlock()
			return done(result, err)
		})
	}
	err := group.Wait()
	passing.Wait()
	return err
}

// differences are found by one session in their order. A session that is far ahead of the others waits for them.
type differences chan Difference

const differencesAhead = 1000

func (all differences) send(ctx context.Context) func(Difference) {
	return func(d Difference) {
		select {
		case all <- d:
		case <-ctx.Done():
		}
	}
}

// merge calls found with the differences of several sessions, in order, until all sessions have ended.
func merge(sessions []differences, found func(Difference)) {
	next := make([]*Difference, len(sessions))
	for {
		least := -1
		for i, all := range sessions {
			if next[i] == nil {
				if d, ok := <-all; ok {
					next[i] = &d
				}
			}
			if next[i] != nil && (least < 0 || next[i].order < next[least].order) {
				least = i
			}
		}
		if least < 0 {
			return
		}
		found(*next[least])
		next[least] = nil
	}
}

// Shard rebuilds one shard, or only the organization's rows in it.
func (r *Rebuild) Shard(ctx context.Context, shard domain.Shard) (Rebuilt, error) {
	count, err := r.parts(ctx)
	if err != nil {
		return Rebuilt{}, say.Errorf("rebuild shard %d: %w", shard, err)
	}
	group, running := errgroup.WithContext(ctx)
	workers, logs, found := make([]rebuilding, count), make([]chan []domain.Event, count), make([]differences, count)
	for i := range workers {
		w := &workers[i]
		*w = rebuilding{Rebuild: *r, shard: shard, part: part{i, count}}
		w.RangeRows, w.MendRows = cmp.Or(r.RangeRows, 20_000), cmp.Or(r.MendRows, 2000)
		if count > 1 {
			logs[i], found[i] = make(chan []domain.Event, 1), make(differences, differencesAhead)
			if w.shared = logs[i]; r.Found != nil {
				w.Found = found[i].send(running)
			}
		}
		group.Go(func() error {
			if count > 1 {
				defer close(found[i])
			}
			return w.run(running)
		})
	}
	if count > 1 {
		group.Go(func() error { return workers[0].read(running, logs) })
		merge(found, r.Found)
	}
	err = group.Wait()
	result := workers[0].result // every part replays the same events
	for _, w := range workers[1:] {
		result.Differences += w.result.Differences
	}
	if err != nil {
		err = say.Errorf("rebuild shard %d: %w", shard, err)
	}
	return result, err
}

// parts returns the number of sessions for a shard. Only a check of whole shards is shared: wrong rows of different
// parts can hold each other's unique values, which a rebuild repairs at once, tables of the schema rebuild have one
// position, and an organization's rows of the feed are found by its companies, which only the first part has.
func (r *Rebuild) parts(ctx context.Context) (int, error) {
	shared := slices.ContainsFunc(r.Only, func(table string) bool { return divided[table] != "" }) || len(r.Only) == 0
	if r.Parts <= 1 || !r.Check || !shared || !r.Organization.IsZero() {
		return 1, nil
	}
	conn, err := r.Pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if !r.temporary(conn.Conn()) {
		return 1, nil
	}
	return max(1, min(r.Parts, int(r.Pool.Config().MaxConns)-1)), nil
}

// read reads the log once for all parts of a shard.
func (w *rebuilding) read(ctx context.Context, parts []chan []domain.Event) error {
	tail := history.NewTail(w.Pool, w.shard, 0)
	for {
		events, err := tail.Next(ctx, replayGroup)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if len(events) == 0 {
				close(part)
				continue
			}
			select {
			case part <- events:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(events) == 0 {
			return nil
		}
	}
}

// ErrCopyStays means that Clear could not empty the schema rebuild because a session reads it. The next rebuild of a
// shard empties it.
var ErrCopyStays = say.New(
	"the second copy of the tables is in use by another session: the next rebuild removes it",
)

// Clear empties the schema rebuild, unless a rebuild is running, or was interrupted and may be continued.
func (r *Rebuild) Clear(ctx context.Context) error {
	const find = "SELECT EXISTS (SELECT 1 FROM rebuild.progress)"
	var unfinished bool
	conn, err := r.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if r.temporary(conn.Conn()) {
		return nil
	}
	// Do not request the lock while a rebuild is unfinished: waiting for it would block rebuilds, and they would block
	// writers.
	if err := conn.QueryRow(ctx, find).Scan(&unfinished); err != nil || unfinished {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx, "SET LOCAL lock_timeout = '1s'; LOCK TABLE rebuild.progress IN SHARE ROW EXCLUSIVE MODE",
		); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, find).Scan(&unfinished); err != nil || unfinished {
			return err
		}
		tables, err := projected(ctx, tx)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := tx.Exec(ctx, "TRUNCATE "+t.rebuilt); err != nil {
				return err
			}
		}
		return nil
	})
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "55P03" {
		return ErrCopyStays
	}
	if err != nil {
		return say.Errorf("clear the rebuilt tables: %w", err)
	}
	return nil
}

// temporary reports whether the replay goes into temporary tables.
func (r *Rebuild) temporary(conn *pgx.Conn) bool { return r.Check && !cluster.OnCitus(conn) }

// rebuilding is the rebuild of one shard. reached is the position, or the organization's sequence, of the tables in the
// schema rebuild.
type rebuilding struct {
	Rebuild
	conn     *pgx.Conn
	shard    domain.Shard
	part     part
	shared   <-chan []domain.Event // the log, for the first replay of a part
	tables   []table
	reached  int64
	result   Rebuilt
	deferred []Difference // rows of the current table that conflict with a unique value of another wrong row
}

func (w *rebuilding) run(ctx context.Context) error {
	conn, err := w.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	w.conn = conn.Conn()
	if w.temporary(w.conn) {
		return w.check(ctx)
	}
	var locked bool
	if err := conn.QueryRow(
		ctx, "SELECT pg_try_advisory_lock($1, $2)", rebuildLock, int32(w.shard),
	).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return ErrRebuilding
	}
	defer func() {
		if _, err := conn.Exec(
			context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1, $2)", rebuildLock, int32(w.shard),
		); err != nil {
			_ = w.conn.Close(context.WithoutCancel(ctx)) // this releases the lock
		}
	}()
	if err := w.compareAll(ctx, w.start); err != nil {
		return err
	}
	_, err = w.conn.Exec(ctx, "DELETE FROM rebuild.progress WHERE shard = $1", w.shard)
	return err
}

// check compares with a replay into temporary tables, which hide the live ones from the unqualified names of the
// replay's statements. Afterwards the session finds the tables of the schema rebuild again.
func (w *rebuilding) check(ctx context.Context) error {
	err := w.compareAll(ctx, func(ctx context.Context) error {
		var b strings.Builder
		b.WriteString("SET search_path = pg_temp, public")
		for i, t := range w.tables {
			fmt.Fprintf(&b, "; CREATE TEMPORARY TABLE %s (LIKE %s INCLUDING ALL)", pgx.Identifier{t.name}.Sanitize(), t.rebuilt)
			w.tables[i].rebuilt = pgx.Identifier{"pg_temp", t.name}.Sanitize()
		}
		_, err := w.conn.Exec(ctx, b.String())
		return err
	})
	if _, ended := w.conn.Exec(context.WithoutCancel(ctx), "DISCARD TEMP; SET search_path = rebuild, public"); ended != nil {
		_ = w.conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

// compareAll replays the log into the tables that start prepares, and compares the projections.
func (w *rebuilding) compareAll(ctx context.Context, start func(context.Context) error) (err error) {
	if w.tables, err = projected(ctx, w.conn); err != nil {
		return err
	}
	if head, err := w.head(ctx); err != nil {
		return err
	} else if head == 0 && !w.Organization.IsZero() {
		return say.Errorf("%w: %s", ErrNoOrganization, w.Organization)
	}
	if err := start(ctx); err != nil {
		return err
	}
	if err := w.replay(ctx); err != nil {
		return err
	}
	for _, t := range w.tables {
		if len(w.Only) > 0 && !slices.Contains(w.Only, t.name) || !w.part.first() && !t.divided {
			continue
		}
		if err := w.compare(ctx, t); err != nil {
			return say.Errorf("projection %s: %w", t.name, err)
		}
	}
	return nil
}

// start continues an interrupted rebuild of the same program and scope, or begins a new one.
func (w *rebuilding) start(ctx context.Context) error {
	return pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) error {
		// Lock first, in the same order as Clear.
		if _, err := tx.Exec(ctx, "LOCK TABLE rebuild.progress IN ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		var scope, program string
		err := tx.QueryRow(
			ctx, "SELECT scope, program, reached FROM rebuild.progress WHERE shard = $1", w.shard,
		).Scan(&scope, &program, &w.reached)
		switch {
		case err == nil && scope == w.Organization.String() && program == w.Program:
			w.result.Resumed = w.reached
			return nil
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		w.reached = 0
		for _, t := range w.tables {
			if _, err := tx.Exec(ctx, "DELETE FROM "+t.rebuilt+" WHERE shard = $1", w.shard); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO rebuild.progress (shard, scope, program, reached) VALUES ($1, $2, $3, 0)
			ON CONFLICT (shard) DO UPDATE SET scope = excluded.scope, program = excluded.program, reached = 0`,
			w.shard, w.Organization.String(), w.Program)
		return err
	})
}

var (
	shardHead        = cluster.SQL(`SELECT position FROM {shard_heads} WHERE shard = $1`)
	organizationHead = cluster.SQL(`SELECT coalesce(max(sequence), 0) FROM {events}
		WHERE shard = $1 AND organization_id = $2`)
)

// head returns the end of the log to replay.
func (w *rebuilding) head(ctx context.Context) (head int64, err error) {
	sql, args := shardHead, []any{w.shard}
	if !w.Organization.IsZero() {
		sql, args = organizationHead, append(args, w.Organization)
	}
	if err := w.conn.QueryRow(ctx, sql, args...).Scan(&head); err != nil {
		return 0, say.Errorf("find the head: %w", err)
	}
	return head, nil
}

// replay advances the tables to the head of the log, in separate transactions. Another connection reads ahead, which is
// safe because events never change.
func (w *rebuilding) replay(ctx context.Context) error {
	head, err := w.head(ctx)
	if err != nil {
		return err
	}
	tail := w.tail(w.Pool)
	next := func(ctx context.Context) ([]domain.Event, error) { return tail.Next(ctx, replayGroup) }
	if w.shared != nil {
		next = func(ctx context.Context) ([]domain.Event, error) {
			select {
			case events := <-w.shared:
				return events, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return history.Ahead(ctx, next, func(events []domain.Event) error {
		err := w.inTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error { return w.step(ctx, tx, events) })
		if err == nil && w.Replayed != nil && w.part.first() {
			w.Replayed(w.shard, w.reached, max(head, w.reached))
		}
		return err
	})
}

// tail returns a tail that starts at the position of the tables.
func (w *rebuilding) tail(from history.Querier) *history.Tail {
	if !w.Organization.IsZero() {
		return history.NewOrganizationTail(from, w.Organization, w.reached)
	}
	return history.NewTail(from, w.shard, w.reached)
}

// inTx runs do in a transaction. If that fails, it restores reached.
func (w *rebuilding) inTx(ctx context.Context, options pgx.TxOptions, do func(pgx.Tx) error) error {
	reached, replayed := w.reached, w.result.Events
	err := pgx.BeginTxFunc(ctx, w.conn, options, do)
	if err != nil {
		w.reached, w.result.Events = reached, replayed
	}
	return err
}

// step replays the next events.
func (w *rebuilding) step(ctx context.Context, tx pgx.Tx, events []domain.Event) error {
	b := &pgx.Batch{}
	if err := applyPart(b, w.shard, events, w.part); err != nil {
		return err
	}
	reached := w.reached + int64(len(events))
	if !w.temporary(w.conn) {
		b.Queue("UPDATE rebuild.progress SET reached = $2 WHERE shard = $1", w.shard, reached)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return say.Errorf("replay up to %d: %w", reached, err)
	}
	w.reached = reached
	w.result.Events += int64(len(events))
	return nil
}

// catchUp replays all events visible to tx.
func (w *rebuilding) catchUp(ctx context.Context, tx pgx.Tx) error {
	tail := w.tail(tx)
	for {
		events, err := tail.Next(ctx, replayGroup)
		if err != nil || len(events) == 0 {
			return err
		}
		if err := w.step(ctx, tx, events); err != nil {
			return err
		}
	}
}
