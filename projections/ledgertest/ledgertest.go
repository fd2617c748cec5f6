// Package ledgertest opens complete ledgers on fresh databases for the tests of every package, with organizations that
// are ready to register.
package ledgertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/pgtest"
	"integrityledger/projections"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// Ledger is a ledger on its own database. More processes' ledgers can be opened on the same database.
type Ledger struct {
	*eventstore.Ledger
	URL          string
	Installation eventstore.Installation
	Pool         *pgxpool.Pool // reads
	Registrar    domain.Registrar
	Trusted      *evidence.TrustedKeys
	Now          func() time.Time
}

// New opens a ledger on a fresh database, closed at the end of the test.
func New(t testing.TB, change ...func(*eventstore.Config)) *Ledger {
	t.Helper()
	l := Attach(t, pgtest.New(t))
	l.Ledger = l.Process(t, l.URL, change...)
	return l
}

// Attach returns the test helpers for an existing database, with a new signer but without opening a ledger.
func Attach(t testing.TB, url string) *Ledger {
	t.Helper()
	l := &Ledger{URL: url, Now: time.Now}
	ctx := context.Background()
	var err error
	l.Installation, err = eventstore.Ensure(
		ctx, l.URL, eventstore.Settings{Issuer: "https://ledger.example", Shards: 4, Now: time.Now},
	)
	must(t, err)
	signer := evidence.GenerateSigner()
	l.Trusted, err = evidence.NewTrustedKeys(
		[]evidence.TrustedKey{{PublicKey: signer.Key(), Status: evidence.KeyActive, Since: evidence.FormatTime(time.Now())}},
		nil, nil,
	)
	must(t, err)
	l.Registrar = domain.Registrar{Issuer: l.Installation.Issuer, Secret: l.Installation.Secret, Signer: signer}
	l.Pool, err = cluster.At(l.URL).ReadPool(ctx, 8)
	must(t, err)
	t.Cleanup(l.Pool.Close)
	return l
}

// Process opens a ledger on a database like another server process.
func (l *Ledger) Process(t testing.TB, url string, change ...func(*eventstore.Config)) *eventstore.Ledger {
	t.Helper()
	pool, err := cluster.At(url).CommitPool(context.Background(), 8)
	must(t, err)
	ledger, err := Open(pool, append([]func(*eventstore.Config){func(c *eventstore.Config) {
		c.Nodes = l.nodes(t, url, (*cluster.Primary).CommitPool)
	}}, change...)...)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		if err := ledger.Close(ctx); err != nil {
			t.Errorf("close ledger: %v", err)
		}
		l.onePhase(t)
		pool.Close()
	})
	return ledger
}

// nodes returns the Citus nodes for a URL without a proxy, or nil on one server.
func (l *Ledger) nodes(
	t testing.TB, url string, open func(*cluster.Primary, context.Context, int) (*pgxpool.Pool, error),
) *cluster.Nodes {
	t.Helper()
	if !pgtest.OnCitus() || url != l.URL {
		return nil
	}
	holders, err := cluster.At(url).Holders(context.Background())
	must(t, err)
	t.Cleanup(holders.Close)
	return holders.Nodes(8, open)
}

// Routed returns the ledger's database like the service's: on Citus, statements with a shard go to the node that holds
// it.
func (l *Ledger) Routed(t testing.TB) eventstore.Database {
	t.Helper()
	return eventstore.Route(l.Pool, l.nodes(t, l.URL, (*cluster.Primary).ReadPool))
}

// Open opens a ledger without a testing.TB, for child processes.
func Open(pool *pgxpool.Pool, change ...func(*eventstore.Config)) (*eventstore.Ledger, error) {
	plans, err := domain.DefaultPlans()
	if err != nil {
		return nil, err
	}
	config := eventstore.Config{
		Pool: pool, Plans: plans, Clock: eventstore.NewClock(eventstore.ClockConfig{Now: time.Now}),
		Log:   slog.New(slog.DiscardHandler),
		Count: projections.Count, Refund: projections.Refund, Load: projections.Load, Apply: projections.Apply,
		Enqueue: projections.Enqueue,
	}
	for _, c := range change {
		c(&config)
	}
	return eventstore.Open(config)
}

// Store returns a query store that uses the ledger's pool.
func (l *Ledger) Store(t testing.TB) *query.Store {
	t.Helper()
	plans, err := domain.DefaultPlans()
	must(t, err)
	routed := l.Routed(t)
	return query.New(query.Config{Pool: routed, Public: routed, Installation: l.Installation, Plans: plans})
}

