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

// Holders finds the node of Citus that holds a shard. A statement there names the piece of a table in place of the table, so
// that PostgreSQL plans it once and by itself: nothing passes through the coordinator, and Citus plans nothing.
//
// Citus moves pieces from node to node meanwhile, and the former node may keep a copy for a while. So each transaction
// begins with Hold, which waits for a move that is being finished and fails with ErrMoved after it. Safe for concurrent
// use.
type Holders struct {
	primary *Primary // any node of the cluster
	asking  *pgxpool.Pool

	mu      sync.Mutex
	pieces  map[uint16]located
	servers map[int32]*server
	pools   []*Nodes
}

// located is where a shard was when the cluster was asked.
type located struct {
	*Piece
	asked time.Time
}

// lookAgain is for how long that is believed where no node objects: the former primary of a node, whose standby was promoted,
// does not. Keeping it down is the operator's task.
const lookAgain = 10 * time.Second

// server is that of a node, which is known by the number of its group and keeps it when a standby takes its place.
type server struct {
	host    string
	port    uint16
	primary *Primary
}

// Nodes are connections to the nodes for one use, such as commits.
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

// Holders is nil where the database is not distributed by Citus.
func (p *Primary) Holders(ctx context.Context) (*Holders, error) {
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
	return &Holders{primary: p, asking: asking, pieces: map[uint16]located{}, servers: map[int32]*server{}}, nil
}

// Nodes gives so many connections to each node. open makes the pool of one. Nil of nil.
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

// Close closes all connections. Nil has none.
func (h *Holders) Close() {
	if h == nil {
		return
	}
	h.asking.Close()
	h.mu.Lock()
	pools := h.pools
	h.mu.Unlock()
	for _, n := range pools {
		n.close()
	}
}

func (n *Nodes) close() {
	n.opening.Lock()
	defer n.opening.Unlock()
	n.closed = true
	for _, p := range n.opened {
		p.pool.Close()
	}
}

// Acquire gives a connection to the node that holds a shard.
func (n *Nodes) Acquire(ctx context.Context, shard uint16) (*pgxpool.Conn, *Piece, error) {
	piece, err := n.piece(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	pool, err := n.pool(ctx, piece)
	if err != nil {
		return nil, nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		n.Forget(piece)
		return nil, nil, fmt.Errorf("connect to the node %s:%d: %w", piece.host, piece.port, err)
	}
	return conn, piece, nil
}

// NodeOf is the node that Acquire would connect to.
func (h *Holders) NodeOf(ctx context.Context, shard uint16) (int32, error) {
	p, err := h.piece(ctx, shard)
	if err != nil {
		return 0, err
	}
	return p.group, nil
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

// server is that of a piece's node. A node that has another address now, because a standby was promoted, has another server,
// which knows what was seen of the former one.
func (h *Holders) server(p *Piece) *Primary {
	h.mu.Lock()
	defer h.mu.Unlock()
	former := h.servers[p.group]
	if former != nil && former.host == p.host && former.port == p.port {
		return former.primary
	}
	next := &server{host: p.host, port: p.port, primary: h.primary.node(p.host, p.port)}
	if former != nil {
		former.primary.mu.Lock()
		next.primary.newest = former.primary.newest
		former.primary.mu.Unlock()
	}
	h.servers[p.group] = next
	return next.primary
}

func (n *Nodes) pool(ctx context.Context, p *Piece) (*pgxpool.Pool, error) {
	server := n.server(p)
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.closed {
		return nil, errors.New("the connections to the nodes are closed")
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
		go former.pool.Close() // after those who have its connections
	}
	n.opened[p.group] = nodePool{server, pool}
	return pool, nil
}

// node is another server with the same database, for statements that name the parts of tables.
func (p *Primary) node(host string, port uint16) *Primary {
	if p.Nodes != "" {
		return &Primary{url: nodeURL(p.Nodes, host, port), direct: true}
	}
	return &Primary{url: p.url, host: host, port: port, direct: true}
}

func nodeURL(template, host string, port uint16) string {
	return strings.NewReplacer("{host}", host, "{port}", strconv.Itoa(int(port))).Replace(template)
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
