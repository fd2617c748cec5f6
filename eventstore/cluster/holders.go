package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	neturl "net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster/connect"
)

// Holders finds the node of Citus that holds a shard. Citus moves pieces from node to node meanwhile, and the former
// node may keep a copy for a while: Piece.Hold finds out. Safe for concurrent use.
//
// One question to the cluster answers for all shards and for everybody who waits. While the cluster does not answer,
// what it has said stays true, for as long as no node contradicts it.
type Holders struct {
	primary *Primary // any node of the cluster
	asking  *pgxpool.Pool
	hashes  []int32         // by shard
	life    context.Context //nolint:containedctx // of the questions, which outlive those who ask
	end     context.CancelFunc

	mu       sync.Mutex
	pieces   []*Piece          // as the cluster has last said
	answered uint64            // number of the question that it said so to
	since    time.Time         // when that question was asked
	due      time.Time         // when the next is
	silent   bool              // the last question was not answered, or not in time
	doubted  map[*Piece]uint64 // number of the first question that can answer a node's refusal
	asked    uint64            // number of the last question
	question *question         // under way, or nil
	servers  map[int32]*server
	pools    []*Nodes
}

// question is one to the cluster. Its error may be read when it is done.
type question struct {
	number uint64
	done   chan struct{}
	err    error
}

const (
	// lookAgain is for how long an answer is believed where no node objects: the former primary of a node, whose standby
	// was promoted, does not. Keeping it down is the operator's task.
	lookAgain = 10 * time.Second
	// askAgain is the least time between two questions that nobody's refusal makes necessary.
	askAgain = time.Second
	// lookPatience is how long those who know where a shard was wait for a newer answer.
	lookPatience = time.Second
	// acquireTimeout is how long a node may take to give a connection.
	acquireTimeout = 12 * time.Second
)

// server is that of a node, which is known by the number of its group and keeps it when a standby takes its place.
type server struct {
	host    string
	port    uint16
	primary *Primary
}

// Holders is nil where the database is not distributed by Citus.
func (p *Primary) Holders(ctx context.Context) (*Holders, error) {
	// Nothing is forbidden to the plans of these questions, which read whole catalogues.
	asking, err := p.open(ctx, 1, session{name: "integrity nodes", statement: "5s", lock: "5s", idle: "5s"}, keptAlive)
	if err != nil {
		return nil, err
	}
	h := &Holders{primary: p, asking: asking, doubted: map[*Piece]uint64{}, servers: map[int32]*server{}}
	distributed, err := Distributed(ctx, asking)
	if err == nil && distributed {
		err = asking.QueryRow(
			ctx, "SELECT array_agg(worker_hash(shard) ORDER BY shard) FROM generate_series(0, 65535) AS shard",
		).Scan(&h.hashes)
	}
	if err != nil || !distributed {
		asking.Close()
		if err != nil {
			err = fmt.Errorf("ask whether the tables are distributed: %w", err)
		}
		return nil, err
	}
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	return h, nil
}

// Distributed reports whether Citus has distributed the tables of the ledger. A distribution that has failed may have
// left holdFunction.
func Distributed(ctx context.Context, pool *pgxpool.Pool) (yes bool, err error) {
	err = pool.QueryRow(
		ctx, "SELECT to_regclass('pg_dist_partition') IS NOT NULL AND to_regproc('public."+holdFunction+"') IS NOT NULL",
	).Scan(&yes)
	if err == nil && yes {
		err = pool.QueryRow(
			ctx, "SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = 'public.shard_heads'::regclass)",
		).Scan(&yes)
	}
	return yes, err
}

// Close closes all connections. Nil has none.
func (h *Holders) Close() {
	if h == nil {
		return
	}
	h.end()
	h.asking.Close()
	h.mu.Lock()
	pools := h.pools
	h.mu.Unlock()
	for _, n := range pools {
		n.close()
	}
}

