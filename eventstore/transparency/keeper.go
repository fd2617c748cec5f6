// Package transparency maintains one Merkle tree (RFC 6962) over the events of all organizations in all shards, so that
// anyone can check that the history was never rewritten. A leaf is an event's hash (contract, section 4.3). Leaves are
// in the order in which the tree received them, which transparency_runs stores. The tree reveals hashes and their
// number, and nothing else; it proves nothing about times.
//
// It works after the commit. No writer of the ledger waits for it or depends on it: if it fails, registrations go on
// and the tree catches up later.
//
//	events ──▶ grow: tiles, runs, root ── COMMIT ──▶ confirm ── COMMIT ──▶ sign ── COMMIT ──▶ served
//
// The tree is a Source of package consumer. Its one row stores how far it has read in every shard. The process that has
// locked the row grows the tree with one statement in that transaction. So each event becomes a leaf exactly once, even
// if processes crash. Any process may sign: the tree only grows, and a smaller checkpoint never replaces a larger one.
//
// A checkpoint is signed only once its tree is on the server's disk, and on the synchronous standby if there is one.
// The confirming commit is flushed, which proves that everything it has read is on disk too. So no failure that an
// acknowledged registration survives can make the tree forget what it has signed, and there are never two roots for one
// size. The effect of a crash depends on its time:
//
//	before the first COMMIT   nothing is lost: the events are read again, perhaps in another order
//	before the third          the tree was not published; its checkpoint is signed next
//	after the third           the checkpoint is served
//
// A database that was restored to an earlier state would grow a tree different from the published one. A restore raises
// the epoch, which stops the tree until the operator has compared it with published checkpoints (Resume). If the tree
// continues as a different history, it uses a key that was created after the restore. transparency_keys bars all other
// keys, and from then on a key that it does not list signs nothing.
package transparency

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/wait"
)

// Config configures a Keeper.
type Config struct {
	Pool *pgxpool.Pool // from Primary.ConsumerPool; transactions that must be flushed set it themselves
	// Nodes, also from Primary.ConsumerPool, are used to read the logs of the shards. Nil means Pool.
	Nodes  *cluster.Nodes
	Shards int
	// Signer returns the log's current key. If it returns nil, this process leaves the tree alone.
	Signer    func() *Signer
	Witnesses []*Witness
	// Authorities stamp checkpoints. Pinned returns the certificates currently pinned for an authority. If it returns
	// false, the authority is not asked.
	Authorities []*TimestampAuthority
	Pinned      func(name string) (evidence.Authority, bool)
	Now         func() time.Time
	Log         *slog.Logger // the program's log

	// Guard stops the keeper together with the ledger. Nil means a new Guard.
	Guard *eventstore.Guard
	// Gate, if not nil, stops the keeper when the ledger accepts only newer programs.
	Gate *eventstore.Gate
	// Known is the largest head kept outside the database; zero if none is.
	Known Head
	// Keep stores a head on a disk outside the database, unless a later head is there, and returns the head that is there
	// afterwards: processes may share the disk. A checkpoint is stored only after Keep has returned its head without an
	// error. If Keep is nil, no head is kept.
	Keep func(Head) (Head, error)

	Interval time.Duration // shortest time between two checkpoints; 0 means 1 s
	// Poll is the time between two checks for new events if a wake-up was lost. It grows up to four times while there are
	// none. 0 means 1 s.
	Poll    time.Duration
	Batch   int           // maximum number of leaves in a transaction; 0 means 4,096
	Witness time.Duration // time for the witnesses to cosign a checkpoint; 0 means 2 s
	Stamp   time.Duration // time between two tokens of an authority; 0 means 60 s
}

// Keeper adds events to the tree and signs checkpoints.
type Keeper struct {
	Config
	growth   *growth
	consumer *consumer.Consumer
	grown    chan struct{} // holds a value when there may be leaves that no checkpoint covers
	failures atomic.Int64  // of publishing
	signed   atomic.Int64  // size of the last checkpoint signed by this process
	stamps   sync.Mutex    // makes all authorities share one connection

	key   func() *Signer // the configured Signer, whatever the guard says
	last  checkpoint     // owned by the publishing goroutine
	known Head           // the largest known signed head; owned by the publishing goroutine
	// asked is the timeline on which the witnesses were asked before the first signature. The publishing goroutine owns
	// it.
	asked *uint64
}

