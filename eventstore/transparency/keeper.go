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
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/wait"
)

// Config is what a Keeper is made of.
type Config struct {
	Pool *pgxpool.Pool // from Primary.ConsumerPool; what must be flushed says so
	// Nodes, also from Primary.ConsumerPool, lead to the logs of so many shards. Nil: Pool does.
	Nodes  *cluster.Nodes
	Shards int
	// Signer answers the log's key as it is now. Nil: this process leaves the tree alone.
	Signer    func() *Signer
	Witnesses []*Witness
	// Authorities stamp checkpoints. Pinned answers what the tokens of one must lead to, as it is now; false: it is not
	// asked.
	Authorities []*TimestampAuthority
	Pinned      func(name string) (evidence.Authority, bool)
	Now         func() time.Time
	Log         *slog.Logger // of the program

	// Guard stops the keeper together with the ledger. Nil: one of its own.
	Guard *eventstore.Guard
	// Gate stops the keeper where the ledger takes only newer programs. Nil: nothing does.
	Gate *eventstore.Gate
	// Known is the largest head that was kept outside the database; zero: none.
	Known Head
	// Keep puts a head on a disk outside the database, unless a later one is there, and returns the one that is there
	// then: processes may share the disk. No checkpoint is stored before it has returned, and none where it fails or the
	// head is another. Nil: nothing is kept.
	Keep func(Head) (Head, error)

	Interval time.Duration // least time between two checkpoints; 0 means 1 s
	// between two looks where a wake-up was lost, and up to four times that where none was; 0 means 1 s
	Poll    time.Duration
	Batch   int           // most leaves of a transaction; 0 means 4,096
	Witness time.Duration // that the witnesses have to cosign a checkpoint; 0 means 2 s
	Stamp   time.Duration // between two tokens of an authority; 0 means 60 s
}

// Keeper puts events into the tree and signs checkpoints. Run does all of it.
type Keeper struct {
	Config
	growth   *growth
	consumer *consumer.Consumer
	grown    chan struct{} // holds one when there may be leaves that no checkpoint covers
	failures atomic.Int64  // to publish
	signed   atomic.Int64  // the size of the last checkpoint that this process has signed
	stamps   sync.Mutex    // so that all authorities together use one connection

	key   func() *Signer // Signer, while the guard stops this process too
	last  checkpoint     // of the one goroutine that publishes
	known Head           // the largest that is known to be signed; of that goroutine too
	// timeline on which the witnesses were asked, before the first signature there; of that goroutine too
	asked *uint64
}

// New makes a Keeper; Run starts it.
func New(c Config) (*Keeper, error) {
	if c.Pool == nil || c.Signer == nil || c.Now == nil || c.Log == nil || c.Authorities != nil && c.Pinned == nil {
		return nil, errors.New(
			"a keeper of the transparency tree needs Pool, Signer, Now and Log, and with Authorities Pinned",
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
		Gather: 2 * c.Interval, // publishing hastens it
		Advanced: func() {
			select {
			case k.grown <- struct{}{}:
			default:
			}
		},
	})
	return k, err
}

// Wake tells that there are new events. It never waits.
func (k *Keeper) Wake() { k.consumer.Wake(0) }

// Failures is how often growing or publishing the tree has failed since the start.
func (k *Keeper) Failures() int64 { return k.consumer.Failures() + k.failures.Load() }

// Run works until ctx ends.
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
	// mostPause is the longest pause after failures in a row.
	mostPause = 30 * time.Second
	// mostQuiet is how often the pause between two looks that find nothing is doubled.
	mostQuiet = 2
	// stepIn is how old a checkpoint of another process is when this one asks the witnesses for it.
	stepIn = 5 * time.Second
	// publishTimeout ends an attempt to publish that a server without a word has swallowed.
	publishTimeout = 10 * time.Second
)

// checkpoint is what was signed last; size 0: nothing.
type checkpoint struct {
	epoch    int64 // of the ledger, where the tree was read
	size     int64
	root     tlog.Hash
	note     string
	signedAt time.Time
}

