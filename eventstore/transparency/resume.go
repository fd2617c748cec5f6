package transparency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
)

// Resume lets the tree go on after the database was restored from a backup, and says
// whether it goes on from the published one. published is the newest checkpoint that
// is known outside, as a monitor or a witness has kept it, of this log;
// where the tree contains it nothing was lost, and it goes on. Otherwise it goes on
// only where fork is set, and only under another key than the one that signed the last
// checkpoint, so that no key ever signs two histories: monitors will tell everybody
// that history was rewritten, because it was.
func Resume(ctx context.Context, pool *pgxpool.Pool, published *evidence.Checkpoint, signer *Signer, fork bool) (size int64, lost bool, err error) {
	status, err := ReadStatus(ctx, pool)
	if err != nil {
		return 0, false, err
	}
	if !status.Halted {
		return status.Leaves, false, ErrNotHalted
	}
	contained := false
	if published != nil && published.Size <= status.Leaves {
		root, err := tlog.TreeHash(published.Size, storedHashes(ctx, pool))
		if err != nil {
			return 0, false, err
		}
		contained = root == published.Root
	}
	if !contained {
		if !fork {
			return status.Leaves, true, ErrForked
		}
		if signer == nil || status.SignedBy == signer.Name+"+"+signer.KeyHash || published != nil && slices.Contains(published.SignedBy, signer.KeyHash) {
			return status.Leaves, true, ErrSameKey
		}
	}
	var epoch int64
	if err := pool.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
		return 0, false, fmt.Errorf("read the ledger's epoch: %w", err)
	}
	tag, err := pool.Exec(ctx, `UPDATE log_tree SET epoch = $1, generation = generation + 1 WHERE id = 1 AND size = $2`, epoch, status.Leaves)
	if err != nil {
		return 0, false, fmt.Errorf("let the tree go on: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return 0, false, errLost
	}
	return status.Leaves, !contained, nil
}

// Answers of Resume.
var (
	ErrNotHalted = errors.New("the tree was not halted: there is nothing to resume")
	ErrForked    = errors.New("the tree does not contain the published checkpoint: published leaves were lost")
	ErrSameKey   = errors.New("this log key has signed the history that was lost, and must not sign another one")
)
