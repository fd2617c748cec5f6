package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"integrityledger/cmd/integrity/clientcmd"
	integrity "integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

const (
	targetOutbox = "declarations from an outbox in SQLite, answers stored"

	outboxDeclarations = 20_000
	outboxDocuments    = 5000 // with several versions each, whose order is kept
)

// outbox measures how fast a worker registers declarations that an origin system has stored in SQLite, storing each
// answer durably, and then fetches and stores the evidence.
func (r *run) outbox(ctx context.Context, _ *Result) (err error) {
	o := r.lab.one[0]
	db, err := clientcmd.OpenSQLite(ctx, r.file("outbox.db"), "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	box, err := outbox.New(ctx, db)
	if err != nil {
		return err
	}
	r.Progress(fmt.Sprintf("an outbox with %d declarations of %d documents", outboxDeclarations, outboxDocuments))
	if err := fillOutbox(ctx, db, box); err != nil {
		return err
	}
	c, err := integrity.New(integrity.Config{
		BaseURL: r.service.base, APIKey: strings.TrimPrefix(o.header.Get("Authorization"), "Bearer "),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := r.settle(ctx); err != nil {
		return err
	}
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
		return fmt.Errorf("outbox: %w", err)
	}
	o.acknowledged.Add(int64(stored))
	counts, err := box.Counts(ctx)
	if err == nil && counts.Evidence != outboxDeclarations {
		err = fmt.Errorf("outbox: %+v, but all %d must be done", counts, outboxDeclarations)
	}
	r.measured[targetOutbox] = measurement{
		value: outboxDeclarations / registered.Sub(began).Seconds(),
		note: fmt.Sprintf("%d in %s, in %d batches; then their evidence, %.0f/s", stored,
			registered.Sub(began).Round(time.Millisecond), batches,
			outboxDeclarations/time.Since(registered).Seconds()),
	}
	return err
}

// fillOutbox adds the versions of all documents, first the first version of each.
func fillOutbox(ctx context.Context, db *sql.DB, box *outbox.Outbox) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	now := time.Now()
	for n := range outboxDeclarations {
		v := wire.VersionReference{
			CompanyReference: company, Source: "outbox", DocumentReference: fmt.Sprintf("d-%d", n%outboxDocuments),
			Version: int32(1 + n/outboxDocuments),
		}
		d, err := integrity.Declare(
			v, strings.NewReader(fmt.Sprintf("%s %d", v.DocumentReference, v.Version)), "application/pdf", now,
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
