package transparency

import (
	"context"
	"math/bits"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/history"
)

// Tiles have the format of C2SP tlog-tiles: height 8, so 256 hashes each.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileBytes  = tileWidth * tlog.HashSize
)

// tile identifies a tile. Each tile level spans eight levels of the tree.
type tile struct {
	level int
	n     int64
}

// width returns the number of hashes of a tile in a tree of a size, 0 if the tree lacks the tile.
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

// tree is the right edge of a Merkle tree (RFC 6962): the hashes of the last tile of each level, if that is not full.
// Appending and computing the root need no more.
type tree struct {
	size int64
	edge [][]byte // by level
}

// edgeOf returns the tiles of the right edge of a tree of a size.
func edgeOf(size int64) (tiles []tile) {
	for level := 0; size>>(level*tileHeight) > 0; level++ {
		hashes := size >> (level * tileHeight)
		if hashes%tileWidth != 0 {
			tiles = append(tiles, tile{level, hashes / tileWidth})
		}
	}
	return tiles
}

// newTree returns the tree of a size with the edge in read.
func newTree(size int64, read map[tile][]byte) (*tree, error) {
	t := &tree{size: size}
	for _, at := range edgeOf(size) {
		hashes := read[at]
		if len(hashes) != at.width(size)*tlog.HashSize {
			return nil, say.Errorf(
				"tile %d/%d has %d bytes, but must have %d hashes: it was damaged", at.level, at.n, len(hashes), at.width(size),
			)
		}
		for len(t.edge) <= at.level {
			t.edge = append(t.edge, nil)
		}
		t.edge[at.level] = hashes
	}
	return t, nil
}

// append returns the tree with further leaves, and the tiles that differ from t's. It does not change t.
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

// add appends the hash with index n to the edge of a level. A full tile is moved to changed, and its root is added to
// the level above.
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

// proofTiles returns the tiles that hold all hashes of the proof for a leaf in the tree of a size: the tiles above the
// leaf and the right edge.
func proofTiles(leaf, size int64) []tile {
	tiles := edgeOf(size)
	for level := 0; size>>(level*tileHeight) > 0; level++ {
		if at := (tile{level, leaf >> ((level + 1) * tileHeight)}); at.width(size) == tileWidth { // or it is in the edge
			tiles = append(tiles, at)
		}
	}
	return tiles
}

// subtrees holds the hashes of the complete subtrees within a tile, by level, beginning with the tile's own hashes. A
// full tile has 510, of 32 bytes each.
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

// locate returns the tile of the complete subtree n of a level, and the subtree's level and number in that tile.
func locate(level int, n int64) (at tile, within int, number int64) {
	at.level, within = level/tileHeight, level%tileHeight
	at.n = n >> (tileHeight - within)
	return at, within, n - at.n<<(tileHeight-within)
}

// knownTiles are tiles in memory. They implement tlog.HashReader.
type knownTiles map[tile]*subtrees

// ReadHashes returns stored hashes (tlog.StoredHashIndex). It returns an error if the tiles lack one.
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

// hash returns the hash of the complete subtree n of a level.
func (k knownTiles) hash(level int, n int64) (hash tlog.Hash, err error) {
	at, level, n := locate(level, n)
	return knownTile{at, k[at]}.hash(level, n)
}

// knownTile is one of knownTiles, with nil subtrees if it is missing.
type knownTile struct {
	at tile
	*subtrees
}

// hash returns the hash of the complete subtree n of a level, both counted within the tile.
func (k knownTile) hash(level int, n int64) (hash tlog.Hash, err error) {
	if k.subtrees == nil || int64(len(k.subtrees[level])) < (n+1)*tlog.HashSize {
		return hash, say.Errorf("tile %d/%d of the tree is missing, or lacks hashes", k.at.level, k.at.n)
	}
	return tlog.Hash(k.subtrees[level][n*tlog.HashSize:][:tlog.HashSize]), nil
}

// prover creates inclusion proofs in the tree of a size, like tlog.ProveRecord. A tree is a row of complete subtrees,
// each smaller than the one before it. The part to the right of a subtree is in the proof of each of its leaves, so it
// is hashed only once.
type prover struct {
	tiles knownTiles
	row   []perfect
}

// perfect is a complete subtree with 1<<level leaves, starting at first.
type perfect struct {
	first int64
	level int
	hash  tlog.Hash
	right tlog.Hash // of all subtrees after it
}

// newProver requires the tiles of the right edge. The tiles above a leaf may be added later, before its proof.
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

// prove returns the inclusion proof of a leaf.
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

// subtree returns the hash of the complete subtree with these leaves. Their number must be a power of two.
func subtree(hashes []byte) tlog.Hash {
	if len(hashes) == tlog.HashSize {
		return tlog.Hash(hashes)
	}
	half := len(hashes) / 2
	return tlog.NodeHash(subtree(hashes[:half]), subtree(hashes[half:]))
}

// root returns the root of the tree.
func (t *tree) root() (tlog.Hash, error) {
	known := knownTiles{}
	for _, at := range edgeOf(t.size) {
		known[at] = newSubtrees(t.edge[at.level])
	}
	return tlog.TreeHash(t.size, known)
}

// readTiles reads tiles from the database. Missing tiles are left out.
func readTiles(ctx context.Context, from history.Querier, tiles []tile) (map[tile][]byte, error) {
	if len(tiles) == 0 {
		return map[tile][]byte{}, nil
	}
	const query = `SELECT t.level, t.n, t.hashes FROM unnest($1::smallint[], $2::bigint[]) AS w(level, n)
		JOIN transparency_tiles t ON t.level = w.level AND t.n = w.n`
	levels, ns := names(tiles)
	rows, _ := from.Query(ctx, query, levels, ns) // rows carry its error
	found := make(map[tile][]byte, len(tiles))
	var level int16
	var n int64
	var hashes []byte
	if _, err := pgx.ForEachRow(rows, []any{&level, &n, &hashes}, func() error {
		found[tile{int(level), n}] = hashes
		return nil
	}); err != nil {
		return nil, say.Errorf("read tiles: %w", err)
	}
	return found, nil
}

func names(tiles []tile) (levels []int16, ns []int64) {
	for _, t := range tiles {
		levels, ns = append(levels, int16(t.level)), append(ns, t.n)
	}
	return levels, ns
}

// storedHashes reads the hashes of a tree from its stored tiles, with one statement per call.
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

// run is a sequence of leaves that are consecutive events of one shard.
type run struct {
	firstLeaf     int64
	shard         domain.Shard
	firstPosition int64
	leaves        int64
}