// Sessions returns the store of console sessions.
func (l *Ledger) Sessions(t testing.TB) *session.Store {
	t.Helper()
	plans, err := domain.DefaultPlans()
	must(t, err)
	return &session.Store{Pool: l.Routed(t), Installation: l.Installation, Plans: plans}
}

// Simulated returns a clock that uses now for the process, the database and the monotonic clock.
func Simulated(now func() time.Time) *eventstore.Clock {
	start := now()
	return eventstore.NewClock(eventstore.ClockConfig{
		Now: now, Monotonic: func() time.Duration { return now().Sub(start) }, Database: func(time.Time) time.Time {
			return now()
		},
	})
}

// onePhase fails if a transaction of a current session became a two-phase commit of a cluster, except in a rebuild and
// when OAuth subjects were claimed.
func (l *Ledger) onePhase(t testing.TB) {
	t.Helper()
	if !pgtest.OnCitus() {
		return
	}
	var sessions []string
	var claims int
	must(t, l.Pool.QueryRow(context.Background(), "SELECT count(*) FROM oauth_subjects").Scan(&claims))
	if claims > 0 {
		return
	}
	must(t,
		l.Pool.QueryRow(context.Background(), `SELECT coalesce(array_agg(a.application_name), '{}') FROM pg_dist_transaction t
		JOIN pg_stat_activity a ON a.pid = split_part(t.gid, '_', 3)::int
		WHERE a.datname = current_database() AND a.application_name LIKE 'integrity %' AND a.application_name <> 'integrity rebuild'`).Scan(&sessions))
	if len(sessions) > 0 {
		t.Errorf("two-phase commits: %q", sessions)
	}
}

// Notifier opens the notifier of one process.
func (l *Ledger) Notifier(t testing.TB, change ...func(*eventstore.NotifierConfig)) *eventstore.Notifier {
	t.Helper()
	pool, err := cluster.At(l.URL).NotifyPool(context.Background(), 2)
	must(t, err)
	t.Cleanup(pool.Close)
	config := eventstore.NotifierConfig{
		Pool: pool, Read: l.Routed(t), Nodes: l.nodes(t, l.URL, (*cluster.Primary).NotifyPool),
		Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&config)
	}
	notifier, err := eventstore.OpenNotifier(config)
	must(t, err)
	t.Cleanup(notifier.Close)
	return notifier
}

// Organization is an organization with an owner, a company and a key with access to the company.
type Organization struct {
	ID      domain.OrganizationID
	Company domain.Company
	Key     domain.APIKey
	Secret  string // the key's text
	Email   string
}

// Origin returns an origin with the organization's key as actor.
func (o Organization) Origin() domain.Origin {
	return domain.Origin{Organization: o.ID, Actor: domain.KeyActor(o.Key.ID), RequestID: "test"}
}

// Operator returns an origin with the operator as actor.
func (o Organization) Operator() domain.Origin {
	return domain.Origin{Organization: o.ID, Actor: domain.OperatorActor, RequestID: "test"}
}

// Organization creates an organization in a shard, on a plan.
func (l *Ledger) Organization(t testing.TB, shard domain.Shard, plan string) Organization {
	t.Helper()
	now := l.Now()
	id := domain.NewOrganizationID(now, shard)
	o := Organization{ID: id, Email: "owner@example.com"}
	l.Must(
		t,
		&domain.CreateOrganization{Origin: o.Operator(), Name: "Example", Plan: plan, Internal: plan == domain.InternalPlan},
	)
	l.Must(t, &domain.AddMember{Origin: o.Operator(), Email: o.Email, Role: domain.Owner})
	o.Key, o.Secret = l.Key(t, o, domain.Scopes()...)
	o.Company = l.Company(t, o, "company-1")
	l.Grant(t, o, o.Key.ID, o.Company.ID, true)
	return o
}

// SecondOwner adds an owner, so that the first may be demoted, disabled or ended.
func (l *Ledger) SecondOwner(t testing.TB, o Organization) {
	t.Helper()
	l.Must(t, &domain.AddMember{Origin: o.Operator(), Email: "second-owner@example.com", Role: domain.Owner})
}

// Key creates a key of the organization's owner.
func (l *Ledger) Key(t testing.TB, o Organization, scopes ...domain.Scope) (domain.APIKey, string) {
	t.Helper()
	command, text := domain.NewCreateKey(
		domain.CreateKey{Origin: o.Operator(), Email: o.Email, Scopes: scopes, Lifetime: domain.DefaultKeyLifetime}, l.Now(),
	)
	l.Must(t, command)
	return command.Outcome, text
}

// Company creates a company.
func (l *Ledger) Company(t testing.TB, o Organization, reference string) domain.Company {
	t.Helper()
	command := &domain.CreateCompany{Origin: o.Operator(), Reference: reference}
	l.Must(t, command)
	return command.Outcome
}

