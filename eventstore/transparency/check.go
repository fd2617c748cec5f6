package transparency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain"
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
}

// Check derives the tree from the hashes of the events, in the order that the runs record. It compares every stored
// tile, the root and the last checkpoint with it, all in one snapshot. The error names the first difference. Check
// trusts the stored hashes of the events, which an audit computes itself. progress, if not nil, is called with the
// number of leaves done.
func Check(ctx context.Context, pool *pgxpool.Pool, progress func(done, all int64)) (d Derived, err error) {
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
	if !begun {
		return d, nil
	}
	c := checker{tx: tx, tree: &tree{}, last: last, taken: make([]int64, len(positions))}
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
		if c.taken[shard] != position {
			return d, differs(
				"the tree claims to hold shard %d up to position %d, but its runs end at %d", shard, position, c.taken[shard],
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
	return Derived{size, last.size, root.String()}, nil
}

// checker holds the tree as derived so far.
type checker struct {
	tx    pgx.Tx
	tree  *tree
	last  checkpoint
	taken []int64 // by shard: the last position that is in the tree
}

// next returns the run that continues at the end of the tree.
func (c *checker) next(ctx context.Context, size int64) (r run, err error) {
	const query = `SELECT first_leaf, from_shard, first_position, leaves FROM transparency_runs WHERE first_leaf >= $1 ORDER BY first_leaf LIMIT 1`
	var shard int32
	err = c.tx.QueryRow(ctx, query, c.tree.size).Scan(&r.firstLeaf, &shard, &r.firstPosition, &r.leaves)
	r.shard = domain.Shard(shard)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && r.firstLeaf != c.tree.size:
		return r, differs("no run contains leaf %d", c.tree.size)
	case err != nil:
		return r, say.Errorf("read the runs: %w", err)
	case r.leaves < 1 || r.firstLeaf+r.leaves > size || int(shard) >= len(c.taken) || c.taken[shard]+1 != r.firstPosition:
		return r, differs(
			"the run at leaf %d does not continue where shard %d ended, or exceeds the tree", r.firstLeaf, shard,
		)
	}
	return r, nil
}

// derive adds the leaves of a run and compares the tiles that they fill.
func (c *checker) derive(ctx context.Context, r run) error {
	for done := int64(0); done < r.leaves; {
		after := r.firstPosition + done - 1
		limit := min(checkBatch, r.leaves-done)
		if c.last.size > c.tree.size { // stop at the checkpoint to compare its root
			limit = min(limit, c.last.size-c.tree.size)
		}
		hashes, err := history.Hashes(ctx, c.tx, r.shard, after, int(limit))
		if errors.Is(err, history.ErrDamaged) {
			return differs("%v", err)
		}
		if err != nil {
			return err
		}
		if int64(len(hashes)) != limit {
			return differs(
				"the tree holds events of shard %d after position %d that the log lacks", r.shard,
				after+int64(len(hashes)),
			)
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
	c.taken[r.shard] = r.firstPosition + r.leaves - 1
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
