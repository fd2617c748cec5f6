package transparency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/audit"
	"integrityledger/domain/say"
	"integrityledger/eventstore/history"
)

// checkBatch is the number of leaves derived at a time.
const checkBatch = 16_384

// ErrDiffers means that the stored tree differs from the tree derived from the events. The wrapping error names the
// place.
var ErrDiffers = say.New("the transparency tree does not follow from the events")

func differs(format string, args ...any) error {
	return say.Errorf("%w: %s", ErrDiffers, say.Sentencef(format, args...))
}

// Derived is the result of a successful Check.
type Derived struct {
	Leaves    int64 // of the tree
	Published int64 // of the checkpoint
	Root      string
	// Prefix is the largest beginning of the tree that contains only events of Extent.Logs.
	Prefix Prefix
}

// Prefix is the beginning of a tree: its first leaves, and the events that they are.
type Prefix struct {
	Size   int64
	Root   tlog.Hash   // zero if Size is 0
	Shards []audit.Log // by shard; shards without a leaf may be missing
}

// Extent is the part of the tree that is derived. The zero Extent is the whole tree.
type Extent struct {
	// After is a prefix that was derived before: the leaves after it are derived, and it must still be a prefix. The rest
	// of the tiles in it are not compared.
	After Prefix
	// Logs are the events that an audit has read, by shard: the tree must be of them, and of later events.
	Logs []audit.Log
}

// Check derives the whole tree. See Extent.Check.
func Check(ctx context.Context, pool *pgxpool.Pool, progress func(done, all int64)) (Derived, error) {
	return Extent{}.Check(ctx, pool, progress)
}

