package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/migrations"
	"integrityledger/projections"
)

const (
	issuer  = "https://bench.example"
	company = "company"
	origin  = "bench"
	sixteen = 16 // organizations, besides the one that is measured alone
)

// lab is a ledger that the benchmark fills, and the organizations that register in it.
type lab struct {
	url          string
	installation eventstore.Installation
	registrar    domain.Registrar
	plans        domain.Plans
	read         *pgxpool.Pool
	owner        *pgx.Conn       // as the tables' owner; used only by the benchmark's main goroutine
	one          []*organization // the busy organization
	many         []*organization // sixteen organizations, spread over all shards
	documents    atomic.Int64    // numbers given to documents so far
}

// organization is an organization that registers, with an owner, a company and a granted key.
type organization struct {
	id      domain.OrganizationID
	member  domain.MemberID // its owner
	company domain.CompanyID
	key     domain.KeyID
	header  http.Header // with the key's text

	acknowledged atomic.Int64
}

func (o *organization) origin() domain.Origin {
	return domain.Origin{Organization: o.id, Actor: domain.KeyActor(o.key), RequestID: "bench"}
}

// newLab creates a ledger in the empty database at url.
func newLab(ctx context.Context, url string, shards int, signer *evidence.Signer) (_ *lab, err error) {
	l := &lab{url: url}
	defer func() {
		if err != nil {
			l.close(ctx)
		}
	}()
	if _, err := cluster.Inspect(ctx, url); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, url); err != nil {
		return nil, err
	}
	// If the database is the coordinator of a Citus cluster, distribute the tables.
	if _, err := migrations.Distribute(ctx, url, false); err != nil && !errors.Is(err, migrations.ErrNoCitus) {
		return nil, err
	}
	if l.installation, err = eventstore.Ensure(
		ctx, url, eventstore.Settings{Issuer: issuer, Shards: shards, Now: time.Now},
	); err != nil {
		return nil, err
	}
	l.registrar = domain.Registrar{Issuer: l.installation.Issuer, Secret: l.installation.Secret, Signer: signer}
	if l.plans, err = plans(); err != nil {
		return nil, err
	}
	if l.read, err = cluster.At(url).ReadPool(ctx, 16); err != nil {
		return nil, err
	}
	if l.owner, err = pgx.Connect(ctx, url); err != nil {
		return nil, err
	}
	ledger, stop, err := l.open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer stop()
	for i := range 1 + sixteen {
		o, err := newOrganization(ctx, ledger, domain.Shard(i%shards))
		if err != nil {
			return nil, err
		}
		l.many = append(l.many, o)
	}
	l.one, l.many = l.many[:1:1], l.many[1:]
	return l, nil
}

func (l *lab) close(ctx context.Context) {
	if l.read != nil {
		l.read.Close()
	}
	if l.owner != nil {
		_ = l.owner.Close(context.WithoutCancel(ctx)) // nothing is in progress
	}
}

func (l *lab) organizations() []*organization { return slices.Concat(l.one, l.many) }

// records returns the number of registrations acknowledged so far.
func (l *lab) records() (n int64) {
	for _, o := range l.organizations() {
		n += o.acknowledged.Load()
	}
	return n
}

// exec runs a statement as the tables' owner, outside a transaction.
func (l *lab) exec(ctx context.Context, sql string) error {
	_, err := l.owner.Exec(ctx, sql)
	return err
}

// vacuum does the work that autovacuum does in the first minutes of a ledger. It names the tables, because Citus passes
// only named tables on to its nodes.
func (l *lab) vacuum(ctx context.Context) error {
	var tables string
	if err := l.owner.QueryRow(ctx, `SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'`).Scan(&tables); err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	return l.exec(ctx, "VACUUM (ANALYZE) "+tables)
}

// plans is the built-in plan table with limits per minute that no organization reaches.
func plans() (domain.Plans, error) {
	p, err := domain.DefaultPlans()
	if err != nil {
		return nil, err
	}
	for name, plan := range p {
		plan.PerMinute, plan.AdministrativeEventsPerDay = unlimited, nil
		p[name] = plan
	}
	return p, nil
}

// unlimited requests per minute: the limit is looked up and counted as usual, but never reached.
const unlimited = 1_000_000_000

func newOrganization(ctx context.Context, ledger *eventstore.Ledger, shard domain.Shard) (*organization, error) {
	now := time.Now()
	id := domain.NewOrganizationID(now, shard)
	o := &organization{id: id}
	operator := domain.Origin{Organization: id, Actor: domain.OperatorActor, RequestID: "bench"}
	const email = "bench@example.com"
	create := &domain.CreateOrganization{Origin: operator, Name: "Benchmark", Plan: domain.InternalPlan, Internal: true}
	member := &domain.AddMember{Origin: operator, Email: email, Role: domain.Owner}
	key, secret := domain.NewCreateKey(
		domain.CreateKey{Origin: operator, Email: email, Scopes: domain.Scopes(), Lifetime: domain.DefaultKeyLifetime}, now,
	)
	place := &domain.CreateCompany{Origin: operator, Reference: company}
	for _, c := range []domain.Command{create, member, key, place} {
		if err := ledger.Do(ctx, c); err != nil {
			return nil, err
		}
	}
	o.member, o.key, o.header, o.company = member.Outcome.ID, key.Outcome.ID, header(secret), place.Outcome.ID
	return o, ledger.Do(ctx, &domain.SetAccess{Origin: operator, Company: o.company, Key: o.key, Enabled: true})
}

