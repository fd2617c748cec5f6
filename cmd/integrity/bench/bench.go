// Package bench measures the ledger beside what it is compared with, all in one
// run on one machine, and verifies afterwards what it wrote. Figures of different
// runs or machines say little; the ratios of one run are the result.
package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/migrations"
	"integrityledger/projections"
)

// Config is what a run is made of. URL names an empty database of a server with
// durable settings; the run fills it.
type Config struct {
	URL      string
	Duration time.Duration // of each measurement
	Rounds   int
	Random   io.Reader
	Now      func() time.Time
	Progress func(string)
}

// Result is the table of a run.
type Result struct {
	Settings   map[string]string `json:"settings"`
	Contenders []Contender       `json:"contenders"`
	Ratio      float64           `json:"ratio"`
	Target     float64           `json:"target"`
	Verified   int64             `json:"verifiedRegistrations"`
}

// Contender is the median round of one way of registering.
type Contender struct {
	Name        string        `json:"name"`
	Concurrency int           `json:"concurrency"`
	PerSecond   float64       `json:"perSecond"`
	P50         time.Duration `json:"p50Nanoseconds"`
	P99         time.Duration `json:"p99Nanoseconds"`
}

// target is the least ratio of groups to a group size of one on one busy organization.
const target = 6

type run struct {
	Config
	plans     domain.Plans
	registrar domain.Registrar
	pool      *pgxpool.Pool
	cause     domain.Cause
	key       domain.KeyID
	documents atomic.Int64
	accepted  atomic.Int64
}

// Run measures and verifies; it fails when what was written is not what was acknowledged.
func Run(ctx context.Context, c Config) (Result, error) {
	r := &run{Config: c}
	if err := r.prepare(ctx); err != nil {
		return Result{}, fmt.Errorf("prepare the benchmark: %w", err)
	}
	defer r.pool.Close()
	result := Result{Target: target}
	var err error
	if result.Settings, err = r.settings(ctx); err != nil {
		return result, err
	}
	var single, groups Contender
	for _, concurrency := range []int{1, 4, 16, 64} {
		got, err := r.measure(ctx, "a transaction a registration", 1, concurrency)
		if err != nil {
			return result, err
		}
		if got.PerSecond > single.PerSecond {
			single = got
		}
	}
	if groups, err = r.measure(ctx, "groups of up to 256", 256, 512); err != nil {
		return result, err
	}
	result.Contenders = []Contender{single, groups}
	result.Ratio = groups.PerSecond / single.PerSecond
	if result.Verified, err = r.verify(ctx); err != nil {
		return result, fmt.Errorf("what was written is wrong: %w", err)
	}
	return result, nil
}

func (r *run) prepare(ctx context.Context) error {
	if err := migrations.Up(ctx, r.URL); err != nil {
		return err
	}
	in, err := eventstore.Ensure(ctx, r.URL, eventstore.Settings{Issuer: "https://bench.example", Shards: 4, Now: r.Now, Random: r.Random})
	if err != nil {
		return err
	}
	signer, err := evidence.GenerateSigner(r.Random)
	if err != nil {
		return err
	}
	if r.plans, err = domain.DefaultPlans(); err != nil {
		return err
	}
	r.registrar = domain.Registrar{Issuer: in.Issuer, Secret: in.Secret, Signer: signer, Random: r.Random}
	if r.pool, err = eventstore.ReadPool(ctx, r.URL, 4); err != nil {
		return err
	}
	ledger, stop, err := r.open(ctx, 256)
	if err != nil {
		return err
	}
	defer stop()
	return r.organization(ctx, ledger)
}

// organization makes the one busy organization with a company and a granted key.
func (r *run) organization(ctx context.Context, ledger *eventstore.Ledger) error {
	now := r.Now()
	id, err := domain.NewOrganizationID(now, r.Random, 0)
	if err != nil {
		return err
	}
	r.cause = domain.Cause{Organization: id, Actor: domain.OperatorActor, RequestID: "bench"}
	create, err := domain.NewCreateOrganization(r.cause, "Benchmark", domain.InternalPlan, true, nil, now, r.Random)
	if err != nil {
		return err
	}
	const email = "bench@example.com"
	member, err := domain.NewAddMember(r.cause, email, domain.Owner, now, r.Random)
	if err != nil {
		return err
	}
	key, _, err := domain.NewCreateKey(domain.CreateKey{Cause: r.cause, Email: email, Scopes: domain.Scopes(), Lifetime: domain.DefaultKeyLifetime}, now, r.Random)
	if err != nil {
		return err
	}
	company, err := domain.NewCreateCompany(r.cause, "company", now, r.Random)
	if err != nil {
		return err
	}
	for _, c := range []domain.Command{create, member, key, company} {
		if err := ledger.Do(ctx, c); err != nil {
			return err
		}
	}
	r.key = key.Outcome.ID
	access, err := domain.NewSetAccess(r.cause, company.Outcome.Company.ID, r.key, true, now, r.Random)
	if err != nil {
		return err
	}
	return ledger.Do(ctx, access)
}

