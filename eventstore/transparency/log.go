package transparency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
)

// Config is what a Log is made of.
type Config struct {
	Pool *pgxpool.Pool // from cluster.QueuePool; what must be flushed says so
	// Signer answers the log's key as it is now. Nil: this process leaves the tree alone.
	Signer    func() *Signer
	Witnesses []*Witness
	Now       func() time.Time
	Log       *slog.Logger

	Interval time.Duration // least time between two checkpoints; 0 means 1 s
	Poll     time.Duration // between two looks at a log whose wake-up was lost; 0 means 1 s
	Lease    time.Duration // 0 means 15 s
	Batch    int           // most leaves of a transaction; 0 means 16,384
	Witness  time.Duration // that the witnesses have to cosign a checkpoint; 0 means 2 s
}

// Log puts events into the tree and signs checkpoints. Run does all of it.
type Log struct {
	Config
	lease   *eventstore.Lease
	renewed time.Time // when the lease was last taken; zero: it is not held
	wake    chan struct{}

	// What is known of the tree while the lease is held; tree is nil where it must be read again.
	tree       *tree
	positions  []int64
	generation int64
	last       checkpoint
}

// checkpoint is what was signed last; size 0: nothing.
type checkpoint struct {
	size int64
	root tlog.Hash
	note string
}

// leaseName is the consumer's whose lease, in shard 0, is the tree's.
const leaseName = "transparency"

// New makes a Log; Run starts it.
func New(c Config) (*Log, error) {
	if c.Pool == nil || c.Signer == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("a log needs Pool, Signer, Now and Log")
	}
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Lease == 0 {
		c.Lease = 15 * time.Second
	}
	if c.Batch == 0 {
		c.Batch = 16_384
	}
	if c.Witness == 0 {
		c.Witness = 2 * time.Second
	}
	lease, err := eventstore.NewLease(c.Pool, 0, leaseName, c.Lease)
	if err != nil {
		return nil, err
	}
	return &Log{Config: c, lease: lease, wake: make(chan struct{}, 1)}, nil
}

// Wake tells that there are new events. It never waits.
func (l *Log) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// mostPause is the longest pause after failures in a row.
const mostPause = 30 * time.Second

// Run works until ctx ends, and then gives the lease back.
func (l *Log) Run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		held, err := l.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause := min(mostPause, l.Interval<<min(failures, 5))
			failures++
			l.Log.Warn("transparency log", "error", cluster.Loggable(err), "pause", pause)
			rest(ctx, pause, nil)
		case !held:
			rest(ctx, l.Lease/3, nil) // another process has it, or there is no key
		default:
			failures = 0
			rest(ctx, l.Interval, nil)
			rest(ctx, l.Poll, l.wake)
		}
	}
	l.leave(ctx)
}

func rest(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-wake:
	case <-time.After(pause):
	}
}

// leave lets another process take the tree over.
func (l *Log) leave(ctx context.Context) {
	l.tree = nil
	if l.renewed.IsZero() {
		return
	}
	l.renewed = time.Time{}
	if err := l.lease.Give(ctx); err != nil {
		l.Log.Warn("the transparency log keeps its lease until it ends", "error", cluster.Loggable(err))
	}
}

// turn brings the tree up to the ledger, within the lease, and publishes it. held is
// false where that is not this process's to do.
func (l *Log) turn(ctx context.Context) (held bool, err error) {
	signer := l.Signer()
	if signer == nil {
		l.leave(ctx)
		return false, nil
	}
	if time.Since(l.renewed) >= l.Lease/3 {
		asked := time.Now()
		_, held, err := l.lease.Take(ctx)
		if err != nil || !held {
			l.tree, l.renewed = nil, time.Time{}
			return false, err
		}
		l.renewed = asked
	}
	leased, cancel := context.WithDeadline(ctx, l.renewed.Add(l.Lease*2/3))
	defer cancel()
	err = l.advance(leased, signer)
	if errors.Is(err, ErrBarred) {
		l.leave(ctx) // to a process that has another key
		return false, err
	}
	if err != nil {
		l.tree = nil // whatever was written, it is read again
		return true, err
	}
	return true, nil
}

