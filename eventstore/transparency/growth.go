package transparency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/history"
)

// growth is the tree as a consumer's source: its one row remembers how far it has come in every shard, and the process
// that has locked it may let the tree grow. The tree's tables stand on one node of Citus, so tiles and positions commit
// together there too.
type growth struct {
	pool   *pgxpool.Pool       // reads what is committed; only the transaction of Handle writes
	log    eventstore.Database // of the shards
	shards int
	signer func() *Signer
	batch  int

	limit     int
	heads     heads         // as Claim has read them; nil positions: no node has told any
	row       treeRow       // as Claim has read it
	tree      *tree         // the one that this process has seen last; nil: none yet
	positions []int64       // that the tree has with the leaves of the page
	runs      []run         // of the leaves of the page
	slow      map[int32]int // how often a node has not told its hashes in time, one page after the other
}

// treeRow is the row of the tree.
type treeRow struct {
	size      int64
	root      []byte
	positions []int64 // by shard
	epoch     int64
}

// heads are the positions of the last events, by shard, up to the last shard that has one.
type heads struct {
	positions []int64
	// partial: a node has not answered, so a shard without an event may have some. They come later: the tree takes the
	// events of the shards in any order, and grows by those of the nodes that answer.
	partial bool
}

func (h heads) at(shard int) (position int64, known bool) {
	if shard < len(h.positions) {
		position = h.positions[shard]
	}
	return position, position > 0 || !h.partial
}

// behind reports whether they are behind positions in any shard.
func (h heads) behind(positions []int64) bool {
	for shard, position := range positions {
		if head, known := h.at(shard); known && head < position {
			return true
		}
	}
	return false
}

const (
	beginTree = `INSERT INTO transparency_tree (id, size, root, positions, epoch) SELECT 1, 0, $1, '{}', epoch FROM ledger WHERE id = 1 ON CONFLICT (id) DO NOTHING`
	// A row that is locked without need would make an idle database write.
	claimTree = `SELECT size, root, positions, epoch FROM transparency_tree WHERE id = 1 AND positions IS DISTINCT FROM $1::bigint[] AND $2 FOR UPDATE SKIP LOCKED`
	readEpoch = `SELECT epoch FROM ledger WHERE id = 1`
	// askTree asks for the same without a lock.
	askTree = `SELECT positions IS DISTINCT FROM $1::bigint[] FROM transparency_tree WHERE id = 1`
	// growTree moves the row, writes tiles and runs. It is one statement, so that a transaction which ends too early
	// has all of it or nothing. A tile only grows: one that would lose what it held is not written. The first run makes
	// the last one longer where it goes on there.
	growTree = `WITH moved AS (
			UPDATE transparency_tree SET size = $2, root = $3, positions = $4 WHERE id = 1 AND size = $1 RETURNING id
		), tiles AS (
			INSERT INTO transparency_tiles (level, n, hashes) SELECT * FROM unnest($5::smallint[], $6::bigint[], $7::bytea[])
			ON CONFLICT (level, n) DO UPDATE SET hashes = excluded.hashes
			WHERE substr(excluded.hashes, 1, length(transparency_tiles.hashes)) = transparency_tiles.hashes RETURNING n
		), runs AS (
			SELECT * FROM unnest($8::bigint[], $9::integer[], $10::bigint[], $11::bigint[]) AS r(first_leaf, from_shard, first_position, leaves)
		), extended AS (
			UPDATE transparency_runs t SET leaves = t.leaves + r.leaves FROM runs r
			WHERE r.first_leaf = $1 AND t.first_leaf = (SELECT max(first_leaf) FROM transparency_runs)
			AND t.first_leaf + t.leaves = $1 AND t.from_shard = r.from_shard AND t.first_position + t.leaves = r.first_position RETURNING r.first_leaf
		), begun AS (
			INSERT INTO transparency_runs (first_leaf, from_shard, first_position, leaves)
			SELECT r.* FROM runs r WHERE NOT EXISTS (SELECT FROM extended e WHERE e.first_leaf = r.first_leaf)
		)
		SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM tiles)`
)

// ErrRestored: the database was restored since the tree was last written.
var ErrRestored = errors.New("the database was restored from a backup since the last checkpoint, and may lack " +
	"leaves that were published: " +
	"nothing is integrated or signed until integrity log resume")

// Begin implements consumer.Source.
func (g *growth) Begin() consumer.Query {
	empty, _ := tlog.TreeHash(0, nil) // the hash of nothing, which cannot fail
	return consumer.Query{Query: beginTree, Args: []any{empty[:]}}
}

