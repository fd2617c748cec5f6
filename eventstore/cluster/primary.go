// Package cluster connects to the servers of a ledger's database. It finds the primary, chooses the settings and role
// for each kind of work, detects whether a pooler keeps sessions, and handles the differences on Citus.
//
// All pools opened from one Primary share what any of them has learned, so that no pool uses a former primary once
// another pool has met its successor.
//
// # The life of a statement
//
// A statement marks the distributed tables that it names:
//
//	var lockHead = cluster.SQL("SELECT position FROM {shard_heads} WHERE shard = $1 FOR UPDATE")
//
// SQL returns the text for one PostgreSQL, with each mark replaced by the table's name. Packages pass this text to pgx
// unchanged, to a pool, a batch or a transaction. On one PostgreSQL, and through the coordinator of Citus, nothing else
// happens to it.
//
// On Citus each distributed table is split by shard. All table parts for one range of shards are on one node and form a
// Piece. A statement reaches a node in one of four ways and uses the names of the parts there:
//
//	group commit           eventstore.Ledger    the connection of a shard's worker
//	one statement or batch eventstore.Router    if its first argument is a domain.Shard
//	a transaction          eventstore.Within    several round trips on one shard; consumers do the same
//	all shards             eventstore.Everywhere each node once, for all its pieces
//
// All four take the same steps. Holders.Place finds the piece of the shard in the coordinator's last answer.
// Nodes.Acquire connects to the piece's node. Piece.Hold goes first: it keeps the piece on the node until the end of
// the transaction, and fails if the piece has moved (Moved). The caller then calls Holders.Forget and starts again.
// Everywhere counts the pieces instead, because locking all of them would block moves. Piece.Text returns the
// statement's text for the piece. It looks the template up by the text for one PostgreSQL, and each piece caches the
// texts that it has generated. A node therefore sees at most one distinct text for each of its pieces and each
// statement of the program, and pgx prepares each text once per connection. The node's own PostgreSQL plans the
// statements, without the coordinator or the Citus planner.
//
// Text refuses a statement that names a distributed table without a mark, because on a node that name leads back to
// Citus. Statements that use only reference tables, which Citus writes on every node, go through the coordinator.
//
// migrations.Distribute creates the parts and the function behind Hold. eventstore.EachShard loops over shards for
// maintenance. If a node does not answer, it skips the remaining shards of that node.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster/connect"
)

// Primary is the server of a database that takes writes, whichever of the servers in a URL that is at the moment, and
// what a process knows of the servers' history. Each promotion of a standby begins a timeline with a higher number, so
// a server on a lower one than was seen at a primary is a primary that was replaced, or follows one, and does not know
// it. Safe for concurrent use.
type Primary struct {
	source connect.Source
	// direct: statements name the parts of tables on this node of Citus, which plans none of them.
	direct bool
	// Nodes is how the nodes of Citus are reached: a URL with {host} and {port}. Nil, or empty: as the URL's server,
	// by their own address.
	Nodes connect.Source
	// Entry is a URL of a worker of Citus, through which the coordinator is found again when it is at another address than
	// this one's. Nil: the coordinator stays where it is.
	Entry connect.Source
	// Tracer makes spans of the statements of pools that are opened from now on, here and at nodes. Nil: none.
	Tracer pgx.QueryTracer
	entry  entrance
	mu     sync.Mutex
	newest uint64 // timeline that was seen at a primary
}

// At is the primary among the servers of a URL, of which nothing is known until a pool connects.
func At(url string) *Primary { return &Primary{source: connect.Fixed(url)} }

// Find looks at every server of a URL first. Each new connection reads the source again.
//
// While the successor of a former primary cannot be reached, a process that starts takes the former one for the present
// one. Keeping a replaced primary down is the operator's task.
func Find(ctx context.Context, source connect.Source) (*Primary, error) {
	config, err := connect.Config(source())
	if err != nil {
		return nil, err
	}
	p := &Primary{source: source}
	config.ConnectTimeout, config.ValidateConnect = connect.Timeout, p.accept
	var looking sync.WaitGroup
	for _, one := range connect.Each(config) {
		looking.Go(func() {
			if conn, err := connect.OpenConfig(ctx, one); err == nil { // else it is away, or no primary
				_ = conn.Close(ctx)
			}
		})
	}
	looking.Wait()
	return p, nil
}

// timelineKey is where a connection's CustomData holds its server's timeline.
const timelineKey = "timeline"

// Timeline is that of the server of a connection, when it was opened; 0 where the server tells none.
func Timeline(conn *pgx.Conn) uint64 {
	timeline, _ := conn.PgConn().CustomData()[timelineKey].(uint64)
	return timeline
}