func (l *Log) advance(ctx context.Context, signer *Signer) error {
	if l.tree == nil {
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	for {
		n, err := l.integrate(ctx)
		if err != nil {
			return err
		}
		if n == 0 || time.Since(l.renewed) >= l.Lease/3 {
			break
		}
	}
	if err := l.publish(ctx, signer); err != nil {
		return err
	}
	l.ask(ctx)
	return nil
}

// ErrRestored: the database was restored since the tree was last written.
var ErrRestored = errors.New("the database was restored from a backup since the last checkpoint, and may lack leaves that were published: " +
	"nothing is integrated or signed until integrity log resume")

// flushed makes a transaction of the queue's connections wait for the disk.
const flushed = "SET LOCAL synchronous_commit = on"

// within runs do in a transaction that is on the disk when it has ended without an error.
func (l *Log) within(ctx context.Context, do func(pgx.Tx) error) error {
	tx, err := l.Pool.Begin(ctx)
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

// Whoever takes the tree over writes, so that its commit covers all that it has read.
const (
	beginTree = `INSERT INTO transparency_tree (id, size, root, positions, epoch, generation) VALUES (1, 0, $1, '{}', $2, 0) ON CONFLICT (id) DO NOTHING`
	takeTree  = `UPDATE transparency_tree SET generation = generation + 1 WHERE id = 1 RETURNING size, root, positions, epoch, generation`
	readEpoch = `SELECT epoch FROM ledger WHERE id = 1`
	readLast  = `SELECT size, root, note FROM transparency_checkpoint WHERE id = 1`
)

// load takes the tree over from whoever had it before, this process included.
func (l *Log) load(ctx context.Context) error {
	var loaded *tree
	if err := l.within(ctx, func(tx pgx.Tx) error {
		epoch, err := begin(ctx, tx)
		if err != nil {
			return err
		}
		var size, known int64
		var stored []byte
		if err := tx.QueryRow(ctx, takeTree).Scan(&size, &stored, &l.positions, &known, &l.generation); err != nil {
			return fmt.Errorf("take the tree over: %w", err)
		}
		if known != epoch {
			return ErrRestored
		}
		edge, err := readTiles(ctx, tx, edgeOf(size))
		if err != nil {
			return err
		}
		if loaded, err = newTree(size, edge); err != nil {
			return err
		}
		if root, err := loaded.root(); err != nil || root != hashOf(stored) {
			return errors.Join(errors.New("the stored tiles and the stored root differ: the tree was damaged"), err)
		}
		if l.last, err = readCheckpoint(ctx, tx); err != nil {
			return err
		}
		if size < l.last.size {
			return fmt.Errorf("the tree has %d leaves, and a checkpoint of %d was signed: the tree was damaged", size, l.last.size)
		}
		return nil
	}); err != nil {
		return err
	}
	l.tree = loaded
	return nil
}

// begin makes the tree of a ledger that has none yet, and answers the ledger's epoch.
func begin(ctx context.Context, tx pgx.Tx) (epoch int64, err error) {
	if err := tx.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
		return 0, fmt.Errorf("read the ledger's epoch: %w", err)
	}
	empty, err := tlog.TreeHash(0, nil)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, beginTree, empty[:], epoch); err != nil {
		return 0, fmt.Errorf("begin the tree: %w", err)
	}
	return epoch, nil
}

func readCheckpoint(ctx context.Context, from interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (c checkpoint, err error) {
	var root []byte
	err = from.QueryRow(ctx, readLast).Scan(&c.size, &root, &c.note)
	if errors.Is(err, pgx.ErrNoRows) {
		return checkpoint{}, nil
	}
	if err != nil {
		return checkpoint{}, fmt.Errorf("read the last checkpoint: %w", err)
	}
	c.root = hashOf(root)
	return c, nil
}

// hashOf is the zero hash, which is nobody's, where the length is wrong.
func hashOf(b []byte) (h tlog.Hash) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}

// errLost: another process has taken the tree over.
var errLost = errors.New("another process has taken the tree over")

const (
	readHeads = `SELECT shard, position FROM shard_heads ORDER BY shard`
	moveTree  = `UPDATE transparency_tree SET size = $1, root = $2, positions = $3 WHERE id = 1 AND size = $4 AND generation = $5`
)

