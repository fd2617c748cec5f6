package transparency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

const (
	// mostPause is the longest pause after failures in a row.
	mostPause = 30 * time.Second
	// stepIn is how old a checkpoint of another process is when this one asks the witnesses for it.
	stepIn = 5 * time.Second
	// publishTimeout ends an attempt to publish that a server without a word has swallowed.
	publishTimeout = 10 * time.Second
)

// checkpoint is what was signed last; size 0: nothing.
type checkpoint struct {
	size     int64
	root     tlog.Hash
	note     string
	signedAt time.Time
}

// publishing signs the tree where it has grown, and has the witnesses cosign, until ctx ends.
func (k *Keeper) publishing(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		err := k.publish(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost): // it is done
		case err != nil:
			pause := min(mostPause, k.Interval<<min(failures, 5))
			failures++
			k.failures.Add(1)
			k.Log.Warn("transparency", "error", cluster.Loggable(err), "pause", pause)
			rest(ctx, pause, nil)
			continue
		}
		failures = 0
		k.ask(ctx)
		rest(ctx, k.Interval, nil)
		rest(ctx, k.Poll, k.grown)
	}
}

func rest(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

const (
	readSize = `SELECT coalesce(t.size, 0), coalesce(t.epoch <> g.epoch, false)
		FROM (SELECT $1::bigint AS epoch) g LEFT JOIN transparency_tree t ON t.id = 1`
	readTree = `SELECT size, root, epoch FROM transparency_tree WHERE id = 1`
	// flushTree puts a message into the log of the database, which no table keeps: with its commit all that was read
	// before is on the disk, and where there is a synchronous standby there too. It locks no row.
	flushTree = `SELECT pg_logical_emit_message(true, 'integrity', 'transparency')`
	readLast  = `SELECT size, root, note, signed_at FROM transparency_checkpoint WHERE id = 1`
	// A checkpoint never gives way to one of a smaller tree.
	storeCheckpoint = `INSERT INTO transparency_checkpoint (id, size, root, note, signed_at) VALUES (1, $1, $2, $3, $4)
	ON CONFLICT (id) DO UPDATE SET size = excluded.size, root = excluded.root, note = excluded.note, signed_at = excluded.signed_at
	WHERE transparency_checkpoint.size < excluded.size`
)

// flushed makes a transaction of the consumers' connections wait for the disk.
const flushed = "SET LOCAL synchronous_commit = on"

// within runs do in a transaction that is on the disk when it has ended without an error.
func (k *Keeper) within(ctx context.Context, do func(pgx.Tx) error) error {
	tx, err := k.Pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, flushed); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := do(tx); err != nil {
		return err
	}
	return cluster.Commit(ctx, tx)
}

// publish signs the tree where it has grown since the last checkpoint. It signs no tree that is not on the disk, and
// none that does not go on where the last checkpoint ended. The error may be errLost.
func (k *Keeper) publish(ctx context.Context) (err error) {
	signer := k.Signer()
	if signer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if k.last, err = readCheckpoint(ctx, k.Pool); err != nil {
		return err
	}
	size, err := readGrown(ctx, k.Pool)
	if err != nil || size <= k.last.size {
		return err
	}
	next, err := k.settled(ctx)
	if err != nil {
		return err
	}
	return k.sign(ctx, signer, next)
}

// readGrown reads the size of the tree. The error may be ErrRestored.
func readGrown(ctx context.Context, from rowQuerier) (size int64, err error) {
	var epoch int64
	var restored bool
	if err := from.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
		return 0, fmt.Errorf("read the ledger's epoch: %w", err)
	}
	if err := from.QueryRow(ctx, readSize, epoch).Scan(&size, &restored); err != nil {
		return 0, fmt.Errorf("read the size of the tree: %w", err)
	}
	if restored {
		return 0, ErrRestored
	}
	return size, nil
}

// sign stores the checkpoint of a tree, unless there is one of the same tree or a larger one. The tree must still be
// there, in the transaction that signs: since it was settled this process may have been frozen, and the database
// restored or replaced by a standby that lacks it.
func (k *Keeper) sign(ctx context.Context, signer *Signer, next checkpoint) error {
	next.signedAt = k.Now().UTC()
	if err := k.within(ctx, func(tx pgx.Tx) error {
		size, err := readGrown(ctx, tx)
		if err == nil && size < next.size {
			err = fmt.Errorf("the tree has %d leaves, and had %d when it was to be signed: the database was replaced", size, next.size)
		}
		if err == nil {
			err = k.continues(ctx, tx, next)
		}
		if err != nil {
			return err
		}
		if err := maySign(ctx, tx, signer.LogKey); err != nil {
			return err
		}
		if next.note, err = signer.sign(next.size, next.root); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, storeCheckpoint, next.size, next.root[:], next.note, next.signedAt)
		if err != nil {
			return fmt.Errorf("store a checkpoint: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return errLost
		}
		return nil
	}); err != nil {
		return err
	}
	k.last, k.signed = next, next.size
	return nil
}

// settled is the tree as it will stay.
func (k *Keeper) settled(ctx context.Context) (next checkpoint, err error) {
	err = k.within(ctx, func(tx pgx.Tx) error {
		var root []byte
		var known, epoch int64
		if err := tx.QueryRow(ctx, readTree).Scan(&next.size, &root, &known); err != nil {
			return fmt.Errorf("read the tree: %w", err)
		}
		if _, err := tx.Exec(ctx, flushTree); err != nil {
			return fmt.Errorf("settle the tree: %w", err)
		}
		if err := tx.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
			return fmt.Errorf("read the ledger's epoch: %w", err)
		}
		if known != epoch {
			return ErrRestored
		}
		next.root = hashOf(root)
		return nil
	})
	return next, err
}

// continues requires that the stored tiles give the tree that is to be signed, and that it contains the last checkpoint.
func (k *Keeper) continues(ctx context.Context, from history.Querier, next checkpoint) error {
	for _, c := range []checkpoint{k.last, next} {
		if c.size == 0 {
			continue
		}
		root, err := tlog.TreeHash(c.size, storedHashes(ctx, from))
		if err != nil {
			return err
		}
		if root != c.root {
			return fmt.Errorf("the tree does not contain that of size %d as it was stored: it was damaged, and is not signed", c.size)
		}
	}
	return nil
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readCheckpoint(ctx context.Context, from rowQuerier) (c checkpoint, err error) {
	var root []byte
	err = from.QueryRow(ctx, readLast).Scan(&c.size, &root, &c.note, &c.signedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return checkpoint{}, nil
	}
	if err != nil {
		return checkpoint{}, fmt.Errorf("read the last checkpoint: %w", err)
	}
	c.root = hashOf(root)
	return c, nil
}

// hashOf answers the zero hash, which no tree has, for a wrong length.
func hashOf(b []byte) (h tlog.Hash) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}
