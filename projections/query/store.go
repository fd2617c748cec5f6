// Package query answers all queries of the handlers, the MCP server and operators on the projections, and authenticates
// requests. It never writes the tables that Apply writes. The few rows that it writes (meters, claims of
// Idempotency-Keys, last uses of keys, replays of deliveries) are not projections. Every statement names the shard.
package query

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/fair"
	"integrityledger/projections/internal/statement"
)

// Store answers queries, grouped by subject. It caches nothing between calls, so an answer is as current as the
// database. It is safe for concurrent use.
type Store struct {
	*reader
	IdentityReader
	OrganizationReader
	KeyReader
	CompanyReader
	RecordReader
	HistoryReader
	DocumentReader
	AllowanceReader
	WebhookReader
	AnswerReader
}

// Parts of a Store.
type (
	// IdentityReader finds the member and organization of an API key or an OAuth subject.
	IdentityReader struct{ *reader }
	// OrganizationReader reads organizations and their members.
	OrganizationReader struct{ *reader }
	// KeyReader reads API keys for their owners.
	KeyReader struct{ *reader }
	// CompanyReader reads companies, the partitions of an organization, and the access of keys and webhooks to them.
	CompanyReader struct{ *reader }
	// RecordReader reads records, reservations and their evidence.
	RecordReader struct {
		*reader
		judging *Judgement // asked together with the next question
	}
	// HistoryReader reads the feed and the audit trail.
	HistoryReader struct{ *reader }
	// DocumentReader reads uploaded documents, their analyses and certificates.
	DocumentReader struct{ *reader }
	// AllowanceReader reads and counts an organization's use of its limits.
	AllowanceReader struct {
		*reader
		judging *Judgement // asked together with the next question
	}
	// WebhookReader reads webhooks and deliveries.
	WebhookReader struct{ *reader }
	// AnswerReader stores the answers of requests with an Idempotency-Key.
	AnswerReader struct{ *reader }
)

// New returns a Store.
func New(c Config) *Store {
	r := &reader{Config: c, scanning: newTurns()}
	return &Store{
		r, IdentityReader{r}, OrganizationReader{r}, KeyReader{r}, CompanyReader{r}, RecordReader{reader: r},
		HistoryReader{r}, DocumentReader{r}, AllowanceReader{reader: r}, WebhookReader{r}, AnswerReader{r},
	}
}

// Config configures a Store.
type Config struct {
	Pool   eventstore.Database // authentication and authenticated reads
	Public eventstore.Database // public comparison and receipt, separate so that they cannot starve other reads
	Scans  eventstore.Database // expensive reads (scan); nil: Pool

	// Replica answers readers if it is new enough. Nil means that the primary answers all.
	Replica *Replica

	Installation eventstore.Installation
	Plans        domain.Plans
	// RequestsReached is called with the shard whenever a request has reached a threshold of its month's allowance. It
	// must not block. It may be nil.
	RequestsReached func(domain.Shard)
}

// reader is the common state of all parts.
type reader struct {
	Config
	scanning    *fair.Semaphore[domain.OrganizationID]
	keys, links eventstore.Batcher[domain.Shard, *credential]
	comparisons eventstore.Batcher[domain.Shard, *evidenceQuestion]
	leaves      eventstore.Batcher[domain.Shard, *evidenceQuestion]
	evidence    eventstore.Batcher[domain.Shard, *evidenceQuestion]
	records     eventstore.Batcher[domain.Shard, *recordQuestion]
	lookups     eventstore.Batcher[domain.Shard, *recordQuestion]
	usages      eventstore.Batcher[domain.Shard, *usageQuestion]
}