// NodeOf is the node that Acquire would connect to.
func (h *Holders) NodeOf(ctx context.Context, shard uint16) (int32, error) {
	p, err := h.Place(ctx, shard)
	if err != nil {
		return 0, err
	}
	return p.group, nil
}

// Locate asks where a shard is now.
func (h *Holders) Locate(ctx context.Context, shard uint16) (*Piece, error) {
	h.mu.Lock()
	next := h.asked + 1
	h.mu.Unlock()
	return h.find(ctx, shard, next)
}

// Place is where a shard is as far as is known.
func (h *Holders) Place(ctx context.Context, shard uint16) (*Piece, error) {
	return h.find(ctx, shard, 1)
}

// find takes the answer to a question of that number or a later one.
func (h *Holders) find(ctx context.Context, shard uint16, first uint64) (*Piece, error) {
	for {
		h.mu.Lock()
		piece := h.known(shard)
		least := max(first, h.doubted[piece])
		believed := piece != nil && h.answered >= least
		if believed && time.Now().Before(h.due) {
			h.mu.Unlock()
			return piece, nil
		}
		q, silent := h.ask(), h.silent
		h.mu.Unlock()
		switch err := h.wait(ctx, q, believed, silent); {
		case believed && err != nil:
			return piece, nil //nolint:nilerr // what is known stays true
		case err != nil && (q.number >= least || ctx.Err() != nil):
			return nil, fmt.Errorf("ask for the node of shard %d: %w", shard, err)
		case err == nil && q.number >= least:
			h.mu.Lock()
			piece = h.known(shard)
			h.mu.Unlock()
			if piece == nil {
				return nil, fmt.Errorf("no node of the cluster holds shard %d", shard)
			}
			return piece, nil
		}
	}
}

// errNoAnswer is that of a question that is not waited for any longer.
var errNoAnswer = errors.New("the cluster does not answer")

// wait waits for the answer to a question, not for long where it is known what was true before, and not at all where
// the cluster has not answered lately.
func (h *Holders) wait(ctx context.Context, q *question, known, silent bool) error {
	var patience <-chan time.Time
	if known {
		most := lookPatience
		if silent {
			most = 0
		}
		timer := time.NewTimer(most) //nolint:forbidigo // of known holders only
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	case <-patience:
		h.mu.Lock()
		h.silent = h.silent || h.question == q
		h.mu.Unlock()
		return errNoAnswer
	}
}

// Forget takes a piece for doubted, whose node has refused it: the cluster is asked again before its shards are found
// there.
func (h *Holders) Forget(piece *Piece) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.pieces, piece) { // else there was an answer meanwhile
		h.doubted[piece] = h.asked + 1
	}
}

// unreached lets the cluster be asked earlier, because a node may have another server now.
func (h *Holders) unreached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if soon := h.since.Add(askAgain); soon.Before(h.due) {
		h.due = soon
	}
}

// known is the piece of a shard, or nil. The caller has the lock.
func (h *Holders) known(shard uint16) *Piece {
	hash := h.hashes[shard]
	for _, p := range h.pieces {
		if p.from <= hash && hash <= p.to {
			return p
		}
	}
	return nil
}

// ask is the question under way, or begins one, which ends when it is answered, whoever waits for it. The caller has
// the lock.
func (h *Holders) ask() *question {
	if h.question == nil {
		h.asked++
		h.question = &question{number: h.asked, done: make(chan struct{})}
		go h.answer(h.question)
	}
	return h.question
}