const (
	// readingHeads is how long the nodes may take to tell their heads. A node that is away must leave time for what the
	// others have told.
	readingHeads = time.Second
	// claimingHeads is the same where the transaction of the page has begun already.
	claimingHeads = readingHeads / 2
	// readingHashes is how long a node may take to tell the hashes of a shard. The transaction of the page is open
	// meanwhile.
	readingHashes = readingHeads / 2
)

// Claim implements consumer.Source. Without a key, or without news, the tree is left alone.
func (g *growth) Claim(failures int) consumer.Query {
	g.limit = max(1, g.batch>>min(failures, 30))
	ctx, cancel := context.WithTimeout(context.Background(), claimingHeads)
	defer cancel()
	g.heads, _ = g.askHeads(ctx) // Handle asks again, and tells the error
	return consumer.Query{Query: claimTree, Args: []any{g.heads.positions, g.signer() != nil}}
}

// look answers the News of the one source.
func (g *growth) look(ctx context.Context) ([]int, error) {
	if g.signer() == nil {
		return nil, nil
	}
	read, err := g.askHeads(ctx)
	if err != nil {
		return nil, err
	}
	grows := true // where nothing was begun
	if err := g.pool.QueryRow(ctx, askTree, read.positions).Scan(&grows); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("look at the tree: %w", err)
	}
	if !grows {
		return nil, nil
	}
	return []int{0}, nil
}

// Scan implements consumer.Source.
func (g *growth) Scan(row consumer.Row) (int64, error) {
	g.row = treeRow{}
	err := row.Scan(&g.row.size, &g.row.root, pgtype.NewMap().SQLScanner(&g.row.positions), &g.row.epoch)
	return g.row.size, err
}

// Read implements consumer.Source: the payload is the hashes of further events, at most a batch, shard by shard.
func (g *growth) Read(_ *sql.Tx, page *consumer.Message) (err error) {
	if err := g.load(page.Context()); err != nil {
		return err
	}
	page.Payload, err = g.news(page.Context())
	return err
}

// Handle implements consumer.Source: it puts the hashes into the tree.
func (g *growth) Handle(tx *sql.Tx, page *consumer.Message) (consumer.Progress, error) {
	still := consumer.Progress{Position: g.row.size}
	if len(page.Payload) == 0 {
		return still, nil
	}
	leaves := make([][32]byte, 0, len(page.Payload)/32)
	for hash := range slices.Chunk(page.Payload, 32) {
		leaves = append(leaves, [32]byte(hash))
	}
	if err := g.grow(page.Context(), tx, g.positions, leaves, g.runs); err != nil {
		return still, err
	}
	return consumer.Progress{Position: g.tree.size, More: len(leaves) == g.limit}, nil
}

// Advance implements consumer.Source. The row has moved with the tiles.
func (g *growth) Advance() consumer.Query { return consumer.Query{Query: "SELECT"} }

// load reads the tree of the locked row, unless it is the one that this process knows.
func (g *growth) load(ctx context.Context) error {
	var epoch int64
	if err := g.pool.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
		return fmt.Errorf("read the ledger's epoch: %w", err)
	}
	if g.row.epoch != epoch {
		return ErrRestored
	}
	stored := hashOf(g.row.root)
	if g.tree != nil && g.tree.size == g.row.size {
		if root, err := g.tree.root(); err == nil && root == stored {
			return nil
		}
	}
	g.tree = nil
	edge, err := readTiles(ctx, g.pool, edgeOf(g.row.size))
	if err != nil {
		return err
	}
	loaded, err := newTree(g.row.size, edge)
	if err != nil {
		return err
	}
	if root, err := loaded.root(); err != nil || root != stored {
		return errors.Join(errors.New("the stored tiles and the stored root differ: the tree was damaged"), err)
	}
	last, err := readCheckpoint(ctx, g.pool)
	if err != nil {
		return err
	}
	if g.row.size < last.size {
		return fmt.Errorf(
			"the tree has %d leaves, and a checkpoint of %d was signed: the tree was damaged", g.row.size, last.size,
		)
	}
	g.tree = loaded
	return nil
}