// accept takes a server that takes writes and was not replaced. It is asked for each server of a URL in turn.
func (p *Primary) accept(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return err
	}
	timeline, err := p.judge(ctx, conn)
	if err == nil {
		p.mu.Lock()
		p.newest = max(p.newest, timeline)
		p.mu.Unlock()
	}
	return err
}

// acceptReplica takes a server that follows the present primary, or is it. A standby that has just gone over to another
// timeline is refused until its next restart point, because only then it says so.
func (p *Primary) acceptReplica(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := p.judge(ctx, conn)
	return err
}

// readTimeline: the first eight digits of a WAL file's name are the timeline it is written on. A standby writes none.
const readTimeline = `SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT to_hex(timeline_id) FROM pg_control_checkpoint())
	ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END`

// judge refuses a server that has a successor. One that does not tell its timeline, because it is not quite PostgreSQL,
// is on timeline 0 and as good as any.
func (p *Primary) judge(ctx context.Context, conn *pgconn.PgConn) (timeline uint64, err error) {
	results, err := conn.Exec(ctx, readTimeline).ReadAll()
	_, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case refused && !conn.IsClosed():
	case err != nil:
		return 0, fmt.Errorf("timeline of the server: %w", err)
	default:
		if timeline, err = strconv.ParseUint(string(results[0].Rows[0][0]), 16, 32); err != nil {
			return 0, fmt.Errorf("timeline of the server: %w", err)
		}
	}
	conn.CustomData()[timelineKey] = timeline
	if !p.current(timeline) {
		return timeline, fmt.Errorf(
			"this server is on timeline %d, but a standby was promoted since: make it follow the present primary "+
				"(pg_rewind), or restart this process if the database was replaced on purpose",
			timeline,
		)
	}
	return timeline, nil
}

func (p *Primary) current(timeline uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return timeline == 0 || timeline >= p.newest
}

// serviceRole is the role of serving connections. It has no right to change an event: a guard against mistakes, not
// against a stolen URL.
const serviceRole = "integrity_service"

// settings are session settings of PostgreSQL.
type settings map[string]string

// session is how long a session of a pool may do what, in PostgreSQL's units; empty: what the server has set.
type session struct {
	name      string // its application_name
	statement string // the longest statement
	lock      string // the longest wait for a lock
	idle      string // the longest rest in a transaction: a process that freezes loses its locks then
}

// Plans are fixed to index look-ups: with near-empty statistics a cached generic plan would scan whole tables, and
// planning each look-up anew costs more than answering it.
var (
	lookUps = settings{
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
		"enable_memoize": "off", // the keys of a statement hardly repeat
		"jit":            "off", // a scan that is forbidden, and the only plan, seems dear enough to be compiled each time
	}
	writes = settings{ // beside lookUps
		"enable_bitmapscan": "off", "enable_material": "off", "join_collapse_limit": "1", "from_collapse_limit": "1",
	}
	// keptAlive notices a client that vanished without a word.
	keptAlive = settings{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
	// unflushed commits do not wait for the disk: what a crash of the server loses is done again.
	unflushed = settings{"synchronous_commit": "off"}
)

// CommitPool opens the connections that commit groups. A process that freezes between its two round trips loses the
// shard's lock after five seconds.
func (p *Primary) CommitPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity commit", statement: "20s", lock: "10s", idle: "5s"}, lookUps, writes, keptAlive,
	)
}

// CommitConns is how many connections a process commits with: one a processor and one that waits for the disk, but no
// more than one a shard. More would only cut the same commands into smaller groups.
func CommitConns(shards int) int { return min(shards, runtime.GOMAXPROCS(0)+1) }

// QueuePool opens the connections of workers on the queues.
func (p *Primary) QueuePool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity queue", statement: "10s", lock: "5s", idle: "5s"}, lookUps, writes, unflushed,
	)
}

// ConsumerPool opens the connections of a consumer, whose transactions stay open while a page of events is handled. A
// position that a crash of the server loses makes events come again.
func (p *Primary) ConsumerPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity consumer", statement: "2s", lock: "2s", idle: "2s"}, lookUps, writes, keptAlive,
		unflushed,
	)
}

// WitnessPool opens the connections of a witness of other logs. Its statements end before those who wait for a
// cosignature give up.
func (p *Primary) WitnessPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity witness", statement: "4s", lock: "2s", idle: "2s"}, lookUps, writes, keptAlive,
	)
}

// ReadPool opens connections for queries and authentication, all of which look rows up by key.
func (p *Primary) ReadPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, session{name: "integrity read", statement: "15s", lock: "5s", idle: "10s"}, lookUps)
}

