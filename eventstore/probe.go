package eventstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

const (
	// rememberAnswer is how long a Probe reuses an answer, for all callers.
	rememberAnswer = time.Second
	// proofAge is how long a commit proves that the database can write its log, unless a group fails. More frequent proofs
	// would make an idle database with archiving fill more segments.
	proofAge = 5 * time.Minute
	// questionTimeout limits a question to the database, including a commit that waits for a standby.
	questionTimeout = 3 * time.Second
)

// Probe reports whether groups can currently be committed. It learns this from the groups themselves, and asks the
// database if none was committed for a second. It has its own connection, asks one question at a time, and takes no
// lock. It is safe for concurrent use.
type Probe struct {
	// Clocks, if set, is also asked: nothing is committed while clocks disagree.
	Clocks func(context.Context) error

	pool    *pgxpool.Pool
	now     func() time.Time
	running context.Context //nolint:containedctx // the life of a question, which outlives its callers
	stop    context.CancelFunc
	work    sync.WaitGroup
	inquire func(ctx context.Context, prove bool) error // question

	mu     sync.Mutex
	asked  time.Time     // time of the last answer; zero before the first
	answer error         // nil if groups can be committed
	proven time.Time     // the last commit that changed something; zero since a group has failed
	asking chan struct{} // closed when the question is answered; nil if none is in progress
}

// OpenProbe returns a Probe of the database that groups are committed to, with the same session settings.
func OpenProbe(ctx context.Context, primary *cluster.Primary, now func() time.Time) (*Probe, error) {
	pool, err := primary.ProbePool(ctx)
	if err != nil {
		return nil, err
	}
	p := newProbe(now)
	p.pool, p.inquire = pool, p.question
	return p, nil
}

func newProbe(now func() time.Time) *Probe {
	p := &Probe{now: now}
	p.running, p.stop = context.WithCancel(context.Background())
	return p
}

// Close cancels a question in progress and closes the connection.
func (p *Probe) Close() {
	p.stop()
	p.work.Wait()
	p.pool.Close()
}

// Group must be called with the report of every group. A committed group answers the question. A failed group makes the
// next caller ask the database.
func (p *Probe) Group(r GroupReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Outcome == GroupCommitted && len(r.Events) > 0:
		p.asked, p.answer = p.now(), nil
		p.proven = p.asked
	case r.Outcome == GroupClocks:
		p.asked = time.Time{}
	case r.Outcome == GroupFailed || r.Outcome == GroupUnknown:
		p.asked, p.proven = time.Time{}, time.Time{}
	}
}

// Ready returns nil if groups can be committed, otherwise a *domain.Error with the reason.
func (p *Probe) Ready(ctx context.Context) error {
	p.mu.Lock()
	if since := p.now().Sub(p.asked); p.asking == nil && !p.asked.IsZero() && since >= 0 && since < rememberAnswer {
		defer p.mu.Unlock()
		return p.answer
	}
	if p.asking == nil {
		p.asking = make(chan struct{})
		p.work.Go(p.ask)
	}
	asking := p.asking
	p.mu.Unlock()
	select {
	case <-asking:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.answer
	case <-ctx.Done():
		return say.Errorf("%w: %w", domain.Unavailable("The database has not answered yet."), ctx.Err())
	}
}

func (p *Probe) ask() {
	ctx, cancel := context.WithTimeout(p.running, questionTimeout)
	defer cancel()
	p.mu.Lock()
	since := p.now().Sub(p.proven)
	prove := p.proven.IsZero() || since < 0 || since >= proofAge
	p.mu.Unlock()
	err := p.inquire(ctx, prove)
	if err == nil && p.Clocks != nil {
		err = p.Clocks(ctx)
	}
	if err != nil {
		err = say.Errorf("%w: %w", domain.Unavailable("Nothing can be committed: %s.", reason(err)), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.answer = p.now(), err
	switch {
	case err != nil:
		p.proven = time.Time{}
	case prove:
		p.proven = p.asked
	}
	close(p.asking)
	p.asking = nil
}

// errReadOnly means that the database would refuse every group.
var errReadOnly = say.New("transactions are read-only")

// question checks whether the database can write. The first statement makes PostgreSQL write 1 MB to a temporary file,
// which fails if the disk is full and leaves nothing behind. To prove a commit, it writes a message to the write-ahead
// log: no table grows, and no row is locked.
func (p *Probe) question(ctx context.Context, prove bool) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return say.Errorf("connect: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // after a commit there is nothing to roll back
	var readOnly bool
	var rows int
	if err := tx.QueryRow(ctx, `SELECT current_setting('transaction_read_only') = 'on',
		(SELECT count(*) FROM unnest(array_fill(repeat('x', 8192), ARRAY[128])))`).Scan(&readOnly, &rows); err != nil {
		return say.Errorf("write a temporary file: %w", err)
	}
	if readOnly {
		_ = tx.Conn().Close(ctx) // another connection may get other settings
		return errReadOnly
	}
	if prove {
		if _, err := tx.Exec(ctx, "SELECT pg_logical_emit_message(true, 'integrity', 'ready')"); err != nil {
			return say.Errorf("write: %w", err)
		}
	}
	return cluster.Commit(ctx, tx)
}

// reason describes in a few words, for operators, why the database does not commit.
func reason(err error) string {
	pgErr, refused := errors.AsType[*pgconn.PgError](err)
	_, clocks := errors.AsType[*ClockError](err)
	switch {
	case clocks:
		return "the clocks of the service disagree (integrity doctor says which is wrong)"
	case errors.Is(err, errReadOnly):
		return cluster.Reason(cluster.ReadOnly)
	case errors.Is(err, cluster.ErrUnknown):
		return "the database committed without waiting for its synchronous standby"
	case refused:
		return cluster.Reason(pgErr.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return "the database does not answer in time"
	default:
		return "the database cannot be reached, or takes no writes"
	}
}
