package publishers

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/fair"
	"integrityledger/eventstore/outbound"
	"integrityledger/projections"
	"integrityledger/projections/internal/statement"
	"integrityledger/projections/queue"
)

// Config configures a Checker.
type Config struct {
	Pool   eventstore.Database // from cluster.QueuePool
	Shards int
	// Allows reports whether an address may be dialled.
	Allows func(netip.Addr) bool
	// Do executes the service's own commands: it records checks.
	Do  func(context.Context, domain.Command) error
	Now func() time.Time
	Log *slog.Logger

	Resolver *net.Resolver  // nil: the system's
	RootCAs  *x509.CertPool // nil: the system's
	Port     string         // of https; empty: its own. For tests.
}

const (
	checkEvery = time.Minute // between two rounds
	checkLease = 10 * time.Minute
	roundRows  = 64 // of all shards in a round, so that it ends long before its leases do
	parallel   = 8  // checks of a round at once
	// AskEvery is the least time between two checks of a domain that an owner asks for. MaxAsked is the number of checks
	// of an organization in that time: an owner who removes a domain and adds it again does not get more.
	AskEvery = time.Minute
	MaxAsked = 5

	daily       = 24 * time.Hour
	afterNo     = 6 * time.Hour // so that a domain that is proven again does not fail for a whole day
	afterUnsure = time.Hour
	// A domain that is not proven yet is checked hourly for two days and daily for a month; then an owner asks.
	eagerFor   = 2 * 24 * time.Hour
	waitingFor = 30 * 24 * time.Hour
	asking     = 32 // checks at once that owners have asked for
)

// Checker checks domains. Run starts the daily checks; several processes may run one. It is safe for concurrent use.
type Checker struct {
	Config
	client *outbound.Client
	turns  *fair.Semaphore[domain.OrganizationID]
	loop   *queue.Loop

	mu    sync.Mutex
	asked map[domain.OrganizationID]asked // of this process
}

// asked counts the checks that the owners of an organization have asked for in AskEvery.
type asked struct {
	since time.Time
	n     int
}

// New returns a Checker.
func New(c Config) (*Checker, error) {
	if c.Pool == nil || c.Allows == nil || c.Do == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("a checker of domains needs Pool, Allows, Do, Now and Log")
	}
	if c.Resolver == nil {
		c.Resolver = NewResolver("")
	}
	w := &Checker{Config: c, client: newClient(c), asked: map[domain.OrganizationID]asked{}}
	w.turns = fair.NewSemaphore[domain.OrganizationID](fair.Limits{
		Most: asking, Each: 1, Line: domain.MaxPublisherDomains,
	})
	w.loop = queue.NewLoop(queue.Loop{
		Shards: queue.Shards(1), Every: checkEvery, Log: c.Log,
		Failure: "domains could not be checked; they are checked later",
		Work:    func(ctx context.Context, _ domain.Shard) (bool, error) { return w.Round(ctx) },
	})
	return w, nil
}

// Run checks domains that are due until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	c.loop.Run(ctx)
	c.client.CloseIdleConnections()
}

var (
	anyDue = queue.Due(`SELECT FROM {publisher_checks} WHERE shard = s.shard AND due_at <= $2`)
	take   = cluster.SQL(`UPDATE {publisher_checks} c SET due_at = $3
	FROM (SELECT statement_id FROM {publisher_checks} WHERE shard = $1 AND due_at <= $2 ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED) d
	WHERE c.shard = $1 AND c.statement_id = d.statement_id
	RETURNING c.statement_id, c.organization_id, c.due_at`)
	findTaken = cluster.SQL(`SELECT ` + projections.PublisherDomainColumns + `
	FROM unnest($2::uuid[], $3::uuid[]) AS n(id, organization_id)
	JOIN LATERAL (SELECT statement_id, organization_id, domain_id, added_at, method, checked_at, failed_days, failed_at, lapsed_at
		FROM {publisher_domains} WHERE shard = $1 AND organization_id = n.organization_id AND statement_id = n.id AND removed_at IS NULL OFFSET 0) p ON true
	JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = p.organization_id AND id = p.domain_id OFFSET 0) t ON true
	WHERE t.body IS NOT NULL`)
	// Only the last one who has moved due_at notes what it has found. An older look never overwrites a newer one.
	note = cluster.SQL(`UPDATE {publisher_checks} SET due_at = $4, tried_at = $5, found = $6
	WHERE shard = $1 AND statement_id = $2 AND due_at = $3`)
	noteLast = cluster.SQL(`UPDATE {publisher_checks} SET due_at = 'infinity', tried_at = $4, found = $5
	WHERE shard = $1 AND statement_id = $2 AND due_at = $3`)
	forget = cluster.SQL(
		`DELETE FROM {publisher_checks} WHERE shard = $1 AND statement_id = ANY($2::uuid[]) AND due_at = $3`,
	)
	// A row exists from the addition of a domain to its removal, so that asking never inserts one.
	ask = cluster.SQL(`UPDATE {publisher_checks} SET asked_at = $3, due_at = $4
	WHERE shard = $1 AND statement_id = $2 AND (asked_at IS NULL OR asked_at <= $5)
	RETURNING due_at`)
	othersProven = queue.Due(`SELECT FROM {publisher_domains}
		WHERE shard = s.shard AND organization_id <> $2 AND removed_at IS NULL AND lapsed_at IS NULL AND checked_at > $3`)
)

