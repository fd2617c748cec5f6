package transparency

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/wait"
)

const (
	// firstStampPause is the pause after the first failure of an authority. Each further consecutive failure doubles it.
	firstStampPause = 5 * time.Second
	maxStampPause   = 4 * time.Minute
	// leftTo is the number of consecutive checks at which a due token is left to the process that signed the checkpoint.
	leftTo = 2
)

// stamping requests tokens of one authority until ctx ends. Nothing else waits for it.
func (k *Keeper) stamping(ctx context.Context, a *TimestampAuthority) {
	for ctx.Err() == nil {
		_ = wait.For(ctx, k.stamp(ctx, a))
	}
}

// stamp checks once whether a token is due, and returns the pause until the next check.
func (k *Keeper) stamp(ctx context.Context, a *TimestampAuthority) (pause time.Duration) {
	err := k.stampNewest(ctx, a)
	if err == nil || ctx.Err() != nil {
		a.failed = 0
		return k.Stamp
	}
	pause = min(maxStampPause, firstStampPause<<min(a.failed, 10))
	a.failed++
	a.failures.Add(1)
	k.Log.Warn(
		"stamping the transparency log failed", "authority", a.name, "error",
		cluster.Loggable(err), "pause", pause,
	)
	return pause
}

// stampNewest requests and stores a token of the last checkpoint if it is due.
func (k *Keeper) stampNewest(ctx context.Context, a *TimestampAuthority) error {
	if k.Signer() == nil {
		return nil
	}
	pinned, known := k.Pinned(a.name)
	if !known {
		if !a.unpinned {
			k.Log.Warn(
				"time-stamping authority skipped: the trusted keys pin no certificate under its name", "authority", a.name,
			)
		}
		a.unpinned = true
		return nil
	}
	a.unpinned = false
	last, err := k.dueForStamp(ctx, a)
	if err != nil || last.size == 0 {
		return err
	}
	der, token, err := a.Stamp(ctx, pinned, sha256.Sum256([]byte(last.note)), k.Now)
	if err != nil {
		return err
	}
	return k.storeStamp(ctx, a, last, der, token)
}

const (
	readNewestStamp = `SELECT coalesce((SELECT max(tree_size) FROM log_timestamps WHERE authority = $1), 0)`
	storeStamp      = `INSERT INTO log_timestamps (tree_size, authority, gen_time, checkpoint, token) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
)

// dueForStamp returns the last checkpoint if the authority must be asked for a token of it. Otherwise it returns a
// checkpoint of size 0: if the tree has not grown since the newest token, if another process has stored a token since
// the last check, or if another process has signed the checkpoint and may still ask.
func (k *Keeper) dueForStamp(ctx context.Context, a *TimestampAuthority) (last checkpoint, err error) {
	k.stamps.Lock()
	defer k.stamps.Unlock()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var newest int64
	if err := k.Pool.QueryRow(ctx, readNewestStamp, a.name).Scan(&newest); err != nil {
		return checkpoint{}, say.Errorf("read the newest token: %w", err)
	}
	if last, err = k.ofThisTree(ctx, k.Pool); err != nil {
		if errors.Is(err, ErrRestored) { // publishing reports it
			err = nil
		}
		return checkpoint{}, err
	}
	before := a.newest
	a.newest = newest
	if last.size <= newest || newest != before {
		a.left = 0
		return checkpoint{}, nil
	}
	if k.signed.Load() != last.size && a.left < leftTo {
		a.left++
		return checkpoint{}, nil
	}
	return last, nil
}

// ofThisTree returns the last checkpoint, or ErrRestored if the database was restored since.
func (k *Keeper) ofThisTree(ctx context.Context, from rowQuerier) (last checkpoint, err error) {
	if _, err := readGrown(ctx, from); err != nil {
		return checkpoint{}, err
	}
	return readCheckpoint(ctx, from)
}

// storeStamp stores a token of a checkpoint, unless the authority already has one for that tree. The transaction checks
// that the tree still contains the checkpoint: since it was read, this process may have been frozen, and the database
// restored or replaced by a standby that lacks it.
func (k *Keeper) storeStamp(
	ctx context.Context, a *TimestampAuthority, stamped checkpoint, der []byte, token evidence.Token,
) error {
	k.stamps.Lock()
	defer k.stamps.Unlock()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var stored int64
	err := k.within(ctx, func(tx pgx.Tx) error {
		grown, err := readGrown(ctx, tx)
		if err == nil && grown.size < stamped.size {
			err = say.Errorf(
				"the tree has %d leaves, but had %d when it was stamped: the database was replaced", grown.size, stamped.size,
			)
		}
		if err == nil {
			err = holds(ctx, tx, stamped)
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, storeStamp, stamped.size, a.name, token.GenTime, stamped.note, der)
		if err != nil {
			return say.Errorf("store a token: %w", err)
		}
		stored = tag.RowsAffected()
		return nil
	})
	if err == nil {
		a.stored.Add(stored)
		a.newest, a.left = stamped.size, 0
	}
	return err
}

// holds returns an error wrapping errLacks unless the stored tiles give the tree of a checkpoint.
func holds(ctx context.Context, from history.Querier, c checkpoint) error {
	root, err := tlog.TreeHash(c.size, storedHashes(ctx, from))
	if err == nil && root != c.root {
		err = say.Errorf("the tree does not contain the earlier tree of %d leaves: %w", c.size, errLacks)
	}
	return err
}
