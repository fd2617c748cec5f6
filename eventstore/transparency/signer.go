package transparency

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/history"
)

// LogName is the origin of the checkpoints of a ledger: its issuer without scheme, with /log at its end. An issuer that
// is no address is taken as it is; what a note cannot hold in a name is percent-encoded.
func LogName(issuer string) string {
	name := strings.TrimRight(issuer, "/")
	if u, err := url.Parse(issuer); err == nil && u.Host != "" {
		name = strings.ToLower(u.Host) + strings.TrimRight(u.EscapedPath(), "/")
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c <= ' ' || c == '+' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + "/log"
}

// Signer signs checkpoints.
type Signer struct {
	evidence.LogKey
	// Revoked are keys of the log, as Status.SignedBy names them, whose last checkpoint it signs anew: nobody trusts that.
	Revoked []string
	private *evidence.Signer
}

// due reports whether there is something to sign: a larger tree, or the same one under a key that was revoked.
func (s *Signer) due(last, tree checkpoint) bool {
	return tree.size > last.size ||
		tree.size > 0 && tree.size == last.size && slices.Contains(s.Revoked, signedBy(last.note))
}

// NewSigner names the key of a log.
func NewSigner(name string, private *evidence.Signer) (*Signer, error) {
	public, err := base64.RawURLEncoding.DecodeString(private.Key().JWK.X)
	if err != nil {
		return nil, fmt.Errorf("log key: %w", err)
	}
	key, err := evidence.NewLogKey(name, public)
	if err != nil {
		return nil, fmt.Errorf("log key: %w", err)
	}
	return &Signer{LogKey: key, private: private}, nil
}

// noteSigner is a Signer as the note package asks for one.
type noteSigner struct{ *Signer }

func (s noteSigner) Name() string    { return s.LogKey.Name }
func (s noteSigner) KeyHash() uint32 { return keyHash(s.LogKey.KeyHash) }
func (s noteSigner) Sign(text []byte) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(s.private.Sign(text))
}

// keyHash reads four bytes in hexadecimal, as package evidence writes them.
func keyHash(text string) uint32 {
	hash, _ := strconv.ParseUint(text, 16, 32)
	return uint32(hash)
}

// sign makes a checkpoint (C2SP tlog-checkpoint) without extension lines: a signed note.
func (s *Signer) sign(size int64, root tlog.Hash) (string, error) {
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", s.Name, size, root)}, noteSigner{s})
	if err != nil {
		return "", fmt.Errorf("sign a checkpoint: %w", err)
	}
	return string(signed), nil
}

// keyName is a key as transparency_keys, a signed note and Status.SignedBy name it.
func keyName(k evidence.LogKey) string { return k.Name + "+" + k.KeyHash }

const (
	knowKeys = `INSERT INTO transparency_keys (key, epoch, made, barred) SELECT k.key, g.epoch, false, false
		FROM ledger g, unnest($1::text[]) AS k(key) WHERE g.id = 1
		ON CONFLICT (key) DO NOTHING`
	makeKey = `INSERT INTO transparency_keys (key, epoch, made, barred) SELECT $1, epoch, true, false FROM ledger WHERE id = 1
		ON CONFLICT (key) DO NOTHING`
	// forkedLedger: a key was made for a fork. A key that is unknown here may then be of the history that was lost.
	forkedLedger = `SELECT EXISTS (SELECT FROM transparency_keys WHERE made)`
	readKey      = `SELECT true, k.made AND k.epoch = g.epoch, k.barred FROM transparency_keys k, ledger g WHERE g.id = 1 AND k.key = $1`
	barKeys      = `UPDATE transparency_keys SET barred = true WHERE key <> $1`
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

// know records keys, those of a file and the one that signed a checkpoint, which is empty where no checkpoint was
// signed.
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

// RecordKey records a key that was made just now, in a rotation. Once a key was made for a fork, only recorded keys
// sign: of another one nobody here can say that it did not sign what was lost. While the tree stands still nothing is
// recorded, as a fork takes only the keys of MakeForkKey. The error is ErrKnownKey for a key that is not new.
func RecordKey(ctx context.Context, pool *pgxpool.Pool, key evidence.LogKey) error {
	status, err := ReadStatus(ctx, pool)
	if err != nil || status.Halted {
		return err
	}
	tag, err := pool.Exec(ctx, knowKeys, []string{keyName(key)})
	if err != nil {
		return fmt.Errorf("record a key of the log: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return ErrKnownKey
	}
	return nil
}

// Answers to a key that may have signed a history which was lost.
var (
	ErrBarred = errors.New(
		"this log key may have signed the history that was lost in a restore, and must not sign another: put the log key " +
			"in place that integrity log resume --fork --stage has made",
	)
	ErrUnrecorded = errors.New(
		"this log key is not recorded, and the log has gone on as another history since a restore: it may have signed " +
			"the history that was lost. Make one with integrity keys rotate --transparency-log --stage, which records it",
	)
)

// maySign records a key that signs, and refuses a barred one, and after a fork an unknown one.
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
		return false, fmt.Errorf("read the keys of the log: %w", err)
	}
	return forked, nil
}