// takenRow is a row of the queue that this process holds until its lease ends.
type takenRow struct {
	Statement    domain.StatementID
	Organization domain.OrganizationID
	Lease        time.Time // its due_at
}

// held is a domain whose row this process holds.
type held struct {
	domain.PublisherDomain
	lease time.Time
}

// Round checks domains that are due, and reports whether more may be due. It records each result at once.
func (c *Checker) Round(ctx context.Context) (more bool, failed error) {
	shards, failed := queue.DueIn(ctx, c.Pool, c.Shards, anyDue, c.Now())
	var all []held
	left := roundRows
	failed = errors.Join(failed, eventstore.EachShard(ctx, c.Pool, shards,
		func(ctx context.Context, shard domain.Shard) error {
			found, taken, err := c.take(ctx, shard, left)
			all, left = append(all, found...), left-taken
			return err
		}))
	var (
		wait      sync.WaitGroup
		mu        sync.Mutex
		uncounted int
		places    = make(chan struct{}, parallel)
	)
	for _, d := range all {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			seen := c.Look(ctx, d.Domain.Body, d.Organization)
			if ctx.Err() != nil { // an interrupted look has seen nothing
				return
			}
			counted, err := c.record(ctx, d, seen)
			mu.Lock()
			defer mu.Unlock()
			if failed = errors.Join(failed, err); !counted {
				uncounted++
			}
		})
	}
	wait.Wait()
	if uncounted > 0 {
		c.Log.Warn("failed checks do not count, as the cause may be this service's resolver or network: check both",
			"domains", uncounted)
	}
	return left == 0 && ctx.Err() == nil, failed
}

// take takes at most most rows of a shard, and returns their domains. A row without a domain is deleted.
func (c *Checker) take(ctx context.Context, shard domain.Shard, most int) (list []held, taken int, err error) {
	now := c.Now()
	rows, err := statement.All(ctx, c.Pool, "take domains to check", pgx.RowToStructByPos[takenRow], take,
		shard, now, now.Add(checkLease), most)
	if err != nil || len(rows) == 0 {
		return nil, 0, err
	}
	lost := map[domain.StatementID]bool{}
	for _, r := range rows {
		lost[r.Statement] = true
	}
	found, err := statement.All(ctx, c.Pool, "read domains to check", projections.ScanPublisherDomain, findTaken,
		shard, statement.Column(rows, func(r takenRow) domain.StatementID { return r.Statement }),
		statement.Column(rows, func(r takenRow) domain.OrganizationID { return r.Organization }))
	if err != nil {
		return nil, len(rows), err
	}
	lease := rows[0].Lease
	for _, d := range found {
		delete(lost, d.ID)
		list = append(list, held{d, lease})
	}
	if len(lost) > 0 {
		err = statement.Exec(
			ctx, c.Pool, "forget removed domains", forget, shard, slices.Collect(maps.Keys(lost)), lease,
		)
	}
	return list, len(rows), err
}

// counts reports whether a denial counts: the service's own network or resolver may be its cause. The resolver must
// know the domain's top-level domain. Beside that, another organization must have been proven in the last day, if
// there is one that has been proven at all.
func (c *Checker) counts(ctx context.Context, d *domain.PublisherDomain) (bool, error) {
	if !c.knowsTop(ctx, d.Domain.Body) {
		return false, nil
	}
	for _, since := range []time.Time{c.Now().Add(-daily), {}} {
		shards, err := queue.DueIn(ctx, c.Pool, c.Shards, othersProven, d.Organization, since)
		if err != nil || len(shards) > 0 {
			return err == nil && !since.IsZero(), err
		}
	}
	return true, nil
}