// askHeads fails where no node tells any.
func (g *growth) askHeads(ctx context.Context) (heads, error) {
	ctx, cancel := context.WithTimeout(ctx, readingHeads)
	defer cancel()
	found, err := eventstore.ReadHeads(ctx, g.log, g.shards)
	if err != nil && len(found) == 0 {
		return heads{}, fmt.Errorf("read the heads: %w", err)
	}
	h := heads{[]int64{}, err != nil}
	for _, is := range found {
		h.positions = append(h.positions, make([]int64, max(0, int(is.Shard)+1-len(h.positions)))...)
		h.positions[is.Shard] = is.Position
	}
	return h, nil
}

// news reads the hashes of events that are not in the tree. A node that tells its heads but not its hashes is waited
// for once in a page, which goes on with the events of the others. Such a node is asked for fewer next time, so that
// a slow one comes along.
func (g *growth) news(ctx context.Context) (leaves []byte, err error) {
	read := g.heads
	if read.positions == nil || read.behind(g.row.positions) { // another process has let the tree grow since
		if read, err = g.askHeads(ctx); err != nil {
			return nil, err
		}
	}
	g.runs, g.positions = nil, append(g.row.positions, make([]int64, max(0, len(read.positions)-len(g.row.positions)))...)
	silent := map[int32]bool{} // nodes
	var failed error
	for shard, after := range g.positions {
		head, known := read.at(shard)
		if !known {
			continue
		}
		room := g.limit - len(leaves)/32
		if head < after {
			return nil, fmt.Errorf("the tree holds shard %d up to position %d, but its log ends at %d: the log lost events",
				shard, after, head)
		}
		if head == after || room == 0 {
			continue
		}
		node, err := eventstore.NodeOf(ctx, g.log, domain.Shard(shard))
		if err != nil {
			return nil, err
		}
		if silent[node] {
			continue
		}
		hashes, err := g.hashes(ctx, domain.Shard(shard), after, max(1, room>>min(g.slow[node], 30)))
		if err != nil && unanswered(err) && eventstore.Routed(g.log) && ctx.Err() == nil {
			g.slow[node]++
			failed, silent[node] = errors.Join(failed, err), true
			continue
		}
		if err != nil {
			return nil, err
		}
		delete(g.slow, node)
		if len(hashes) == 0 {
			continue
		}
		g.runs = append(g.runs, run{g.row.size + int64(len(leaves)/32), domain.Shard(shard), after + 1, int64(len(hashes))})
		leaves = slices.Grow(leaves, 32*len(hashes))
		for _, hash := range hashes {
			leaves = append(leaves, hash[:]...)
		}
		g.positions[shard] += int64(len(hashes))
	}
	if len(leaves) == 0 && failed != nil {
		return nil, failed
	}
	return leaves, nil
}

func (g *growth) hashes(ctx context.Context, shard domain.Shard, after int64, room int) ([][32]byte, error) {
	if eventstore.Routed(g.log) { // else there is nobody to go on with
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readingHashes)
		defer cancel()
	}
	return history.Hashes(ctx, g.log, shard, after, room)
}

// unanswered is true of a node that is away or silent, and false of what it has answered, damage of the log included.
func unanswered(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return cluster.NotConnected(err) || !answered && !errors.Is(err, history.ErrDamaged)
}

var (
	// errLost: another process has let the tree grow, or signed it.
	errLost = errors.New("another process works on the tree")
	// errOverwritten: a tile of the database does not begin with the hashes that it had.
	errOverwritten = errors.New("a stored tile differs from the tree that it belongs to")
)

// grow stores the tree with further leaves, in the transaction that has its row.
func (g *growth) grow(ctx context.Context, tx *sql.Tx, positions []int64, leaves [][32]byte, runs []run) error {
	next, changed := g.tree.append(leaves)
	root, err := next.root()
	if err != nil {
		return err
	}
	tiles, hashes := make([]tile, 0, len(changed)), make([][]byte, 0, len(changed))
	for at, content := range changed {
		tiles, hashes = append(tiles, at), append(hashes, content)
	}
	levels, ns := names(tiles)
	var first, from, counts []int64
	var shards []int32
	for _, r := range runs {
		first, shards, from, counts = append(first, r.firstLeaf), append(shards, int32(r.shard)),
			append(from, r.firstPosition), append(counts, r.leaves)
	}
	var moved, written int
	if err := tx.QueryRowContext(
		ctx, growTree, g.tree.size, next.size, root[:], positions, levels, ns, hashes, first, shards, from, counts,
	).
		Scan(&moved, &written); err != nil {
		return fmt.Errorf("grow the tree: %w", err)
	}
	switch {
	case moved != 1:
		return errLost
	case written != len(tiles):
		return errOverwritten
	}
	g.tree = next
	return nil
}