// NotifyPool opens the connections of a Notifier, which are two. Polling covers a notification that a crash loses.
func (p *Primary) NotifyPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, session{name: "integrity wake", statement: "5s"}, keptAlive, unflushed)
}

// ProbePool opens the connection of a Probe. The statements end before the question does, so that the connection is
// kept. What a question makes goes to the disk.
func (p *Primary) ProbePool(ctx context.Context) (*pgxpool.Pool, error) {
	return p.open(
		ctx, 1, session{name: "integrity probe", statement: "2500ms", lock: "1s", idle: "5s"}, keptAlive,
		settings{"work_mem": "64kB"},
	)
}

// RebuildPool opens the connections of a rebuild of so many shards at a time, two each: one that writes and one that
// reads ahead. They have the role of the URL, because they replace rows of projections, which the service role may not
// delete. They write to the tables of the schema rebuild, by the same plans as a group, however long role or database
// let a statement run. A commit that waits for its standby holds a shard's lock for up to 20 s.
func (p *Primary) RebuildPool(ctx context.Context, shards int) (*pgxpool.Pool, error) {
	of := session{name: "integrity rebuild", statement: "0", lock: "30s", idle: "60s"}
	return p.pool(
		ctx, nil, 2*shards, "", of, p.accept, lookUps, writes, unflushed, settings{"search_path": "rebuild, public"},
	)
}

// ReplicaPool opens connections to a standby, or to several, for queries that may be answered by an earlier state. They
// never write, also where the standby has become a primary.
func (p *Primary) ReplicaPool(ctx context.Context, source connect.Source, conns int) (*pgxpool.Pool, error) {
	of := session{name: "integrity replica", statement: "5s", idle: "10s"}
	return p.pool(
		ctx, source, conns, serviceRole, of, p.acceptReplica, lookUps, settings{"default_transaction_read_only": "on"},
	)
}

func (p *Primary) open(ctx context.Context, conns int, of session, s ...settings) (*pgxpool.Pool, error) {
	return p.pool(ctx, nil, conns, serviceRole, of, p.accept, s...)
}

const (
	// pingTimeout is how long a connection that has rested may take to show that it still leads somewhere.
	pingTimeout = 2 * time.Second
	// heldStatements is how many statements a connection to a node of Citus keeps prepared, for each piece there.
	heldStatements = 2048
	// insufficientPrivilege is the SQLSTATE of what a role may not do.
	insufficientPrivilege = "42501"
)

// pool opens connections that take on a role; an empty one means the role of the URL. A nil source means the
// primary's own. accept judges each new connection, and current each that is handed out. Every new connection reads
// the source again, so that a rotated password needs no restart.
func (p *Primary) pool(
	ctx context.Context, source connect.Source, conns int, role string, of session, accept pgconn.ValidateConnectFunc,
	s ...settings,
) (*pgxpool.Pool, error) {
	entered := source == nil && p.Entry != nil
	if source == nil {
		source = p.source
	}
	config, err := pgxpool.ParseConfig(source())
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns = int32(max(1, conns))
	config.PingTimeout = pingTimeout
	config.ConnConfig.ConnectTimeout = connect.Timeout
	config.ConnConfig.ValidateConnect = accept
	connect.KeepAlive(config.ConnConfig)
	config.ConnConfig.OnPgError = keepUsable
	if p.direct {
		config.ConnConfig.StatementCacheCapacity = heldStatements
	}
	config.ConnConfig.OnNotice, config.ConnConfig.Tracer = noteWarning, p.Tracer
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		return p.current(Timeline(conn)), nil
	}
	config.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		from := source
		if entered {
			from = p.readdress(ctx, config)
		}
		return connect.Renew(config, from)
	}
	begin := p.sessionBegin(role, of, s)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) (err error) {
		defer func() {
			if err != nil {
				err = unprepared{err}
			}
		}()
		if entered {
			p.entry.reached()
		}
		registerCodecs(conn.TypeMap())
		conn.PgConn().CustomData()[warningsKey] = new(atomic.Int64)
		tag, err := conn.Exec(ctx, begin)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == insufficientPrivilege && role != "" {
			return fmt.Errorf(
				"take on the role %s: %w: let a superuser run GRANT %s TO %s (from PostgreSQL 16 on: … WITH SET TRUE)", role,
				err, role, pgx.Identifier{conn.Config().User}.Sanitize(),
			)
		}
		if err != nil {
			return fmt.Errorf("prepare a connection with the role %q: %w", role, err)
		}
		if !p.direct && tag.RowsAffected() > 0 {
			conn.PgConn().CustomData()[citusKey] = true
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}

// unprepared is the error of a connection that could not be made what its pool needs.
type unprepared struct{ error }

func (u unprepared) Unwrap() error { return u.error }

// NotConnected reports whether an error is that of a connection that could not be made, for whatever reason: the
// database was asked nothing, and another attempt may succeed.
func NotConnected(err error) bool {
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	_, useless := errors.AsType[unprepared](err)
	return refused || useless
}

// sessionBegin makes a session what its pool needs, in one round trip. Settings are not among the parameters that a
// connection starts with, because a pooler refuses those.
func (p *Primary) sessionBegin(role string, of session, s []settings) string {
	all := settings{
		// Each statement must see what was committed while the one before it waited for a lock, whatever role or database
		// say.
		"default_transaction_isolation": "read committed",
		"application_name":              of.name, "statement_timeout": of.statement, "lock_timeout": of.lock,
		"idle_in_transaction_session_timeout": of.idle,
	}
	for _, more := range s {
		maps.Copy(all, more)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			fmt.Fprintf(&b, "SELECT set_config('%s', '%s', false); ", name, all[name])
		}
	}
	if role != "" {
		b.WriteString("SET ROLE " + role + "; ")
	}
	if p.direct {
		return b.String()
	}
	return b.String() + planByParameters
}

