package eventstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

const (
	// canaryPause separates two rounds while a shard fails to commit, and is the shortest time between two rehearsals of
	// one shard.
	canaryPause = 2 * time.Second
	// canaryDoubt is the shortest time between two rehearsals caused by commands that cannot be written.
	canaryDoubt = time.Minute
	// canaryTimeout limits a rehearsal: writers wait while it holds the lock on the shard's head.
	canaryTimeout = 5 * time.Second
)

// Canary tracks which shards can commit groups. A committed group proves that its shard can. After a failed group,
// Canary rehearses: it runs the statements of a real group for an organization that does not exist, and rolls them
// back. A process that reaches the database but cannot register therefore reports it. While no group fails, Canary does
// nothing.
//
// It is safe for concurrent use.
type Canary struct {
	ledger *Ledger
	wake   chan struct{}

	mu     sync.Mutex
	shards []rehearsed
}

// rehearsed is one shard of a Canary.
type rehearsed struct {
	due    bool
	last   time.Duration // monotonic time of the last rehearsal; 0: none
	known  bool          // from a rehearsal or a group
	failed error         // nil: the shard takes groups
}

// NewCanary returns a Canary for all shards of a ledger, with a rehearsal due in each.
func NewCanary(l *Ledger, shards int) *Canary {
	c := &Canary{ledger: l, wake: make(chan struct{}, 1), shards: make([]rehearsed, shards)}
	for i := range c.shards {
		c.shards[i].due = true
	}
	return c
}

// Group must be called with the report of every group. A failed group makes a rehearsal of its shard due. So does a
// command that cannot be written, but at most once per canaryDoubt: a tenant may send many such commands, and if a head
// is behind its log, no command can be written.
func (c *Canary) Group(r GroupReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(r.Shard) >= len(c.shards) {
		return
	}
	s := &c.shards[r.Shard]
	switch {
	case r.Outcome == GroupCommitted && len(r.Events) > 0:
		if s.failed != nil {
			c.ledger.Log.Info("the shard takes groups again", "shard", r.Shard)
		}
		s.known, s.failed = true, nil
	case r.Outcome == GroupFailed || r.Outcome == GroupUnknown,
		r.Outcome == GroupPoisoned && c.ledger.Clock.Monotonic()-s.last > canaryDoubt:
		s.due = true
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// Ready returns nil if any shard can commit, otherwise a *domain.Error with the reason. One failing shard must not stop
// requests to all others; Failing reports it.
func (c *Canary) Ready(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := domain.Unavailable("Nothing can be committed: no shard has been tried yet.")
	var cause error
	for i := range c.shards {
		s := &c.shards[i]
		if s.known && s.failed == nil {
			return nil
		}
		if s.failed != nil && cause == nil {
			cause = s.failed
			err = domain.Unavailable("Nothing can be committed: groups fail in every shard, and %s.", reason(cause))
		}
	}
	if cause == nil {
		return err
	}
	return say.Errorf("%w: %w", err, cause)
}

// Failing reports for each shard whether commits fail there.
func (c *Canary) Failing() []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	failing := make([]bool, len(c.shards))
	for i := range c.shards {
		failing[i] = c.shards[i].failed != nil
	}
	return failing
}

// First rehearses shards until one can commit, all were tried, or canaryTimeout has passed. Startup waits for it, so
// that a process is ready for its first request. Run rehearses the remaining shards.
func (c *Canary) First(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	for shard := range c.shards {
		if c.Ready(ctx) == nil || ctx.Err() != nil {
			return
		}
		c.rehearse(ctx, domain.Shard(shard))
	}
}

// Run rehearses the shards that are due until ctx ends.
func (c *Canary) Run(ctx context.Context) {
	for {
		for shard := range c.shards {
			if c.isDue(shard) && ctx.Err() == nil {
				c.rehearse(ctx, domain.Shard(shard))
			}
		}
		var again <-chan time.Time
		if !c.Idle() {
			again = time.After(canaryPause) //nolint:forbidigo // not while idle
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-c.wake:
		}
	}
}

func (c *Canary) isDue(shard int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shards[shard]
	return (s.due || s.failed != nil) && (s.last == 0 || c.ledger.Clock.Monotonic()-s.last >= canaryPause)
}

// Idle reports whether no shard fails and none is due.
func (c *Canary) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.shards, func(s rehearsed) bool { return s.due || s.failed != nil })
}

// rehearse tries one shard. When a shard starts to fail, all others become due: they may lack the same table.
func (c *Canary) rehearse(ctx context.Context, shard domain.Shard) {
	err := c.ledger.rehearse(ctx, shard)
	_, clocks := errors.AsType[*ClockError](err)
	_, lost := errors.AsType[*LostError](err)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shards[shard]
	s.last = c.ledger.Clock.Monotonic()
	switch {
	case ctx.Err() != nil, clocks, lost:
		// The Probe reports clocks that disagree, and the Guard reports a loss. The shard stays due.
		return
	case err != nil && s.failed == nil:
		c.ledger.Log.Error("the shard takes no groups", "shard", shard, "error", cluster.Loggable(err))
		for i := range c.shards {
			c.shards[i].due = true
		}
	case err == nil && s.failed != nil:
		c.ledger.Log.Info("the shard takes groups again", "shard", shard)
	}
	s.due, s.known, s.failed = false, true, err
}

