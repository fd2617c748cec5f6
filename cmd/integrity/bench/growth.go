package bench

import (
	"context"
	"errors"
	"fmt"
)

// grow registers records until there are as many as growth asks for: with the ledger itself, in groups of up to 512 and
// with many under way, which is the fastest way to rows that a service would have written. Nothing is made up, so they
// are verified at the end like all others.
func (r *run) grow(ctx context.Context) error {
	if r.Growth == 0 {
		return nil
	}
	const step = 250_000
	for have := r.lab.records(); have < r.Growth; have = r.lab.records() {
		r.Progress(fmt.Sprintf("growing to %d records: %d", r.Growth, have))
		if err := r.lab.fill(ctx, min(step, r.Growth-have)); err != nil {
			return err
		}
	}
	return r.lab.vacuum(ctx)
}

// growth compares the cost of a registration in the grown ledger with that in a ledger of 50,000 records, which is made
// anew for every round. Both have their turns right after each other, on the same server.
func (r *run) growth(ctx context.Context) error {
	if r.Growth == 0 || r.Server == nil {
		r.measured[targetGrowth] = measurement{missing: "needs --growth"}
		return nil
	}
	type ratio struct{ wall, work float64 }
	var ratios []ratio
	work := func(r Round) float64 { return float64(r.CPU.Service + r.CPU.PostgreSQL) }
	for i := range r.Rounds {
		r.Progress(fmt.Sprintf("round %d of %d: a registration at %d records and at %d", i+1, r.Rounds, r.begin, r.lab.records()))
		small, err := r.smallLedger(ctx, fmt.Sprintf("small%d", i))
		if err != nil {
			return err
		}
		big, err := r.timed(ctx, r.lab)
		if err != nil {
			return err
		}
		ratios = append(ratios, ratio{small.PerSecond / big.PerSecond, work(big) / work(small)})
	}
	r.measured[targetGrowth] = measurement{value: median(ratios, func(r ratio) float64 { return r.wall }),
		note: fmt.Sprintf("time a registration at %d records : at %d; CPU time alone %.2f", r.lab.records(), r.begin, median(ratios, func(r ratio) float64 { return r.work }))}
	return nil
}

// smallLedger measures a new ledger of 50,000 records.
func (r *run) smallLedger(ctx context.Context, database string) (round Round, err error) {
	small, drop, err := r.newDatabase(ctx, database, r.Shards)
	if err != nil {
		return round, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := small.fill(ctx, r.begin); err != nil {
		return round, err
	}
	if err := small.vacuum(ctx); err != nil {
		return round, err
	}
	return r.timed(ctx, small)
}

// newDatabase makes another ledger on the same server.
func (r *run) newDatabase(ctx context.Context, name string, shards int) (l *lab, drop func() error, err error) {
	if err := r.lab.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, nil, err
	}
	l, err = newLab(ctx, r.Server.URL(name), shards, r.signer)
	return l, func() error {
		l.close(ctx)
		return r.lab.exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, err
}

// timed registers in process by groups.
func (r *run) timed(ctx context.Context, l *lab) (Round, error) {
	ledger, stop, err := l.open(ctx, 0)
	if err != nil {
		return Round{}, err
	}
	defer stop()
	c := &contender{workers: groupsConcurrency, ledger: true, call: func(ctx context.Context, worker int) (int, error) {
		return 1, l.register(ctx, ledger, l.many[worker%len(l.many)], 1)
	}}
	if err := r.warm(ctx, c); err != nil {
		return Round{}, err
	}
	return r.measureOne(ctx, c, r.Duration, false)
}
