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

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
)

// Primary is the server of a database that currently accepts writes, among the servers in a URL. It also remembers the
// servers' timelines. Each promotion of a standby begins a timeline with a higher number. A server on a lower timeline
// than a primary was seen on is a replaced primary, or follows one, without knowing it. Primary is safe for concurrent
// use.
type Primary struct {
	source connect.Source
	// direct is set for a Citus node whose statements name the parts of tables, so that Citus plans none of them.
	direct bool
	// Nodes is a URL template with {host} and {port} for the Citus nodes. If it is nil or empty, nodes are reached at
	// their own address with the settings of the database URL.
	Nodes connect.Source
	// Entry is the URL of a Citus worker, through which the coordinator is found again if its address changes. Nil means
	// that the coordinator's address does not change.
	Entry connect.Source
	// Tracer traces the statements of pools that are opened from now on, here and on nodes. Nil disables tracing.
	Tracer pgx.QueryTracer
	// Reader lets ReadPool take on the role of readers if it may not take on the role of the service.
	Reader bool
	entry  entrance
	mu     sync.Mutex
	newest uint64 // the highest timeline seen on a primary
}

// At returns the Primary among the servers of a URL. It knows nothing about them until a pool connects.
func At(url string) *Primary { return &Primary{source: connect.Fixed(url)} }

// Find is At, but first connects to every server of the URL. Each new connection reads the source again.
//
// While the successor of a former primary is unreachable, a starting process takes the former primary for the current
// one. Operators must keep a replaced primary down.
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
			if conn, err := connect.OpenConfig(ctx, one); err == nil { // otherwise it is unreachable or not a primary
				_ = conn.Close(ctx)
			}
		})
	}
	looking.Wait()
	return p, nil
}

// timelineKey is the key of the server's timeline in a connection's CustomData.
const timelineKey = "timeline"

// Timeline returns the timeline of a connection's server when the connection was opened, 0 if the server reports none.
func Timeline(conn *pgx.Conn) uint64 {
	timeline, _ := conn.PgConn().CustomData()[timelineKey].(uint64)
	return timeline
}

// accept accepts a server that accepts writes and was not replaced. It is called for each server of a URL in turn.
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

// acceptReplica accepts a server that is, or follows, the current primary. A standby that has just switched to another
// timeline is refused until its next restart point, because it reports the new timeline only then.
func (p *Primary) acceptReplica(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := p.judge(ctx, conn)
	return err
}

// readTimeline reads the timeline from the first eight digits of the current WAL file's name. A standby writes no WAL,
// so it is read from the control file there.
const readTimeline = `SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT to_hex(timeline_id) FROM pg_control_checkpoint())
	ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END`

// judge refuses a server that has a successor. A server that does not report its timeline, because it is not quite
// PostgreSQL, has timeline 0 and is accepted.
func (p *Primary) judge(ctx context.Context, conn *pgconn.PgConn) (timeline uint64, err error) {
	results, err := conn.Exec(ctx, readTimeline).ReadAll()
	_, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case refused && !conn.IsClosed():
	case err != nil:
		return 0, say.Errorf("timeline of the server: %w", err)
	default:
		if timeline, err = strconv.ParseUint(string(results[0].Rows[0][0]), 16, 32); err != nil {
			return 0, say.Errorf("timeline of the server: %w", err)
		}
	}
	conn.CustomData()[timelineKey] = timeline
	if !p.current(timeline) {
		return timeline, say.Errorf(
			"this server is on timeline %d, but a standby was promoted since: make it follow the current primary "+
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

// serviceRole is the role of serving connections. It cannot change events, which protects against mistakes but not
// against a stolen URL.
const serviceRole = "integrity_service"

// readerRole is the role of auditors. It changes nothing.
const readerRole = "integrity_reader"

// settings are session settings of PostgreSQL.
type settings map[string]string

// session holds the timeouts of a pool's sessions, in PostgreSQL's units. Empty means the server's setting.
type session struct {
	name      string // its application_name
	statement string // the longest statement
	lock      string // the longest wait for a lock
	idle      string // the longest idle time in a transaction; a frozen process then loses its locks
	otherwise string // the role to take on if the pool's is refused; empty: none
}

// Plans are restricted to index lookups: with near-empty statistics, a cached generic plan would scan whole tables, and
// planning each lookup anew costs more than executing it.
var (
	lookUps = settings{
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
		"enable_memoize": "off", // the keys of a statement rarely repeat
		"jit":            "off", // the cost of a discouraged scan, if it is the only plan, would trigger compilation each time
	}
	writes = settings{ // in addition to lookUps
		"enable_bitmapscan": "off", "enable_material": "off", "join_collapse_limit": "1", "from_collapse_limit": "1",
	}
	// keptAlive makes the server detect a client that vanished.
	keptAlive = settings{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
	// unflushed commits do not wait for the disk. Work that a server crash loses is repeated.
	unflushed = settings{"synchronous_commit": "off"}
)

// CommitPool opens the connections that commit groups. A process that freezes between its two round trips loses the
// shard's lock after five seconds.
func (p *Primary) CommitPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity commit", statement: "20s", lock: "10s", idle: "5s"}, lookUps, writes, keptAlive,
	)
}

// CommitConns returns the number of connections a process commits with: one per processor and one that waits for the
// disk, but no more than one per shard. More would only split the same commands into smaller groups.
func CommitConns(shards int) int { return min(shards, runtime.GOMAXPROCS(0)+1) }

// QueuePool opens the connections of queue workers.
func (p *Primary) QueuePool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity queue", statement: "10s", lock: "5s", idle: "5s"}, lookUps, writes, unflushed,
	)
}

