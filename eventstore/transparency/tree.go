package transparency

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/eventstore/history"
)

// Tiles are those of C2SP tlog-tiles: height 8, so 256 hashes each.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileBytes  = tileWidth * tlog.HashSize
)

// tile names one: its level counts in steps of eight levels of the tree.
type tile struct {
	level int
	n     int64
}

// width is how many hashes a tile has in a tree of a size; 0 means that it is not there.
func (t tile) width(size int64) int {
	if t.level < 0 || t.level*tileHeight > 62 || t.n < 0 {
		return 0
	}
	hashes := size >> (t.level * tileHeight) // of complete subtrees
	if t.n >= (hashes+tileWidth-1)/tileWidth {
		return 0
	}
	return int(min(tileWidth, hashes-t.n*tileWidth))
}

// tree is a Merkle tree (RFC 6962) of which only the right edge is kept: the hashes of the last tile of each level,
// where it is not full. That is all that appending and the root need.
type tree struct {
	size int64
	edge [][]byte // by level
}

// edgeOf names the tiles that the right edge of a tree of a size consists of.
func edgeOf(size int64) (tiles []tile) {
	for level := 0; size>>(level*tileHeight) > 0; level++ {
		hashes := size >> (level * tileHeight)
		if hashes%tileWidth != 0 {
			tiles = append(tiles, tile{level, hashes / tileWidth})
		}
	}
	return tiles
}

// newTree takes up the tree of a size from its edge, which read answers.
func newTree(size int64, read map[tile][]byte) (*tree, error) {
	t := &tree{size: size}
	for _, at := range edgeOf(size) {
		hashes := read[at]
		if len(hashes) != at.width(size)*tlog.HashSize {
			return nil, fmt.Errorf(
				"tile %d/%d has %d bytes, and must have %d hashes: it was damaged", at.level, at.n, len(hashes), at.width(size),
			)
		}
		for len(t.edge) <= at.level {
			t.edge = append(t.edge, nil)
		}
		t.edge[at.level] = hashes
	}
	return t, nil
}

// append answers the tree with further leaves, and the tiles that differ from those of t, which stays as it is.
func (t *tree) append(leaves [][tlog.HashSize]byte) (*tree, map[tile][]byte) {
	next := &tree{size: t.size}
	for _, hashes := range t.edge {
		next.edge = append(next.edge, append(make([]byte, 0, tileBytes), hashes...))
	}
	changed := map[tile][]byte{}
	for i := range leaves {
		next.add(0, next.size, leaves[i], changed)
		next.size++
	}
	for _, at := range edgeOf(next.size) {
		if at.width(next.size) != at.width(t.size) {
			changed[at] = next.edge[at.level]
		}
	}
	return next, changed
}

// add puts the hash of index n into the edge of a level; a tile that is full goes to changed, and its root to the level
// above.
func (t *tree) add(level int, n int64, hash tlog.Hash, changed map[tile][]byte) {
	if len(t.edge) == level {
		t.edge = append(t.edge, make([]byte, 0, tileBytes))
	}
	t.edge[level] = append(t.edge[level], hash[:]...)
	if n%tileWidth != tileWidth-1 {
		return
	}
	full := t.edge[level]
	changed[tile{level, n / tileWidth}] = full
	t.edge[level] = make([]byte, 0, tileBytes)
	t.add(level+1, n/tileWidth, subtree(full), changed)
}

// proofTiles names the tiles that hold all hashes of the proof for a leaf in the tree of a size: those that the leaf is
// under, and the right edge.
func proofTiles(leaf, size int64) []tile {
	tiles := edgeOf(size)
	for level := 0; size>>(level*tileHeight) > 0; level++ {
		if at := (tile{level, leaf >> ((level + 1) * tileHeight)}); at.width(size) == tileWidth { // or else it is of the edge
			tiles = append(tiles, at)
		}
	}
	return tiles
}

// subtrees are the hashes of the complete subtrees within a tile, by level: those of the tile itself first. Of a full
// one they are 510, of 32 bytes each.
type subtrees [tileHeight][]byte

func newSubtrees(hashes []byte) *subtrees {
	s := &subtrees{hashes}
	for level := 1; level < tileHeight; level++ {
		below := s[level-1]
		s[level] = make([]byte, 0, len(below)/2)
		for len(below) >= 2*tlog.HashSize {
			hash := subtree(below[:2*tlog.HashSize])
			s[level], below = append(s[level], hash[:]...), below[2*tlog.HashSize:]
		}
	}
	return s
}

// locate finds the complete subtree n of a level: its tile, and level and number there.
func locate(level int, n int64) (at tile, within int, number int64) {
	at.level, within = level/tileHeight, level%tileHeight
	at.n = n >> (tileHeight - within)
	return at, within, n - at.n<<(tileHeight-within)
}

// knownTiles are tiles in memory, as a tlog.HashReader.
type knownTiles map[tile]*subtrees

