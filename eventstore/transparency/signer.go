package transparency

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/history"
)

// Signer signs checkpoints.
type Signer struct {
	evidence.LogKey
	// Revoked are keys of the log, in the form of Status.SignedBy. If one of them signed the last checkpoint, the same
	// tree is signed again, because verifiers do not trust that checkpoint.
	Revoked []string
	private *evidence.Signer
}

// due reports whether there is something to sign: a larger tree, or the same tree if its checkpoint's key was revoked.
func (s *Signer) due(last, tree checkpoint) bool {
	return tree.size > last.size ||
		tree.size > 0 && tree.size == last.size && slices.Contains(s.Revoked, signedBy(last.note))
}

// NewSigner returns a Signer with the log's name and key.
func NewSigner(name string, private *evidence.Signer) (*Signer, error) {
	key, err := evidence.NewLogKey(name, private.Key().Ed25519())
	if err != nil {
		return nil, say.Errorf("log key: %w", err)
	}
	return &Signer{LogKey: key, private: private}, nil
}

// noteSigner implements note.Signer.
type noteSigner struct{ *Signer }

func (s noteSigner) Name() string    { return s.LogKey.Name }
func (s noteSigner) KeyHash() uint32 { return keyHash(s.LogKey.KeyHash) }
func (s noteSigner) Sign(text []byte) ([]byte, error) {
	signature, err := s.private.Sign(text)
	if err != nil {
		return nil, err
	}
	return base64.RawURLEncoding.DecodeString(signature)
}

// Check reports whether the log's key can sign.
func (s *Signer) Check() error { return s.private.Check() }

// keyHash parses a key hash of package evidence: four bytes in hexadecimal.
func keyHash(text string) uint32 {
	hash, _ := strconv.ParseUint(text, 16, 32)
	return uint32(hash)
}

// sign returns a signed checkpoint (C2SP tlog-checkpoint) without extension lines.
func (s *Signer) sign(size int64, root tlog.Hash) (string, error) {
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", s.Name, size, root)}, noteSigner{s})
	if err != nil {
		return "", say.Errorf("sign a checkpoint: %w", err)
	}
	return string(signed), nil
}

// keyName returns the name of a key in transparency_keys, in signed notes and in Status.SignedBy.
func keyName(k evidence.LogKey) string { return k.Name + "+" + k.KeyHash }

const (
	knowKeys = `INSERT INTO transparency_keys (key, epoch, made, barred) SELECT k.key, g.epoch, false, false
		FROM ledger g, unnest($1::text[]) AS k(key) WHERE g.id = 1
		ON CONFLICT (key) DO NOTHING`
	makeKey = `INSERT INTO transparency_keys (key, epoch, made, barred) SELECT $1, epoch, true, false FROM ledger WHERE id = 1
		ON CONFLICT (key) DO NOTHING`
	// forkedLedger reports whether a key was made for a fork. An unknown key may then have signed the lost history.
	forkedLedger = `SELECT EXISTS (SELECT FROM transparency_keys WHERE made)`
	readKey      = `SELECT true, k.made AND k.epoch = g.epoch, k.barred FROM transparency_keys k, ledger g WHERE g.id = 1 AND k.key = $1`
	barKeys      = `UPDATE transparency_keys SET barred = true WHERE key <> $1`
)

// Stop halts the tree. A restore calls it before it raises the epoch. It works even if the backup is older than the
// first checkpoint. It also records the existing keys, because none of them may sign a fork.
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
		return say.Errorf("stop the transparency log: %w", err)
	}
	return nil
}

// know records keys and the key that signed the last checkpoint, which is empty if no checkpoint was signed.
func know(ctx context.Context, tx pgx.Tx, signedBy string, keys []evidence.LogKey) error {
	var list []string
	if signedBy != "" {
		list = append(list, signedBy)
	}
	for _, k := range keys {
		list = append(list, keyName(k))
	}
	if _, err := tx.Exec(ctx, knowKeys, list); err != nil {
		return say.Errorf("record the keys of the log: %w", err)
	}
	return nil
}

// MakeForkKey records a newly generated key for a fork. Call it before anything is signed with the key. The error is
// ErrNotHalted if the tree was not halted, and ErrKnownKey if the key is not new.
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
		return say.Errorf("record the key of a fork: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return ErrKnownKey
	}
	return nil
}