// publishing signs the tree where it has grown, and has the witnesses cosign, until ctx ends.
func (k *Keeper) publishing(ctx context.Context) {
	failures, quiet := 0, 0
	for ctx.Err() == nil {
		known := k.last.size
		err := k.publish(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost): // it is done
		case k.Guard.Err() != nil: // which has logged it
			_ = wait.For(ctx, k.Poll)
			continue
		case err != nil:
			pause := min(mostPause, k.Interval<<min(failures, 5))
			failures++
			k.failures.Add(1)
			k.Log.Warn("transparency", "error", cluster.Loggable(err), "pause", pause)
			_ = wait.For(ctx, pause)
			continue
		}
		failures = 0
		k.ask(ctx)
		_ = wait.For(ctx, k.Interval)
		// Nobody sees a tree before it is signed, and each growth costs a transaction. So what has come since the last
		// growth is gathered until now, and where something has, its growth is waited for.
		grown := false
		select {
		case <-k.grown:
			grown = true
		default:
		}
		if k.consumer.Hasten(0) || !grown {
			if !wait.Interrupted(k.Poll<<quiet, ctx.Done(), k.grown) && known == k.last.size && k.Witnesses == nil {
				quiet = min(quiet+1, mostQuiet)
			} else {
				quiet = 0 // the tree grows, here or in another process, or a witness may have to be asked again
			}
		}
	}
}

const (
	readTree = `SELECT size, root, epoch FROM transparency_tree WHERE id = 1`
	// flushTree puts a message into the log of the database, which no table keeps: with its commit all that was read
	// before is on the disk, and where there is a synchronous standby there too. It locks no row.
	flushTree = `SELECT pg_logical_emit_message(true, 'integrity', 'transparency')`
	readLast  = `SELECT size, root, note, signed_at FROM transparency_checkpoint WHERE id = 1`
	// A checkpoint never gives way to one of a smaller tree, and to one of the same tree only where it is the one that was
	// read.
	storeCheckpoint = `INSERT INTO transparency_checkpoint (id, size, root, note, signed_at) VALUES (1, $1, $2, $3, $4)
	ON CONFLICT (id) DO UPDATE SET size = excluded.size, root = excluded.root, note = excluded.note, signed_at = excluded.signed_at
	WHERE transparency_checkpoint.size < excluded.size
	OR transparency_checkpoint.size = excluded.size AND transparency_checkpoint.root = excluded.root AND transparency_checkpoint.note = $5`
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

// publish signs the tree where it has grown since the last checkpoint, or where the key of that was revoked. It signs
// no tree that is not on the disk, and none that does not go on where the last checkpoint ended. The error may be
// errLost.
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

// readGrown reads size and root of the tree, and the ledger's epoch; size 0: no tree has begun. The error may be
// ErrRestored, with size and epoch.
func readGrown(ctx context.Context, from rowQuerier) (c checkpoint, err error) {
	var written int64
	var root []byte
	if err := from.QueryRow(ctx, readEpoch).Scan(&c.epoch); err != nil {
		return c, fmt.Errorf("read the ledger's epoch: %w", err)
	}
	err = from.QueryRow(ctx, readTree).Scan(&c.size, &root, &written)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the tree: %w", err)
	}
	if written != c.epoch {
		return c, ErrRestored
	}
	c.root = hashOf(root)
	return c, nil
}

// sign stores the checkpoint of a tree, unless there is one of the same tree or a larger one. The tree must still be
// there, in the transaction that signs: since it was confirmed this process may have been frozen, and the database
// restored or replaced by a standby that lacks it.
func (k *Keeper) sign(ctx context.Context, signer *Signer, next checkpoint) error {
	next.signedAt = k.Now().UTC()
	if err := k.within(ctx, func(tx pgx.Tx) error {
		grown, err := readGrown(ctx, tx)
		if err == nil && (grown.epoch != next.epoch || grown.size < next.size) {
			err = fmt.Errorf(
				"the tree has %d leaves, and had %d when it was to be signed: the database was replaced", grown.size, next.size,
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
			return fmt.Errorf("store a checkpoint: %w", err)
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

// allowed refuses to sign in a transaction where this process must stand still, and where a standby was promoted since
// the witnesses were asked.
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

// confirmed is the tree as it will stay. The error is errLost where the database was replaced meanwhile by one whose
// tree has nothing to publish.
func (k *Keeper) confirmed(ctx context.Context, signer *Signer) (next checkpoint, err error) {
	err = k.within(ctx, func(tx pgx.Tx) error {
		if next, err = readGrown(ctx, tx); err != nil {
			return err
		}
		if !signer.due(k.last, next) {
			return errLost
		}
		if _, err := tx.Exec(ctx, flushTree); err != nil {
			return fmt.Errorf("confirm the tree: %w", err)
		}
		return nil
	})
	return next, err
}

// continues requires that the stored tiles give the tree that is to be signed, and that it contains the last checkpoint
// and the largest head that is known.
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
			return fmt.Errorf("nothing is signed: %w", err)
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
