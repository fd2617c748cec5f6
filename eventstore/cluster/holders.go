package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Holders finds the node of Citus that holds a shard, and connects to it. A statement there names the piece of a table in
// place of the table, so that PostgreSQL plans it once and by itself: nothing passes through the coordinator, and Citus
// plans nothing.
//
// Citus moves pieces from node to node meanwhile, and the former node may keep a copy for a while. So each transaction
// begins with Hold, which waits for a move that is being finished and fails with ErrMoved after it. Safe for concurrent
// use.
type Holders struct {
	primary *Primary // any node of the cluster
	asking  *pgxpool.Pool
	open    func(context.Context, *Primary, int) (*pgxpool.Pool, error)
	conns   int // to each node

	mu     sync.Mutex
	pieces map[uint16]located
	nodes  map[int32]*node
	closed bool
}

// located is where a shard was when the cluster was asked.
type located struct {
	*Piece
	asked time.Time
}

// lookAgain is for how long that is believed where no node objects: the former primary of a node, whose standby was promoted,
// does not. Keeping it down is the operator's task.
const lookAgain = 10 * time.Second

// node is a server that holds shards, known by the number of its group, which it keeps when a standby takes its place.
type node struct {
	host    string
	port    uint16
	primary *Primary
	pool    *pgxpool.Pool
}

// Piece is where the rows of a shard are: a node, and for each table its part there. Nil stands for the tables themselves.
type Piece struct {
	id    int64 // of shard_heads' part
	group int32
	host  string
	port  uint16
	parts map[string]string // by table
	named *regexp.Regexp    // a table, where a statement names one
	texts *sync.Map         // rewritten statements by their text
}

// NewPiece is the piece of tables whose parts have other names, on no particular node.
func NewPiece(tables, parts []string) *Piece {
	p := &Piece{parts: map[string]string{}, texts: &sync.Map{}}
	for i, table := range tables {
		p.parts[table] = parts[i]
	}
	// The keywords after which our statements name a table, which they write in capitals, and an alias, if it has one.
	p.named = regexp.MustCompile(`\b(FROM|JOIN|INTO|UPDATE|USING)(\s+)(` + strings.Join(tables, "|") + `)\b(\.|\s+(?:AS\s+)?[a-z]\w*)?`)
	return p
}

// Node tells the nodes apart.
func (p *Piece) Node() int32 { return p.group }

// Holders gives so many connections to each node; nil where the database is not distributed by Citus. open makes the pool
// of a node; nil: HolderPool.
func (p *Primary) Holders(ctx context.Context, conns int, open func(context.Context, *Primary, int) (*pgxpool.Pool, error)) (*Holders, error) {
	asking, err := p.ReadPool(ctx, 1)
	if err != nil {
		return nil, err
	}
	var guarded bool
	if err := asking.QueryRow(ctx, "SELECT to_regproc('public."+holdFunction+"') IS NOT NULL").Scan(&guarded); err != nil || !guarded {
		asking.Close()
		if err != nil {
			err = fmt.Errorf("ask whether the tables are distributed: %w", err)
		}
		return nil, err
	}
	if open == nil {
		open = func(ctx context.Context, p *Primary, conns int) (*pgxpool.Pool, error) {
			return p.HolderPool(ctx, conns)
		}
	}
	return &Holders{primary: p, asking: asking, open: open, conns: conns, pieces: map[uint16]located{}, nodes: map[int32]*node{}}, nil
}

// Close closes all connections. Nil has none.
func (h *Holders) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.asking.Close()
	for _, n := range h.nodes {
		n.pool.Close()
	}
}

// Acquire gives a connection to the node that holds a shard.
func (h *Holders) Acquire(ctx context.Context, shard uint16) (*pgxpool.Conn, *Piece, error) {
	piece, err := h.piece(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	pool, err := h.pool(ctx, piece)
	if err != nil {
		return nil, nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		h.Forget(piece)
		return nil, nil, fmt.Errorf("connect to the node %s:%d: %w", piece.host, piece.port, err)
	}
	return conn, piece, nil
}

// Locate asks where a shard is now.
func (h *Holders) Locate(ctx context.Context, shard uint16) (*Piece, error) {
	p, err := h.ask(ctx, shard)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.pieces {
		if other.id == p.id && other.group == p.group && other.host == p.host && other.port == p.port {
			p = other.Piece // with its rewritten statements
		}
	}
	h.pieces[shard] = located{p, time.Now()}
	return p, nil
}

// piece is where a shard is as far as is known. While the coordinator does not answer, that stays true.
func (h *Holders) piece(ctx context.Context, shard uint16) (*Piece, error) {
	h.mu.Lock()
	known := h.pieces[shard]
	h.mu.Unlock()
	if known.Piece != nil && time.Since(known.asked) < lookAgain {
		return known.Piece, nil
	}
	p, err := h.Locate(ctx, shard)
	if err != nil && known.Piece != nil {
		return known.Piece, nil
	}
	return p, err
}

// Forget makes the next Acquire ask where the shards of a piece are.
func (h *Holders) Forget(piece *Piece) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for shard, p := range h.pieces {
		if p.id == piece.id {
			delete(h.pieces, shard)
		}
	}
}

