package judges

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/domain/evidence"
	integrity "integrityledger/handlers/client"
)

// tileReader reads the hashes of a tree from the service's tiles.
type tileReader struct {
	t      *testing.T
	client *integrity.Client
}

func (tileReader) Height() int { return integrity.LogTileHeight }

func (r tileReader) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, tile := range tiles {
		text, err := r.client.LogTile(r.t.Context(), tile)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

func (tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

// published is a tree with a published checkpoint.
type published struct {
	size int64
	root tlog.Hash
}

// TestLog: transparency-dev's library computes the published root itself, and accepts every inclusion and consistency
// proof, while the tree grows beyond the end of a tile.
func TestLog(t *testing.T) {
	t.Parallel()
	s := serve(t, "INTEGRITY_DATABASE_URL=") // on a separate PostgreSQL, so that the service creates the log key
	hasher := rfc6962.DefaultHasher
	var trees []published
	for _, n := range []int{1, 2, 60, 200} {
		var ids []string
		for i := range n {
			record, err := s.worker.Register(t.Context(), s.declaration(fmt.Sprintf("d-%d-%d", n, i)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, record.PublicID)
		}
		included := func(id string) (inclusion evidence.Inclusion) {
			integritytest.Eventually(t, id+" is in the log", func() error {
				text, err := s.worker.Evidence(t.Context(), id)
				if err != nil {
					return err
				}
				var export evidence.Envelope
				if err := json.Unmarshal(text, &export); err != nil {
					return err
				}
				if export.Inclusion == nil {
					return errors.New("evidence without inclusion")
				}
				inclusion = *export.Inclusion
				return nil
			})
			return inclusion
		}
		included(ids[n-1]) // then the tree contains the others too
		var last published
		for _, id := range ids[:min(n, 20)] {
			inclusion := included(id)
			lines := strings.Split(inclusion.Checkpoint, "\n")
			root, err := tlog.ParseHash(lines[2])
			if err != nil || lines[1] != fmt.Sprint(inclusion.TreeSize) {
				t.Fatalf("checkpoint %q: %v", inclusion.Checkpoint, err)
			}
			var hashes [][]byte
			for _, text := range inclusion.Hashes {
				hash, err := tlog.ParseHash(text)
				if err != nil {
					t.Fatal(err)
				}
				hashes = append(hashes, hash[:])
			}
			if err := proof.VerifyInclusion(hasher, uint64(inclusion.LeafIndex), uint64(inclusion.TreeSize),
				hasher.HashLeaf([]byte(inclusion.Leaf)), hashes, root[:]); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			last = published{inclusion.TreeSize, root}
		}
		trees = append(trees, last)
	}
	last := trees[len(trees)-1]
	if last.size < 256 {
		t.Fatalf("%d leaves", last.size)
	}
	reader := tileReader{t, s.worker}
	leaves := (&compact.RangeFactory{Hash: hasher.HashChildren}).NewEmptyRange(0)
	for _, tile := range tlog.NewTiles(integrity.LogTileHeight, 0, last.size) {
		if tile.L != 0 {
			continue
		}
		text, err := s.worker.LogTile(t.Context(), tile)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(text); at += tlog.HashSize {
			if err := leaves.Append(text[at:at+tlog.HashSize], nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if root, err := leaves.GetRootHash(nil); err != nil || string(root) != string(last.root[:]) {
		t.Errorf("of %d leaves the root is %x, not %s: %v", leaves.End(), root, last.root, err)
	}
	hashes := tlog.TileHashReader(tlog.Tree{N: last.size, Hash: last.root}, reader)
	for _, former := range trees {
		path, err := tlog.ProveTree(last.size, former.size, hashes)
		if err != nil {
			t.Fatal(err)
		}
		var list [][]byte
		for _, hash := range path {
			list = append(list, hash[:])
		}
		if err := proof.VerifyConsistency(hasher, uint64(former.size), uint64(last.size), list, former.root[:],
			last.root[:]); err != nil {
			t.Errorf("from %d to %d leaves: %v", former.size, last.size, err)
		}
	}
}
