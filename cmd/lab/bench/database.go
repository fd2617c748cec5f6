package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// ownServerOnly is the reason to skip a measurement on a given database.
const ownServerOnly = "needs a PostgreSQL of the benchmark's own"

// requireEmpty refuses a database that contains any table, view or sequence. The benchmark fills its database, so it
// must never run on one with other data.
func requireEmpty(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var found []string
	if err := conn.QueryRow(ctx, `SELECT coalesce(array_agg(c.oid::regclass::text ORDER BY 1), '{}') FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'f', 'm', 'v', 'S') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
			AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')`).Scan(&found); err != nil {
		return fmt.Errorf("look whether the database is empty: %w", err)
	}
	if len(found) > 0 {
		return fmt.Errorf("the database has %d tables, views or sequences (%s): it must be empty, made for the benchmark "+
			"and dropped after it; "+
			"without INTEGRITY_DATABASE_URL it starts a PostgreSQL of its own", len(found),
			strings.Join(found[:min(3, len(found))], ", "))
	}
	return nil
}

// disk measures the size of the ledger's tables and indexes per registration.
func (r *run) disk(ctx context.Context) error {
	if r.Server == nil {
		r.measured[targetDisk] = measurement{missing: ownServerOnly}
		return nil
	}
	var bytes int64
	err := r.lab.owner.QueryRow(ctx, `SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'`).Scan(&bytes)
	n := r.lab.records()
	r.measured[targetDisk] = measurement{value: float64(bytes) / float64(n) / 1000,
		note: fmt.Sprintf("tables and indexes at %d records; without a webhook destination, whose deliveries come and go", n)}
	return err
}

// checkpointCycle measures the WAL of registrations over a whole checkpoint cycle. After a checkpoint the first change
// to each page writes the whole page, so a part of a cycle is not representative.
func (r *run) checkpointCycle(ctx context.Context) error {
	switch {
	case r.Server == nil:
		r.measured[targetWAL] = measurement{missing: ownServerOnly}
		return nil
	case r.Quick:
		r.measured[targetWAL] = measurement{missing: "left out by --quick"}
		return nil
	}
	ledger, stop, err := r.lab.open(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	r.Progress("registering over a whole checkpoint cycle")
	before, err := r.lab.readWAL(ctx)
	if err != nil {
		return err
	}
	if err := r.lab.exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	began, err := r.lab.nextCheckpoint(ctx, before)
	if err != nil {
		return err
	}
	records := r.lab.records()
	group, running := errgroup.WithContext(ctx)
	end, over := context.WithCancel(running)
	defer over()
	group.Go(func() error {
		_, err := load{workers: groupsConcurrency, call: r.lab.registering(ledger, r.lab.many)}.until(running, end.Done())
		return err
	})
	_, err = r.lab.nextCheckpoint(running, began)
	over()
	if err := errors.Join(group.Wait(), err); err != nil {
		return err
	}
	ended, err := r.lab.readWAL(ctx)
	n := r.lab.records() - records
	r.measured[targetWAL] = measurement{value: float64(ended.bytes-began.bytes) / float64(max(1, n)) / 1000,
		note: fmt.Sprintf("%d registrations from checkpoint to checkpoint, at %d records", n, r.lab.records())}
	return err
}

// HOT counts a table's updates that changed no index and fitted on the row's page.
type HOT struct {
	Table   string `json:"table"`
	Updates int64  `json:"updates"`
	HOT     int64  `json:"hot"`
}

// updates returns PostgreSQL's counts since the ledger was created.
func (r *run) updates(ctx context.Context) ([]HOT, error) {
	if r.Server == nil {
		return nil, nil
	}
	rows, err := r.lab.owner.Query(ctx,
		"SELECT relname::text, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'public' AND relname "+
			"= ANY($1) ORDER BY 1",
		append([]string{"documents"}, updatedTables...))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[HOT])
}

// wal is the WAL position and the number of checkpoints so far.
type wal struct{ bytes, checkpoints int64 }

// nextCheckpoint waits until another checkpoint has started.
func (l *lab) nextCheckpoint(ctx context.Context, before wal) (now wal, err error) {
	err = poll(ctx, 100*time.Millisecond, func() (bool, error) {
		now, err = l.readWAL(ctx)
		return now.checkpoints > before.checkpoints, err
	})
	return now, err
}

// readWAL returns zeros for an external database.
func (r *run) readWAL(ctx context.Context) (wal, error) {
	if r.Server == nil {
		return wal{}, nil
	}
	return r.lab.readWAL(ctx)
}

func (l *lab) readWAL(ctx context.Context) (w wal, err error) {
	counter := "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"
	if version := l.owner.PgConn().ParameterStatus("server_version"); !strings.HasPrefix(version, "15") &&
		!strings.HasPrefix(version, "16") {
		counter = "SELECT num_timed + num_requested FROM pg_stat_checkpointer"
	}
	err = l.owner.QueryRow(
		ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, ("+counter+")",
	).Scan(&w.bytes, &w.checkpoints)
	return w, err
}

// grow registers records until the ledger has the number in Growth. It uses the ledger itself, with groups of up to 512
// and high concurrency: the fastest way to rows like a service's. They are real registrations, and are verified like
// all others.
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

// newDatabase creates another ledger on the same server.
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