// New returns a Keeper. Run starts it.
func New(c Config) (*Keeper, error) {
	if c.Pool == nil || c.Signer == nil || c.Now == nil || c.Log == nil || c.Authorities != nil && c.Pinned == nil {
		return nil, errors.New( //nolint:forbidigo // a bug
			"a keeper of the transparency tree needs Pool, Signer, Now and Log, and Pinned if it has Authorities",
		)
	}
	c.Interval, c.Poll, c.Batch, c.Witness = cmp.Or(c.Interval, time.Second), cmp.Or(c.Poll, time.Second),
		cmp.Or(c.Batch, 4096), cmp.Or(c.Witness, 2*time.Second)
	c.Stamp = cmp.Or(c.Stamp, time.Minute)
	if c.Guard == nil {
		c.Guard = eventstore.NewGuard(0, c.Log)
	}
	key := c.Signer
	c.Signer = func() *Signer {
		if c.Guard.Err() != nil {
			return nil
		}
		return key()
	}
	k := &Keeper{
		Config: c, key: key, known: c.Known,
		growth: &growth{
			pool: c.Pool, log: eventstore.Route(c.Pool, c.Nodes), shards: c.Shards, signer: c.Signer, batch: c.Batch,
			slow: map[int32]int{},
		},
		grown: make(chan struct{}, 1),
	}
	var err error
	k.consumer, err = consumer.New(consumer.Config{
		Name: "transparency", Pool: c.Pool, Sources: []consumer.Source{k.growth}, News: k.growth.look, Log: c.Log,
		Poll:   c.Poll,
		Gather: 2 * c.Interval, // publishing ends it early (Hasten)
		Advanced: func() {
			select {
			case k.grown <- struct{}{}:
			default:
			}
		},
	})
	return k, err
}

// Wake signals that there are new events. It never blocks.
func (k *Keeper) Wake() { k.consumer.Wake(0) }

// Failures returns the number of failed attempts to grow or publish the tree since the start.
func (k *Keeper) Failures() int64 { return k.consumer.Failures() + k.failures.Load() }

// Run grows, signs and stamps the tree until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { k.consumer.Run(ctx) })
	work.Go(func() { k.publishing(ctx) })
	for _, a := range k.Authorities {
		work.Go(func() { k.stamping(ctx, a) })
	}
	work.Wait()
}

const (
	// maxPause is the longest pause after consecutive failures.
	maxPause = 30 * time.Second
	// maxQuiet is how often the pause between two checks without news is doubled.
	maxQuiet = 2
	// stepIn is the age at which this process asks the witnesses to cosign another process's checkpoint.
	stepIn = 5 * time.Second
	// publishTimeout limits an attempt to publish, in case a server never answers.
	publishTimeout = 10 * time.Second
)

// checkpoint is a signed tree, or the current tree before it is signed. Size 0 means none.
type checkpoint struct {
	epoch    int64 // the ledger's, set if the tree was read
	size     int64
	root     tlog.Hash
	note     string
	signedAt time.Time
}

// publishing signs the tree whenever it has grown and asks the witnesses to cosign, until ctx ends.
func (k *Keeper) publishing(ctx context.Context) {
	failures, quiet := 0, 0
	for ctx.Err() == nil {
		known := k.last.size
		err := k.publish(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost): // another process has signed
		case k.Guard.Err() != nil: // the guard has logged it
			_ = wait.For(ctx, k.Poll)
			continue
		case err != nil:
			pause := min(maxPause, k.Interval<<min(failures, 5))
			failures++
			k.failures.Add(1)
			k.Log.Warn("publishing a checkpoint failed", "error", cluster.Loggable(err), "pause", pause)
			_ = wait.For(ctx, pause)
			continue
		}
		failures = 0
		k.ask(ctx)
		_ = wait.For(ctx, k.Interval)
		// Only a signed tree is visible, and each growth costs a transaction. New events are therefore collected until now.
		// If there are any, wait until the tree has grown.
		grown := false
		select {
		case <-k.grown:
			grown = true
		default:
		}
		if k.consumer.Hasten(0) || !grown {
			if !wait.Interrupted(k.Poll<<quiet, ctx.Done(), k.grown) && known == k.last.size && k.Witnesses == nil {
				quiet = min(quiet+1, maxQuiet)
			} else {
				quiet = 0 // the tree grows, here or in another process, or a witness may have to be asked again
			}
		}
	}
}

const (
	readTree = `SELECT size, root, epoch FROM transparency_tree WHERE id = 1`
	// flushTree writes a message to the write-ahead log but no table. Its commit flushes everything read before to the
	// disk, and to the synchronous standby if there is one. It locks no row.
	flushTree = `SELECT pg_logical_emit_message(true, 'integrity', 'transparency')`
	readLast  = `SELECT size, root, note, signed_at FROM transparency_checkpoint WHERE id = 1`
	// A checkpoint is never replaced by one of a smaller tree. It is replaced by one of the same tree only if it is the
	// checkpoint that this process has read.
	storeCheckpoint = `INSERT INTO transparency_checkpoint (id, size, root, note, signed_at) VALUES (1, $1, $2, $3, $4)
	ON CONFLICT (id) DO UPDATE SET size = excluded.size, root = excluded.root, note = excluded.note, signed_at = excluded.signed_at
	WHERE transparency_checkpoint.size < excluded.size
	OR transparency_checkpoint.size = excluded.size AND transparency_checkpoint.root = excluded.root AND transparency_checkpoint.note = $5`
)

// flushed makes a transaction on a consumer's connection wait for the disk.
const flushed = "SET LOCAL synchronous_commit = on"

