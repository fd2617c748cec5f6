package transparency

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/eventstore/history"
)

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
			if at, _, _ := locate(index); !slices.Contains(wanted, at) {
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
