package transparency

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/history"
)

// keyName is a key as transparency_keys, a signed note and Status.SignedBy name it.
func keyName(k evidence.LogKey) string { return k.Name + "+" + k.KeyHash }

const (
	knowKeys = `INSERT INTO transparency_keys (key, epoch, made, barred) SELECT k.key, g.epoch, false, false
		FROM ledger g, unnest($1::text[]) AS k(key) WHERE g.id = 1
		ON CONFLICT (key) DO NOTHING`
	makeKey = `INSERT INTO transparency_keys (key, epoch, made, barred) SELECT $1, epoch, true, false FROM ledger WHERE id = 1
		ON CONFLICT (key) DO NOTHING`
	readKey = `SELECT true, k.made AND k.epoch = g.epoch, k.barred FROM transparency_keys k, ledger g WHERE g.id = 1 AND k.key = $1`
	barKeys = `UPDATE transparency_keys SET barred = true WHERE key <> $1`
)

// Stop is what a restore does before it raises the epoch: the tree stands still from then on, also where the backup is
// older than the first checkpoint, and the keys that exist now are remembered, as none of them may sign a fork.
func Stop(ctx context.Context, pool *pgxpool.Pool, known []evidence.LogKey) error {
	status, err := ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		begin := (&growth{}).Begin()
		if _, err := tx.Exec(ctx, begin.Query, begin.Args...); err != nil {
			return err
		}
		return know(ctx, tx, status.SignedBy, known)
	}); err != nil {
		return fmt.Errorf("stop the transparency log: %w", err)
	}
	return nil
}

// know records keys, those of a file and the one that signed a checkpoint, which is empty where no checkpoint was signed.
func know(ctx context.Context, tx pgx.Tx, signedBy string, keys []evidence.LogKey) error {
	var list []string
	if signedBy != "" {
		list = append(list, signedBy)
	}
	for _, k := range keys {
		list = append(list, keyName(k))
	}
	if _, err := tx.Exec(ctx, knowKeys, list); err != nil {
		return fmt.Errorf("record the keys of the log: %w", err)
	}
	return nil
}

// MakeForkKey records a key that was made just now, before anybody can have signed with it. The error is ErrNotHalted
// where no fork is to be made, and ErrKnownKey for a key that is not new.
func MakeForkKey(ctx context.Context, pool *pgxpool.Pool, key evidence.LogKey) error {
	status, err := ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	if !status.Halted {
		return ErrNotHalted
	}
	tag, err := pool.Exec(ctx, makeKey, keyName(key))
	if err != nil {
		return fmt.Errorf("record the key of a fork: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return ErrKnownKey
	}
	return nil
}

// ErrBarred is the answer to a key that may have signed a history which was lost.
var ErrBarred = errors.New("this log key may have signed the history that was lost in a restore, and must not sign another: put the log key in place that integrity log resume --fork --stage has made")

// maySign records a key that signs, and refuses a barred one.
func maySign(ctx context.Context, tx pgx.Tx, key evidence.LogKey) error {
	known, err := KnownKey(ctx, tx, key)
	switch {
	case err != nil:
		return err
	case known.Barred:
		return ErrBarred
	case known.Known:
		return nil
	}
	return know(ctx, tx, "", []evidence.LogKey{key})
}

// KeyState is what the database knows of a key.
type KeyState struct {
	Known  bool
	Made   bool // after the last restore, for a fork
	Barred bool // it must sign no more
}

// KnownKey looks a key up.
func KnownKey(ctx context.Context, from history.Querier, key evidence.LogKey) (KeyState, error) {
	rows, _ := from.Query(ctx, readKey, keyName(key)) // the error comes with the rows
	state, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[KeyState])
	if errors.Is(err, pgx.ErrNoRows) {
		return KeyState{}, nil
	}
	if err != nil {
		return KeyState{}, fmt.Errorf("read the keys of the log: %w", err)
	}
	return state, nil
}