// within runs do in a transaction. If it returns nil, the transaction is on disk.
func (k *Keeper) within(ctx context.Context, do func(pgx.Tx) error) error {
	tx, err := k.Pool.Begin(ctx)
	if err != nil {
		return say.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, flushed); err != nil {
		return say.Errorf("begin: %w", err)
	}
	if err := do(tx); err != nil {
		return err
	}
	return cluster.Commit(ctx, tx)
}

// publish signs the tree if it has grown since the last checkpoint, or if that checkpoint's key was revoked. It signs
// only a tree that is on disk and extends the last checkpoint. The error may be errLost.
func (k *Keeper) publish(ctx context.Context) (err error) {
	signer := k.key()
	if signer == nil && !k.Guard.Lost()[eventstore.BySignedHead] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if k.last, err = readCheckpoint(ctx, k.Pool); err != nil {
		return err
	}
	grown, err := readGrown(ctx, k.Pool)
	if halted := errors.Is(err, ErrRestored); err == nil || halted {
		err = cmp.Or(k.remember(ctx, signer, grown, halted), err)
	}
	if err != nil || signer == nil || !signer.due(k.last, grown) {
		return err
	}
	if err := k.askFirst(ctx, grown); err != nil {
		return err
	}
	next, err := k.confirmed(ctx, signer)
	if err != nil {
		return err
	}
	return k.sign(ctx, signer, next)
}

// readGrown reads the size and root of the tree and the ledger's epoch. Size 0 means that no tree has begun. With
// ErrRestored it also returns size and epoch.
func readGrown(ctx context.Context, from rowQuerier) (c checkpoint, err error) {
	var written int64
	var root []byte
	if err := from.QueryRow(ctx, readEpoch).Scan(&c.epoch); err != nil {
		return c, say.Errorf("read the ledger's epoch: %w", err)
	}
	err = from.QueryRow(ctx, readTree).Scan(&c.size, &root, &written)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, say.Errorf("read the tree: %w", err)
	}
	if written != c.epoch {
		return c, ErrRestored
	}
	c.root = hashOf(root)
	return c, nil
}

// sign signs and stores the checkpoint of a tree, unless one of the same or a larger tree is stored. The transaction
// that signs checks that the tree still exists: since it was confirmed, this process may have been frozen, and the
// database restored or replaced by a standby that lacks the tree.
func (k *Keeper) sign(ctx context.Context, signer *Signer, next checkpoint) error {
	next.signedAt = k.Now().UTC()
	if err := k.within(ctx, func(tx pgx.Tx) error {
		grown, err := readGrown(ctx, tx)
		if err == nil && (grown.epoch != next.epoch || grown.size < next.size) {
			err = say.Errorf(
				"the tree has %d leaves, but had %d before it was signed: the database was replaced", grown.size, next.size,
			)
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
		if err := k.allowed(ctx, tx); err != nil {
			return err
		}
		if next.note, err = signer.sign(next.size, next.root); err != nil {
			return err
		}
		if err := k.keep(next.head()); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, storeCheckpoint, next.size, next.root[:], next.note, next.signedAt, k.last.note)
		if err != nil {
			return say.Errorf("store a checkpoint: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return errLost
		}
		return nil
	}); err != nil {
		return err
	}
	k.last = next
	k.signed.Store(next.size)
	return nil
}

// allowed returns an error if the gate or the guard stops this process, or if a standby was promoted since the
// witnesses were asked.
func (k *Keeper) allowed(ctx context.Context, tx pgx.Tx) error {
	if k.Gate != nil {
		if err := k.Gate.Ask(ctx, tx); err != nil {
			return err
		}
	}
	if k.asked != nil && *k.asked != cluster.Timeline(tx.Conn()) {
		return errLost
	}
	return k.Guard.Err()
}

// confirmed returns the tree once it is safely on disk. The error is errLost if there is nothing left to publish,
// because the database was replaced meanwhile.
func (k *Keeper) confirmed(ctx context.Context, signer *Signer) (next checkpoint, err error) {
	err = k.within(ctx, func(tx pgx.Tx) error {
		if next, err = readGrown(ctx, tx); err != nil {
			return err
		}
		if !signer.due(k.last, next) {
			return errLost
		}
		if _, err := tx.Exec(ctx, flushTree); err != nil {
			return say.Errorf("confirm the tree: %w", err)
		}
		return nil
	})
	return next, err
}

// continues returns an error unless the stored tiles give the tree next, and that tree contains the last checkpoint and
// the largest known head.
func (k *Keeper) continues(ctx context.Context, from history.Querier, next checkpoint) error {
	heads := []checkpoint{k.last, next}
	if k.known.Size != k.last.size || k.known.Root != k.last.root {
		heads = append(heads, checkpoint{size: k.known.Size, root: k.known.Root})
	}
	for _, c := range heads {
		if c.size == 0 {
			continue
		}
		if err := holds(ctx, from, c); err != nil {
			return say.Errorf("nothing is signed: %w", err)
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
		return checkpoint{}, say.Errorf("read the last checkpoint: %w", err)
	}
	c.root = hashOf(root)
	return c, nil
}

// hashOf returns the zero hash, which no tree has, if b has the wrong length.
func hashOf(b []byte) (h tlog.Hash) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}
