package transparency

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// Inclusion proves that the event at a position of a shard, whose leaf (domain.Event.Leaf) the caller has read, is in
// the published tree. The proof is checked before it is answered. Concurrent questions share a round trip. The error
// may be ErrNotIntegrated.
func (r *Reader) Inclusion(ctx context.Context, shard domain.Shard, position int64, leaf []byte) (*evidence.Inclusion, error) {
	q := &leafQuestion{shard: shard, position: position}
	if err := r.questions.Ask(ctx, struct{}{}, q, r.look); err != nil {
		return nil, fmt.Errorf("look for a leaf: %w", err)
	}
	if q.err != nil {
		return nil, q.err
	}
	proof, err := tlog.ProveRecord(q.head.size, q.index, q.tiles)
	if err != nil {
		return nil, fmt.Errorf("prove inclusion: %w", err)
	}
	if err := tlog.CheckRecord(proof, q.head.size, q.head.root, q.index, domain.LeafHash(leaf)); err != nil {
		r.forget()
		return nil, fmt.Errorf("leaf %d is not the event at position %d of shard %d: the tree or the log was changed: %w", q.index, position, shard, err)
	}
	inclusion := &evidence.Inclusion{Leaf: string(leaf), LeafIndex: q.index, TreeSize: q.head.size, Hashes: make([]string, len(proof)), Checkpoint: q.head.note}
	for i, hash := range proof {
		inclusion.Hashes[i] = base64.StdEncoding.EncodeToString(hash[:])
	}
	return inclusion, nil
}

// leafQuestion asks which leaf an event is, and for what the proof of it needs.
type leafQuestion struct {
	shard    domain.Shard
	position int64

	index int64
	head  *checkpoint
	tiles knownTiles // all that the proof needs, and those of the rest of its batch
	err   error
}

// lookTimeout bounds a batch of questions, the wait for a connection included. One batch is under way: tables that are
// locked away cost one connection, however many ask, and delay no caller for longer once they are there again.
const lookTimeout = 2 * time.Second

// look answers a batch.
func (r *Reader) look(_ struct{}, batch []*leafQuestion) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.limit, lookTimeout))
	defer cancel()
	if err := r.find(ctx, batch); err != nil {
		for _, q := range batch {
			q.err = err
		}
	}
}

// findLeaves: the run that holds a position, if any does, is the last that begins before it. The tree's tables have no
// shards: on Citus they stand on one node.
const findLeaves = `SELECT n.place, r.first_leaf + n.position - r.first_position
	FROM unnest($1::int[], $2::int[], $3::bigint[]) AS n(place, from_shard, position)
	JOIN LATERAL (SELECT first_leaf, first_position, leaves FROM transparency_runs
		WHERE from_shard = n.from_shard AND first_position <= n.position ORDER BY first_position DESC LIMIT 1) r ON n.position < r.first_position + r.leaves`

const notFound = -1

func (r *Reader) find(ctx context.Context, batch []*leafQuestion) error {
	places, shards, positions := make([]int32, len(batch)), make([]int32, len(batch)), make([]int64, len(batch))
	for i, q := range batch {
		places[i], shards[i], positions[i], q.index = int32(i), int32(q.shard), q.position, notFound
	}
	var head checkpoint
	b := &pgx.Batch{}
	b.Queue(findLeaves, places, shards, positions).Query(func(rows pgx.Rows) error {
		var place int32
		var index int64
		_, err := pgx.ForEachRow(rows, []any{&place, &index}, func() error {
			batch[place].index = index
			return nil
		})
		return err
	})
	b.Queue(readHead).QueryRow(func(row pgx.Row) (err error) {
		head, err = scanHead(row)
		return err
	})
	if err := r.Pool.SendBatch(ctx, b).Close(); errors.Is(err, ErrNoCheckpoint) {
		return ErrNotIntegrated
	} else if err != nil {
		return fmt.Errorf("look for leaves: %w", err)
	}
	wanted := map[tile]bool{}
	for _, q := range batch {
		if q.index == notFound || q.index >= head.size {
			q.err = ErrNotIntegrated
			continue
		}
		q.head = &head
		for _, at := range proofTiles(q.index, head.size) {
			wanted[at] = true
		}
	}
	known, err := r.read(ctx, head.size, slices.Collect(maps.Keys(wanted)))
	if err != nil {
		return err
	}
	for _, q := range batch {
		q.tiles = known
	}
	return nil
}
