package transparency

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
)

// Expected errors of a Reader.
var (
	ErrNoCheckpoint  = say.New("no checkpoint has been signed yet")
	ErrNotIntegrated = say.New("the event is not in a published tree yet")
	ErrNoTile        = say.New("the published tree has no such tile")
)

// Reader serves the published part of the log. It shows only leaves that a checkpoint covers, because only they never
// change. It is safe for concurrent use.
type Reader struct {
	Pool *pgxpool.Pool // separate, so that waiting for the tree's tables delays no other reader

	// Fresh is how long the last published tree read may be used for proofs. An older tree still proves every leaf it
	// contains. 0 means that every proof uses the newest tree.
	Fresh time.Duration

	// Limit bounds one read of the tables; 0 means two seconds.
	Limit time.Duration

	// Trusted returns the keys whose revocations Stamped considers. Nil means none.
	Trusted func() *evidence.TrustedKeys

	questions eventstore.Batcher[struct{}, *leafQuestion] // one place for all shards, because there is one tree
	stamps    eventstore.Batcher[struct{}, *stampQuestion]
	watching  watchers

	mu    sync.Mutex
	size  int64 // of the last published tree seen
	tree  int   // number of the current tree, so that tiles of a replaced tree are not remembered
	tiles knownTiles
	runs  []run // within that tree, by shard and first position; the newest may have grown since
	last  lastTree
}

// lastTree is a published tree with the right edge of its proofs.
type lastTree struct {
	head *checkpoint
	row  []perfect
	at   time.Time // taken before it was read
}

// maxKnown is the number of tiles remembered, of up to 16 KiB each: 16 MiB. maxRuns is the number of runs, of 32
// bytes.
const (
	maxKnown = 1024
	maxRuns  = 1 << 14
)

// readHead reads the checkpoint with the cosignatures of its size.
const readHead = `SELECT c.size, c.root, c.note || coalesce((SELECT string_agg(w.signature, '' ORDER BY w.witness) FROM transparency_cosignatures w WHERE w.size = c.size), '')
	FROM transparency_checkpoint c WHERE c.id = 1`

func scanHead(row pgx.Row) (c checkpoint, err error) {
	var root []byte
	err = row.Scan(&c.size, &root, &c.note)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, ErrNoCheckpoint
	}
	c.root = hashOf(root)
	return c, err
}

// Checkpoint returns the newest checkpoint: a signed note (C2SP tlog-checkpoint) with the log's signature followed by
// the witnesses' cosignatures. The error may be ErrNoCheckpoint.
func (r *Reader) Checkpoint(ctx context.Context) (string, error) {
	head, err := scanHead(r.Pool.QueryRow(ctx, readHead))
	if err != nil {
		return "", say.Errorf("read the checkpoint: %w", err)
	}
	return head.note, nil
}

// Tile returns a hash tile by its path below tile/ in C2SP tlog-tiles: <level>/<n> or <level>/<n>.p/<width>. It returns
// ErrNoTile for any other path and for a tile that the published tree lacks.
func (r *Reader) Tile(ctx context.Context, path string) ([]byte, error) {
	wanted, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", tileHeight, path))
	if err != nil || wanted.L < 0 {
		return nil, ErrNoTile
	}
	head, err := scanHead(r.Pool.QueryRow(ctx, readHead))
	if errors.Is(err, ErrNoCheckpoint) {
		return nil, ErrNoTile
	}
	if err != nil {
		return nil, say.Errorf("read the checkpoint: %w", err)
	}
	at := tile{wanted.L, wanted.N}
	if wanted.W > at.width(head.size) {
		return nil, ErrNoTile
	}
	r.published(head.size)
	found, err := r.read(ctx, head.size, []tile{at})
	if err != nil {
		return nil, err
	}
	if found[at] == nil {
		return nil, say.New("a tile of the published tree is missing")
	}
	return found[at][0][:wanted.W*tlog.HashSize], nil
}

