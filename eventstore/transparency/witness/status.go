package witness

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/history"
)

// Cosigned is what was cosigned last of a log.
type Cosigned struct {
	Origin string
	Size   int64
	Note   string     // with the log's own signatures; empty before the first
	At     *time.Time // nil before the first
	Halted bool       // the database was restored since, and nothing is cosigned before Resume
}

// Contradiction is a kept proof that a log has signed two histories. Proof is the consistency proof (RFC 9162, section
// 2.1.4.2) to Refused from another root than Cosigned's at its size; it is empty where both have one size.
type Contradiction struct {
	Origin            string
	Cosigned, Refused string // signed notes
	Proof             []string
	FoundAt           time.Time
}

// ReadCosigned lists the logs, by origin.
func ReadCosigned(ctx context.Context, from history.Querier) ([]Cosigned, error) {
	rows, _ := from.Query(ctx,
		`SELECT w.origin, w.size, w.note, w.cosigned_at, w.epoch <> (SELECT epoch FROM ledger WHERE id = 1)
		FROM witness_logs w WHERE w.origin <> '' ORDER BY w.origin`) // the error comes with the rows
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Cosigned])
	if err != nil {
		return nil, fmt.Errorf("read what was cosigned: %w", err)
	}
	return list, nil
}

// ReadContradictions lists the kept proofs, by log and time.
func ReadContradictions(ctx context.Context, from history.Querier) ([]Contradiction, error) {
	rows, _ := from.Query(
		ctx, `SELECT origin, cosigned, refused, proof, found_at FROM witness_split_views ORDER BY origin, found_at, size`,
	)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Contradiction])
	if err != nil {
		return nil, fmt.Errorf("read the proofs of split views: %w", err)
	}
	return list, nil
}

// Resume lets a witness go on after its database was restored, from the sizes that the database remembers, and with
// logs that it does not know from their beginning. It answers how many logs it knows had been stopped. The caller
// answers for it that nothing larger was cosigned with the key that cosigns from now on.
func Resume(ctx context.Context, pool *pgxpool.Pool) (logs int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, resume, emptyRoot[:]); err != nil {
			return err
		}
		tag, err := tx.Exec(
			ctx, `UPDATE witness_logs SET epoch = l.epoch FROM ledger l WHERE l.id = 1 AND witness_logs.epoch <> l.epoch`,
		)
		logs = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("let the witness go on: %w", err)
	}
	return logs, nil
}
