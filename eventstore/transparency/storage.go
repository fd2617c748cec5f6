package transparency

import (
	"context"
	"errors"
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
	rows, err := from.Query(ctx, query, levels, ns)
	if err != nil {
		return nil, fmt.Errorf("read tiles: %w", err)
	}
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

// errOverwritten: a tile of the database does not begin with the hashes that it had.
var errOverwritten = errors.New("a stored tile differs from the tree that it belongs to")

// A tile only grows: the statement leaves one that does not alone.
const writeTiles = `INSERT INTO transparency_tiles (level, n, hashes) SELECT level, n, hashes FROM unnest($1::smallint[], $2::bigint[], $3::bytea[]) AS w(level, n, hashes)
	ON CONFLICT (level, n) DO UPDATE SET hashes = excluded.hashes
	WHERE substr(excluded.hashes, 1, length(transparency_tiles.hashes)) = transparency_tiles.hashes`

// A run that goes on where the last one ended makes that one longer.
const (
	extendRun = `UPDATE transparency_runs SET leaves = leaves + $4
		WHERE first_leaf = (SELECT max(first_leaf) FROM transparency_runs) AND first_leaf + leaves = $1 AND from_shard = $2 AND first_position + leaves = $3`
	beginRun = `INSERT INTO transparency_runs (first_leaf, from_shard, first_position, leaves) VALUES ($1, $2, $3, $4)`
)

// write stores tiles and runs in a transaction.
func write(ctx context.Context, tx pgx.Tx, changed map[tile][]byte, runs []run) error {
	tiles, hashes := make([]tile, 0, len(changed)), make([][]byte, 0, len(changed))
	for at, content := range changed {
		tiles, hashes = append(tiles, at), append(hashes, content)
	}
	levels, ns := names(tiles)
	tag, err := tx.Exec(ctx, writeTiles, levels, ns, hashes)
	if err != nil {
		return fmt.Errorf("write tiles: %w", err)
	}
	if tag.RowsAffected() != int64(len(tiles)) {
		return errOverwritten
	}
	for i, r := range runs {
		extended := false
		if i == 0 {
			tag, err := tx.Exec(ctx, extendRun, r.firstLeaf, r.shard, r.firstPosition, r.leaves)
			if err != nil {
				return fmt.Errorf("extend a run: %w", err)
			}
			extended = tag.RowsAffected() == 1
		}
		if extended {
			continue
		}
		if _, err := tx.Exec(ctx, beginRun, r.firstLeaf, r.shard, r.firstPosition, r.leaves); err != nil {
			return fmt.Errorf("write a run: %w", err)
		}
	}
	return nil
}
