package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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

// lab is a ledger that the benchmark fills, and those who register in it.
type lab struct {
	url          string
	installation eventstore.Installation
	registrar    domain.Registrar
	trusted      *evidence.TrustedKeys
	plans        domain.Plans
	read         *pgxpool.Pool
	one          []*organization // the busy one
	many         []*organization // sixteen, over all shards
	documents    atomic.Int64    // numbers given to documents
}

// organization is somebody who registers: a company, a granted key.
type organization struct {
	id      domain.OrganizationID
	company domain.CompanyID
	key     domain.KeyID
	secret  string // the key's text

	acknowledged atomic.Int64
}

func (o *organization) origin() domain.Origin {
	return domain.Origin{Organization: o.id, Actor: o.key.String(), RequestID: "bench"}
}

// newLab makes a ledger in the empty database at url.
func newLab(ctx context.Context, url string, shards int, signer *evidence.Signer) (_ *lab, err error) {
	l := &lab{url: url}
	if _, err := cluster.Inspect(ctx, url); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, url); err != nil {
		return nil, err
	}
	if err := spread(ctx, url); err != nil {
		return nil, err
	}
	if l.installation, err = eventstore.Ensure(ctx, url, eventstore.Settings{Issuer: issuer, Shards: shards, Now: time.Now}); err != nil {
		return nil, err
	}
	l.registrar = domain.Registrar{Issuer: l.installation.Issuer, Secret: l.installation.Secret, Signer: signer}
	if l.trusted, err = trusting(signer); err != nil {
		return nil, err
	}
	if l.plans, err = plans(); err != nil {
		return nil, err
	}
	if l.read, err = cluster.At(url).ReadPool(ctx, 16); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
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
		if i == 0 {
			l.one = append(l.one, o)
		} else {
			l.many = append(l.many, o)
		}
	}
	return l, nil
}

func (l *lab) close() { l.read.Close() }

func (l *lab) everybody() []*organization { return append(l.one[:1:1], l.many...) }

// trusting is a set of trusted keys with one key.
func trusting(signer *evidence.Signer) (*evidence.TrustedKeys, error) {
	return evidence.NewTrustedKeys([]evidence.TrustedKey{{
		PublicKey: signer.Key(), Status: evidence.KeyActive, Since: evidence.FormatTime(time.Now()),
	}}, nil, nil)
}

// plans is the built-in table, but that nobody reaches the limit of the minute.
func plans() (domain.Plans, error) {
	p, err := domain.DefaultPlans()
	if err != nil {
		return nil, err
	}
	for name, plan := range p {
		plan.PerMinute = unlimited
		p[name] = plan
	}
	return p, nil
}

// unlimited requests a minute: the limit is looked up and counted as ever, and not reached.
const unlimited = 1_000_000_000

func newOrganization(ctx context.Context, ledger *eventstore.Ledger, shard domain.Shard) (*organization, error) {
	now := time.Now()
	id := domain.NewOrganizationID(now, shard)
	o := &organization{id: id}
	operator := domain.Origin{Organization: id, Actor: domain.OperatorActor, RequestID: "bench"}
	const email = "bench@example.com"
	create := &domain.CreateOrganization{Origin: operator, Name: "Benchmark", Plan: domain.InternalPlan, Internal: true}
	member := &domain.AddMember{Origin: operator, Email: email, Role: domain.Owner}
	key, secret := domain.NewCreateKey(domain.CreateKey{Origin: operator, Email: email, Scopes: domain.Scopes(), Lifetime: domain.DefaultKeyLifetime}, now)
	place := &domain.CreateCompany{Origin: operator, Reference: company}
	for _, c := range []domain.Command{create, member, key, place} {
		if err := ledger.Do(ctx, c); err != nil {
			return nil, err
		}
	}
	o.key, o.secret, o.company = key.Outcome.ID, secret, place.Outcome.ID
	return o, ledger.Do(ctx, &domain.SetAccess{Origin: operator, Company: o.company, Key: o.key, Enabled: true})
}