// planByParameters lets Citus, where it is installed, see the shard when it plans a statement: it cannot route a
// statement by a generic plan. A question to all shards takes one connection of each node.
const planByParameters = "SELECT set_config('plan_cache_mode', 'auto', false), " +
	"set_config('citus.max_adaptive_executor_pool_size', '1', false) FROM pg_extension WHERE extname = 'citus'"

// citusKey is where a connection's CustomData says that the database has the extension.
const citusKey = "citus"

// OnCitus reports whether a connection of one of these pools leads to a cluster of Citus, which moves no row by its
// place (ctid).
func OnCitus(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[citusKey] != nil }

// ErrUnknown says that a transaction may have been committed, or may be lost with a server.
var ErrUnknown = errors.New("outcome of the commit is unknown")

// warningsKey is where a connection's CustomData counts the server's warnings, for instance that it committed without
// waiting for the synchronous standby, or, a coordinator of Citus, that the node did not answer to the COMMIT. The
// count only grows: the next transaction on the connection, which can begin before a commit has been judged, takes
// nothing away.
const warningsKey = "warnings"

func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if count, ok := c.CustomData()[warningsKey].(*atomic.Int64); ok && n.SeverityUnlocalized == "WARNING" {
		count.Add(1)
	}
}

// Warnings is how many warnings the server has sent on a connection of one of these pools. When a transaction has
// raised it, the outcome of its commit is unknown.
func Warnings(conn *pgx.Conn) int64 {
	return conn.PgConn().CustomData()[warningsKey].(*atomic.Int64).Load() //nolint:forcetypeassert // AfterConnect puts it there
}

// Commit commits a transaction and requires the server's plain word for it. After an error, ErrUnknown or another, the
// transaction may be there all the same.
func Commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn()
	before := Warnings(conn)
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if Warnings(conn) > before {
		return ErrUnknown
	}
	return nil
}

// ReadOnly is the SQLSTATE of a write that a server refuses because it is a standby, or is being taken out of service.
const ReadOnly = "25006"

// keepUsable says whether a connection may be used on after an error of the server: not when the server has ended it,
// or takes no writes any more.
func keepUsable(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.SeverityUnlocalized != "FATAL" && err.SeverityUnlocalized != "PANIC" && err.Code != ReadOnly
}

// Loggable leaves out what PostgreSQL's messages quote: references and hashes must not reach a log.
func Loggable(err error) string {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("PostgreSQL answered %s %s (%s), constraint %q, table %q",
		refused.SeverityUnlocalized, refused.Code, Reason(refused.Code), refused.ConstraintName, refused.TableName)
}

// Reason says in a few words, for operators, why a server refused with a SQLSTATE.
func Reason(code string) string {
	return cmp.Or(map[string]string{
		"42P01":  "a table of the ledger is missing (integrity doctor names it)",
		"42703":  "a column of the ledger is missing (integrity doctor names it)",
		"42501":  "the role of the service lacks a right (integrity doctor says which)",
		"53100":  "the database's disk is full",
		"53200":  "the database has no memory left",
		"53300":  "the database has no connection left (max_connections)",
		"28P01":  "the database refuses the password of its URL",
		"28000":  "the database does not let the role of its URL in",
		"57014":  "the database does not answer in time",
		"57P03":  "the database is starting or stopping",
		ReadOnly: "the database takes no writes (it is a standby, or default_transaction_read_only is on)",
	}[code], "the database refuses to write")
}
