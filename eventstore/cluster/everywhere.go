package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Everywhere asks one question about all shards of a ledger, in one statement: of the server, or where there are nodes,
// of each about the shards that it holds. The question names the tables of shards, which it joins by the shard, and no
// others. It holds no piece, so a move that ends at that moment may make an answer one of just before it. Where a node
// does not answer there is an error beside the answers of the others.
func Everywhere[T any](ctx context.Context, pool *pgxpool.Pool, nodes *Nodes, shards int, scan pgx.RowToFunc[T], question string, args ...any) ([]T, error) {
	if nodes == nil {
		rows, _ := pool.Query(ctx, question, args...) // its error is that of the rows
		return pgx.CollectRows(rows, scan)
	}
	var mu sync.Mutex
	var answers []T
	every := make([]uint16, shards)
	for i := range every {
		every[i] = uint16(i)
	}
	err := nodes.everywhere(ctx, every, func(conn *pgxpool.Conn, g *group) error {
		var found []T
		if err := g.ask(ctx, conn, question, args, func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, scan)
			return err
		}); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, found...)
		return nil
	})
	return answers, err
}

// At is the pool of the node that holds a shard.
func (n *Nodes) At(ctx context.Context, shard uint16) (*pgxpool.Pool, *Piece, error) {
	piece, err := n.Place(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	pool, err := n.pool(ctx, piece)
	return pool, piece, err
}

// Aimed is a statement as Aim makes it.
func (p *Piece) Aimed(sql string) string {
	if p == nil {
		return sql
	}
	return p.rewritten(sql)
}

// holding is where a context says which piece is held.
type holding struct{}

// Holding says that until the context ends a transaction holds a piece. What reads it beside the transaction must not
// hold it too: a move that waits for the transaction would make the reader wait for the move, and the transaction for
// its reader.
func Holding(ctx context.Context, p *Piece) context.Context {
	return context.WithValue(ctx, holding{}, p)
}

// HeldIn reports whether a context says so of a piece, on the same node.
func (p *Piece) HeldIn(ctx context.Context) bool {
	held, _ := ctx.Value(holding{}).(*Piece)
	return held != nil && held.id == p.id && held.group == p.group && held.host == p.host && held.port == p.port
}

// group is what a node holds of the shards that are asked about.
type group struct {
	node   int32
	shards []uint16
	pieces []*Piece // each once
}

// everywhere asks the node of each group, and again where pieces of it have moved.
func (n *Nodes) everywhere(ctx context.Context, shards []uint16, ask func(*pgxpool.Conn, *group) error) error {
	const mostAttempts = 3
	for attempt := 1; ; attempt++ {
		groups, failed := n.groups(ctx, shards)
		errs := make([]error, len(groups))
		var asking sync.WaitGroup
		for i, g := range groups {
			asking.Go(func() { errs[i] = n.askNode(ctx, g, ask) })
		}
		asking.Wait()
		shards = nil
		for i, g := range groups {
			if !Moved(errs[i]) || attempt == mostAttempts {
				failed = errors.Join(failed, errs[i])
				continue
			}
			for _, p := range g.pieces {
				n.Forget(p)
			}
			shards = append(shards, g.shards...)
		}
		if failed != nil || shards == nil {
			return failed
		}
	}
}

func (n *Nodes) askNode(ctx context.Context, g *group, ask func(*pgxpool.Conn, *group) error) error {
	conn, piece, err := n.Acquire(ctx, g.shards[0])
	if err != nil {
		return err
	}
	defer conn.Release()
	if piece.group != g.node {
		return errMoved
	}
	return ask(conn, g)
}

// errMoved is what a node would say of a piece that it does not hold.
var errMoved = &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: moved, Message: "a piece is on another node"}

// groups are the shards by node, as far as is known.
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

// countHeld is how many of these pieces the node holds. The former node of a piece keeps a copy for a while.
const countHeld = `SELECT count(*) FROM pg_dist_placement p JOIN pg_dist_local_group l USING (groupid) WHERE p.shardid = ANY($1) AND p.shardstate = 1`

// ask asks one question of all pieces.
func (g *group) ask(ctx context.Context, conn *pgxpool.Conn, question string, args []any, answered func(pgx.Rows) error) error {
	ids, texts := make([]int64, len(g.pieces)), make([]string, len(g.pieces))
	for i, p := range g.pieces {
		ids[i], texts[i] = p.id, "("+p.rewritten(question)+")"
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
		return fmt.Errorf("ask the node %s:%d: %w", g.pieces[0].host, g.pieces[0].port, err)
	}
	return nil
}