// record records what a round has seen of a domain, and when it is checked again. counted is false for a denial that
// does not count.
func (c *Checker) record(ctx context.Context, d held, s Sighting) (counted bool, _ error) {
	if s.Method() != "" {
		if err := c.execute(ctx, &d.PublisherDomain, s.Method()); err != nil {
			return true, err
		}
		_, err := c.note(ctx, d, s, false)
		return true, err
	}
	if d.CheckedAt == nil || d.LapsedAt != nil || !s.denies(d.Method) {
		_, err := c.note(ctx, d, s, false)
		return true, err
	}
	counted, failed := c.counts(ctx, &d.PublisherDomain)
	// A denial is noted first: it is void if the row has been taken by another look meanwhile, which may have proven it.
	mine, err := c.note(ctx, d, s, counted)
	if counted && mine && err == nil {
		err = c.execute(ctx, &d.PublisherDomain, "")
	}
	return counted, errors.Join(failed, err)
}

// execute records a proof, or a denial if method is empty.
func (c *Checker) execute(ctx context.Context, d *domain.PublisherDomain, method domain.ProofMethod) error {
	err := c.Do(ctx, &domain.RecordDomainCheck{
		Origin: domain.Origin{
			Organization: d.Organization, Actor: domain.SystemActor, RequestID: "publisher-" + rand.Text(),
		},
		Domain: d.ID, Method: method,
	})
	if refused, ok := errors.AsType[*domain.Error](err); ok && refused.Code == domain.NotFound {
		return nil // it was removed meanwhile
	}
	if err != nil {
		return say.Errorf("statement %s: %w", d.ID, err)
	}
	return nil
}

// note stores what a check has found, and when the next one is due. It reports whether the row was still this
// process's.
func (c *Checker) note(ctx context.Context, d held, s Sighting, denied bool) (mine bool, err error) {
	now := c.Now()
	wait, age := daily, now.Sub(d.AddedAt)
	query, args := note, []any{d.Organization.Shard(), d.ID, d.lease}
	switch state := d.State(now); {
	case s.Method() != "":
	case state == domain.DomainLapsed, state == domain.DomainWaiting && age >= waitingFor:
		query = noteLast
	case state == domain.DomainWaiting && age >= eagerFor:
	case state == domain.DomainWaiting, !denied:
		wait = afterUnsure
	default:
		wait = afterNo
	}
	if query == note {
		wait -= time.Duration(mathrand.Int64N(int64(wait / 24))) //nolint:gosec // jitter, so that checks spread over the day
		args = append(args, now.Add(wait))
	}
	// The look was made, so that it is noted although the process may be ending.
	rows, err := statement.Try(context.WithoutCancel(ctx), c.Pool, "note a check", query, append(args, now, s.word())...)
	return rows > 0, err
}

// word returns what is stored of a sighting: the answers of DNS and of the file.
func (s Sighting) word() string { return string(s.DNS) + " " + string(s.HTTPS) }

// ReadSighting reads the stored form of a sighting. It is zero if there was none.
func ReadSighting(word string) (s Sighting) {
	for i := range word {
		if word[i] == ' ' {
			return Sighting{Answer(word[:i]), Answer(word[i+1:])}
		}
	}
	return s
}

// Ask checks a domain at once because an owner asks. record executes the command that records a proof. A failure is
// never recorded, so that an owner who tries out loses nothing.
func (c *Checker) Ask(
	ctx context.Context, d domain.PublisherDomain, record func(domain.ProofMethod) error,
) (Sighting, error) {
	release, err := c.turns.Acquire(ctx, d.Organization, 1)
	if err != nil {
		return Sighting{}, domain.Unavailable("Other domains are being checked; ask again.")
	}
	defer release()
	now := c.Now()
	lease, free, err := time.Time{}, c.mayAsk(d.Organization, now), error(nil)
	if free {
		lease, free, err = statement.First(ctx, c.Pool, "ask for a check", pgx.RowTo[time.Time], ask,
			d.Organization.Shard(), d.ID, now, now.Add(checkLease), now.Add(-AskEvery))
	}
	switch {
	case err != nil:
		return Sighting{}, err
	case !free: // or removed a moment ago
		return Sighting{}, domain.Refuse(
			domain.RateLimited, "A domain is checked at most once a minute, and at most %d domains of an organization; "+
				"wait a minute and ask again.", MaxAsked,
		).After(AskEvery)
	}
	c.countAsked(d.Organization)
	s := c.Look(ctx, d.Domain.Body, d.Organization)
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if method := s.Method(); method != "" {
		if err := record(method); err != nil {
			return s, err
		}
	}
	_, err = c.note(ctx, held{d, lease}, s, false)
	return s, err
}

// mayAsk reports whether an organization may ask for one more check.
func (c *Checker) mayAsk(o domain.OrganizationID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.asked, func(_ domain.OrganizationID, a asked) bool { return now.Sub(a.since).Abs() >= AskEvery })
	if _, found := c.asked[o]; !found {
		c.asked[o] = asked{since: now}
	}
	return c.asked[o].n < MaxAsked
}

func (c *Checker) countAsked(o domain.OrganizationID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.asked[o]
	a.n++
	c.asked[o] = a
}
