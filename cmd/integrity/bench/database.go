package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// ownServerOnly is why something is not measured on a database that was given.
const ownServerOnly = "needs a PostgreSQL of the benchmark's own"

// requireEmpty refuses a database in which anybody has made a table or a sequence: the
// benchmark fills the one that it is given, and must never find itself in another's.
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
		return fmt.Errorf("the database has %d tables, views or sequences (%s): it must be empty, made for the benchmark and dropped after it; "+
			"without INTEGRITY_DATABASE_URL it starts a PostgreSQL of its own", len(found), strings.Join(found[:min(3, len(found))], ", "))
	}
	return nil
}

// disk is what the tables and indexes of the ledger hold, by registration.
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

// checkpointCycle measures the WAL of registrations from one checkpoint to the next that the settings cause: right
// after a checkpoint the first change of every page writes the whole page, so a part of a cycle says nothing.
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
		_, err := load{workers: groupsConcurrency, call: func(ctx context.Context, worker int) (int, error) {
			return 1, r.lab.register(ctx, ledger, r.lab.many[worker%sixteen], 1)
		}}.until(running, end.Done())
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

// wal is how far the WAL has come and how many checkpoints have begun.
type wal struct{ bytes, checkpoints int64 }

// nextCheckpoint waits until one more has begun than before.
func (l *lab) nextCheckpoint(ctx context.Context, before wal) (now wal, err error) {
	err = poll(ctx, 100*time.Millisecond, func() (bool, error) {
		now, err = l.readWAL(ctx)
		return now.checkpoints > before.checkpoints, err
	})
	return now, err
}

func (l *lab) readWAL(ctx context.Context) (w wal, err error) {
	counter := "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"
	if version := l.owner.PgConn().ParameterStatus("server_version"); !strings.HasPrefix(version, "15") && !strings.HasPrefix(version, "16") {
		counter = "SELECT num_timed + num_requested FROM pg_stat_checkpointer"
	}
	err = l.owner.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, ("+counter+")").Scan(&w.bytes, &w.checkpoints)
	return w, err
}