// ReadHashes answers stored hashes (tlog.StoredHashIndex); one that the tiles do not have is an error.
func (k knownTiles) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		var err error
		if found[i], err = k.hash(tlog.SplitStoredHashIndex(index)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// hash answers that of the complete subtree n of a level.
func (k knownTiles) hash(level int, n int64) (hash tlog.Hash, err error) {
	at, level, n := locate(level, n)
	return knownTile{at, k[at]}.hash(level, n)
}

// knownTile is one of knownTiles; nil where it is missing.
type knownTile struct {
	at tile
	*subtrees
}

// hash answers that of the complete subtree n of a level, both counted in the tile.
func (k knownTile) hash(level int, n int64) (hash tlog.Hash, err error) {
	if k.subtrees == nil || int64(len(k.subtrees[level])) < (n+1)*tlog.HashSize {
		return hash, fmt.Errorf("tile %d/%d of the tree is missing, or lacks hashes", k.at.level, k.at.n)
	}
	return tlog.Hash(k.subtrees[level][n*tlog.HashSize:][:tlog.HashSize]), nil
}

// prover makes proofs of inclusion in the tree of a size, as tlog.ProveRecord does. A tree is a row of complete
// subtrees, each smaller than the one before it; what is right of one of them is in the proof of each of its leaves and
// is hashed once.
type prover struct {
	tiles knownTiles
	row   []perfect
}

// perfect is a subtree with 1<<level leaves, from first on.
type perfect struct {
	first int64
	level int
	hash  tlog.Hash
	right tlog.Hash // of all subtrees after it
}

// newProver needs the tiles of the right edge. Those that a leaf is under may come later, but before its proof.
func newProver(size int64, tiles knownTiles) (p *prover, err error) {
	p = &prover{tiles: tiles}
	for first := int64(0); first < size; {
		one := perfect{first: first, level: bits.Len64(uint64(size-first)) - 1}
		if one.hash, err = tiles.hash(one.level, first>>one.level); err != nil {
			return nil, err
		}
		p.row, first = append(p.row, one), first+1<<one.level
	}
	for i := len(p.row) - 2; i >= 0; i-- {
		next := &p.row[i+1]
		p.row[i].right = next.hash
		if i+2 < len(p.row) {
			p.row[i].right = tlog.NodeHash(next.hash, next.right)
		}
	}
	return p, nil
}

// prove answers the proof for a leaf of the tree.
func (p *prover) prove(leaf int64) (tlog.RecordProof, error) {
	i := len(p.row) - 1
	for p.row[i].first > leaf {
		i--
	}
	proof := make(tlog.RecordProof, 0, p.row[i].level+len(p.row))
	var in knownTile
	for level := range p.row[i].level {
		at, within, n := locate(level, leaf>>level^1)
		if level == 0 || at != in.at {
			in = knownTile{at, p.tiles[at]}
		}
		sibling, err := in.hash(within, n)
		if err != nil {
			return nil, err
		}
		proof = append(proof, sibling)
	}
	if i+1 < len(p.row) {
		proof = append(proof, p.row[i].right)
	}
	for _, left := range slices.Backward(p.row[:i]) {
		proof = append(proof, left.hash)
	}
	return proof, nil
}

// subtree is the hash of a complete subtree, of which hashes are the leaves; their number is a power of two.
func subtree(hashes []byte) tlog.Hash {
	if len(hashes) == tlog.HashSize {
		return tlog.Hash(hashes)
	}
	half := len(hashes) / 2
	return tlog.NodeHash(subtree(hashes[:half]), subtree(hashes[half:]))
}

// root is the tree's, which needs no more than the edge.
func (t *tree) root() (tlog.Hash, error) {
	known := knownTiles{}
	for _, at := range edgeOf(t.size) {
		known[at] = newSubtrees(t.edge[at.level])
	}
	return tlog.TreeHash(t.size, known)
}

// readTiles reads tiles; those that are not there are left out.
func readTiles(ctx context.Context, from history.Querier, tiles []tile) (map[tile][]byte, error) {
	if len(tiles) == 0 {
		return map[tile][]byte{}, nil
	}
	const query = `SELECT t.level, t.n, t.hashes FROM unnest($1::smallint[], $2::bigint[]) AS w(level, n)
		JOIN transparency_tiles t ON t.level = w.level AND t.n = w.n`
	levels, ns := names(tiles)
	rows, _ := from.Query(ctx, query, levels, ns) // the error comes with the rows
	found := make(map[tile][]byte, len(tiles))
	var level int16
	var n int64
	var hashes []byte
	if _, err := pgx.ForEachRow(rows, []any{&level, &n, &hashes}, func() error {
		found[tile{int(level), n}] = hashes
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read tiles: %w", err)
	}
	return found, nil
}

func names(tiles []tile) (levels []int16, ns []int64) {
	for _, t := range tiles {
		levels, ns = append(levels, int16(t.level)), append(ns, t.n)
	}
	return levels, ns
}

// storedHashes reads the hashes of a tree from its stored tiles, in one statement for each call.
func storedHashes(ctx context.Context, from history.Querier) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var wanted []tile
		for _, index := range indexes {
			if at, _, _ := locate(tlog.SplitStoredHashIndex(index)); !slices.Contains(wanted, at) {
				wanted = append(wanted, at)
			}
		}
		stored, err := readTiles(ctx, from, wanted)
		if err != nil {
			return nil, err
		}
		tiles := knownTiles{}
		for at, hashes := range stored {
			tiles[at] = newSubtrees(hashes)
		}
		return tiles.ReadHashes(indexes)
	})
}

// run is so many leaves that are events of one shard, one after the other.
type run struct {
	firstLeaf     int64
	shard         domain.Shard
	firstPosition int64
	leaves        int64
}