// integrate puts further events into the tree, at most a batch, shard by shard, and
// says how many. It is one transaction: all of them are in the tree, or none.
func (l *Log) integrate(ctx context.Context) (n int, err error) {
	positions, leaves, runs, err := l.news(ctx)
	if err != nil || len(leaves) == 0 {
		return 0, err
	}
	return len(leaves), l.grow(ctx, positions, leaves, runs)
}

// grow stores the tree with further leaves.
func (l *Log) grow(ctx context.Context, positions []int64, leaves [][32]byte, runs []run) error {
	next, changed := l.tree.append(leaves)
	root, err := next.root()
	if err != nil {
		return err
	}
	if err := l.within(ctx, func(tx pgx.Tx) error {
		// First, because its row is the lock of all the tables.
		tag, err := tx.Exec(ctx, moveTree, next.size, root[:], positions, l.tree.size, l.generation)
		if err != nil {
			return fmt.Errorf("move the tree: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return errLost
		}
		return write(ctx, tx, changed, runs)
	}); err != nil {
		return err
	}
	l.tree, l.positions = next, positions
	return nil
}

// news reads the hashes of events that are not in the tree.
func (l *Log) news(ctx context.Context) (positions []int64, leaves [][32]byte, runs []run, err error) {
	rows, err := l.Pool.Query(ctx, readHeads)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the heads: %w", err)
	}
	type head struct {
		Shard    int32
		Position int64
	}
	heads, err := pgx.CollectRows(rows, pgx.RowToStructByPos[head])
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the heads: %w", err)
	}
	positions = append(positions, l.positions...)
	for _, h := range heads {
		for len(positions) <= int(h.Shard) {
			positions = append(positions, 0)
		}
		after, room := positions[h.Shard], l.Batch-len(leaves)
		if h.Position < after {
			return nil, nil, nil, fmt.Errorf("the tree holds shard %d up to position %d, but its log ends at %d: the log lost events", h.Shard, after, h.Position)
		}
		if h.Position == after || room == 0 {
			continue
		}
		hashes, err := history.Hashes(ctx, l.Pool, domain.Shard(h.Shard), after, room)
		if err != nil {
			return nil, nil, nil, err
		}
		if len(hashes) == 0 {
			continue
		}
		runs = append(runs, run{l.tree.size + int64(len(leaves)), domain.Shard(h.Shard), after + 1, int64(len(hashes))})
		leaves = append(leaves, hashes...)
		positions[h.Shard] += int64(len(hashes))
	}
	return positions, leaves, runs, nil
}

// The tree that is signed is the committed one, and still this process's. A checkpoint
// never gives way to one of a smaller tree.
const (
	keepTree        = `SELECT FROM transparency_tree WHERE id = 1 AND size = $1 AND root = $2 AND generation = $3 FOR UPDATE`
	storeCheckpoint = `INSERT INTO transparency_checkpoint (id, size, root, note, signed_at) VALUES (1, $1, $2, $3, $4)
	ON CONFLICT (id) DO UPDATE SET size = excluded.size, root = excluded.root, note = excluded.note, signed_at = excluded.signed_at
	WHERE transparency_checkpoint.size < excluded.size`
)

// publish signs the tree, which is committed, where it has grown since the last
// checkpoint. It signs no tree that does not go on where that one ended.
func (l *Log) publish(ctx context.Context, signer *Signer) error {
	if l.tree.size <= l.last.size {
		return nil
	}
	if l.last.size > 0 {
		before, err := tlog.TreeHash(l.last.size, storedHashes(ctx, l.Pool))
		if err != nil {
			return err
		}
		if before != l.last.root {
			return fmt.Errorf("the tree does not contain the checkpoint of size %d that was published: it was damaged, and is not signed", l.last.size)
		}
	}
	next := checkpoint{size: l.tree.size}
	var err error
	if next.root, err = l.tree.root(); err != nil {
		return err
	}
	if err := l.within(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, keepTree, l.tree.size, next.root[:], l.generation)
		if err != nil {
			return fmt.Errorf("keep the tree: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return errLost
		}
		if err := maySign(ctx, tx, signer.LogKey); err != nil {
			return err
		}
		if next.note, err = signer.sign(next.size, next.root); err != nil {
			return err
		}
		tag, err = tx.Exec(ctx, storeCheckpoint, next.size, next.root[:], next.note, l.Now().UTC())
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
	l.last = next
	return nil
}
