// Package cluster connects to the servers of a ledger's database: which of them is the primary, with which settings and
// role each kind of work connects, whether a pooler in between keeps sessions, and what is different on Citus.
//
// A Primary is a value: all pools that are made from one share what any of them has seen, so that none uses a former
// primary once its successor was met.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Primary is the server of a database that takes writes, whichever of the servers in a URL that is at the moment, and
// what a process knows of the servers' history. Each promotion of a standby begins a timeline with a higher number, so
// a server on a lower one than was seen at a primary is a primary that was replaced, or follows one, and does not know
// it. Safe for concurrent use.
type Primary struct {
	url    string
	mu     sync.Mutex
	newest uint64 // timeline that was seen at a primary
}

// At is the primary among the servers of a URL, of which nothing is known until a pool connects.
func At(url string) *Primary { return &Primary{url: url} }

// Find looks at every server of a URL first.
//
// While the successor of a former primary cannot be reached, a process that starts takes the former one for the present
// one. Keeping a replaced primary down is the operator's task.
func Find(ctx context.Context, url string) (*Primary, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	p := At(url)
	servers := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	var looking sync.WaitGroup
	for _, server := range servers {
		looking.Go(func() {
			one := config.Copy()
			one.Host, one.Port, one.TLSConfig, one.Fallbacks = server.Host, server.Port, server.TLSConfig, nil
			one.ConnectTimeout, one.ValidateConnect = connectTimeout, p.accept
			if conn, err := pgx.ConnectConfig(ctx, one); err == nil { // else it is away, or no primary
				_ = conn.Close(ctx)
			}
		})
	}
	looking.Wait()
	return p, nil
}

// timelineKey is where a connection's CustomData holds its server's timeline.
const timelineKey = "timeline"

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
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && !conn.IsClosed():
	case err != nil:
		return 0, fmt.Errorf("timeline of the server: %w", err)
	default:
		if timeline, err = strconv.ParseUint(string(results[0].Rows[0][0]), 16, 32); err != nil {
			return 0, fmt.Errorf("timeline of the server: %w", err)
		}
	}
	conn.CustomData()[timelineKey] = timeline
	if !p.current(timeline) {
		return timeline, fmt.Errorf("this server is on timeline %d, but a standby was promoted since: make it follow the present primary (pg_rewind), or restart this process if the database was replaced on purpose", timeline)
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

// with adds settings, of which the later ones win.
func (s settings) with(more ...settings) settings {
	all := maps.Clone(s)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// Plans are fixed to index look-ups: with near-empty statistics a cached generic plan would scan whole tables, and
// planning each look-up anew costs more than answering it.
var (
	lookUps = settings{
		"plan_cache_mode":  "force_generic_plan",
		"enable_seqscan":   "off",
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
	}
	writes = lookUps.with(settings{
		"enable_bitmapscan":   "off",
		"enable_material":     "off",
		"join_collapse_limit": "1",
		"from_collapse_limit": "1",
	})
	keptAlive = settings{
		"tcp_keepalives_idle":     "10",
		"tcp_keepalives_interval": "5",
		"tcp_keepalives_count":    "3",
	}
)

// CommitPool opens the connections that commit groups. A process that freezes between its two round trips loses the
// shard's lock after five seconds.
func (p *Primary) CommitPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, serviceRole, writes.with(keptAlive, settings{
		"application_name":                    "integrity commit",
		"idle_in_transaction_session_timeout": "5s",
		"lock_timeout":                        "10s",
		"statement_timeout":                   "20s",
	}))
}

// CommitConns is how many connections a process commits with: a group a processor and one that waits for its shard's
// lock, but no more than two a shard. More would only cut the same commands into smaller groups.
func CommitConns(shards int) int { return min(2*shards, runtime.GOMAXPROCS(0)+1) }

// QueuePool opens the connections of workers on the queues. Their writes do not wait for the disk: work that a crash
// loses is done again.
func (p *Primary) QueuePool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, serviceRole, writes.with(settings{
		"application_name":                    "integrity queue",
		"synchronous_commit":                  "off",
		"idle_in_transaction_session_timeout": "5s",
		"lock_timeout":                        "5s",
		"statement_timeout":                   "10s",
	}))
}

// ConsumerPool opens the connections of a consumer, whose transactions stay open while a page of events is handled. A
// process that freezes with one loses it after two seconds. A position that a crash of the server loses makes events
// come again, so its commits do not wait for the disk.
func (p *Primary) ConsumerPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, serviceRole, writes.with(keptAlive, settings{
		"application_name":                    "integrity consumer",
		"synchronous_commit":                  "off",
		"idle_in_transaction_session_timeout": "2s",
		"lock_timeout":                        "2s",
		"statement_timeout":                   "2s",
	}))
}

// ReadPool opens connections for queries and authentication, all of which look rows up by key.
func (p *Primary) ReadPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, serviceRole, lookUps.with(settings{
		"application_name":                    "integrity read",
		"idle_in_transaction_session_timeout": "10s",
		"lock_timeout":                        "5s",
		"statement_timeout":                   "15s",
	}))
}

