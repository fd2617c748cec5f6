package transparency

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/consumer"
	"integrityledger/eventstore/history"
)

// growth makes the tree a consumer.Source. The tree's single row stores its position in every shard, and the process
// that has locked the row may grow the tree. On Citus the tree's tables are on one node, so tiles and positions are
// committed together there, too.
type growth struct {
	pool   *pgxpool.Pool       // only reads; the transaction of Handle writes
	log    eventstore.Database // of the shards
	shards int
	signer func() *Signer
	batch  int

	limit     int
	heads     heads         // as read by Claim; nil positions: no node has answered
	row       treeRow       // as read by Claim
	tree      *tree         // last seen by this process; nil before the first
	positions []int64       // of the tree including the leaves of the page
	runs      []run         // of the leaves of the page
	slow      map[int32]int // by node: consecutive pages in which it did not return its hashes in time
}

// treeRow is the row of the tree.
type treeRow struct {
	size      int64
	root      []byte
	positions []int64 // by shard
	epoch     int64
}

// heads holds the positions of the last events, by shard, up to the last shard that has events.
type heads struct {
	positions []int64
	// partial is set if a node has not answered, so that a shard that seems empty may have events. They are added later:
	// the tree takes the events of the shards in any order, and grows by the events of the nodes that answer.
	partial bool
}

func (h heads) at(shard int) (position int64, known bool) {
	if shard < len(h.positions) {
		position = h.positions[shard]
	}
	return position, position > 0 || !h.partial
}

// behind reports whether the heads are behind positions in any shard.
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
	// Locking the row without need would make an idle database write.
	claimTree = `SELECT size, root, positions, epoch FROM transparency_tree WHERE id = 1 AND positions IS DISTINCT FROM $1::bigint[] AND $2 FOR UPDATE SKIP LOCKED`
	readEpoch = `SELECT epoch FROM ledger WHERE id = 1`
	// askTree checks the same without a lock.
	askTree = `SELECT positions IS DISTINCT FROM $1::bigint[] FROM transparency_tree WHERE id = 1`
	// growTree updates the row and writes tiles and runs. It is one statement, so that a transaction that ends too early
	// has all of it or nothing. Tiles only grow: a tile that would lose hashes is not written. If the first run continues
	// the last stored run, it extends that run.
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

// ErrRestored means that the database was restored since the tree was last written.
var ErrRestored = say.New("the database was restored from a backup since the last checkpoint, and may lack " +
	"leaves that were published: " +
	"nothing is integrated or signed until integrity log resume")

// Begin implements consumer.Source.
func (g *growth) Begin() consumer.Query {
	empty, _ := tlog.TreeHash(0, nil) // the hash of nothing, which cannot fail
	return consumer.Query{Query: beginTree, Args: []any{empty[:]}}
}

const (
	// readingHeads limits how long the nodes may take to return their heads. An unreachable node must leave time to
	// process the others' heads.
	readingHeads = time.Second
	// claimingHeads is the same limit once the transaction of the page has begun.
	claimingHeads = readingHeads / 2
	// readingHashes limits how long a node may take to return the hashes of a shard. The transaction of the page is open
	// meanwhile.
	readingHashes = readingHeads / 2
)

// Claim implements consumer.Source. It does not lock the tree without a key or without new events.
func (g *growth) Claim(failures int) consumer.Query {
	g.limit = max(1, g.batch>>min(failures, 30))
	ctx, cancel := context.WithTimeout(context.Background(), claimingHeads)
	defer cancel()
	g.heads, _ = g.askHeads(ctx) // news asks again and returns the error
	return consumer.Query{Query: claimTree, Args: []any{g.heads.positions, g.signer() != nil}}
}

// look implements consumer.Config.News for the one source.
func (g *growth) look(ctx context.Context) ([]int, error) {
	if g.signer() == nil {
		return nil, nil
	}
	read, err := g.askHeads(ctx)
	if err != nil {
		return nil, err
	}
	grows := true // if the tree has not begun
	if err := g.pool.QueryRow(ctx, askTree, read.positions).Scan(&grows); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, say.Errorf("read the positions of the tree: %w", err)
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

// Read implements consumer.Source. The payload is the hashes of the next events, shard by shard, at most a batch.
func (g *growth) Read(_ *sql.Tx, page *consumer.Message) (err error) {
	if err := g.load(page.Context()); err != nil {
		return err
	}
	page.Payload, err = g.news(page.Context())
	return err
}

// Handle implements consumer.Source. It adds the hashes to the tree.
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

// Advance implements consumer.Source. It does nothing, because growTree has updated the row.
func (g *growth) Advance() consumer.Query { return consumer.Query{Query: "SELECT"} }

// load reads the tree of the locked row, unless this process already holds it.
func (g *growth) load(ctx context.Context) error {
	var epoch int64
	if err := g.pool.QueryRow(ctx, readEpoch).Scan(&epoch); err != nil {
		return say.Errorf("read the ledger's epoch: %w", err)
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
		return errors.Join(say.New("the stored tiles and the stored root differ: the tree was damaged"), err)
	}
	last, err := readCheckpoint(ctx, g.pool)
	if err != nil {
		return err
	}
	if g.row.size < last.size {
		return say.Errorf(
			"the tree has %d leaves, but a checkpoint of %d was signed: the tree was damaged", g.row.size, last.size,
		)
	}
	g.tree = loaded
	return nil
}

// askHeads reads the heads of all shards. It fails only if no node answers.
func (g *growth) askHeads(ctx context.Context) (heads, error) {
	ctx, cancel := context.WithTimeout(ctx, readingHeads)
	defer cancel()
	found, err := eventstore.ReadHeads(ctx, g.log, g.shards)
	if err != nil && len(found) == 0 {
		return heads{}, say.Errorf("read the heads: %w", err)
	}
	h := heads{[]int64{}, err != nil}
	for _, is := range found {
		h.positions = append(h.positions, make([]int64, max(0, int(is.Shard)+1-len(h.positions)))...)
		h.positions[is.Shard] = is.Position
	}
	return h, nil
}

// news reads the hashes of events that are not in the tree. If a node returns its heads but not its hashes in time, the
// page continues with the events of the other nodes. The next page asks that node for fewer hashes, so that even a slow
// node makes progress.
func (g *growth) news(ctx context.Context) (leaves []byte, err error) {
	read := g.heads
	if read.positions == nil || read.behind(g.row.positions) { // another process has grown the tree meanwhile
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
			return nil, say.Errorf("the tree holds shard %d up to position %d, but its log ends at %d: the log lost events",
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
	if eventstore.Routed(g.log) { // otherwise there is no other node to continue with
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readingHashes)
		defer cancel()
	}
	return history.Hashes(ctx, g.log, shard, after, room)
}

// unanswered reports whether the error means that a node did not answer. Its answers, including a damaged log, do not
// count.
func unanswered(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return cluster.NotConnected(err) || !answered && !errors.Is(err, history.ErrDamaged)
}

var (
	// errLost means that another process has grown or signed the tree.
	errLost = say.New("another process works on the tree")
	// errOverwritten means that a tile in the database does not begin with the hashes that it had.
	errOverwritten = say.New("a stored tile differs from the tree")
)

// grow stores the tree with further leaves, in the transaction that holds its row.
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
		return say.Errorf("grow the tree: %w", err)
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
