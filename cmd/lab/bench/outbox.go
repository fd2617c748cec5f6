package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	integrity "integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

const (
	outboxDeclarations = 20_000
	outboxDocuments    = 5000 // with several versions each, whose order is kept
	outboxSingles      = 100  // rows that are inserted one by one, each timed
	outboxPatience     = time.Minute
)

// outboxTargets are the names of the three measurements of an outbox in one kind of database.
type outboxTargets struct{ rate, ratio, latency string }

func targetsOfOutbox(database string) outboxTargets {
	return outboxTargets{
		"declarations from an outbox in " + database + ", answers stored",
		"outbox in " + database + " : batch endpoint, the same caller",
		"from INSERT in " + database + " to the link in the row, p50",
	}
}

// outboxGoals are the goals of an outbox in each database. A worker hears of new rows on PostgreSQL, and looks each
// second elsewhere.
func outboxGoals() (list []goal) {
	for _, d := range []outbox.Dialect{outbox.SQLite(), outbox.PostgreSQL(), outbox.MariaDB()} {
		names, latency := targetsOfOutbox(d.Name), goal{unit: unitTime, target: 1200, moonshot: 600}
		if d.Name == outbox.PostgreSQL().Name {
			latency.target, latency.moonshot = 100, 20
		}
		latency.name = names.latency
		list = append(
			list, goal{name: names.rate, unit: unitRate, least: atLeast, target: 2000, moonshot: 4000},
			goal{name: names.ratio, unit: unitRatio, least: atLeast, target: 0.5, moonshot: 0.8}, latency,
		)
	}
	return list
}