// open starts a ledger on the lab's database, as the service does; weight is the
// most commands in a transaction, 0 the default.
func (l *lab) open(ctx context.Context, weight int) (*eventstore.Ledger, func(), error) {
	pool, err := cluster.At(l.url).CommitPool(ctx, cluster.CommitConns(l.installation.Shards))
	if err != nil {
		return nil, nil, err
	}
	ledger, err := eventstore.Open(eventstore.Config{
		Pool: pool, Plans: l.plans, Clock: eventstore.NewClock(eventstore.ClockConfig{Now: time.Now}), Log: slog.New(slog.DiscardHandler),
		Load: projections.Load, Apply: projections.Apply, Enqueue: projections.Enqueue, GroupWeight: weight,
	})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return ledger, func() {
		_ = ledger.Close(context.WithoutCancel(ctx)) // without a deadline it only finishes what was accepted
		pool.Close()
	}, nil
}

// declaration is of a document that nobody has declared before.
func (l *lab) declaration() domain.Declaration {
	name := "document-" + strconv.FormatInt(l.documents.Add(1), 10)
	return domain.Declaration{
		CompanyReference: company, Source: origin, DocumentReference: name, Version: 1, SHA256: sha256.Sum256([]byte(name)),
		SizeBytes: 50_000, MimeType: "application/pdf", GeneratedAt: "2026-11-01T10:00:00Z",
	}
}

// appendJSON writes a declaration as an origin system sends it.
func appendJSON(dst []byte, d *domain.Declaration) []byte {
	dst = append(dst, `{"companyReference":"`...)
	dst = append(dst, d.CompanyReference...)
	dst = append(dst, `","source":"`...)
	dst = append(dst, d.Source...)
	dst = append(dst, `","documentReference":"`...)
	dst = append(dst, d.DocumentReference...)
	dst = append(dst, `","version":1,"sha256":"`...)
	dst = hex.AppendEncode(dst, d.SHA256[:])
	dst = append(dst, `","sizeBytes":`...)
	dst = strconv.AppendInt(dst, d.SizeBytes, 10)
	dst = append(dst, `,"mimeType":"`...)
	dst = append(dst, d.MimeType...)
	dst = append(dst, `","generatedAt":"`...)
	dst = append(dst, d.GeneratedAt...)
	return append(dst, `"}`...)
}

// register is all that a registration costs but HTTP: prepared, signed, decided, committed.
func (l *lab) register(ctx context.Context, ledger *eventstore.Ledger, o *organization) error {
	c := l.registrar.Prepare(o.origin(), o.key, domain.KeyLimits{}, l.declaration(), time.Now())
	repeated, err := persist(ctx, ledger, c)
	if err != nil {
		return err
	}
	if c.Replayed && !repeated {
		return fmt.Errorf("document %s was already registered", c.Declaration.DocumentReference)
	}
	o.acknowledged.Add(1)
	return nil
}

// fill registers n records of the sixteen with large groups, by the ledger itself:
// what it leaves is what a service would have left.
func (l *lab) fill(ctx context.Context, n int64) error {
	ledger, stop, err := l.open(ctx, 512)
	if err != nil {
		return err
	}
	defer stop()
	const workers, chunk = 2 * sixteen, 128
	var given atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				size := min(chunk, n-(given.Add(chunk)-chunk))
				if size <= 0 {
					return
				}
				errs[i] = l.registerAll(ctx, ledger, l.many[i%len(l.many)], int(size))
			}
		})
	}
	wg.Wait()
	return errors.Join(ctx.Err(), firstError(errs))
}

func (l *lab) registerAll(ctx context.Context, ledger *eventstore.Ledger, o *organization, n int) error {
	commands := make([]domain.Command, n)
	for i := range commands {
		commands[i] = l.registrar.Prepare(o.origin(), o.key, domain.KeyLimits{}, l.declaration(), time.Now())
	}
	if _, err := persist(ctx, ledger, commands...); err != nil {
		return err
	}
	o.acknowledged.Add(int64(n))
	return nil
}

// persist executes commands. Where the machine is so busy that a group was given up, the same ones are sent again, as
// everybody must: what had been committed is not committed twice.
func persist(ctx context.Context, ledger *eventstore.Ledger, commands ...domain.Command) (repeated bool, err error) {
	for attempt := range 5 {
		repeated = attempt > 0
		var errs []error
		for _, answer := range ledger.Execute(ctx, commands...) {
			errs = append(errs, answer.Err)
		}
		err = firstError(errs)
		if refusal := (*domain.Error)(nil); !errors.As(err, &refusal) || refusal.Code != domain.TemporarilyUnavailable {
			break
		}
	}
	return repeated, err
}
