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
	var wall, work []float64
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
		wall = append(wall, small.PerSecond/big.PerSecond)
		work = append(work, float64(big.CPU.Service+big.CPU.PostgreSQL)/float64(small.CPU.Service+small.CPU.PostgreSQL))
	}
	r.measured[targetGrowth] = measurement{value: median(wall),
		note: fmt.Sprintf("time a registration at %d records : at %d; CPU time alone %.2f", r.lab.records(), r.begin, median(work))}
	return nil
}

// smallLedger measures a new ledger of 50,000 records, and verifies it.
func (r *run) smallLedger(ctx context.Context, database string) (round Round, err error) {
	if err := r.lab.exec(ctx, "CREATE DATABASE "+database); err != nil {
		return round, err
	}
	small, err := newLab(ctx, r.Server.URL(database), r.Shards, r.signer)
	if err != nil {
		return round, err
	}
	defer func() {
		small.close()
		err = errors.Join(err, r.lab.exec(context.WithoutCancel(ctx), "DROP DATABASE "+database+" WITH (FORCE)"))
	}()
	if err := small.fill(ctx, r.begin); err != nil {
		return round, err
	}
	if err := small.vacuum(ctx); err != nil {
		return round, err
	}
	if round, err = r.timed(ctx, small); err != nil {
		return round, err
	}
	_, err = small.verify(ctx)
	return round, err
}

// timed registers in process by groups.
func (r *run) timed(ctx context.Context, l *lab) (Round, error) {
	ledger, stop, err := l.open(ctx, 0)
	if err != nil {
		return Round{}, err
	}
	defer stop()
	c := &contender{workers: groupsConcurrency, ledger: true, call: func(ctx context.Context, worker int) (int, error) {
		return 1, l.register(ctx, ledger, l.many[worker%len(l.many)])
	}}
	if _, err := c.round(ctx, r.Duration/4); err != nil {
		return Round{}, err
	}
	return r.measureOne(ctx, c, r.Duration, false)
}