// open opens a ledger on the lab's database, as the service does. weight is the maximum number of commands in a
// transaction; 0 means the default.
func (l *lab) open(ctx context.Context, weight int) (*eventstore.Ledger, func(), error) {
	pool, err := cluster.At(l.url).CommitPool(ctx, cluster.CommitConns(l.installation.Shards))
	if err != nil {
		return nil, nil, err
	}
	holders, err := cluster.At(l.url).Holders(ctx)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	ledger, err := eventstore.Open(eventstore.Config{
		Pool: pool, Nodes: holders.Nodes(cluster.CommitConns(l.installation.Shards), (*cluster.Primary).CommitPool),
		Plans: l.plans, Clock: eventstore.NewClock(eventstore.ClockConfig{Now: time.Now}), Log: slog.New(slog.DiscardHandler),
		Count: projections.Count, Refund: projections.Refund, Load: projections.Load, Apply: projections.Apply,
		Enqueue: projections.Enqueue, GroupWeight: weight,
		QueueCapacity: eventstore.Places(l.installation.Shards),
	})
	if err != nil {
		holders.Close()
		pool.Close()
		return nil, nil, err
	}
	return ledger, func() {
		_ = ledger.Close(context.WithoutCancel(ctx)) // without a deadline it only finishes the accepted work
		holders.Close()
		pool.Close()
	}, nil
}

// declaration returns a declaration of a new document.
func (l *lab) declaration() domain.Declaration {
	name := "document-" + strconv.FormatInt(l.documents.Add(1), 10)
	return domain.Declaration{
		VersionReference: domain.VersionReference{
			CompanyReference: company, Source: origin, DocumentReference: name, Version: 1,
		},
		SHA256:    sha256.Sum256([]byte(name)),
		SizeBytes: 50_000, MimeType: "application/pdf", GeneratedAt: "2026-11-01T10:00:00Z",
	}
}

// appendDeclaration appends a declaration in the form that an origin system sends.
func (l *lab) appendDeclaration(dst []byte) []byte {
	d := l.declaration()
	return fmt.Appendf(dst,
		`{"companyReference":"%s","source":"%s","documentReference":"%s","version":%d,"sha256":"%x","sizeBytes":%d,"mimeType":"%s","generatedAt":"%s"}`,
		d.CompanyReference, d.Source, d.DocumentReference, d.Version, d.SHA256, d.SizeBytes, d.MimeType, d.GeneratedAt)
}

// register makes n registrations at once with the full cost except HTTP: prepared, signed, decided and committed. If
// the machine was too busy and a group was abandoned, it sends the same registrations again, as every client must; a
// committed registration is not repeated.
func (l *lab) register(ctx context.Context, ledger *eventstore.Ledger, o *organization, n int) error {
	commands := make([]domain.Command, n)
	prepared := make([]*domain.Register, n)
	for i := range commands {
		var err error
		prepared[i], err = l.registrar.Prepare(o.origin(), o.key, domain.KeyLimits{}, l.declaration(), time.Now())
		if err != nil {
			return err
		}
		commands[i] = prepared[i]
	}
	for attempt := range 5 {
		var errs []error
		for i, answer := range ledger.Execute(ctx, commands...) {
			if errs = append(errs, answer.Err); answer.Err == nil && prepared[i].Replayed && attempt == 0 {
				errs = append(errs, fmt.Errorf("document %s was already registered", prepared[i].Declaration.DocumentReference))
			}
		}
		err := errors.Join(errs...)
		if err == nil {
			o.acknowledged.Add(int64(n))
			return nil
		}
		if refusal := (*domain.Error)(nil); attempt == 4 || !errors.As(err, &refusal) ||
			refusal.Code != domain.TemporarilyUnavailable {
			return err
		}
	}
	return nil
}

// registering registers one version per call, for the owners in turn.
func (l *lab) registering(ledger *eventstore.Ledger, owners []*organization) operation {
	return func(ctx context.Context, worker int) (int, error) {
		return 1, l.register(ctx, ledger, owners[worker%len(owners)], 1)
	}
}

// fill registers n records of the sixteen organizations in large groups with the ledger itself, so that the data is the
// same as a service's.
func (l *lab) fill(ctx context.Context, n int64) error {
	ledger, stop, err := l.open(ctx, 512)
	if err != nil {
		return err
	}
	defer stop()
	const chunk = 128
	var given atomic.Int64
	end, finish := context.WithCancel(ctx)
	defer finish()
	_, err = load{workers: 2 * sixteen, call: func(ctx context.Context, worker int) (int, error) {
		size := int(max(0, min(chunk, n-(given.Add(chunk)-chunk))))
		if size < chunk {
			finish()
		}
		return size, l.register(ctx, ledger, l.many[worker%sixteen], size)
	}}.until(ctx, end.Done())
	return err
}
