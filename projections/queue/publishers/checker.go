package publishers

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
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
	roundRows  = 64 // rows of a shard in a round
	parallel   = 8  // checks of a round at once
	// AskEvery is the least time between two checks of a domain that an owner asks for.
	AskEvery = time.Minute

	daily       = 24 * time.Hour
	afterNo     = 6 * time.Hour // so that a domain that is proven again does not fail for a whole day
	afterUnsure = time.Hour
	// A domain that is not proven yet is checked hourly for two days and daily for a month; then an owner asks.
	eagerFor   = 2 * 24 * time.Hour
	waitingFor = 30 * 24 * time.Hour
	// suspicious is the number of proven domains that all fail in a round from which the round counts for none.
	suspicious = 3
	asking     = 32 // checks at once that owners have asked for
)

// Checker checks domains. Run starts the daily checks; several processes may run one. It is safe for concurrent use.
type Checker struct {
	Config
	client *outbound.Client
	turns  *fair.Semaphore[domain.OrganizationID]
	loop   *queue.Loop
}

// New returns a Checker.
func New(c Config) (*Checker, error) {
	if c.Pool == nil || c.Allows == nil || c.Do == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("a checker of domains needs Pool, Allows, Do, Now and Log")
	}
	if c.Resolver == nil {
		c.Resolver = NewResolver("")
	}
	w := &Checker{Config: c, client: newClient(c)}
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
	RETURNING c.statement_id, c.organization_id`)
	findTaken = cluster.SQL(`SELECT ` + projections.PublisherDomainColumns + `
	FROM unnest($2::uuid[], $3::uuid[]) AS n(id, organization_id)
	JOIN LATERAL (SELECT statement_id, organization_id, domain_id, added_at, method, checked_at, failed_days, failed_at, lapsed_at
		FROM {publisher_domains} WHERE shard = $1 AND organization_id = n.organization_id AND statement_id = n.id AND removed_at IS NULL OFFSET 0) p ON true
	JOIN LATERAL (SELECT body FROM {texts}
		WHERE shard = $1 AND organization_id = p.organization_id AND id = p.domain_id OFFSET 0) t ON true
	WHERE t.body IS NOT NULL`)
	note     = cluster.SQL(`UPDATE {publisher_checks} SET due_at = $3, tried_at = $4, found = $5 WHERE shard = $1 AND statement_id = $2`)
	noteLast = cluster.SQL(`UPDATE {publisher_checks} SET due_at = 'infinity', tried_at = $3, found = $4
	WHERE shard = $1 AND statement_id = $2`)
	ask = cluster.SQL(`INSERT INTO {publisher_checks} AS c (shard, statement_id, organization_id, due_at, asked_at, found)
	VALUES ($1, $2, $3, $4, $5, '')
	ON CONFLICT (shard, statement_id) DO UPDATE SET asked_at = excluded.asked_at
		WHERE c.asked_at IS NULL OR c.asked_at <= $6
	RETURNING true`)
)

// takenRow is a row of the queue that this process holds until its lease ends.
type takenRow struct {
	Statement    domain.StatementID
	Organization domain.OrganizationID
}

// looked is a domain that a round has looked at.
type looked struct {
	domain.PublisherDomain
	sighting Sighting
}

// Round checks the domains that are due, and reports whether more may be due.
func (c *Checker) Round(ctx context.Context) (more bool, failed error) {
	now := c.Now()
	shards, failed := queue.DueIn(ctx, c.Pool, c.Shards, anyDue, now)
	var all []*looked
	failed = errors.Join(failed, eventstore.EachShard(ctx, c.Pool, shards,
		func(ctx context.Context, shard domain.Shard) error {
			taken, err := statement.All(ctx, c.Pool, "take domains to check", pgx.RowToStructByPos[takenRow], take,
				shard, now, now.Add(checkLease), roundRows)
			if err != nil || len(taken) == 0 {
				return err
			}
			more = more || len(taken) == roundRows
			found, err := statement.All(ctx, c.Pool, "read domains to check", projections.ScanPublisherDomain, findTaken,
				shard, statement.Column(taken, func(r takenRow) domain.StatementID { return r.Statement }),
				statement.Column(taken, func(r takenRow) domain.OrganizationID { return r.Organization }))
			for _, d := range found {
				all = append(all, &looked{PublisherDomain: d})
			}
			return err
		}))
	c.lookAtAll(ctx, all)
	if ctx.Err() != nil { // an interrupted look has seen nothing
		return false, failed
	}
	trusted := c.trusts(all)
	for _, l := range all {
		failed = errors.Join(failed, c.record(ctx, l, trusted))
	}
	return more, failed
}

func (c *Checker) lookAtAll(ctx context.Context, all []*looked) {
	var wait sync.WaitGroup
	places := make(chan struct{}, parallel)
	for _, l := range all {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			l.sighting = c.Look(ctx, l.Domain.Body, l.Organization)
		})
	}
	wait.Wait()
}

// trusts reports whether the failures of a round count. They do not if every one of several proven domains has failed:
// then the service's own network or resolver is the likely cause.
func (c *Checker) trusts(all []*looked) bool {
	proven, kept := 0, 0
	for _, l := range all {
		if l.CheckedAt != nil && l.LapsedAt == nil {
			proven++
			if l.sighting.Method() != "" {
				kept++
			}
		}
	}
	if proven < suspicious || kept > 0 {
		return true
	}
	c.Log.Warn("no domain could be proven in this round, so no failure counts: check the service's resolver and network",
		"domains", proven)
	return false
}

// record records what a round has seen of a domain, and when it is checked again.
func (c *Checker) record(ctx context.Context, l *looked, trusted bool) error {
	method, denied := l.sighting.Method(), trusted && l.sighting.denies(l.Method)
	if method != "" || denied {
		err := c.Do(ctx, &domain.RecordDomainCheck{
			Origin: domain.Origin{
				Organization: l.Organization, Actor: domain.SystemActor, RequestID: "publisher-" + rand.Text(),
			},
			Domain: l.ID, Method: method,
		})
		if refused, ok := errors.AsType[*domain.Error](err); ok && refused.Code == domain.NotFound {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return say.Errorf("statement %s: %w", l.ID, err)
		}
	}
	return c.note(ctx, &l.PublisherDomain, l.sighting, denied)
}

// note stores what a check has found, and when the next one is due.
func (c *Checker) note(ctx context.Context, d *domain.PublisherDomain, s Sighting, denied bool) error {
	now := c.Now()
	wait, age := daily, now.Sub(d.AddedAt)
	switch state := d.State(now); {
	case s.Method() != "":
	case state == domain.DomainLapsed, state == domain.DomainWaiting && age >= waitingFor:
		return statement.Exec(ctx, c.Pool, "note a check", noteLast, d.Organization.Shard(), d.ID, now, s.word())
	case state == domain.DomainWaiting && age >= eagerFor:
	case state == domain.DomainWaiting, !denied:
		wait = afterUnsure
	default:
		wait = afterNo
	}
	wait -= time.Duration(mathrand.Int64N(int64(wait / 24))) //nolint:gosec // jitter, so that checks spread over the day
	return statement.Exec(
		ctx, c.Pool, "note a check", note, d.Organization.Shard(), d.ID, now.Add(wait), now, s.word(),
	)
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
	_, free, err := statement.First(ctx, c.Pool, "ask for a check", pgx.RowTo[bool], ask,
		d.Organization.Shard(), d.ID, d.Organization, now.Add(daily), now, now.Add(-AskEvery))
	switch {
	case err != nil:
		return Sighting{}, err
	case !free:
		return Sighting{}, domain.Refuse(
			domain.RateLimited, "A domain is checked at most once a minute; wait a minute and ask again.",
		).After(AskEvery)
	}
	s := c.Look(ctx, d.Domain.Body, d.Organization)
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if method := s.Method(); method != "" {
		if err := record(method); err != nil {
			return s, err
		}
	}
	return s, c.note(ctx, &d, s, false)
}