// ConsumerPool opens the connections of a consumer, whose transactions stay open while a page of events is handled. If
// a server crash loses a position, events are delivered again.
func (p *Primary) ConsumerPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity consumer", statement: "2s", lock: "2s", idle: "2s"}, lookUps, writes, keptAlive,
		unflushed,
	)
}

// WitnessPool opens the connections of a witness for other logs. Its statements time out before clients that wait for a
// cosignature give up.
func (p *Primary) WitnessPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(
		ctx, conns, session{name: "integrity witness", statement: "4s", lock: "2s", idle: "2s"}, lookUps, writes, keptAlive,
	)
}

// ReadPool opens connections for queries and authentication, which look up rows by key.
func (p *Primary) ReadPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	of := session{name: "integrity read", statement: "15s", lock: "5s", idle: "10s"}
	if p.Reader {
		of.otherwise = readerRole
	}
	return p.open(ctx, conns, of, lookUps)
}

// NotifyPool opens the connections of a Notifier, which needs two. Polling makes up for notifications lost in a crash.
func (p *Primary) NotifyPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, session{name: "integrity wake", statement: "5s"}, keptAlive, unflushed)
}

// ProbePool opens the connection of a Probe. The statements time out before the question, so that the connection is
// kept. A small work_mem makes the question write to the disk.
func (p *Primary) ProbePool(ctx context.Context) (*pgxpool.Pool, error) {
	return p.open(
		ctx, 1, session{name: "integrity probe", statement: "2500ms", lock: "1s", idle: "5s"}, keptAlive,
		settings{"work_mem": "64kB"},
	)
}

// RebuildPool opens the connections of a rebuild of several shards, or parts of shards, at a time. Each needs two: one
// writes and one reads ahead. They use the role of the URL, because they replace rows of projections, which the service
// role may not delete. They write to the tables of the schema rebuild with the same plans as a group, without a
// statement timeout. A commit that waits for its standby holds a shard's lock for up to 20 s.
func (p *Primary) RebuildPool(ctx context.Context, shards int) (*pgxpool.Pool, error) {
	of := session{name: "integrity rebuild", statement: "0", lock: "30s", idle: "60s"}
	return p.pool(
		ctx, nil, 2*shards, "", of, p.accept, lookUps, writes, unflushed, settings{"search_path": "rebuild, public"},
	)
}

// ReplicaPool opens connections to one or more standbys, for queries that may return an earlier state. They never
// write, even if the standby has become a primary.
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
	// pingTimeout limits the check that an idle connection still works.
	pingTimeout = 2 * time.Second
	// heldStatements is the number of prepared statements that a connection to a Citus node caches, across all pieces
	// there.
	heldStatements = 2048
	// insufficientPrivilege is the SQLSTATE of a missing privilege.
	insufficientPrivilege = "42501"
)

