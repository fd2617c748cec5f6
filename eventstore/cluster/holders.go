package cluster

import (
	"context"
	"maps"
	neturl "net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
)

// Holders finds the Citus node that holds a shard. Citus may move pieces between nodes at any time, and the former node
// may keep a copy for a while; Piece.Hold detects that. Holders is safe for concurrent use.
//
// One query of the cluster answers for all shards and all waiting callers. While the cluster does not answer, its last
// answer stays valid until a node contradicts it.
type Holders struct {
	primary *Primary // any node of the cluster
	asking  *pgxpool.Pool
	hashes  []int32         // by shard
	life    context.Context //nolint:containedctx // of the questions, which outlive their callers
	end     context.CancelFunc

	mu       sync.Mutex
	pieces   []*Piece          // from the last answer
	answered uint64            // number of the question that was answered last
	since    time.Time         // when that question was asked
	due      time.Time         // when the next is
	silent   bool              // the last question was not answered, or not in time
	doubted  map[*Piece]uint64 // number of the first question whose answer settles a node's refusal
	asked    uint64            // number of the last question
	question *question         // in progress, or nil
	servers  map[int32]*server
	pools    []*Nodes
}

// question is a query of the cluster. err may be read once done is closed.
type question struct {
	number uint64
	done   chan struct{}
	err    error
}

const (
	// lookAgain is how long an answer is valid if no node objects. After a standby of a node was promoted, the former
	// primary would not object; operators must keep it down.
	lookAgain = 10 * time.Second
	// askAgain is the shortest time between two questions, unless a node's refusal requires one.
	askAgain = time.Second
	// lookPatience is how long a caller waits for a newer answer if a shard's last node is known.
	lookPatience = time.Second
	// acquireTimeout limits the time to get a connection to a node.
	acquireTimeout = 12 * time.Second
)

// server is the server of a node. A node is identified by its group number, which it keeps when a standby is promoted.
type server struct {
	host    string
	port    uint16
	primary *Primary
}

// Holders returns nil if Citus does not distribute the database.
func (p *Primary) Holders(ctx context.Context) (*Holders, error) {
	// Do not restrict the plans: these queries read whole catalogues.
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
			err = say.Errorf("ask whether the tables are distributed: %w", err)
		}
		return nil, err
	}
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	return h, nil
}

// Distributed reports whether Citus has distributed the tables of the ledger. It checks more than holdFunction, which a
// failed distribution may have left behind.
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

// Close closes all connections. A nil receiver has none.
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

// NodeOf returns the number of the node that Acquire would connect to.
func (h *Holders) NodeOf(ctx context.Context, shard uint16) (int32, error) {
	p, err := h.Place(ctx, shard)
	if err != nil {
		return 0, err
	}
	return p.group, nil
}

// Locate asks the cluster for the current place of a shard.
func (h *Holders) Locate(ctx context.Context, shard uint16) (*Piece, error) {
	h.mu.Lock()
	next := h.asked + 1
	h.mu.Unlock()
	return h.find(ctx, shard, next)
}

// Place returns the last known place of a shard.
func (h *Holders) Place(ctx context.Context, shard uint16) (*Piece, error) {
	return h.find(ctx, shard, 1)
}

// find returns the place of a shard from the answer to question number first or a later one.
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
			return piece, nil //nolint:nilerr // the last answer stays valid
		case err != nil && (q.number >= least || ctx.Err() != nil):
			return nil, say.Errorf("ask for the node of shard %d: %w", shard, err)
		case err == nil && q.number >= least:
			h.mu.Lock()
			piece = h.known(shard)
			h.mu.Unlock()
			if piece == nil {
				return nil, say.Errorf("no node of the cluster holds shard %d", shard)
			}
			return piece, nil
		}
	}
}

// errNoAnswer means that the caller stopped waiting for an answer.
var errNoAnswer = say.New("the cluster does not answer")

// wait waits for the answer to a question. If an earlier answer is known, it waits only briefly, or not at all if the
// cluster has not answered recently.
func (h *Holders) wait(ctx context.Context, q *question, known, silent bool) error {
	var patience <-chan time.Time
	if known {
		most := lookPatience
		if silent {
			most = 0
		}
		timer := time.NewTimer(most) //nolint:forbidigo // only if an answer is known
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

// Forget marks a piece whose node has refused it as doubted: its shards are not found there again until the cluster has
// answered a new question.
func (h *Holders) Forget(piece *Piece) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.pieces, piece) { // otherwise there is a newer answer
		h.doubted[piece] = h.asked + 1
	}
}

// unreached makes the next question due earlier, because a node may have another server now.
func (h *Holders) unreached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if soon := h.since.Add(askAgain); soon.Before(h.due) {
		h.due = soon
	}
}

// known returns the piece of a shard, or nil. The caller must hold the lock.
func (h *Holders) known(shard uint16) *Piece {
	hash := h.hashes[shard]
	for _, p := range h.pieces {
		if p.from <= hash && hash <= p.to {
			return p
		}
	}
	return nil
}

// ask returns the question in progress, or starts one. It runs until it is answered, whether or not a caller still
// waits. The caller must hold the lock.
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

// readPieces reads the node of each piece of shard_heads and the parts of all tables in that piece. Reference tables
// are left to Citus, which writes them on every node.
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

// read reads the places of all pieces. An unchanged piece stays the same value and keeps its texts.
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
			return nil, say.Errorf(
				"the piece %d is on several nodes, but only one would be written: give every piece one placement "+
					"(citus.shard_replication_factor = 1)",
				p.id,
			)
		}
		seen[p.id] = true
	}
	return pieces, err
}

// server returns the server of a piece's node. If the node has a new address because a standby was promoted, the new
// server inherits the former one's timeline.
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

// node returns another server with the same database, for statements that name the parts of tables.
func (p *Primary) node(host string, port uint16) *Primary {
	return &Primary{source: atNode(p.source, p.Nodes, host, port), direct: true, Tracer: p.Tracer}
}

// atNode returns a Source for the server of a node. nodes may be nil.
func atNode(database, nodes connect.Source, host string, port uint16) connect.Source {
	return func() string {
		template := ""
		if nodes != nil {
			template = nodes()
		}
		return at(database(), template, host, port)
	}
}

// at returns a database URL for the server of a node: from the template nodes, if set, otherwise from url. All settings
// that depend on the server, such as TLS, come from that URL.
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
		return url // a pool reports the error
	}
	parsed.Host = ""
	settings := parsed.Query() // in the query, host may also be a socket directory
	settings.Set("host", host)
	settings.Set("port", number)
	parsed.RawQuery = settings.Encode()
	return parsed.String()
}