// rehearse runs the statements of a group for the commands of a rehearsal and rolls them back. It consumes no
// positions, because the head's row assigns them, and sends no notification, because notifications follow a commit.
func (l *Ledger) rehearse(ctx context.Context, shard domain.Shard) (err error) {
	held := connection{shard: shard}
	defer held.release()
	for range 2 { // the first connection may lead to a lost server
		if err := l.connect(ctx, &held); err != nil {
			return err
		}
		if err = l.rehearseOn(ctx, &held); err == nil || !retryable(err) {
			return err
		}
		if held.piece != nil && cluster.Moved(err) {
			l.Nodes.Forget(held.piece)
			held.release()
		}
	}
	return err
}

func (l *Ledger) rehearseOn(ctx context.Context, held *connection) error {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	conn := held.conn.Conn()
	defer rollBack(ctx, conn)
	var items []item
	for _, c := range rehearsal(held.shard, l.Plans, l.Clock.Now()) {
		items = append(items, item{command: c})
	}
	g := newGroup(held, items, l.Plans)
	if err := l.load(ctx, conn, g); err != nil {
		return err
	}
	if err := l.decide(g); err != nil {
		return err
	}
	for _, a := range g.answers {
		if a.Err != nil {
			return say.Errorf("a command of the rehearsal was refused: %w", a.Err)
		}
	}
	b := &pgx.Batch{}
	if err := l.queueWrites(b, g, nil); err != nil {
		return err
	}
	if err := g.piece.Send(ctx, conn, b).Close(); err != nil {
		return say.Errorf("write a group: %w", err)
	}
	return nil
}

// rehearsal returns the commands of an organization that never exists: its owner, a company, a key, a webhook, a
// reservation, two versions and a revocation.
func rehearsal(shard domain.Shard, plans domain.Plans, now time.Time) []domain.Command {
	const reference, source, document = "canary", "canary", "canary"
	by := domain.Origin{
		Organization: domain.NewOrganizationID(now, shard), Actor: domain.OperatorActor, RequestID: "canary",
	}
	registrar := domain.Registrar{Signer: evidence.GenerateSigner()}
	sealing, _ := domain.NewSecretKey()
	const owner = "canary@example.com"
	company := &domain.CreateCompany{Origin: by, Reference: reference}
	key, _ := domain.NewCreateKey(domain.CreateKey{
		Origin: by, Email: owner, Scopes: domain.Scopes(), Lifetime: domain.MinKeyLifetime, Companies: []string{reference},
	}, now)
	webhook, _ := domain.NewCreateWebhook(domain.CreateWebhook{
		Origin: by, URL: "https://canary.example/", Types: domain.MaskOf(domain.WebhookTypes()),
	}, sealing, now)
	authorize := &domain.SetWebhookAccess{Origin: by, Enabled: true}
	first := domain.VersionReference{CompanyReference: reference, Source: source, DocumentReference: document, Version: 1}
	second := first
	second.Version = 2
	declare := func(v domain.VersionReference) *domain.Register {
		return registrar.PrepareUnsigned(by, domain.KeyID{}, domain.KeyLimits{}, domain.Declaration{
			VersionReference: v, MimeType: "application/pdf", GeneratedAt: evidence.DeclaredTime(evidence.FormatTime(now)),
		}, now)
	}
	reserve := &domain.Reserve{Origin: by, Version: first, PublicID: domain.NewPublicID(registrar.Secret, shard)}
	finalize, supersede := declare(first), declare(second)
	revoke := &domain.Revoke{Origin: by, Reason: "canary"}
	return []domain.Command{
		&domain.CreateOrganization{Origin: by, Name: reference, Plan: plans.Names()[0], Internal: true, Owner: owner},
		company, key, webhook,
		following{authorize, func() { authorize.Company, authorize.Webhook = company.Outcome.ID, webhook.Outcome.ID }},
		following{reserve, func() { reserve.Key = key.Outcome.ID }},
		following{finalize, func() { finalize.Key = key.Outcome.ID }},
		following{supersede, func() { supersede.Key = key.Outcome.ID }},
		following{revoke, func() { revoke.Key, revoke.PublicID = key.Outcome.ID, supersede.Outcome.PublicID }},
	}
}

// following is a command that refers to objects created by earlier commands of the same group.
type following struct {
	domain.Command
	name func()
}

// Decide implements domain.Command.
func (f following) Decide(s *domain.State, now time.Time) ([]domain.Draft, error) {
	f.name()
	return f.Command.Decide(s, now)
}
