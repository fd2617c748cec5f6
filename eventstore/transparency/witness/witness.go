// Package witness cosigns checkpoints of other transparency logs (C2SP tlog-witness and tlog-cosignature). A
// cosignature states that, at its time, the tree was the largest of its log that this witness had seen, and contained
// every tree of that log that it had cosigned before. The time is the witness's own statement, not a trusted timestamp.
//
// A checkpoint is judged under the lock of its log's row. It is cosigned only after the commit that stores it is on
// disk, and on the synchronous standby if there is one. So sizes never go back and two roots of one size are never
// cosigned, even if processes crash or several of them share one database:
//
//	judge, remember ── COMMIT ──▶ cosign ──▶ answer
//
// A crash after the COMMIT loses only the answer: the log asks again, from the size that the witness has stored.
package witness

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Witness cosigns checkpoints. It is safe for concurrent use, in any number of processes on one database.
type Witness struct {
	Pool   *pgxpool.Pool // from Primary.WitnessPool
	Signer *Signer
	Now    func() time.Time
	Log    *slog.Logger
}

const (
	readEpoch = `SELECT epoch FROM ledger WHERE id = 1`
	lockLog   = `SELECT size, root, note, epoch FROM witness_logs WHERE origin = $1 FOR UPDATE`
	// An unknown log may have been cosigned after the restored backup. It therefore begins with the epoch of the last
	// Resume, stored in the row with an empty origin, or before any Resume with epoch 1, which no restore assigns.
	beginLog = `INSERT INTO witness_logs (origin, size, root, note, epoch)
		VALUES ($1, 0, $2, '', coalesce((SELECT epoch FROM witness_logs WHERE origin = ''), 1)) ON CONFLICT (origin) DO NOTHING`
	resume = `INSERT INTO witness_logs (origin, size, root, note, epoch) SELECT '', 0, $1, '', epoch FROM ledger WHERE id = 1
		ON CONFLICT (origin) DO UPDATE SET epoch = excluded.epoch`
	// It always changes the row, so that its commit also flushes everything it has read.
	remember = `UPDATE witness_logs SET size = $2, root = $3, note = $4, cosigned_at = $5 WHERE origin = $1 AND size <= $2`
	// keepProof keeps the first 100 proofs of a log, so that a misbehaving log cannot fill the disk.
	keepProof = `INSERT INTO witness_split_views (origin, size, root, cosigned, refused, proof, found_at)
		SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM witness_split_views WHERE origin = $1) < 100
		ON CONFLICT (origin, size, root) DO NOTHING`
)

// flushed makes a commit wait for the disk and the synchronous standby, whatever the role or database settings are.
const flushed = "SET LOCAL synchronous_commit = on"

// cosigned is the last cosigned checkpoint of a log.
type cosigned struct {
	size  int64
	root  tlog.Hash
	note  string
	epoch int64
}

// Cosign returns the signature line for a submission that continues the last cosigned checkpoint of its log. The error
// is a *StaleError, ErrProof, ErrOtherRoot or ErrRestored. Any other error means that the outcome is unknown, and the
// same submission may be sent again.
func (w *Witness) Cosign(ctx context.Context, s Submission) (line string, err error) {
	tx, err := w.Pool.Begin(ctx)
	if err != nil {
		return "", say.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	last, err := w.lock(ctx, tx, s.Origin)
	if err != nil {
		return "", err
	}
	if s.old != last.size {
		return "", &StaleError{last.size}
	}
	if err := s.judge(last.root); err != nil {
		return "", errors.Join(err, w.accuse(ctx, tx, s, last))
	}
	at := w.Now() // under the lock: until then there was no larger tree
	tag, err := tx.Exec(ctx, remember, s.Origin, s.Size, s.Root[:], s.note, at)
	if err == nil && tag.RowsAffected() != 1 {
		err = say.New("the log's row is missing or has a larger tree")
	}
	if err != nil {
		return "", say.Errorf("remember a checkpoint: %w", err)
	}
	if err := cluster.Commit(ctx, tx); err != nil {
		return "", err
	}
	return w.Signer.cosign(s.text, at)
}

// lock reads the last cosigned checkpoint of a log and locks it until the end of the transaction.
func (w *Witness) lock(ctx context.Context, tx pgx.Tx, origin string) (last cosigned, err error) {
	var epoch int64
	if _, err = tx.Exec(ctx, flushed); err == nil {
		err = tx.QueryRow(ctx, readEpoch).Scan(&epoch)
	}
	if err != nil {
		return last, say.Errorf("read the ledger's epoch: %w", err)
	}
	var root []byte
	read := func() error {
		return tx.QueryRow(ctx, lockLog, origin).Scan(&last.size, &root, &last.note, &last.epoch)
	}
	if err = read(); errors.Is(err, pgx.ErrNoRows) {
		if _, err = tx.Exec(ctx, beginLog, origin, emptyRoot[:]); err == nil {
			err = read()
		}
	}
	switch {
	case err != nil:
		return last, say.Errorf("read the last cosigned checkpoint: %w", err)
	case last.epoch != epoch:
		return last, ErrRestored
	case len(root) != tlog.HashSize:
		return last, say.New("the last cosigned checkpoint is damaged")
	}
	last.root = tlog.Hash(root)
	return last, nil
}

// accuse logs a signed checkpoint that was refused, and stores the submission if it proves a split view.
func (w *Witness) accuse(ctx context.Context, tx pgx.Tx, s Submission, last cosigned) error {
	if !s.rewritten(last.root) {
		w.Log.Warn(
			"a signed checkpoint was refused because its proof is wrong; that alone proves nothing against its log", "log",
			s.Origin, "cosigned", last.note, "refused", s.note,
		)
		return nil
	}
	w.Log.Error("SPLIT VIEW: a log has signed two histories, and these checkpoints prove it",
		"log", s.Origin, "cosigned", last.note, "refused", s.note, "proof", s.proofLines())
	_, err := tx.Exec(ctx, keepProof, s.Origin, s.Size, s.Root[:], last.note, s.note, s.proofLines(), w.Now())
	if err == nil {
		err = cluster.Commit(ctx, tx)
	}
	if err != nil {
		w.Log.Error(
			"storing the proof of a split view failed; the previous log line contains it", "log", s.Origin, "error",
			cluster.Loggable(err),
		)
	}
	return errSplitView
}

// errSplitView accompanies ErrProof or ErrOtherRoot if the submission proves that its log has signed two histories.
var errSplitView = say.New("the log has signed two histories")

// SplitView reports whether a refused submission proves that its log has signed two histories.
func SplitView(err error) bool { return errors.Is(err, errSplitView) }

func (s Submission) proofLines() []string {
	lines := []string{}
	for _, hash := range s.proof {
		lines = append(lines, hash.String())
	}
	return lines
}

// Ready returns an error if nothing can be cosigned.
func (w *Witness) Ready(ctx context.Context) error {
	var epoch int64
	return w.Pool.QueryRow(ctx, readEpoch).Scan(&epoch)
}
