package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// exec runs a statement as the owner of the tables, outside of a transaction.
func (l *lab) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// records are the registrations acknowledged so far.
func (l *lab) records() int64 {
	var n int64
	for _, o := range l.everybody() {
		n += o.acknowledged.Load()
	}
	return n
}

// disk is what the tables and indexes of the ledger hold, by registration.
func (r *run) disk(ctx context.Context) error {
	if r.Server == nil {
		r.measured[targetDisk] = measurement{missing: ownServerOnly}
		return nil
	}
	var bytes int64
	if err := r.lab.read.QueryRow(ctx, `SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = 'r'`).Scan(&bytes); err != nil {
		return err
	}
	n := r.lab.records()
	r.measured[targetDisk] = measurement{value: float64(bytes) / float64(n) / 1000,
		note: fmt.Sprintf("tables and indexes at %d records; without a webhook destination, whose deliveries come and go", n)}
	return nil
}

// checkpointCycle measures the WAL of registrations from one checkpoint to the next that the settings cause: right
// after a checkpoint the first change of every page writes the whole page, so a part of a cycle says nothing.
func (r *run) checkpointCycle(ctx context.Context) error {
	if r.Server == nil || r.Quick {
		why := "left out by --quick"
		if r.Server == nil {
			why = ownServerOnly
		}
		r.measured[targetWAL] = measurement{missing: why}
		return nil
	}
	ledger, stop, err := r.lab.open(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	r.Progress("registering over a whole checkpoint cycle")
	conn, err := pgx.Connect(ctx, r.lab.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	before, err := readWAL(ctx, conn)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	began, err := nextCheckpoint(ctx, conn, before, nil)
	if err != nil {
		return err
	}
	records := r.lab.records()
	over := make(chan struct{})
	finished := make(chan error, 1)
	go func() {
		_, err := load(ctx, groupsConcurrency, checkpointPatience, func(ctx context.Context, worker int) (int, error) {
			select {
			case <-over:
				return 0, errCycle
			default:
				return 1, r.lab.register(ctx, ledger, r.lab.many[worker%len(r.lab.many)])
			}
		})
		finished <- err
	}()
	_, err = nextCheckpoint(ctx, conn, began, finished)
	close(over)
	if err == nil {
		if err = <-finished; errors.Is(err, errCycle) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	ended, err := readWAL(ctx, conn)
	n := r.lab.records() - records
	r.measured[targetWAL] = measurement{value: float64(ended.bytes-began.bytes) / float64(max(1, n)) / 1000,
		note: fmt.Sprintf("%d registrations from checkpoint to checkpoint, at %d records", n, r.lab.records())}
	return err
}

// nextCheckpoint waits until one more has begun than in before. What ends first ends the wait; nil never does.
func nextCheckpoint(ctx context.Context, conn *pgx.Conn, before wal, ends <-chan error) (wal, error) {
	for {
		now, err := readWAL(ctx, conn)
		if err != nil || now.checkpoints > before.checkpoints {
			return now, err
		}
		select {
		case err := <-ends:
			return now, fmt.Errorf("no checkpoint came: %w", err)
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var errCycle = errors.New("the checkpoint cycle is over")

// checkpointPatience is longer than checkpoint_timeout.
const checkpointPatience = time.Hour

type wal struct {
	bytes       int64
	checkpoints int64
}

// readWAL asks how far the WAL has come and how many checkpoints have begun.
func readWAL(ctx context.Context, conn *pgx.Conn) (w wal, err error) {
	counter := "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"
	if version := conn.PgConn().ParameterStatus("server_version"); !strings.HasPrefix(version, "15") && !strings.HasPrefix(version, "16") {
		counter = "SELECT num_timed + num_requested FROM pg_stat_checkpointer"
	}
	err = conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, ("+counter+")").Scan(&w.bytes, &w.checkpoints)
	return w, err
}