// read returns the hashes that the published tree of a size has in tiles, from memory or the database. It leaves out
// tiles with fewer hashes. These hashes never change unless the published tree becomes smaller, as after a restore.
// Further hashes in a tile may change, and are not returned.
func (r *Reader) read(ctx context.Context, size int64, tiles []tile) (knownTiles, error) {
	found := make(knownTiles, len(tiles))
	var missing []tile
	r.mu.Lock()
	tree := r.tree
	for _, at := range tiles {
		if known := r.tiles[at]; known != nil && len(known[0]) >= at.width(size)*tlog.HashSize {
			found[at] = known
		} else {
			missing = append(missing, at)
		}
	}
	r.mu.Unlock()
	if len(missing) == 0 {
		return found, nil
	}
	stored, err := readTiles(ctx, r.Pool, missing)
	if err != nil {
		return nil, err
	}
	fresh := make(knownTiles, len(stored))
	for at, hashes := range stored {
		if lasting := at.width(size) * tlog.HashSize; len(hashes) >= lasting {
			fresh[at] = newSubtrees(hashes[:lasting])
		}
	}
	maps.Copy(found, fresh)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tree != tree {
		return found, nil
	}
	if r.tiles == nil || len(r.tiles)+len(fresh) > maxKnown {
		r.tiles = knownTiles{}
	}
	maps.Copy(r.tiles, fresh)
	return found, nil
}

func (r *Reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.another()
}

// another forgets everything about the previous tree. The caller must hold the lock.
func (r *Reader) another() {
	r.tree++
	r.tiles, r.runs, r.last = nil, nil, lastTree{}
}

// published records the size of the published tree and returns the number of that tree. If it became smaller, it is
// another tree, and everything remembered is dropped.
func (r *Reader) published(size int64) (tree int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size < r.size {
		r.another()
	}
	r.size = size
	return r.tree
}

// atOnce answers a question from memory if the last tree read is fresh enough and the rest is known.
func (r *Reader) atOnce(q *leafQuestion) bool {
	if r.Fresh == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.head == nil || time.Since(r.last.at) > r.Fresh {
		return false
	}
	var known bool
	if q.index, known = r.recall(q.shard, q.position); !known || q.index >= r.last.head.size {
		return false
	}
	q.head, q.prover = r.last.head, &prover{tiles: knownTiles{}, row: r.last.row}
	for _, at := range proofTiles(q.index, q.head.size) {
		tile := r.tiles[at]
		if tile == nil || len(tile[0]) < at.width(q.head.size)*tlog.HashSize {
			return false
		}
		q.prover.tiles[at] = tile
	}
	return true
}

// recall finds the leaf of a position among the known runs. The caller must hold the lock.
func (r *Reader) recall(shard domain.Shard, position int64) (index int64, known bool) {
	i, begins := slices.BinarySearchFunc(r.runs, run{shard: shard, firstPosition: position}, run.compare)
	if !begins {
		i--
	}
	if i < 0 || r.runs[i].shard != shard || position >= r.runs[i].firstPosition+r.runs[i].leaves {
		return notFound, false
	}
	return r.runs[i].firstLeaf + position - r.runs[i].firstPosition, true
}

// remember adds runs, cut to the tree of a size.
func (r *Reader) remember(found []run, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size != r.size {
		return // the tree has changed meanwhile
	}
	for _, one := range found {
		if one.leaves = min(one.leaves, size-one.firstLeaf); one.leaves <= 0 {
			continue
		}
		if len(r.runs) == maxRuns {
			r.runs = nil
		}
		i, begins := slices.BinarySearchFunc(r.runs, one, run.compare)
		if !begins {
			r.runs = slices.Insert(r.runs, i, one)
		}
		r.runs[i] = one
	}
}

// keep records a tree as the last one read.
func (r *Reader) keep(p lastTree) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.head.size == r.size && p.at.After(r.last.at) {
		r.last = p
	}
}

func (a run) compare(b run) int {
	return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.firstPosition, b.firstPosition))
}

// Status is the progress of the log.
type Status struct {
	Events     int64            // in the ledger
	Leaves     int64            // in the tree
	Published  int64            // leaves covered by the last checkpoint
	SignedAt   time.Time        // of that checkpoint, by the process's clock; zero if none was signed
	SignedBy   string           // name and key hash, name+hash; empty if none was signed
	Oldest     time.Time        // time of the first event that the tree lacks; zero if it lacks none
	Halted     bool             // until integrity log resume
	Cosigned   map[string]int64 // leaves of the last checkpoint that each witness has cosigned
	Checkpoint string
}