// readPiece asks for the node of a shard ($1) and the parts of all tables that belong to it there. Reference tables are left to
// Citus, which writes them on every node.
const readPiece = `WITH head AS (
		SELECT s.shardid, s.shardminvalue, d.colocationid FROM pg_dist_shard s JOIN pg_dist_partition d USING (logicalrelid)
		WHERE s.shardid = get_shard_id_for_distribution_column('public.shard_heads', $1::int))
	SELECT head.shardid, n.groupid, n.nodename, n.nodeport, array_agg(c.relname::text), array_agg(shard_name(c.oid, s.shardid))
	FROM head
	JOIN pg_dist_placement p ON p.shardid = head.shardid AND p.shardstate = 1
	JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' AND n.nodecluster = current_setting('citus.cluster_name')
	JOIN pg_dist_partition d ON d.colocationid = head.colocationid
	JOIN pg_dist_shard s ON s.logicalrelid = d.logicalrelid AND s.shardminvalue = head.shardminvalue
	JOIN pg_class c ON c.oid = d.logicalrelid AND c.relnamespace = 'public'::regnamespace
	GROUP BY 1, 2, 3, 4`

func (h *Holders) ask(ctx context.Context, shard uint16) (*Piece, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var id int64
	var group, port int32
	var host string
	var tables, parts []string
	if err := h.asking.QueryRow(ctx, readPiece, shard).Scan(&id, &group, &host, &port, &tables, &parts); err != nil {
		return nil, fmt.Errorf("ask for the node of shard %d: %w", shard, err)
	}
	p := NewPiece(tables, parts)
	p.id, p.group, p.host, p.port = id, group, host, uint16(port)
	return p, nil
}

// pool is that of a piece's node. A node that has another address now, because a standby was promoted, gets another pool,
// which knows what was seen of the former server.
func (h *Holders) pool(ctx context.Context, p *Piece) (*pgxpool.Pool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errors.New("the connections to the nodes are closed")
	}
	n := h.nodes[p.group]
	if n != nil && n.host == p.host && n.port == p.port {
		return n.pool, nil
	}
	next := &node{host: p.host, port: p.port, primary: h.primary.node(p.host, p.port)}
	if n != nil {
		n.primary.mu.Lock()
		next.primary.newest = n.primary.newest
		n.primary.mu.Unlock()
	}
	var err error
	if next.pool, err = h.open(ctx, next.primary, h.conns); err != nil {
		return nil, err
	}
	if n != nil {
		go n.pool.Close() // after the groups that have its connections
	}
	h.nodes[p.group] = next
	return next.pool, nil
}

// node is another server with the same database.
func (p *Primary) node(host string, port uint16) *Primary {
	if p.Nodes != "" {
		return At(strings.NewReplacer("{host}", host, "{port}", strconv.Itoa(int(port))).Replace(p.Nodes))
	}
	return &Primary{url: p.url, host: host, port: port}
}

// aim leads a configuration to the server of a node.
func (p *Primary) aim(config *pgx.ConnConfig) {
	if p.host == "" {
		return
	}
	config.Host, config.Port, config.Fallbacks = p.host, p.port, nil
	if config.TLSConfig != nil && config.TLSConfig.ServerName != "" {
		config.TLSConfig = config.TLSConfig.Clone()
		config.TLSConfig.ServerName = p.host
	}
}

// holdFunction is made by migrations.Distribute. It locks a piece against the end of a move, and refuses a piece that its
// node does not hold.
const holdFunction = "hold_piece"

// moved is the SQLSTATE of that refusal.
const moved = "IL001"

// undefinedTable is the SQLSTATE of a part that is gone, some time after its move.
const undefinedTable = "42P01"

// Moved reports whether an error says that the piece is on another node by now.
func Moved(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (refused.Code == moved || refused.Code == undefinedTable)
}

// Hold queues what must come first in a transaction on the node: until its end the piece stays there.
func (p *Piece) Hold(b *pgx.Batch) {
	if p != nil {
		b.Queue("SELECT "+holdFunction+"($1)", p.id)
	}
}

// Aim makes the queued statements name the parts of the piece.
func (p *Piece) Aim(b *pgx.Batch) {
	if p == nil {
		return
	}
	for _, q := range b.QueuedQueries {
		q.SQL = p.rewritten(q.SQL)
	}
}

func (p *Piece) rewritten(sql string) string {
	if text, ok := p.texts.Load(sql); ok {
		return text.(string) //nolint:forcetypeassert // nothing else is stored
	}
	text := p.named.ReplaceAllStringFunc(sql, func(match string) string {
		m := p.named.FindStringSubmatch(match)
		switch m[4] {
		case ".": // a column, as in IS DISTINCT FROM
			return match
		case "":
			return m[1] + m[2] + p.parts[m[3]] + " AS " + m[3]
		default:
			return m[1] + m[2] + p.parts[m[3]] + m[4]
		}
	})
	p.texts.Store(sql, text)
	return text
}

// Pools are the pools of the nodes that were connected to, by the number of the node.
func (h *Holders) Pools() map[int32]*pgxpool.Pool {
	pools := map[int32]*pgxpool.Pool{}
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		for group, n := range h.nodes {
			pools[group] = n.pool
		}
	}
	return pools
}
