package transparency

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// If the tree lost signed leaves and continued to grow, the same key would sign two histories. So a process remembers
// the largest head that it has signed or read, and also keeps it outside the database, before it stores the signature.
// It compares the head with the tree, not with the stored checkpoint: a head is signed only once its tree is on disk
// and on the synchronous standby, but the checkpoint's row may be lost with a server.

// Head is a signed head of the tree.
type Head struct {
	Epoch int64 // of the ledger when it was signed
	Size  int64
	Root  tlog.Hash
	Note  string // the checkpoint
}

// SignedBy returns the name of the key that signed it.
func (h Head) SignedBy() string { return signedBy(h.Note) }

func (c checkpoint) head() Head { return Head{c.epoch, c.size, c.root, c.note} }

// errLacks means that the stored tree does not contain a head.
var errLacks = say.New("the tree was damaged or replaced")

// lacks describes what the database lacks of a signed head. It returns an empty sentence if nothing is missing, and
// an error if that is unknown.
func (h Head) lacks(ctx context.Context, from history.Querier, grown checkpoint) (none say.Sentence, err error) {
	switch {
	case grown.epoch > h.Epoch || h.Size == 0 && grown.epoch == h.Epoch:
		// after a restore, only Resume lets the tree continue
		return none, nil
	case grown.epoch < h.Epoch:
		return say.Sentencef("the ledger's epoch was %d when the log was signed, but is %d", h.Epoch, grown.epoch), nil
	case grown.size < h.Size:
		return say.Sentencef(
			"the transparency log lacks the tree of %d leaves that was signed: it has %d", h.Size, grown.size,
		), nil
	}
	err = holds(ctx, from, checkpoint{size: h.Size, root: h.Root})
	if errors.Is(err, errLacks) {
		return say.Sentencef(
			"the transparency log lacks the tree of %d leaves that was signed: it has another of that size", h.Size,
		), nil
	}
	return none, err
}

// Lacks describes what the database lacks of a signed head. It returns an empty sentence if nothing is missing.
func (h Head) Lacks(ctx context.Context, pool *pgxpool.Pool) (none say.Sentence, err error) {
	grown, err := readGrown(ctx, pool)
	if err != nil && !errors.Is(err, ErrRestored) {
		return none, err
	}
	return h.lacks(ctx, pool, grown)
}

// remember compares the tree with the largest known head, and replaces that head if the last checkpoint is larger,
// unless a restore has halted the tree. The error is a *eventstore.LostError if nothing may be signed.
func (k *Keeper) remember(ctx context.Context, signer *Signer, grown checkpoint, halted bool) error {
	if grown.epoch > k.known.Epoch {
		k.known = Head{Epoch: grown.epoch}
	}
	if k.last.size != k.known.Size || k.last.root != k.known.Root {
		missing, err := k.known.lacks(ctx, k.Pool, grown)
		if err != nil {
			return err
		}
		if missing.Format != "" {
			k.Guard.Missing(eventstore.BySignedHead, missing.String())
			return k.Guard.Err()
		}
	}
	k.Guard.Found(eventstore.BySignedHead)
	if !halted && k.last.size > k.known.Size {
		read := k.last
		read.epoch = grown.epoch
		if signer == nil || !signer.signed(read.note) {
			k.known = read.head()
		} else if err := k.keep(read.head()); err != nil {
			return err
		}
	}
	return k.Guard.Err()
}

// keep stores a head outside the database if Keep is set, and then treats it as known even if its row is not committed,
// because the tree is on disk. The error is errLost if another process, possibly on a lost server, has kept a later
// head: the database must first be compared with that head.
func (k *Keeper) keep(h Head) error {
	kept := h
	if k.Keep != nil {
		var err error
		if kept, err = k.Keep(h); err != nil {
			return say.Errorf("nothing is signed: the head of the log cannot be kept outside the database: %w", err)
		}
	}
	k.known = kept
	if kept.Epoch != h.Epoch || kept.Size != h.Size {
		return errLost
	}
	return nil
}

// signed reports whether the key of this process has signed a checkpoint.
func (s *Signer) signed(text string) bool {
	trusted, err := new(evidence.TrustedKeys).AddLogKey(s.LogKey)
	if err == nil {
		_, err = evidence.OpenCheckpoint(text, trusted)
	}
	return err == nil
}

// askFirst asks the witnesses whether they have seen a larger tree, before this process's first signature and again
// after a standby was promoted. Leaves that another process published may have been lost without this process noticing.
// A witness that does not answer is skipped. A witness gives no proof and may be wrong, so registrations continue.
// After a fork the witnesses are not asked, because they remember the lost history.
func (k *Keeper) askFirst(ctx context.Context, grown checkpoint) error {
	if len(k.Witnesses) == 0 || k.last.size == 0 {
		return nil
	}
	var timeline uint64
	if err := k.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		timeline = cluster.Timeline(conn.Conn())
		return nil
	}); err != nil || k.asked != nil && *k.asked == timeline {
		return err
	}
	forked, err := Forked(ctx, k.Pool)
	if err != nil {
		return err
	}
	if !forked {
		largest, name := k.seenByWitnesses(ctx)
		if largest > grown.size { // another process may have published it since
			if grown, err = readGrown(ctx, k.Pool); err != nil {
				return err
			}
		}
		if largest > grown.size {
			err := say.Errorf("the witness %s has seen a tree of %d leaves, but the transparency log has %d (if the "+
				"witness is wrong, remove it from INTEGRITY_WITNESSES and restart)",
				name, largest, grown.size)
			k.Guard.Missing(eventstore.ByWitness, err.Error())
			return say.Errorf("nothing is signed: %w", errors.Join(err, k.storeLarger(ctx, name, grown.size, err)))
		}
	}
	k.Guard.Found(eventstore.ByWitness)
	k.asked = &timeline
	return nil
}

// storeLarger stores that a witness has seen a larger tree than this one.
func (k *Keeper) storeLarger(ctx context.Context, name string, size int64, larger error) error {
	w := k.Witnesses[slices.IndexFunc(k.Witnesses, func(w *Witness) bool { return w.Name() == name })]
	old, _, err := k.lastCosigned(ctx, w)
	if err == nil {
		err = k.storeRefusal(ctx, w, size, asRefused(old, refused{OtherHistory, larger}))
	}
	return err
}

// seenByWitnesses returns the size of the largest tree that any witness claims to have seen, and its name.
func (k *Keeper) seenByWitnesses(ctx context.Context) (largest int64, name string) {
	asking, cancel := context.WithTimeout(ctx, k.Witness)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, w := range k.Witnesses {
		all.Go(func() {
			_, seen, err := k.submit(asking, w, 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, errSeenOther) {
				k.Log.Warn("asking a witness for its latest tree failed", "witness", w.Name(), "error", cluster.Loggable(err))
			} else if seen > largest {
				largest, name = seen, w.Name()
			}
		})
	}
	all.Wait()
	return largest, name
}