const (
	readStatus = `SELECT coalesce(t.size, 0), coalesce(t.positions, '{}'), coalesce(t.epoch <> g.epoch, false), coalesce(c.size, 0), c.signed_at, coalesce(c.note, ''),
		(SELECT coalesce(jsonb_object_agg(witness, size), '{}') FROM transparency_cosignatures)
		FROM (SELECT $1::bigint AS epoch) g LEFT JOIN transparency_tree t ON t.id = 1 LEFT JOIN transparency_checkpoint c ON c.id = 1`
)

var (
	readBehind = cluster.SQL(`SELECT coalesce(sum(h.position), 0)::bigint, min(e.occurred_at) FROM {shard_heads} h
		LEFT JOIN {events} e ON e.shard = h.shard AND e.position = coalesce(($1::bigint[])[h.shard + 1], 0) + 1`)
)

// ReadStatus reads the status of the log, whichever process works on it.
func ReadStatus(ctx context.Context, pool *pgxpool.Pool) (s Status, err error) {
	var epoch int64
	if err := pool.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
		return s, say.Errorf("read the ledger's epoch: %w", err)
	}
	var positions []int64
	var signed, oldest *time.Time
	if err := pool.QueryRow(ctx, readStatus, epoch).Scan(
		&s.Leaves, &positions, &s.Halted, &s.Published, &signed, &s.Checkpoint, &s.Cosigned,
	); err != nil {
		return s, say.Errorf("read the state of the transparency log: %w", err)
	}
	if signed != nil {
		s.SignedAt, s.SignedBy = signed.UTC(), signedBy(s.Checkpoint)
	}
	if err := pool.QueryRow(ctx, readBehind, positions).Scan(&s.Events, &oldest); err != nil {
		return s, say.Errorf("read the lag of the transparency log: %w", err)
	}
	if oldest != nil {
		s.Oldest = oldest.UTC()
	}
	return s, nil
}

// signedBy returns the name and key hash in the first signature line of one of our notes.
func signedBy(text string) string {
	_, err := note.Open([]byte(text), note.VerifierList())
	if unverified, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		first := unverified.Note.UnverifiedSigs[0]
		return fmt.Sprintf("%s+%08x", first.Name, first.Hash)
	}
	return ""
}

// Inclusion proves that the event at a position of a shard is in the published tree. The caller passes the event's leaf
// (domain.Event.Leaf). The proof is checked before it is returned. Concurrent calls share a round trip. The error may
// be ErrNotIntegrated.
func (r *Reader) Inclusion(
	ctx context.Context, shard domain.Shard, position int64, leaf []byte,
) (*evidence.Inclusion, error) {
	inclusion, err := r.include(ctx, shard, position, leaf)
	if errors.Is(err, ErrChanged) {
		return r.include(ctx, shard, position, leaf) // once more, now that the outdated tree is forgotten
	}
	return inclusion, err
}

// ErrChanged means that the tree does not contain the event that the log has.
var ErrChanged = say.New("the tree or the log was changed")

// locate finds the leaf of a position in the published tree, and the data for its proof.
func (r *Reader) locate(ctx context.Context, shard domain.Shard, position int64) (*leafQuestion, error) {
	q := &leafQuestion{shard: shard, position: position}
	if !r.atOnce(q) {
		*q = leafQuestion{shard: shard, position: position}
		if err := r.questions.Ask(ctx, struct{}{}, q, r.look); err != nil {
			return nil, say.Errorf("look for a leaf: %w", err)
		}
	}
	return q, q.err
}

func (r *Reader) include(
	ctx context.Context, shard domain.Shard, position int64, leaf []byte,
) (*evidence.Inclusion, error) {
	q, err := r.locate(ctx, shard, position)
	if err != nil {
		return nil, err
	}
	proof, err := q.prover.prove(q.index)
	if err != nil {
		return nil, say.Errorf("prove inclusion: %w", err)
	}
	if err := tlog.CheckRecord(proof, q.head.size, q.head.root, q.index, domain.LeafHash(leaf)); err != nil {
		r.forget()
		return nil, say.Errorf(
			"leaf %d is not the event at position %d of shard %d: %w: %w", q.index, position, shard, ErrChanged, err,
		)
	}
	return &evidence.Inclusion{
		Leaf: string(leaf), LeafIndex: q.index, TreeSize: q.head.size, Hashes: proofTexts(proof), Checkpoint: q.head.note,
	}, nil
}