func (h *Holders) answer(q *question) {
	ctx, cancel := context.WithTimeout(h.life, connect.Timeout)
	defer cancel()
	asked := time.Now()
	pieces, err := h.read(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(q.done)
	q.err = err
	h.question, h.silent = nil, err != nil
	if err != nil {
		h.due = time.Now().Add(askAgain)
		return
	}
	h.pieces, h.answered, h.since, h.due = pieces, q.number, asked, asked.Add(lookAgain)
	maps.DeleteFunc(h.doubted, func(_ *Piece, first uint64) bool { return first <= q.number })
}

// readPieces asks for the node of each piece of the heads and the parts of all tables that belong to it there.
// Reference tables are left to Citus, which writes them on every node.
const readPieces = `SELECT h.shardid, h.shardminvalue::int, h.shardmaxvalue::int, n.groupid, n.nodename, n.nodeport,
		array_agg(c.relname::text ORDER BY c.relname), array_agg(shard_name(c.oid, s.shardid) ORDER BY c.relname)
	FROM pg_dist_shard h
	JOIN pg_dist_placement p ON p.shardid = h.shardid AND p.shardstate = 1
	JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary' AND n.nodecluster = current_setting('citus.cluster_name')
	JOIN pg_dist_partition d ON d.colocationid = (SELECT colocationid FROM pg_dist_partition WHERE logicalrelid = 'public.shard_heads'::regclass)
	JOIN pg_dist_shard s ON s.logicalrelid = d.logicalrelid AND s.shardminvalue = h.shardminvalue
	JOIN pg_class c ON c.oid = d.logicalrelid AND c.relnamespace = 'public'::regnamespace
	WHERE h.logicalrelid = 'public.shard_heads'::regclass
	GROUP BY 1, 2, 3, 4, 5, 6`

// read asks where all pieces are. A piece that has not changed stays the same value and keeps its texts.
func (h *Holders) read(ctx context.Context) ([]*Piece, error) {
	h.mu.Lock()
	former := h.pieces
	h.mu.Unlock()
	rows, _ := h.asking.Query(ctx, readPieces) // rows carry its error
	pieces, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Piece, error) {
		var is Piece
		var port int32
		var tables, parts []string
		if err := row.Scan(&is.id, &is.from, &is.to, &is.group, &is.host, &port, &tables, &parts); err != nil {
			return nil, err
		}
		is.port = uint16(port)
		for _, p := range former {
			if p.like(&is, tables, parts) {
				return p, nil
			}
		}
		p := NewPiece(tables, parts)
		p.id, p.from, p.to, p.group, p.host, p.port = is.id, is.from, is.to, is.group, is.host, is.port
		return p, nil
	})
	seen := map[int64]bool{}
	for _, p := range pieces {
		if seen[p.id] {
			return nil, fmt.Errorf(
				"the piece %d is on several nodes, of which only one would be written: give every piece one placement "+
					"(citus.shard_replication_factor = 1)",
				p.id,
			)
		}
		seen[p.id] = true
	}
	return pieces, err
}

// server is that of a piece's node. A node that has another address now, because a standby was promoted, has another
// server, which knows what was seen of the former one.
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

// node is another server with the same database, for statements that name the parts of tables.
func (p *Primary) node(host string, port uint16) *Primary {
	return &Primary{source: atNode(p.source, p.Nodes, host, port), direct: true, Tracer: p.Tracer}
}

// atNode leads to the server of a node. nodes may be nil.
func atNode(database, nodes connect.Source, host string, port uint16) connect.Source {
	return func() string {
		template := ""
		if nodes != nil {
			template = nodes()
		}
		return at(database(), template, host, port)
	}
}

// at is a database URL that leads to the server of a node: by the template nodes, where there is one, else as url says.
// All that depends on the server, such as TLS, is read from it.
func at(url, nodes, host string, port uint16) string {
	number := strconv.Itoa(int(port))
	if nodes != "" {
		named := host
		if strings.Contains(host, ":") {
			named = "[" + host + "]"
		}
		return strings.NewReplacer(
			"[{host}]", "["+host+"]", "={host}", "="+neturl.QueryEscape(host), "{host}", named, "{port}", number,
		).Replace(nodes)
	}
	parsed, err := neturl.Parse(url)
	if err != nil {
		return url // a pool says what is wrong with it
	}
	parsed.Host = ""
	settings := parsed.Query() // where a host may also be a directory of sockets
	settings.Set("host", host)
	settings.Set("port", number)
	parsed.RawQuery = settings.Encode()
	return parsed.String()
}