func (r *run) open(ctx context.Context, weight int) (*eventstore.Ledger, func(), error) {
	pool, err := eventstore.CommitPool(ctx, r.URL, 8)
	if err != nil {
		return nil, nil, err
	}
	ledger, err := eventstore.Open(eventstore.Config{
		Pool: pool, Plans: r.plans, Now: r.Now, Log: slog.New(slog.DiscardHandler), Load: projections.Load, Apply: projections.Apply,
		GroupWeight: weight,
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

// measure takes the median of several rounds, after one that is not counted.
func (r *run) measure(ctx context.Context, name string, weight, concurrency int) (Contender, error) {
	ledger, stop, err := r.open(ctx, weight)
	if err != nil {
		return Contender{}, err
	}
	defer stop()
	var rounds []Contender
	for i := range r.Rounds + 1 {
		duration := r.Duration
		if i == 0 {
			duration /= 4
		}
		got, err := r.round(ctx, ledger, concurrency, duration)
		if err != nil {
			return got, fmt.Errorf("%s, c = %d: %w", name, concurrency, err)
		}
		if i > 0 {
			rounds = append(rounds, got)
		}
	}
	slices.SortFunc(rounds, func(a, b Contender) int { return int(a.PerSecond - b.PerSecond) })
	median := rounds[len(rounds)/2]
	median.Name, median.Concurrency = name, concurrency
	r.Progress(fmt.Sprintf("%s, c = %d: %.0f registrations/s, p50 %s, p99 %s", name, concurrency, median.PerSecond,
		median.P50.Round(10*time.Microsecond), median.P99.Round(10*time.Microsecond)))
	return median, nil
}

func (r *run) round(ctx context.Context, ledger *eventstore.Ledger, concurrency int, duration time.Duration) (Contender, error) {
	start := r.Now()
	end := start.Add(duration)
	latencies := make([][]time.Duration, concurrency)
	errs := make([]error, concurrency)
	var wg sync.WaitGroup
	for i := range concurrency {
		wg.Go(func() {
			for errs[i] == nil {
				began := r.Now()
				if began.After(end) {
					return
				}
				errs[i] = r.register(ctx, ledger)
				latencies[i] = append(latencies[i], r.Now().Sub(began))
			}
		})
	}
	wg.Wait()
	elapsed := r.Now().Sub(start)
	for _, err := range errs {
		if err != nil {
			return Contender{}, err
		}
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	r.accepted.Add(int64(len(all)))
	return Contender{
		PerSecond: float64(len(all)) / elapsed.Seconds(), P50: all[len(all)/2], P99: all[len(all)*99/100],
	}, nil
}

// register is everything that a registration costs but HTTP: prepared, signed, decided, committed.
func (r *run) register(ctx context.Context, ledger *eventstore.Ledger) error {
	n := r.documents.Add(1)
	name := fmt.Sprintf("document-%d", n)
	c, err := r.registrar.Prepare(r.cause, r.key, domain.KeyLimits{}, domain.Declaration{
		CompanyReference: "company", Source: "bench", DocumentReference: name, Version: 1, SHA256: sha256.Sum256([]byte(name)),
		SizeBytes: 50_000, MimeType: "application/pdf", GeneratedAt: "2026-11-01T10:00:00Z",
	}, r.Now())
	if err != nil {
		return err
	}
	if err := ledger.Do(ctx, c); err != nil {
		return err
	}
	if c.Outcome.Replayed {
		return fmt.Errorf("document %s was already registered", name)
	}
	return nil
}

const verifyQuery = `SELECT
	(SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2 AND type = 'integrity.registered'),
	(SELECT count(*) FROM identities WHERE shard = $1 AND organization_id = $2),
	(SELECT used FROM usage WHERE shard = $1 AND organization_id = $2 AND company_id = '00000000-0000-0000-0000-000000000000'
		ORDER BY period DESC LIMIT 1),
	(SELECT count(*) FROM events WHERE shard = $1) = (SELECT max(position) FROM events WHERE shard = $1),
	(SELECT count(*) FROM events WHERE shard = $1 AND organization_id = $2) = (SELECT max(sequence) FROM events WHERE shard = $1 AND organization_id = $2)`

// verify checks that every acknowledged registration is there once, without a
// hole in positions or sequences, and counted once.
func (r *run) verify(ctx context.Context) (int64, error) {
	if err := eventstore.Check(ctx, r.pool); err != nil {
		return 0, err
	}
	var events, records, used int64
	var positions, sequences bool
	err := r.pool.QueryRow(ctx, verifyQuery, r.cause.Organization.Shard(), [16]byte(r.cause.Organization)).
		Scan(&events, &records, &used, &positions, &sequences)
	if err != nil {
		return 0, err
	}
	if want := r.accepted.Load(); events != want || records != want || used != want || !positions || !sequences {
		return 0, fmt.Errorf("acknowledged %d, events %d, records %d, usage %d, positions gapless %t, sequences gapless %t",
			want, events, records, used, positions, sequences)
	}
	return events, nil
}

func (r *run) settings(ctx context.Context) (map[string]string, error) {
	settings := map[string]string{}
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers"} {
		var value string
		if err := r.pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return nil, err
		}
		settings[name] = value
	}
	return settings, nil
}