// RecordKey records a newly generated key during a rotation. Once a key was made for a fork, only recorded keys sign,
// because any other key may have signed the lost history. While the tree is halted, RecordKey does nothing, because a
// fork accepts only keys from MakeForkKey. The error is ErrKnownKey if the key is not new.
func RecordKey(ctx context.Context, pool *pgxpool.Pool, key evidence.LogKey) error {
	status, err := ReadStatus(ctx, pool)
	if err != nil || status.Halted {
		return err
	}
	tag, err := pool.Exec(ctx, knowKeys, []string{keyName(key)})
	if err != nil {
		return say.Errorf("record a key of the log: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return ErrKnownKey
	}
	return nil
}

// Errors for a key that may have signed a lost history.
var (
	ErrBarred = say.New(
		"this log key may have signed the history that was lost in a restore, and must not sign another: install the log " +
			"key that integrity log resume --fork --stage has created",
	)
	ErrUnrecorded = say.New(
		"this log key is not recorded, and the log has forked since a restore: the key may have signed " +
			"the lost history. Create a key with integrity keys rotate --transparency-log --stage, which records it",
	)
)

// maySign records a key before it signs. It refuses a barred key and, after a fork, an unknown one.
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
	forked, err := Forked(ctx, tx)
	if err != nil {
		return err
	}
	if forked {
		return ErrUnrecorded
	}
	return know(ctx, tx, "", []evidence.LogKey{key})
}

// Forked reports whether a key was made for a fork, so that only recorded keys sign.
func Forked(ctx context.Context, from rowQuerier) (forked bool, err error) {
	if err := from.QueryRow(ctx, forkedLedger).Scan(&forked); err != nil {
		return false, say.Errorf("read the keys of the log: %w", err)
	}
	return forked, nil
}

// KeyState is the database's information about a key.
type KeyState struct {
	Known  bool
	Made   bool // for a fork, after the last restore
	Barred bool // must not sign any more
}

// KnownKey looks up a key. An unknown key has the zero KeyState.
func KnownKey(ctx context.Context, from history.Querier, key evidence.LogKey) (KeyState, error) {
	return knownKey(ctx, from, keyName(key))
}

func knownKey(ctx context.Context, from history.Querier, name string) (KeyState, error) {
	rows, _ := from.Query(ctx, readKey, name) // rows carry its error
	state, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[KeyState])
	if errors.Is(err, pgx.ErrNoRows) {
		return KeyState{}, nil
	}
	if err != nil {
		return KeyState{}, say.Errorf("read the keys of the log: %w", err)
	}
	return state, nil
}

// Resumption holds the parameters of Resume.
type Resumption struct {
	// Published is a checkpoint of this log known outside, such as one kept by a monitor or a witness: the newest that is
	// known. Nil if none is known.
	Published *evidence.Checkpoint
	// Kept is the largest signed head that this machine keeps outside the database. The tree must contain it as well,
	// unless its key was barred since, because its history is then known to be lost.
	Kept Head
	// Fork lets the tree continue as another history.
	Fork   bool
	Signer *Signer           // signs a fork; nil if there is no key
	Keys   []evidence.LogKey // all other keys of the log known to the operator, trusted or not
	// Witnesses are asked for the size of the largest tree they have seen, if nothing seems to be lost. If one does not
	// answer, Unasked is called. Kept then shows what was signed last; without it, Resume returns ErrUnasked.
	Witnesses []*Witness
	Unasked   func(witness string, err error)
}

// Resume lets the tree continue after the database was restored from a backup, and reports whether published leaves
// were lost. If the tree contains the published checkpoint, which may be older than the tree's own, and everything that
// this machine and the witnesses remember, nothing is known to be lost, and it continues under its keys.
// Otherwise it continues only as a fork, under a key that MakeForkKey has recorded since that restore and that cannot
// have signed the lost history. Every other key is barred in every process, so that no key ever signs two histories.
// Monitors then report correctly that history was rewritten.
func Resume(ctx context.Context, pool *pgxpool.Pool, r Resumption) (size int64, lost bool, err error) {
	status, err := ReadStatus(ctx, pool)
	if err != nil {
		return 0, false, err
	}
	if !status.Halted {
		return status.Leaves, false, ErrNotHalted
	}
	contained := false
	if p := r.Published; p != nil && p.Size <= status.Leaves && (p.Size >= status.Published || !r.Fork) {
		err := holds(ctx, pool, checkpoint{size: p.Size, root: p.Root})
		if err != nil && !errors.Is(err, errLacks) {
			return 0, false, err
		}
		contained = err == nil
	}
	if !contained && !r.Fork {
		return status.Leaves, true, ErrForked
	}
	if contained {
		if err := r.newest(ctx, pool, status.Leaves); err != nil {
			return status.Leaves, false, err
		}
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var epoch int64
		if err := tx.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
			return say.Errorf("read the ledger's epoch: %w", err)
		}
		// This comes first, because its row is the lock of all the tables.
		tag, err := tx.Exec(ctx, `UPDATE transparency_tree SET epoch = $1 WHERE id = 1 AND size = $2`, epoch, status.Leaves)
		if err != nil {
			return say.Errorf("resume the tree: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return errLost
		}
		if contained {
			return know(ctx, tx, "", append(signersOf(r.Published), r.Keys...))
		}
		return r.bar(ctx, tx, status.SignedBy)
	})
	return status.Leaves, !contained, err
}