// outbox measures how fast a worker registers the declarations that an origin system has stored in its database, beside
// the batch endpoint, and how long one row takes.
func (r *run) outbox(ctx context.Context, _ *Result) error {
	file := r.file("outbox.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	addresses := append([]string{"sqlite:" + file}, r.Origins...)
	if r.Server != nil {
		if err := r.lab.exec(ctx, "CREATE DATABASE origin"); err != nil {
			return err
		}
		addresses = append(addresses, r.Server.URL("origin"))
	}
	for _, address := range addresses {
		if err := r.outboxIn(ctx, address); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) outboxIn(ctx context.Context, address string) (err error) {
	db, dialect, err := outbox.OpenDatabase(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	box, err := outbox.New(ctx, db)
	if err != nil {
		return err
	}
	o := r.lab.one[0]
	c, err := integrity.New(integrity.Config{
		BaseURL: r.service.base, APIKey: strings.TrimPrefix(o.header.Get("Authorization"), "Bearer "),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	r.Progress(fmt.Sprintf("an outbox in %s with %d declarations of %d documents", dialect.Name, outboxDeclarations,
		outboxDocuments))
	source := "outbox-" + strings.ToLower(dialect.Name)
	if err := fillOutbox(ctx, db, box, source); err != nil {
		return err
	}
	if _, err := r.settle(ctx); err != nil {
		return err
	}
	batch, err := r.batching(1, r.lab.one).round(ctx, r.Duration)
	if err != nil {
		return err
	}
	names := targetsOfOutbox(dialect.Name)
	drained, err := drain(ctx, box, c)
	if err != nil {
		return fmt.Errorf("outbox in %s: %w", dialect.Name, err)
	}
	o.acknowledged.Add(outboxDeclarations)
	r.measured[names.rate] = drained
	r.measured[names.ratio] = measurement{
		value: drained.value / batch.PerSecond, wall: drained.value / batch.PerSecond, perSecond: drained.value,
		note: fmt.Sprintf("one caller of the batch endpoint, %d a call: %.0f/s", batchSize, batch.PerSecond),
	}
	r.Progress(fmt.Sprintf("%d rows, one by one", outboxSingles))
	waits, err := singles(ctx, db, box, c, source+"-single")
	if err != nil {
		return fmt.Errorf("outbox in %s: %w", dialect.Name, err)
	}
	o.acknowledged.Add(outboxSingles)
	r.measured[names.latency] = measurement{
		value: milliseconds(percentile(waits, 50)),
		note:  fmt.Sprintf("p99 %s of %d rows", shortDuration(percentile(waits, 99)), len(waits)),
	}
	return nil
}

// drain registers all declarations of an outbox, storing each answer durably, and then fetches and stores the evidence.
func drain(ctx context.Context, box *outbox.Outbox, c *integrity.Client) (m measurement, err error) {
	var stored, batches int
	var registered time.Time
	var wrong error
	worker := outbox.NewWorker(outbox.Config{Outbox: box, Client: c, Batch: func(b outbox.Batch) {
		if b.Evidence {
			return // it waits for the transparency log
		}
		batches++
		if stored += b.Done; stored == outboxDeclarations {
			registered = time.Now()
		}
		wrong = errors.Join(wrong, b.Err)
	}})
	worker.Finish()
	began := time.Now()
	if err := errors.Join(worker.Run(ctx), wrong); err != nil {
		return m, err
	}
	if registered.IsZero() {
		return m, fmt.Errorf("%d of %d declarations were registered", stored, outboxDeclarations)
	}
	counts, err := box.Counts(ctx)
	if err == nil && counts.Evidence != outboxDeclarations {
		err = fmt.Errorf("%+v, but all %d must be done", counts, outboxDeclarations)
	}
	return measurement{
		value: outboxDeclarations / registered.Sub(began).Seconds(),
		note: fmt.Sprintf("%d in %s, in %d batches; then their evidence, %.0f/s", stored,
			registered.Sub(began).Round(time.Millisecond), batches, outboxDeclarations/time.Since(registered).Seconds()),
	}, err
}

// singles inserts rows one by one while a worker runs as integrity outbox run does. It returns the times from before
// each INSERT to the answer in the row, in ascending order.
func singles(
	ctx context.Context, db *sql.DB, box *outbox.Outbox, c *integrity.Client, source string,
) (waits []time.Duration, err error) {
	stored := make(chan time.Time, outboxSingles)
	worker := outbox.NewWorker(outbox.Config{Outbox: box, Client: c, Report: func(report outbox.Report) {
		if report.Kind == outbox.Stored {
			stored <- time.Now()
		}
	}})
	working, stop := context.WithTimeout(ctx, outboxSingles*outboxPatience)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return worker.Run(working) })
	group.Go(func() error { return box.Listen(working, worker.Wake) })
	for n := range outboxSingles {
		began := time.Now()
		if err := addDeclarations(ctx, db, box, source, n, n+1); err != nil {
			return nil, err
		}
		select {
		case at := <-stored:
			waits = append(waits, at.Sub(began))
		case <-working.Done():
			return nil, group.Wait()
		case <-time.After(outboxPatience):
			return nil, fmt.Errorf("row %d was not registered within %s", n+1, outboxPatience)
		}
		// Rows come at all points of the worker's second.
		if err := pause(ctx, rand.N(time.Second)); err != nil { //nolint:gosec // any moment will do
			return nil, err
		}
	}
	stop()
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return nil, err
	}
	slices.Sort(waits)
	return waits, nil
}

// fillOutbox adds the versions of all documents, first the first version of each.
func fillOutbox(ctx context.Context, db *sql.DB, box *outbox.Outbox, source string) error {
	return addDeclarations(ctx, db, box, source, 0, outboxDeclarations)
}

// addDeclarations adds the declarations of a source from one number to another in a transaction.
func addDeclarations(ctx context.Context, db *sql.DB, box *outbox.Outbox, source string, from, to int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	now := time.Now()
	for n := from; n < to; n++ {
		v := wire.VersionReference{
			CompanyReference: company, Source: source, DocumentReference: fmt.Sprintf("d-%d", n%outboxDocuments),
			Version: int32(1 + n/outboxDocuments),
		}
		d, err := integrity.Declare(
			v, strings.NewReader(fmt.Sprintf("%s %s %d", source, v.DocumentReference, v.Version)), "application/pdf", now,
		)
		if err != nil {
			return err
		}
		if err := box.Add(ctx, tx, d); err != nil {
			return err
		}
	}
	return tx.Commit()
}