// proofTexts encodes the hashes of a proof in base64, with a single allocation for all of them.
func proofTexts(proof tlog.RecordProof) []string {
	room := make([]byte, 0, hashText*len(proof))
	for _, hash := range proof {
		room = base64.StdEncoding.AppendEncode(room, hash[:])
	}
	all, texts := string(room), make([]string, len(proof))
	for i := range texts {
		texts[i] = all[i*hashText:][:hashText]
	}
	return texts
}

// hashText is the length of a hash in base64.
const hashText = (tlog.HashSize + 2) / 3 * 4

// leafQuestion asks for the leaf of an event and the data for its proof.
type leafQuestion struct {
	shard    domain.Shard
	position int64

	index  int64
	head   *checkpoint
	prover *prover // with the tiles of all proofs of the batch
	err    error
}

// lookTimeout bounds a batch of questions, including the wait for a connection. Only one batch is in progress, so
// locked tables cost one connection, however many callers ask, and delay no caller for longer once they are available
// again.
const lookTimeout = 2 * time.Second

// look answers a batch of questions.
func (r *Reader) look(_ struct{}, batch []*leafQuestion) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.Limit, lookTimeout))
	defer cancel()
	if err := r.find(ctx, batch); err != nil {
		for _, q := range batch {
			q.err = err
		}
	}
}

// findLeaves finds the runs that hold positions. A position can only be in the last run that begins before it. The
// tree's tables are not sharded: on Citus they are on one node.
const findLeaves = `SELECT n.place, r.first_leaf, r.first_position, r.leaves
	FROM unnest($1::int[], $2::int[], $3::bigint[]) AS n(place, from_shard, position)
	JOIN LATERAL (SELECT first_leaf, first_position, leaves FROM transparency_runs
		WHERE from_shard = n.from_shard AND first_position <= n.position ORDER BY first_position DESC LIMIT 1) r ON n.position < r.first_position + r.leaves`

const notFound = -1

func (r *Reader) find(ctx context.Context, batch []*leafQuestion) error {
	var places, shards []int32
	var positions []int64
	sent := time.Now()
	r.mu.Lock()
	tree := r.tree
	for i, q := range batch {
		var known bool
		if q.index, known = r.recall(q.shard, q.position); !known {
			places, shards, positions = append(places, int32(i)), append(shards, int32(q.shard)), append(positions, q.position)
		}
	}
	r.mu.Unlock()
	var head checkpoint
	var found []run
	b := &pgx.Batch{}
	if len(places) > 0 {
		b.Queue(findLeaves, places, shards, positions).Query(func(rows pgx.Rows) error {
			var place int32
			var one run
			_, err := pgx.ForEachRow(rows, []any{&place, &one.firstLeaf, &one.firstPosition, &one.leaves}, func() error {
				q := batch[place]
				q.index, one.shard = one.firstLeaf+q.position-one.firstPosition, q.shard
				found = append(found, one)
				return nil
			})
			return err
		})
	}
	b.Queue(readHead).QueryRow(func(row pgx.Row) (err error) {
		head, err = scanHead(row)
		return err
	})
	if err := r.Pool.SendBatch(ctx, b).Close(); errors.Is(err, ErrNoCheckpoint) {
		return ErrNotIntegrated
	} else if err != nil {
		return say.Errorf("look for leaves: %w", err)
	}
	if r.published(head.size) != tree && len(places) < len(batch) {
		return r.find(ctx, batch) // the remembered runs belong to another tree
	}
	r.remember(found, head.size)
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
	prover, err := newProver(head.size, known)
	if err == nil {
		r.keep(lastTree{&head, prover.row, sent})
	}
	for _, q := range batch {
		if q.head != nil {
			q.prover, q.err = prover, err
		}
	}
	return nil
}