// bar bars all keys but the fork's.
func (r Resumption) bar(ctx context.Context, tx pgx.Tx, signedBy string) error {
	if r.Signer == nil {
		return ErrSameKey
	}
	others := slices.Clone(r.Keys)
	if r.Published != nil {
		others = append(others, signersOf(r.Published)...)
	}
	if err := know(ctx, tx, signedBy, others); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, barKeys, keyName(r.Signer.LogKey)); err != nil {
		return say.Errorf("bar the former keys of the log: %w", err)
	}
	key, err := KnownKey(ctx, tx, r.Signer.LogKey)
	if err == nil && (!key.Made || key.Barred) {
		err = ErrSameKey
	}
	return err
}

func signersOf(c *evidence.Checkpoint) (keys []evidence.LogKey) {
	for _, hash := range c.SignedBy {
		keys = append(keys, evidence.LogKey{Name: c.Origin, KeyHash: hash})
	}
	return keys
}

// ClaimedKeys returns the keys of the log that a checkpoint names as signers. It does not verify the signatures. There
// are at most 100, the limit of signatures in a note.
func ClaimedKeys(text, name string) (keys []evidence.LogKey) {
	_, err := note.Open([]byte(text), note.VerifierList())
	if unverified, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		for _, s := range unverified.Note.UnverifiedSigs {
			if s.Name == name {
				keys = append(keys, evidence.LogKey{Name: s.Name, KeyHash: fmt.Sprintf("%08x", s.Hash)})
			}
		}
	}
	return keys
}

// newest returns ErrNotNewest if the tree lacks what this machine or a witness knows of it.
func (r Resumption) newest(ctx context.Context, pool *pgxpool.Pool, leaves int64) error {
	if r.Kept.Size > r.Published.Size {
		key, err := knownKey(ctx, pool, r.Kept.SignedBy())
		if err != nil {
			return err
		}
		if !key.Barred {
			err := errLacks
			if r.Kept.Size <= leaves {
				err = holds(ctx, pool, checkpoint{size: r.Kept.Size, root: r.Kept.Root})
			}
			if errors.Is(err, errLacks) {
				return say.Errorf("%w: this machine has signed a tree of %d leaves, but it has %d",
					ErrNotNewest, r.Kept.Size, r.Published.Size)
			}
			if err != nil {
				return err
			}
		}
	}
	return r.witnessed(ctx, pool)
}

// witnessed returns ErrNotNewest if the tree lacks what a witness has seen of it. It submits the last stored checkpoint
// to each witness. A witness that has seen another tree answers with its size (C2SP tlog-witness). If that is larger
// than the published checkpoint, the witness must accept the proof that the stored one extends it.
func (r Resumption) witnessed(ctx context.Context, pool *pgxpool.Pool) error {
	last, err := readCheckpoint(ctx, pool)
	if err != nil || last.size == 0 {
		return err
	}
	k := &Keeper{Config: Config{Pool: pool, Now: time.Now}, last: last}
	silent := false
	for _, w := range r.Witnesses {
		asking, cancel := context.WithTimeout(ctx, publishTimeout)
		_, seen, err := k.submit(asking, w, 0)
		larger := seen > r.Published.Size
		if larger && seen <= last.size {
			_, _, refused := k.submit(asking, w, seen)
			larger = refused != nil
		}
		cancel()
		switch {
		case err != nil && !errors.Is(err, errSeenOther):
			r.Unasked(w.Name(), err)
			silent = true
		case larger:
			return say.Errorf(
				"%w: the witness %s has seen a tree of %d leaves, but it has %d", ErrNotNewest, w.Name(), seen, r.Published.Size,
			)
		}
	}
	if silent && r.Kept.Size == 0 {
		return ErrUnasked
	}
	return nil
}

// Errors of Resume, MakeForkKey and RecordKey.
var (
	ErrNotHalted = say.New("the tree was not halted: there is nothing to resume")
	ErrForked    = say.New("the tree does not contain the published checkpoint: published leaves were lost")
	ErrNotNewest = say.New("the published checkpoint must be the newest known outside")
	ErrUnasked   = say.New(
		"a witness did not answer, and this machine has kept no signed checkpoint: repeat when it answers",
	)
	ErrSameKey  = say.New("this log key may have signed the history that was lost, and must not sign another one")
	ErrKnownKey = say.New("this log key was known before: a fork needs a new key")
)