// allShards runs a query whose first argument is the shard on one shard after another. It fails if any of them fails.
func allShards[T any](
	ctx context.Context, s *reader, what string, scan pgx.RowToFunc[T], sql string, args ...any,
) (all []T, err error) {
	for shard := range domain.Shard(s.Installation.Shards) {
		list, err := statement.All(ctx, s.Pool, what, scan, sql, append([]any{shard}, args...)...)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// newTurns returns a semaphore that allows each organization one expensive query at a time, in arrival order.
func newTurns() *fair.Semaphore[domain.OrganizationID] {
	return fair.NewSemaphore[domain.OrganizationID](fair.Limits{Most: math.MaxInt, Each: 1, Line: math.MaxInt})
}

// scan runs a query that may read many rows: one per organization at a time, and never on a connection that
// authentication needs.
func scan[T any](
	ctx context.Context, s *reader, o domain.OrganizationID, ask func(eventstore.Database) (T, error),
) (answer T, err error) {
	waiting, cancel := context.WithTimeout(ctx, statement.Timeout)
	defer cancel()
	release, err := s.scanning.Acquire(waiting, o, 1)
	if err != nil {
		return answer, say.Errorf(
			"%w: %w",
			domain.Unavailable(
				"Other questions of this organization that read much are still being answered; send the request again.",
			),
			err,
		)
	}
	defer release()
	return ask(cmp.Or(s.Scans, s.Pool))
}

// Replica is a standby that answers readers instead of the primary if it is new enough. Nothing depends on it: the
// primary answers when the replica cannot, and a replica that fails is not used for replicaRest. It never refuses a
// request: every refusal comes from the primary.
type Replica struct {
	Pool *pgxpool.Pool // from ReplicaPool
	Now  func() time.Time
	Log  *slog.Logger
	// Timeout bounds the wait for a replica that does not answer; 0 means two seconds.
	Timeout time.Duration

	mu    sync.Mutex
	rest  time.Time // do not use before
	away  bool      // the last query failed
	count ReplicaCount
}

// ReplicaCount counts queries by outcome.
type ReplicaCount struct {
	Answered int64 // by the replica
	Behind   int64 // the replica was not new enough
	Failed   int64 // the replica was unreachable or timed out
}

const (
	replicaTimeout = 2 * time.Second
	// replicaRest is how long a failed replica is not used.
	replicaRest = 2 * time.Second
)

// source is the primary, or one snapshot of the replica.
type source struct {
	eventstore.Database
	replica  bool
	sequence int64 // of the organization; the source has at least this one
	epoch    int64 // of the feed, of the replica
}

// errAskPrimary means that the replica's answer cannot be used.
var errAskPrimary = say.New("the replica is not new enough")

// read queries the replica if it has replayed the organization up to after, otherwise the primary.
func read[T any](
	ctx context.Context, s *reader, a domain.Access, after int64, ask func(source) (T, error),
) (answer T, err error) {
	if s.Replica != nil && s.Replica.answers(ctx, a, after, func(from source) error {
		answer, err = ask(from)
		return err
	}) {
		return answer, nil
	}
	return ask(source{Database: s.Pool, sequence: math.MaxInt64})
}

// readMuch is read for queries that may read many rows.
func readMuch[T any](ctx context.Context, s *reader, a domain.Access, ask func(source) (T, error)) (T, error) {
	return read(ctx, s, a, newEnough(a), func(from source) (T, error) {
		if from.replica {
			return ask(from)
		}
		return scan(ctx, s, a.Organization, func(pool eventstore.Database) (T, error) {
			from.Database = pool
			return ask(from)
		})
	})
}

// newEnough returns the lowest sequence at which a request may be answered: the one that it names, or the last one
// committed before it.
func newEnough(a domain.Access) int64 {
	if a.ReadAfter != nil {
		return *a.ReadAfter
	}
	return a.Sequence
}

// stillGranted rejects a replica's answer if the key has lost access to the company since. The primary then answers.
func (s *reader) stillGranted(ctx context.Context, from source, a domain.Access, references ...string) error {
	if from.sequence >= a.Sequence || len(references) == 0 || a.Console {
		return nil
	}
	query := cluster.SQL(`SELECT NOT EXISTS (
		SELECT FROM unnest($4::text[]) AS n(reference)
		WHERE NOT EXISTS (SELECT FROM {companies} c
			JOIN {grants} g ON g.shard = $1 AND g.key_id = $2 AND g.company_id = c.company_id AND g.enabled
			WHERE c.shard = $1 AND c.organization_id = $3 AND c.reference = n.reference))`)
	all, _, err := statement.First(ctx, s.Pool, "look at the grants of an answer", pgx.RowTo[bool], query,
		a.Organization.Shard(), a.Key, a.Organization, references)
	if err != nil || !all {
		return errAskPrimary // also if the primary cannot be queried
	}
	return nil
}

// answers reports whether the replica has answered.
func (r *Replica) answers(ctx context.Context, a domain.Access, after int64, ask func(source) error) bool {
	r.mu.Lock()
	resting := r.Now().Before(r.rest)
	r.mu.Unlock()
	if resting {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, replicaTimeout))
	defer cancel()
	err := r.snapshot(limited, a, after, ask)
	if ctx.Err() != nil {
		return false // the caller gave up, which says nothing about the replica
	}
	refused, ok := errors.AsType[*domain.Error](err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.count.Answered++
	case errors.Is(err, errAskPrimary), ok && refused.Code != domain.TemporarilyUnavailable:
		r.count.Behind++
	default:
		r.count.Failed++
		r.rest = r.Now().Add(replicaRest)
		if !r.away {
			r.Log.Warn("the replica does not answer; using the primary", "error", err)
		}
		r.away = true
		return false
	}
	if r.away {
		r.Log.Info("the replica answers again")
	}
	r.away = false
	return err == nil
}

// snapshot calls ask in a snapshot in which the organization has reached after.
func (r *Replica) snapshot(ctx context.Context, a domain.Access, after int64, ask func(source) error) error {
	conn, err := r.Pool.Acquire(ctx)
	if err != nil {
		return say.Errorf("connect to the replica: %w", err)
	}
	defer conn.Release() // closes a connection that is still in a transaction
	var sequence, epoch int64
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	b.Queue("SELECT greatest(epoch, feed_epoch) FROM ledger WHERE id = 1").
		QueryRow(func(row pgx.Row) error { return row.Scan(&epoch) })
	b.Queue(
		cluster.SQL("SELECT sequence FROM {organization_state} WHERE shard = $1 AND organization_id = $2"),
		a.Organization.Shard(), a.Organization,
	).
		QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&sequence); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return say.Errorf("read the replica's progress: %w", err)
	}
	answer := errAskPrimary
	if sequence >= after {
		answer = ask(source{Database: conn, replica: true, sequence: sequence, epoch: epoch})
	}
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil && answer == nil {
		return say.Errorf("end a snapshot of the replica: %w", err)
	}
	return answer
}

// Count returns the outcomes so far.
func (r *Replica) Count() ReplicaCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// ErrAnotherLedger means that the replica belongs to another ledger than the primary.
var ErrAnotherLedger = say.New("the replica belongs to another ledger")

// Check compares the replica's ledger with the primary's. Any error but ErrAnotherLedger may be temporary: the replica
// is unreachable or still being set up.
func (r *Replica) Check(ctx context.Context, in eventstore.Installation) error {
	const query = `SELECT secret = $1 AND issuer = $2 FROM ledger WHERE id = 1`
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, replicaTimeout))
	defer cancel()
	none := say.New("the replica has no ledger yet")
	same, err := statement.One(
		ctx, r.Pool, "read the replica's ledger", none, pgx.RowTo[bool], query, []byte(in.Secret), in.Issuer,
	)
	if err == nil && !same {
		err = ErrAnotherLedger
	}
	return err
}
