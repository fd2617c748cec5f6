package transparency

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// A tree that has lost leaves which were signed would grow into another history under the same key. So a process
// remembers the largest head that it has signed or read, and keeps it outside the database too, before the signature is
// stored. What is compared is the tree and not the stored checkpoint: a head is signed only once its tree is on the
// disk, and on the synchronous standby, while the row of the checkpoint may be lost with a server.

// Head is a signed head of the tree.
type Head struct {
	Epoch int64 // of the ledger when it was signed
	Size  int64
	Root  tlog.Hash
	Note  string // the checkpoint
}

// SignedBy names the key.
func (h Head) SignedBy() string { return signedBy(h.Note) }

func (c checkpoint) head() Head { return Head{c.epoch, c.size, c.root, c.note} }

// errLacks says that the stored tree does not contain a head.
var errLacks = errors.New("the tree was damaged or replaced")

// lacks says in words what the database lacks of a head that was signed; empty: nothing. An error says that it is not
// known.
func (h Head) lacks(ctx context.Context, from history.Querier, grown checkpoint) (string, error) {
	switch {
	case grown.epoch > h.Epoch || h.Size == 0 && grown.epoch == h.Epoch:
		// a restore lets the tree go on only as Resume does
		return "", nil
	case grown.epoch < h.Epoch:
		return fmt.Sprintf("the ledger's epoch was %d when the log was signed, and is %d", h.Epoch, grown.epoch), nil
	case grown.size < h.Size:
		return fmt.Sprintf(
			"the transparency log lacks the tree of %d leaves that was signed: it has %d", h.Size, grown.size,
		), nil
	}
	err := holds(ctx, from, checkpoint{size: h.Size, root: h.Root})
	if errors.Is(err, errLacks) {
		return fmt.Sprintf(
			"the transparency log lacks the tree of %d leaves that was signed: it has another of that size", h.Size,
		), nil
	}
	return "", err
}

// Lacks says in words what the database lacks of a head that was signed; empty: nothing.
func (h Head) Lacks(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	grown, err := readGrown(ctx, pool)
	if err != nil && !errors.Is(err, ErrRestored) {
		return "", err
	}
	return h.lacks(ctx, pool, grown)
}

// remember compares the tree with the largest head that is known, and learns from the database what is larger. The
// error is a *eventstore.LostError where nothing may be signed. From a tree that a restore has halted nothing is
// learned.
func (k *Keeper) remember(ctx context.Context, signer *Signer, grown checkpoint, halted bool) error {
	if grown.epoch > k.known.Epoch {
		k.known = Head{Epoch: grown.epoch}
	}
	if k.last.size != k.known.Size || k.last.root != k.known.Root {
		missing, err := k.known.lacks(ctx, k.Pool, grown)
		if err != nil {
			return err
		}
		if missing != "" {
			k.Guard.Missing(eventstore.BySignedHead, missing)
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

// keep puts a head outside the database, where there is a place for it, and knows it from then on, whatever comes of
// its row: the tree is on the disk. The error is errLost where a later head was kept there by another process, which
// may have signed on a server that is gone; the database is compared with that one first.
func (k *Keeper) keep(h Head) error {
	kept := h
	if k.Keep != nil {
		var err error
		if kept, err = k.Keep(h); err != nil {
			return fmt.Errorf("nothing is signed: the head of the log cannot be kept outside the database: %w", err)
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

// askFirst asks the witnesses, before the first signature of this process, and again when a standby was promoted,
// whether they have seen a larger tree: what another process has published may be lost, unseen by this one. A witness
// that does not answer is left out. What a witness answers is its bare word, and it may err: registrations go on. After
// a fork witnesses remember the history that was lost.
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
		if largest > grown.size { // another process may have published that since
			if grown, err = readGrown(ctx, k.Pool); err != nil {
				return err
			}
		}
		if largest > grown.size {
			reason := fmt.Sprintf("the witness %s has seen a tree of %d leaves, and the transparency log has %d (if the "+
				"witness errs, take it out of INTEGRITY_WITNESSES and start again)",
				name, largest, grown.size)
			k.Guard.Missing(eventstore.ByWitness, reason)
			return errors.New("nothing is signed: " + reason)
		}
	}
	k.Guard.Found(eventstore.ByWitness)
	k.asked = &timeline
	return nil
}

// seenByWitnesses is the largest tree that one of them says it has seen.
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
				k.Log.Warn("a witness was not asked for what it has seen", "witness", w.Name(), "error", cluster.Loggable(err))
			} else if seen > largest {
				largest, name = seen, w.Name()
			}
		})
	}
	all.Wait()
	return largest, name
}