// pool opens connections that switch to a role; an empty role means the role of the URL. A nil source means the
// primary's own. accept checks each new connection, and current each connection that is handed out. Every new
// connection reads the source again, so that a rotated password needs no restart.
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
		return nil, say.Errorf("database URL: %w", err)
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
	begin, otherwise := p.sessionBegin(role, of, s), p.sessionBegin(of.otherwise, of, s)
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
		if Denied(err) && of.otherwise != "" {
			if second, also := conn.Exec(ctx, otherwise); also == nil {
				tag, err = second, nil
			}
		}
		if Denied(err) && role != "" {
			return say.Errorf(
				"take on the role %s: %w: let a superuser run GRANT %s TO %s (from PostgreSQL 16 on: … WITH SET TRUE)", role,
				err, role, pgx.Identifier{conn.Config().User}.Sanitize(),
			)
		}
		if err != nil {
			return say.Errorf("prepare a connection with the role %q: %w", role, err)
		}
		if !p.direct && tag.RowsAffected() > 0 {
			conn.PgConn().CustomData()[citusKey] = true
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, say.Errorf("open database: %w", err)
	}
	return pool, nil
}

// Denied reports whether PostgreSQL refused a statement because the role lacks a right.
func Denied(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == insufficientPrivilege
}

// unprepared is the error of a connection whose session could not be set up.
type unprepared struct{ error }

func (u unprepared) Unwrap() error { return u.error }

// NotConnected reports whether an error means that no connection was established, for whatever reason: no statement was
// sent, and another attempt may succeed.
func NotConnected(err error) bool {
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	_, useless := errors.AsType[unprepared](err)
	return refused || useless
}

// sessionBegin returns the statements that set up a session, for one round trip. The settings are not startup
// parameters, because a pooler refuses those.
func (p *Primary) sessionBegin(role string, of session, s []settings) string {
	all := settings{
		// Each statement must see rows committed while the previous one waited for a lock, whatever the role or database
		// settings are.
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

// planByParameters lets Citus, if it is installed, see the shard when it plans a statement: it cannot route a statement
// with a generic plan. A query of all shards uses one connection per node.
const planByParameters = "SELECT set_config('plan_cache_mode', 'auto', false), " +
	"set_config('citus.max_adaptive_executor_pool_size', '1', false) FROM pg_extension WHERE extname = 'citus'"

// citusKey is the key in a connection's CustomData that is set if the database has the extension.
const citusKey = "citus"

// OnCitus reports whether a connection of one of these pools leads to a Citus cluster, which cannot address rows by
// their place (ctid).
func OnCitus(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[citusKey] != nil }

// ErrUnknown means that a transaction may or may not have been committed.
var ErrUnknown = say.New("outcome of the commit is unknown")

// warningsKey is the key of the number of server warnings in a connection's CustomData. A server warns, for example, if
// it committed without waiting for the synchronous standby. A Citus coordinator warns if the node did not answer the
// COMMIT. The count only grows, so that the next transaction on the connection, which can begin before a commit is
// checked, does not reset it.
const warningsKey = "warnings"

func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if count, ok := c.CustomData()[warningsKey].(*atomic.Int64); ok && n.SeverityUnlocalized == "WARNING" {
		count.Add(1)
	}
}

// Warnings returns the number of warnings that the server has sent on a connection of one of these pools. If it grew
// during a transaction, the outcome of the commit is unknown.
func Warnings(conn *pgx.Conn) int64 {
	return conn.PgConn().CustomData()[warningsKey].(*atomic.Int64).Load() //nolint:forcetypeassert // AfterConnect puts it there
}

// Commit commits a transaction and returns nil only if the server confirmed it without a warning. After any error,
// including ErrUnknown, the transaction may still have been committed.
func Commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn()
	before := Warnings(conn)
	if err := tx.Commit(ctx); err != nil {
		return say.Errorf("commit: %w", err)
	}
	if Warnings(conn) > before {
		return ErrUnknown
	}
	return nil
}

// ReadOnly is the SQLSTATE of a write refused by a standby or by a server that is being taken out of service.
const ReadOnly = "25006"

// keepUsable reports whether a connection may be used after a server error. It may not if the server has ended it or no
// longer accepts writes.
func keepUsable(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.SeverityUnlocalized != "FATAL" && err.SeverityUnlocalized != "PANIC" && err.Code != ReadOnly
}

// Loggable returns an error's text without values quoted by PostgreSQL, such as references and hashes, which must not
// be logged.
func Loggable(err error) string {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("PostgreSQL answered %s %s (%s), constraint %q, table %q",
		refused.SeverityUnlocalized, refused.Code, Reason(refused.Code), refused.ConstraintName, refused.TableName)
}

// Reason describes a SQLSTATE in a few words, for operators.
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
