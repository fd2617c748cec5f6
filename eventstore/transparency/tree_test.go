package transparency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

func leaf(i int64) [32]byte {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
}

func leaves(from, to int64) (list [][32]byte) {
	for i := from; i < to; i++ {
		list = append(list, leaf(i))
	}
	return list
}

// TestTreeOfOthers: after every step the root and the tiles match the go command's log code, whatever the
// steps.
func TestTreeOfOthers(t *testing.T) {
	for _, steps := range [][]int64{
		{1, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610},
		{255, 1, 1, 254, 1, 1, 255, 256, 257, 511, 512, 513},
		{256, 256*255 - 1, 1, 1, 3*256 - 1},
	} {
		var stored []tlog.Hash // every hash of the go command's storage
		reader := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
			for _, i := range indexes {
				list = append(list, stored[i])
			}
			return list, nil
		})
		mine, tiles := &tree{}, map[tile][]byte{}
		for _, step := range steps {
			before := *mine
			next, changed := mine.append(leaves(mine.size, mine.size+step))
			if mine.size != before.size {
				t.Fatal("appending changed the former tree")
			}
			for at, hashes := range changed {
				if !bytes.HasPrefix(hashes, tiles[at]) || len(hashes) == len(tiles[at]) {
					t.Errorf("tile %v did not grow", at)
				}
				tiles[at] = hashes
			}
			for i := mine.size; i < next.size; i++ {
				hash := leaf(i)
				more, err := tlog.StoredHashesForRecordHash(i, hash, reader)
				if err != nil {
					t.Fatal(err)
				}
				stored = append(stored, more...)
			}
			for _, their := range tlog.NewTiles(tileHeight, mine.size, next.size) {
				want, err := tlog.ReadTileData(their, reader)
				if err != nil {
					t.Fatal(err)
				}
				if at := (tile{their.L, their.N}); !bytes.Equal(tiles[at], want) || at.width(next.size) != their.W {
					t.Errorf("size %d: tile %v has %d bytes, must have %d hashes", next.size, at, len(tiles[at]), their.W)
				}
			}
			want, err := tlog.TreeHash(next.size, reader)
			if err != nil {
				t.Fatal(err)
			}
			if root, err := next.root(); err != nil || root != want {
				t.Fatalf("size %d: root %v, %v", next.size, root, err)
			}
			again, err := newTree(next.size, tiles)
			if err != nil {
				t.Fatal(err)
			}
			if root, err := again.root(); err != nil || root != want {
				t.Fatalf("size %d, taken up from its tiles: root %v, %v", next.size, root, err)
			}
			mine = next
			for _, of := range []int64{
				0, 1, 2, 254, 255, 256, 257, 511, 65535, 65536, mine.size / 2, mine.size - 2, mine.size - 1,
			} {
				if of < 0 || of >= mine.size {
					continue
				}
				known := knownTiles{} // only the tiles that a reader requests
				for _, at := range proofTiles(of, mine.size) {
					known[at] = newSubtrees(tiles[at][:at.width(mine.size)*tlog.HashSize])
				}
				prover, err := newProver(mine.size, known)
				if err != nil {
					t.Fatal(err)
				}
				proof, err := prover.prove(of)
				want, _ := tlog.ProveRecord(mine.size, of, reader)
				if err != nil || !slices.Equal(proof, want) {
					t.Errorf("size %d: the proof of leaf %d is %v, %v, not %v", mine.size, of, proof, err, want)
				}
			}
		}
		if (tile{0, mine.size / tileWidth}).width(mine.size) != int(mine.size%tileWidth) ||
			(tile{0, mine.size/tileWidth + 1}).width(mine.size) != 0 || (tile{9, 0}).width(mine.size) != 0 {
			t.Error("widths beyond the tree")
		}
	}
}
