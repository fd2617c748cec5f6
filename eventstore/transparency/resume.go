package transparency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
)

// Resumption is what Resume goes by.
type Resumption struct {
	// Published is the newest checkpoint of this log that is known outside, as a monitor or a witness has kept it. Nil: none is.
	Published *evidence.Checkpoint
	// Fork lets the tree go on as another history.
	Fork   bool
	Signer *Signer           // signs a fork; nil: there is no key
	Keys   []evidence.LogKey // every other key of the log that the operator knows of
}

// Resume lets the tree go on after the database was restored from a backup, and says whether published leaves were
// lost. Where the tree contains the published checkpoint nothing was lost, and it goes on under its keys. Otherwise it
// goes on only as a fork: under a key that MakeForkKey has recorded since that restore, so that it cannot have signed
// what was lost. Every other key is barred, in every process, so that no key ever signs two histories. Monitors say
// then that history was rewritten, because it was.
func Resume(ctx context.Context, pool *pgxpool.Pool, r Resumption) (size int64, lost bool, err error) {
	status, err := ReadStatus(ctx, pool)
	if err != nil {
		return 0, false, err
	}
	if !status.Halted {
		return status.Leaves, false, ErrNotHalted
	}
	contained := false
	if p := r.Published; p != nil && p.Size <= status.Leaves {
		if p.Size < status.Published && !r.Fork {
			return status.Leaves, false, ErrOlder
		}
		root, err := tlog.TreeHash(p.Size, storedHashes(ctx, pool))
		if err != nil {
			return 0, false, err
		}
		contained = p.Size >= status.Published && root == p.Root
	}
	if !contained && !r.Fork {
		return status.Leaves, true, ErrForked
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var epoch int64
		if err := tx.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
			return fmt.Errorf("read the ledger's epoch: %w", err)
		}
		// First, because its row is the lock of all the tables.
		tag, err := tx.Exec(ctx, `UPDATE transparency_tree SET epoch = $1 WHERE id = 1 AND size = $2`, epoch, status.Leaves)
		if err != nil {
			return fmt.Errorf("let the tree go on: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return errLost
		}
		if contained {
			return nil
		}
		return r.bar(ctx, tx, status.SignedBy)
	})
	return status.Leaves, !contained, err
}

// bar leaves the key of a fork as the only one that may sign.
func (r Resumption) bar(ctx context.Context, tx pgx.Tx, signedBy string) error {
	if r.Signer == nil {
		return ErrSameKey
	}
	others := slices.Clone(r.Keys)
	if r.Published != nil {
		for _, hash := range r.Published.SignedBy {
			others = append(others, evidence.LogKey{Name: r.Published.Origin, KeyHash: hash})
		}
	}
	if err := know(ctx, tx, signedBy, others); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, barKeys, keyName(r.Signer.LogKey)); err != nil {
		return fmt.Errorf("bar the former keys of the log: %w", err)
	}
	key, err := KnownKey(ctx, tx, r.Signer.LogKey)
	if err == nil && (!key.Made || key.Barred) {
		err = ErrSameKey
	}
	return err
}

// Answers of Resume and MakeForkKey.
var (
	ErrNotHalted = errors.New("the tree was not halted: there is nothing to resume")
	ErrForked    = errors.New("the tree does not contain the published checkpoint: published leaves were lost")
	ErrOlder     = errors.New("the published checkpoint must be the newest that is known outside: this one is older than the restored database's own")
	ErrSameKey   = errors.New("this log key may have signed the history that was lost, and must not sign another one")
	ErrKnownKey  = errors.New("this log key was known before: a fork needs one that is made now")
)