// NotifyPool opens the two connections of a Notifier. Polling covers a notification that a crash loses, so it does not
// wait for the disk.
func (p *Primary) NotifyPool(ctx context.Context) (*pgxpool.Pool, error) {
	return p.open(ctx, 2, serviceRole, keptAlive.with(settings{
		"application_name":   "integrity wake",
		"synchronous_commit": "off",
		"statement_timeout":  "5s",
	}))
}

// ProbePool opens the connection of a Probe. The statements end before the question does, so that the connection is kept.
func (p *Primary) ProbePool(ctx context.Context) (*pgxpool.Pool, error) {
	return p.open(ctx, 1, serviceRole, keptAlive.with(settings{
		"application_name":                    "integrity probe",
		"work_mem":                            "64kB", // what a question makes goes to the disk
		"lock_timeout":                        "1s",
		"statement_timeout":                   "2500ms",
		"idle_in_transaction_session_timeout": "5s",
	}))
}

// RebuildPool opens the connections of a rebuild, as the role of the URL: they replace rows of projections, which the
// service role may not delete. They write to the tables of the schema rebuild, by the same plans as a group, and need
// no flush: all of it can be made again. A commit that waits for its standby holds a shard's lock for up to 20 s.
func (p *Primary) RebuildPool(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	return p.open(ctx, conns, "", writes.with(settings{
		"application_name":                    "integrity rebuild",
		"search_path":                         "rebuild, public",
		"synchronous_commit":                  "off",
		"idle_in_transaction_session_timeout": "60s",
		"lock_timeout":                        "30s",
		"statement_timeout":                   "0", // whatever is set for role or database
	}))
}

// ReplicaPool opens connections to a standby, or to several, for queries that may be answered by an earlier state. They
// never write, also where the standby has become a primary.
func (p *Primary) ReplicaPool(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	return open(ctx, url, conns, serviceRole, lookUps.with(settings{
		"application_name":                    "integrity replica",
		"default_transaction_read_only":       "on",
		"idle_in_transaction_session_timeout": "10s",
		"statement_timeout":                   "5s",
	}), p.current, p.acceptReplica)
}

func (p *Primary) open(ctx context.Context, conns int, role string, s settings) (*pgxpool.Pool, error) {
	return open(ctx, p.url, conns, role, s, p.current, p.accept)
}

const (
	// pingTimeout is how long a connection that has rested may take to show that it still leads somewhere.
	pingTimeout = 2 * time.Second
	// connectTimeout is for each server that is tried.
	connectTimeout = 5 * time.Second
	// insufficientPrivilege is the SQLSTATE of what a role may not do.
	insufficientPrivilege = "42501"
)

// open makes a pool of connections that take on a role; an empty one means the role of the URL. accept judges each new
// connection, and current each one that is handed out.
func open(ctx context.Context, url string, conns int, role string, s settings, current func(timeline uint64) bool, accept pgconn.ValidateConnectFunc) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns = int32(max(1, conns))
	config.PingTimeout = pingTimeout
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.ConnConfig.ValidateConnect = accept
	// A connection that only listens must also notice a server that vanished without a word.
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
	config.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	config.ConnConfig.OnPgError = keepUsable
	config.ConnConfig.OnNotice = noteWarning
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		timeline, _ := conn.PgConn().CustomData()[timelineKey].(uint64)
		return current(timeline), nil
	}
	begin := sessionBegin(role, s)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerCodecs(conn.TypeMap())
		tag, err := conn.Exec(ctx, begin)
		if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == insufficientPrivilege && role != "" {
			return fmt.Errorf("take on the role %s: %w: let a superuser run GRANT %s TO %s (from PostgreSQL 16 on: … WITH SET TRUE)", role, err, role, pgx.Identifier{conn.Config().User}.Sanitize())
		}
		if err != nil {
			return fmt.Errorf("prepare a connection with the role %q: %w", role, err)
		}
		if tag.RowsAffected() > 0 {
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

// sessionBegin makes a session what its pool needs, in one round trip. Settings are not among the parameters that a
// connection starts with, because a pooler refuses those.
func sessionBegin(role string, s settings) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "SELECT set_config('%s', '%s', false); ", name, s[name])
	}
	if role != "" {
		b.WriteString("SET ROLE " + role + "; ")
	}
	return b.String() + planByParameters
}

// planByParameters lets Citus, where it is installed, see the shard when it plans a statement: it cannot route a
// statement by a generic plan.
const planByParameters = "SELECT set_config('plan_cache_mode', 'auto', false) FROM pg_extension WHERE extname = 'citus'"

// citusKey is where a connection's CustomData says that the database has the extension.
const citusKey = "citus"

// OnCitus reports whether a connection of one of these pools leads to a cluster of Citus, which moves no row by its
// place (ctid).
func OnCitus(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[citusKey] != nil }
