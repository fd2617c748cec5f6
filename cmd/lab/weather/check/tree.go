package check

import (
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// tree is the final transparency log, rebuilt from its leaves.
type tree struct {
	leaves int64
	hashes []tlog.Hash // in tlog's storage order
}

// ReadHashes implements tlog.HashReader.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index < 0 || index >= int64(len(t.hashes)) {
			return nil, fmt.Errorf("hash %d is beyond the tree", index)
		}
		list[i] = t.hashes[index]
	}
	return list, nil
}

// root returns the root of the first leaves.
func (t *tree) root(size int64) (tlog.Hash, error) {
	if size > t.leaves {
		return tlog.Hash{}, fmt.Errorf("it is signed, but the tree has %d leaves: it was taken back", t.leaves)
	}
	return tlog.TreeHash(size, t)
}

// tree reads the leaves, and finds the event of each.
func (c *checker) tree() (*tree, error) {
	if c.End.Leaves == nil {
		return nil, errors.New("the end state must name the file of leaves")
	}
	text, err := c.read(c.End.Leaves.File)
	if err != nil {
		return nil, err
	}
	if len(text)%tlog.HashSize != 0 {
		return nil, fmt.Errorf("%s must hold whole hashes of %d bytes", c.End.Leaves.File, tlog.HashSize)
	}
	t := &tree{}
	events := make(map[string]*event, len(c.events))
	for _, e := range c.events {
		events[e.Hash] = e
	}
	for ; len(text) > 0; text = text[tlog.HashSize:] {
		leaf := tlog.Hash(text[:tlog.HashSize])
		stored, err := tlog.StoredHashesForRecordHash(t.leaves, leaf, t)
		if err != nil {
			return nil, err
		}
		name := hex.EncodeToString(leaf[:])
		if events[name] == nil {
			c.violate(Leaf, fmt.Sprintf("leaf %d", t.leaves), nil, "%s is of no event, or stands twice", name)
		}
		delete(events, name)
		t.hashes = append(t.hashes, stored...)
		t.leaves++
	}
	for _, hash := range sortedKeys(events) {
		c.violate(Leaf, events[hash].ID, nil, "%s is not in the tree", events[hash])
	}
	c.add("leaves", t.leaves)
	return t, nil
}
