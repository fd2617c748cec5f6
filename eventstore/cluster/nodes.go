package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain/say"
)

// Nodes holds connections to the nodes for one purpose, such as commits.
type Nodes struct {
	*Holders
	open  func(*Primary, context.Context, int) (*pgxpool.Pool, error)
	conns int

	opening sync.Mutex
	opened  map[int32]nodePool // by group
	closed  bool
}

// nodePool is the pool of a node's server.
type nodePool struct {
	server *Primary
	pool   *pgxpool.Pool
}

// Nodes returns connections to the nodes, at most conns to each. open opens the pool of a node. A nil receiver returns
// nil.
func (h *Holders) Nodes(conns int, open func(*Primary, context.Context, int) (*pgxpool.Pool, error)) *Nodes {
	if h == nil {
		return nil
	}
	n := &Nodes{Holders: h, open: open, conns: conns, opened: map[int32]nodePool{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools = append(h.pools, n)
	return n
}

func (n *Nodes) close() {
	n.opening.Lock()
	defer n.opening.Unlock()
	n.closed = true
	for _, p := range n.opened {
		p.pool.Close()
	}
}

// Acquire returns a connection to the node that holds a shard.
func (n *Nodes) Acquire(ctx context.Context, shard uint16) (*pgxpool.Conn, *Piece, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	piece, err := n.Place(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	pool, err := n.pool(ctx, piece)
	if err != nil {
		return nil, nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		n.unreached()
		return nil, nil, say.Errorf("connect to the node %s: %w", piece.Address(), err)
	}
	return conn, piece, nil
}

// At returns the pool of the node that holds a shard.
func (n *Nodes) At(ctx context.Context, shard uint16) (*pgxpool.Pool, *Piece, error) {
	piece, err := n.Place(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	pool, err := n.pool(ctx, piece)
	return pool, piece, err
}

func (n *Nodes) pool(ctx context.Context, p *Piece) (*pgxpool.Pool, error) {
	server := n.server(p)
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.closed {
		return nil, say.New("the connections to the nodes are closed")
	}
	former, ok := n.opened[p.group]
	if ok && former.server == server {
		return former.pool, nil
	}
	pool, err := n.open(server, ctx, n.conns)
	if err != nil {
		return nil, err
	}
	if ok {
		go former.pool.Close() // waits for its connections to be released
	}
	n.opened[p.group] = nodePool{server, pool}
	return pool, nil
}

// Pools returns the open pools by the number of their node.
func (n *Nodes) Pools() map[int32]*pgxpool.Pool {
	pools := map[int32]*pgxpool.Pool{}
	if n != nil {
		n.opening.Lock()
		defer n.opening.Unlock()
		for group, p := range n.opened {
			pools[group] = p.pool
		}
	}
	return pools
}

// Everywhere runs one query over all shards of a ledger: on the one server, or on each node for the shards that it
// holds. The query must name only distributed tables and join them by shard. Pieces are not held, so a move that
// finishes at that moment may make an answer slightly outdated. If a node does not answer, Everywhere returns an error
// and the answers of the other nodes.
func Everywhere[T any](
	ctx context.Context, pool *pgxpool.Pool, n *Nodes, shards int, scan pgx.RowToFunc[T], question string, args ...any,
) (answers []T, failed error) {
	if n == nil {
		rows, _ := pool.Query(ctx, question, args...) // rows carry its error
		return pgx.CollectRows(rows, scan)
	}
	const maxAttempts = 3
	var left []uint16
	for shard := range shards {
		left = append(left, uint16(shard))
	}
	for attempt := 1; failed == nil && len(left) > 0; attempt++ {
		var groups []*group
		groups, failed = n.groups(ctx, left)
		found, errs := make([][]T, len(groups)), make([]error, len(groups))
		var asking sync.WaitGroup
		for i, g := range groups {
			asking.Go(func() {
				errs[i] = n.ask(ctx, g, question, args, func(rows pgx.Rows) (err error) {
					found[i], err = pgx.CollectRows(rows, scan)
					return err
				})
			})
		}
		asking.Wait()
		left = nil
		for i, g := range groups {
			switch {
			case errs[i] == nil:
				answers = append(answers, found[i]...)
			case Moved(errs[i]) && attempt < maxAttempts:
				for _, p := range g.pieces {
					n.Forget(p)
				}
				left = append(left, g.shards...)
			default:
				failed = errors.Join(failed, errs[i])
			}
		}
	}
	return answers, failed
}

// group is a node with the shards to query there.
type group struct {
	node   int32
	shards []uint16
	pieces []*Piece // without duplicates
}

// groups groups shards by their known node.
func (n *Nodes) groups(ctx context.Context, shards []uint16) (groups []*group, failed error) {
	for _, shard := range shards {
		p, err := n.Place(ctx, shard)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return g.node == p.group })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{node: p.group})
		}
		g := groups[i]
		g.shards = append(g.shards, shard)
		if !slices.ContainsFunc(g.pieces, func(other *Piece) bool { return other.id == p.id }) {
			g.pieces = append(g.pieces, p)
		}
	}
	return groups, failed
}

// countHeld counts the pieces that the node holds. The former node of a piece keeps a copy for a while.
const countHeld = `SELECT count(*) FROM pg_dist_placement p JOIN pg_dist_local_group l USING (groupid) WHERE p.shardid = ANY($1) AND p.shardstate = 1`

// errMoved is the error of a node that does not hold a piece.
var errMoved = &pgconn.PgError{
	Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: moved, Message: "a piece is on another node",
}

// ask runs a query on a node for all pieces of a group, in one statement.
func (n *Nodes) ask(ctx context.Context, g *group, question string, args []any, answered func(pgx.Rows) error) error {
	ids, texts := make([]int64, len(g.pieces)), make([]string, len(g.pieces))
	for i, p := range g.pieces {
		text, err := p.Text(question)
		if err != nil {
			return err
		}
		ids[i], texts[i] = p.id, "("+text+")"
	}
	conn, piece, err := n.Acquire(ctx, g.shards[0])
	if err != nil {
		return err
	}
	defer conn.Release()
	if piece.group != g.node {
		return errMoved
	}
	b := &pgx.Batch{}
	b.Queue(countHeld, ids).QueryRow(func(row pgx.Row) error {
		var held int
		if err := row.Scan(&held); err != nil {
			return err
		}
		if held != len(ids) {
			return errMoved
		}
		return nil
	})
	b.Queue(strings.Join(texts, " UNION ALL "), args...).Query(answered)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return say.Errorf("ask the node %s: %w", g.pieces[0].Address(), err)
	}
	return nil
}