// Grant sets a key's grant.
func (l *Ledger) Grant(t testing.TB, o Organization, key domain.KeyID, company domain.CompanyID, enabled bool) {
	t.Helper()
	l.Must(t, &domain.SetAccess{Origin: o.Operator(), Company: company, Key: key, Enabled: enabled})
}

// Must executes a command that must not be refused.
func (l *Ledger) Must(t testing.TB, c domain.Command) {
	t.Helper()
	must(t, l.Do(context.Background(), c))
}

// Declaration returns a declaration of the organization's company for a file with the content.
func (o Organization) Declaration(document string, version int32, content string) domain.Declaration {
	return domain.Declaration{
		VersionReference: domain.VersionReference{
			CompanyReference: o.Company.Reference, Source: "billing", DocumentReference: document, Version: version,
		},
		SHA256: sha256.Sum256([]byte(content)), SizeBytes: int64(len(content)), MimeType: "application/pdf",
		GeneratedAt: "2026-11-01T10:00:00Z",
	}
}

// Register prepares a registration by the organization's key.
func (l *Ledger) Register(t testing.TB, o Organization, d domain.Declaration) *domain.Register {
	t.Helper()
	command, err := l.Registrar.Prepare(o.Origin(), o.Key.ID, domain.KeyLimits{}, d, l.Now())
	if err != nil {
		t.Fatal(err)
	}
	return command
}

// Reserve prepares a reservation of a version of the organization's company by its key.
func (l *Ledger) Reserve(t testing.TB, o Organization, document string, version int32) *domain.Reserve {
	t.Helper()
	reference := domain.VersionReference{
		CompanyReference: o.Company.Reference, Source: "billing", DocumentReference: document, Version: version,
	}
	command := &domain.Reserve{
		Origin: o.Origin(), Key: o.Key.ID, Limits: domain.KeyLimits{}, Version: reference,
		PublicID: domain.NewPublicID(l.Registrar.Secret, o.Origin().Organization.Shard()),
	}
	return command
}

// Release prepares the release of a reservation by the organization's key.
func (l *Ledger) Release(t testing.TB, o Organization, id domain.PublicID) *domain.ReleaseReservation {
	t.Helper()
	return &domain.ReleaseReservation{Origin: o.Origin(), Key: o.Key.ID, PublicID: id}
}

// Revoke prepares a revocation by the organization's key.
func (l *Ledger) Revoke(t testing.TB, o Organization, id domain.PublicID) *domain.Revoke {
	t.Helper()
	return &domain.Revoke{Origin: o.Origin(), Key: o.Key.ID, PublicID: id, Reason: "declared by mistake"}
}

// Lost returns what a client holds of a record that this ledger would have signed, but does not have.
func (l *Ledger) Lost(t testing.TB, o Organization, d domain.Declaration) domain.Lost {
	t.Helper()
	references := evidence.References{
		CompanyReference: d.CompanyReference, Source: d.Source, DocumentReference: d.DocumentReference,
		Version: int64(d.Version), Salt: "AAAAAAAAAAAAAAAAAAAAAA",
	}
	id := domain.NewPublicID(l.Registrar.Secret, o.ID.Shard())
	payload := evidence.RecordPayload{
		Issuer: l.Registrar.Issuer, PublicID: id.String(), SHA256: d.SHA256, SizeBytes: d.SizeBytes, MimeType: d.MimeType,
		GeneratedAt: d.GeneratedAt, ReceivedAt: l.Now().UTC().Truncate(time.Microsecond),
		ReferencesSHA256: references.SHA256(),
	}.AppendCanonical(nil)
	signature, err := l.Registrar.Signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	return domain.Lost{PublicID: id, Declaration: d, Receipt: &domain.SignedRecord{
		Payload: payload, KeyID: l.Registrar.Signer.Key().KeyID, Signature: signature,
		References: references,
	}}
}

// Heal restores a lost record.
func (l *Ledger) Heal(t testing.TB, o Organization, lost domain.Lost) domain.Healing {
	t.Helper()
	c := l.Registrar.PrepareHeal(o.Operator(), lost, l.Now())
	l.Must(t, c)
	return c.Outcome
}

// Events reads the whole log of a shard.
func (l *Ledger) Events(t testing.TB, shard domain.Shard) []domain.Event {
	t.Helper()
	tail := history.NewTail(l.Pool, shard, 0)
	var all []domain.Event
	for {
		events, err := tail.Next(context.Background(), 1000)
		must(t, err)
		if len(events) == 0 {
			return all
		}
		all = append(all, events...)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("ledgertest: %w", err))
	}
}