// KeyState is what the database knows of a key.
type KeyState struct {
	Known  bool
	Made   bool // after the last restore, for a fork
	Barred bool // it must sign no more
}

// KnownKey looks a key up.
func KnownKey(ctx context.Context, from history.Querier, key evidence.LogKey) (KeyState, error) {
	return knownKey(ctx, from, keyName(key))
}

func knownKey(ctx context.Context, from history.Querier, name string) (KeyState, error) {
	rows, _ := from.Query(ctx, readKey, name) // the error comes with the rows
	state, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[KeyState])
	if errors.Is(err, pgx.ErrNoRows) {
		return KeyState{}, nil
	}
	if err != nil {
		return KeyState{}, fmt.Errorf("read the keys of the log: %w", err)
	}
	return state, nil
}

// Resumption is what Resume goes by.
type Resumption struct {
	// Published is the newest checkpoint of this log that is known outside, as a monitor or a witness has kept it. Nil:
	// none is.
	Published *evidence.Checkpoint
	// Kept is the largest signed head that this machine keeps outside the database. It counts unless its key was barred
	// since, as the history that it is of is lost then.
	Kept Head
	// Fork lets the tree go on as another history.
	Fork   bool
	Signer *Signer           // signs a fork; nil: there is no key
	Keys   []evidence.LogKey // every other key of the log that the operator knows of, also one that no file trusts
	// Witnesses are asked how large a tree they have seen, where nothing seems to be lost. One that does not answer is
	// left out, and Unasked hears of it.
	Witnesses []*Witness
	Unasked   func(witness string, err error)
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
	if contained {
		if err := r.newest(ctx, pool); err != nil {
			return status.Leaves, false, err
		}
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
			return know(ctx, tx, "", append(signersOf(r.Published), r.Keys...))
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
		others = append(others, signersOf(r.Published)...)
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

func signersOf(c *evidence.Checkpoint) (keys []evidence.LogKey) {
	for _, hash := range c.SignedBy {
		keys = append(keys, evidence.LogKey{Name: c.Origin, KeyHash: hash})
	}
	return keys
}

// ClaimedKeys are the keys of the log that a checkpoint names as its signers, without a proof that they signed. At most
// a hundred: a note has no more signatures.
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

// newest refuses a published checkpoint after which a larger tree was signed, as far as this machine and the witnesses
// know.
func (r Resumption) newest(ctx context.Context, pool *pgxpool.Pool) error {
	if r.Kept.Size > r.Published.Size {
		key, err := knownKey(ctx, pool, r.Kept.SignedBy())
		if err != nil {
			return err
		}
		if !key.Barred {
			return fmt.Errorf(
				"%w: this machine has signed a tree of %d leaves, and it has %d", ErrNotNewest, r.Kept.Size, r.Published.Size,
			)
		}
	}
	return r.witnessed(ctx, pool)
}

// witnessed refuses a published checkpoint of which a witness has seen a larger one. Each witness is asked by the last
// stored checkpoint, which was published: one that has seen another answers how large that was (C2SP tlog-witness).
func (r Resumption) witnessed(ctx context.Context, pool *pgxpool.Pool) error {
	last, err := readCheckpoint(ctx, pool)
	if err != nil || last.size == 0 {
		return err
	}
	k := &Keeper{Config: Config{Pool: pool, Now: time.Now}, last: last}
	for _, w := range r.Witnesses {
		asking, cancel := context.WithTimeout(ctx, publishTimeout)
		_, seen, err := k.submit(asking, w, 0)
		cancel()
		switch {
		case err != nil && !errors.Is(err, errSeenOther):
			r.Unasked(w.Name(), err)
		case seen > r.Published.Size:
			return fmt.Errorf(
				"%w: the witness %s has seen a tree of %d leaves, and it has %d", ErrNotNewest, w.Name(), seen, r.Published.Size,
			)
		}
	}
	return nil
}

// Answers of Resume and MakeForkKey.
var (
	ErrNotHalted = errors.New("the tree was not halted: there is nothing to resume")
	ErrForked    = errors.New("the tree does not contain the published checkpoint: published leaves were lost")
	ErrOlder     = errors.New(
		"the published checkpoint must be the newest that is known outside: this one is older than the restored " +
			"database's own",
	)
	ErrNotNewest = errors.New("the published checkpoint must be the newest that is known outside")
	ErrSameKey   = errors.New("this log key may have signed the history that was lost, and must not sign another one")
	ErrKnownKey  = errors.New("this log key was known before: a fork needs one that is made now")
)