// Check derives the tree from the hashes of the events, in the order that the runs record. It compares every stored
// tile, the root and the last checkpoint with it, all in one snapshot. The error names the first difference. Check
// trusts the stored hashes of the events, which an audit computes itself: with Logs it compares them with those that
// the audit has read. progress, if not nil, is called with the number of leaves done.
func (x Extent) Check(
	ctx context.Context, pool *pgxpool.Pool, progress func(done, all int64),
) (d Derived, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return d, say.Errorf("check the tree: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	var size int64
	var positions []int64
	var stored []byte
	err = tx.QueryRow(
		ctx, `SELECT size, root, positions FROM transparency_tree WHERE id = 1`,
	).Scan(&size, &stored, &positions)
	begun := !errors.Is(err, pgx.ErrNoRows)
	if begun && err != nil {
		return d, say.Errorf("check the tree: %w", err)
	}
	last, err := readCheckpoint(ctx, tx)
	if err != nil {
		return d, err
	}
	if last.size > size {
		return d, differs("the last checkpoint covers %d leaves, the tree has %d", last.size, size)
	}
	if _, head, _ := strings.Cut(last.note, "\n"); last.size > 0 &&
		!strings.HasPrefix(head, fmt.Sprintf("%d\n%s\n\n", last.size, last.root)) {
		return d, differs("the text of the last checkpoint does not name its %d leaves and their root", last.size)
	}
	if size < x.After.Size {
		return d, differs(
			"the tree has %d leaves, but had %d at the mark: the database was restored to an earlier state", size,
			x.After.Size,
		)
	}
	shards := len(positions)
	for _, log := range x.Logs {
		shards = max(shards, int(log.Shard)+1)
	}
	c := checker{tx: tx, last: last, taken: make([]audit.Log, shards), logs: x.Logs}
	if !begun {
		return d, c.rest(ctx)
	}
	if err := c.begin(ctx, x.After); err != nil {
		return d, err
	}
	for c.tree.size < size {
		r, err := c.next(ctx, size)
		if err != nil {
			return d, err
		}
		if err := c.derive(ctx, r); err != nil {
			return d, err
		}
		if progress != nil {
			progress(c.tree.size, size)
		}
	}
	for shard, position := range positions {
		if c.taken[shard].Position != position {
			return d, differs(
				"the tree claims to hold shard %d up to position %d, but its runs end at %d", shard, position,
				c.taken[shard].Position,
			)
		}
	}
	edge, err := readTiles(ctx, tx, edgeOf(size))
	if err != nil {
		return d, err
	}
	for _, at := range edgeOf(size) {
		if !bytes.Equal(edge[at], c.tree.edge[at.level]) {
			return d, differs("tile %d/%d differs from the events", at.level, at.n)
		}
	}
	root, err := c.tree.root()
	if err != nil {
		return d, err
	}
	if root != hashOf(stored) {
		return d, differs("the stored root differs from the root of the events")
	}
	if err := c.endPrefix(); err != nil {
		return d, err
	}
	return Derived{size, last.size, root.String(), c.prefix}, c.rest(ctx)
}

// checker holds the tree as derived so far.
type checker struct {
	tx    pgx.Tx
	tree  *tree
	last  checkpoint
	taken []audit.Log // by shard: the events that are in the tree
	logs  []audit.Log // of Extent

	resumed bool // the next run may have begun before
	ended   bool // prefix is complete
	prefix  Prefix
}

// begin begins with a prefix of the tree, whose root must follow from the stored tiles.
func (c *checker) begin(ctx context.Context, after Prefix) error {
	if c.tree = (&tree{}); after.Size == 0 {
		return nil
	}
	c.resumed = true
	tiles, err := readTiles(ctx, c.tx, edgeOf(after.Size))
	if err != nil {
		return err
	}
	for at, hashes := range tiles {
		tiles[at] = hashes[:min(len(hashes), at.width(after.Size)*tlog.HashSize)]
	}
	if c.tree, err = newTree(after.Size, tiles); err != nil {
		return differs("%v", err)
	}
	root, err := c.tree.root()
	if err != nil {
		return err
	}
	if root != after.Root {
		return differs(
			"the first %d leaves had the root %s at the mark, but have %s: the log was rewritten", after.Size, after.Root, root,
		)
	}
	for _, log := range after.Shards {
		if int(log.Shard) >= len(c.taken) {
			return differs("the mark has a shard %d, which the tree lacks", log.Shard)
		}
		c.taken[log.Shard] = log
	}
	if c.last.size > 0 && c.last.size <= after.Size {
		if err := holds(ctx, c.tx, c.last); errors.Is(err, errLacks) {
			return differs("the checkpoint of %d leaves differs from the tree of the events", c.last.size)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// endPrefix completes the prefix with the tree as derived so far.
func (c *checker) endPrefix() (err error) {
	if c.ended {
		return nil
	}
	c.ended, c.prefix = true, Prefix{Size: c.tree.size}
	for shard, log := range c.taken {
		if log.Position > 0 {
			log.Shard = domain.Shard(shard)
			c.prefix.Shards = append(c.prefix.Shards, log)
		}
	}
	if c.tree.size > 0 {
		c.prefix.Root, err = c.tree.root()
	}
	return err
}

// rest compares the hashes of the events that the tree does not contain yet with those that the audit has read.
func (c *checker) rest(ctx context.Context) error {
	for _, log := range c.logs {
		for taken := &c.taken[log.Shard]; taken.Position < log.Position; {
			limit := min(checkBatch, log.Position-taken.Position)
			if _, err := c.hashes(ctx, log.Shard, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// log returns what the audit has read of a shard.
func (c *checker) log(shard domain.Shard) (log audit.Log, read bool) {
	i := slices.IndexFunc(c.logs, func(l audit.Log) bool { return l.Shard == shard })
	if i < 0 {
		return log, false
	}
	return c.logs[i], true
}

// hashes reads the hashes of the next events of a shard, of which there must be limit, and counts them as taken.
func (c *checker) hashes(ctx context.Context, shard domain.Shard, limit int64) ([][32]byte, error) {
	taken := &c.taken[shard]
	hashes, err := history.Hashes(ctx, c.tx, shard, taken.Position, int(limit))
	if errors.Is(err, history.ErrDamaged) {
		return nil, differs("%v", err)
	}
	if err != nil {
		return nil, err
	}
	taken.Position += int64(len(hashes))
	if int64(len(hashes)) != limit {
		return nil, differs(
			"the tree or the audit has events of shard %d after position %d that the log lacks", shard, taken.Position,
		)
	}
	for _, hash := range hashes {
		taken.Head = audit.Head(taken.Head, hash)
	}
	if log, read := c.log(shard); read && taken.Position == log.Position && taken.Head != log.Head {
		return nil, differs(
			"the hashes of the events of shard %d up to position %d differ from those that the audit has read", shard,
			log.Position,
		)
	}
	return hashes, nil
}

// next returns the run that continues at the end of the tree.
func (c *checker) next(ctx context.Context, size int64) (r run, err error) {
	const columns = `SELECT first_leaf, from_shard, first_position, leaves FROM transparency_runs `
	query := columns + `WHERE first_leaf >= $1 ORDER BY first_leaf LIMIT 1`
	if c.resumed {
		query = columns + `WHERE first_leaf <= $1 ORDER BY first_leaf DESC LIMIT 1`
	}
	var shard int32
	err = c.tx.QueryRow(ctx, query, c.tree.size).Scan(&r.firstLeaf, &shard, &r.firstPosition, &r.leaves)
	r.shard = domain.Shard(shard)
	if c.resumed { // the run may contain the first leaf after the prefix
		done := c.tree.size - r.firstLeaf
		r.firstLeaf, r.firstPosition, r.leaves = r.firstLeaf+done, r.firstPosition+done, r.leaves-done
		c.resumed = false
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && r.firstLeaf != c.tree.size:
		return r, differs("no run contains leaf %d", c.tree.size)
	case err != nil:
		return r, say.Errorf("read the runs: %w", err)
	case r.leaves < 1 || r.firstLeaf+r.leaves > size || int(shard) >= len(c.taken) ||
		c.taken[shard].Position+1 != r.firstPosition:
		return r, differs(
			"the run at leaf %d does not continue where shard %d ended, or exceeds the tree", r.firstLeaf, shard,
		)
	}
	return r, nil
}

// derive adds the leaves of a run and compares the tiles that they fill.
func (c *checker) derive(ctx context.Context, r run) error {
	log, read := c.log(r.shard)
	for done := int64(0); done < r.leaves; {
		limit := min(checkBatch, r.leaves-done)
		if c.last.size > c.tree.size { // stop at the checkpoint to compare its root
			limit = min(limit, c.last.size-c.tree.size)
		}
		if taken := c.taken[r.shard].Position; read && taken < log.Position { // stop at the last event that was read
			limit = min(limit, log.Position-taken)
		} else if err := c.endPrefix(); err != nil {
			return err
		}
		hashes, err := c.hashes(ctx, r.shard, limit)
		if err != nil {
			return err
		}
		next, changed := c.tree.append(hashes)
		if err := c.compare(ctx, next.size, changed); err != nil {
			return err
		}
		c.tree = next
		done += limit
		if c.tree.size == c.last.size {
			if root, err := c.tree.root(); err != nil || root != c.last.root {
				return errors.Join(
					differs("the checkpoint of %d leaves differs from the tree of the events", c.last.size), err,
				)
			}
		}
	}
	return nil
}

// compare compares the full tiles with the stored ones. Others are compared once they are full, or at the end.
func (c *checker) compare(ctx context.Context, size int64, changed map[tile][]byte) error {
	var full []tile
	for at := range changed {
		if at.width(size) == tileWidth {
			full = append(full, at)
		}
	}
	stored, err := readTiles(ctx, c.tx, full)
	if err != nil {
		return err
	}
	for _, at := range full {
		if !bytes.Equal(stored[at], changed[at]) {
			return differs("tile %d/%d differs from the events", at.level, at.n)
		}
	}
	return nil
}
