// Package queue holds the workers that run after a commit. They take the rows that projections.Enqueue has queued, act
// outside any transaction (through a mail server, a blob store or a receiver's endpoint), and record the result.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/projections/internal/statement"
)

// Loop checks the queues of all shards regularly, one after another, and a single shard as soon as it is woken there.
// Every worker behind a commit runs on a Loop. Several processes may each run one.
type Loop struct {
	Shards []domain.Shard
	Every  time.Duration // between two checks, which find due work and work left by another process
	// Due returns the shards that have work, with one query for all of them. On error, the shards found so far are still
	// processed. Nil means all shards.
	Due func(context.Context) ([]domain.Shard, error)
	// Quiet reports that nothing will become due by itself, so that the next check waits for a wake-up. Nil means never.
	Quiet func() bool
	// Pool is the database of Work. It may be nil.
	Pool eventstore.Database
	// Work does the due work of a shard. more requests another call at once.
	Work func(context.Context, domain.Shard) (more bool, err error)
	Log  *slog.Logger
	// Failure is logged when Work fails. The next check tries again.
	Failure string

	wake chan domain.Shard
}

// NewLoop returns a Loop. Run starts it.
func NewLoop(l Loop) *Loop {
	l.wake = make(chan domain.Shard, len(l.Shards))
	return &l
}

// Shards lists the shards of a ledger with n shards.
func Shards(n int) []domain.Shard {
	list := make([]domain.Shard, n)
	for i := range list {
		list[i] = domain.Shard(i)
	}
	return list
}

// Wake signals that a shard may have work. It never blocks. If a wake-up is lost, the next check finds the work.
func (l *Loop) Wake(shard domain.Shard) {
	select {
	case l.wake <- shard:
	default:
	}
}

// Run runs the loop until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	look := time.NewTicker(l.Every)
	defer look.Stop()
	quiet := false
	for next := l.Look; ; {
		if err := next(ctx); err != nil && ctx.Err() == nil {
			l.Log.Warn(l.Failure, "error", err)
		}
		if l.Quiet != nil && l.Quiet() != quiet {
			if quiet = !quiet; quiet {
				look.Stop()
			} else {
				look.Reset(l.Every)
			}
		}
		select {
		case <-ctx.Done():
			return
		case shard := <-l.wake:
			next = func(ctx context.Context) error { return l.work(ctx, []domain.Shard{shard}) }
		case <-look.C:
			next = l.Look
		}
	}
}

// Look checks every shard once.
func (l *Loop) Look(ctx context.Context) error {
	if l.Due == nil {
		return l.work(ctx, l.Shards)
	}
	shards, err := l.Due(ctx)
	slices.Sort(shards)
	return errors.Join(err, l.work(ctx, slices.Compact(shards)))
}

// DueIn runs a statement of Due for all shards of a ledger. args are the arguments from $2 on.
func DueIn(
	ctx context.Context, db eventstore.Database, shards int, question string, args ...any,
) ([]domain.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	args = append([]any{shards}, args...)
	due, err := eventstore.Everywhere(ctx, db, shards, pgx.RowTo[domain.Shard], question, args...)
	if err != nil {
		return due, statement.Failed("ask what is due", err)
	}
	return due, nil
}

// Due declares the statement for DueIn, which finds the shards for which any of the questions returns a row. A question
// is a SELECT about the shard s.shard, with arguments from $2 on; $1 is the number of shards. OFFSET makes PostgreSQL
// run each question separately for each shard.
func Due(questions ...string) string {
	all := make([]string, len(questions))
	for i, q := range questions {
		all[i] = "SELECT s.shard FROM {shard_heads} s WHERE s.shard < $1 AND EXISTS (" + q + " OFFSET 0)"
	}
	return cluster.SQL(strings.Join(all, " UNION ALL "))
}

// work continues with the next shard if one fails, because on a cluster each may be on another node.
func (l *Loop) work(ctx context.Context, shards []domain.Shard) (failed error) {
	failed = eventstore.EachShard(ctx, l.Pool, shards, func(ctx context.Context, shard domain.Shard) (err error) {
		for more := true; more && err == nil && ctx.Err() == nil; {
			more, err = l.Work(ctx, shard)
		}
		return err
	})
	if ctx.Err() != nil { // the loop is ending, so do not report it
		failed = nil
	}
	return failed
}

// Leased is a queue whose rows are processed one by one. A worker takes a row by moving its due_at to the end of a
// lease, with FOR UPDATE SKIP LOCKED, so that two workers never have the same row. Act then works outside any
// transaction and records the result. If a process dies in between, another worker takes the row when the lease
// expires.
type Leased[R any] struct {
	Pool  eventstore.Database
	Now   func(context.Context) (time.Time, error)
	What  string // names the queue in errors
	Take  string // takes the row with the earliest due_at: $1 is the shard, $2 now, $3 the end of the lease
	Lease time.Duration
	Scan  pgx.RowToFunc[R]
	Act   func(ctx context.Context, shard domain.Shard, taken time.Time, row R) error
}

// Work implements Loop.Work: it takes and processes rows until none is due. A row that fails is left to a later check
// and does not delay others.
func (q Leased[R]) Work(ctx context.Context, shard domain.Shard) (more bool, failed error) {
	for {
		now, err := q.Now(ctx)
		if err != nil {
			return false, errors.Join(failed, err)
		}
		row, found, err := statement.First(ctx, q.Pool, q.What, q.Scan, q.Take, shard, now, now.Add(q.Lease))
		if err != nil || !found {
			return false, errors.Join(failed, err)
		}
		if err := q.Act(ctx, shard, now, row); err != nil {
			failed = err
		}
	}
}
