package witness

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain/say"
	"integrityledger/eventstore/history"
)

// Cosigned is the last cosigned checkpoint of a log.
type Cosigned struct {
	Origin string
	Size   int64
	Note   string     // with the log's own signatures; empty before the first
	At     *time.Time // nil before the first
	Halted bool       // the database was restored since; nothing is cosigned until Resume
}

// Contradiction is a stored proof that a log has signed two histories. Proof is the consistency proof (RFC 9162,
// section 2.1.4.2) of Refused. It leads to a root at Cosigned's size that differs from Cosigned's. It is empty if both
// have the same size.
type Contradiction struct {
	Origin            string
	Cosigned, Refused string // signed notes
	Proof             []string
	FoundAt           time.Time
}

// ReadCosigned lists the last cosigned checkpoints, by origin.
func ReadCosigned(ctx context.Context, from history.Querier) ([]Cosigned, error) {
	rows, _ := from.Query(ctx,
		`SELECT w.origin, w.size, w.note, w.cosigned_at, w.epoch <> (SELECT epoch FROM ledger WHERE id = 1)
		FROM witness_logs w WHERE w.origin <> '' ORDER BY w.origin`) // rows carry its error
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Cosigned])
	if err != nil {
		return nil, say.Errorf("read the cosigned checkpoints: %w", err)
	}
	return list, nil
}

// ReadContradictions lists the stored proofs, by log and time.
func ReadContradictions(ctx context.Context, from history.Querier) ([]Contradiction, error) {
	rows, _ := from.Query(
		ctx, `SELECT origin, cosigned, refused, proof, found_at FROM witness_split_views ORDER BY origin, found_at, size`,
	)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Contradiction])
	if err != nil {
		return nil, say.Errorf("read the proofs of split views: %w", err)
	}
	return list, nil
}

// Resume lets a witness continue after its database was restored: from the stored sizes, and from the beginning for
// unknown logs. It returns the number of known logs that were halted. The caller must make sure that the key used from
// now on has cosigned nothing larger.
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
		return 0, say.Errorf("resume the witness: %w", err)
	}
	return logs, nil
}
