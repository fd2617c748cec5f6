package cluster

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/wait"
)

// OldestPostgreSQL and NewestPostgreSQL are the oldest and newest major versions that the tests run on. Older versions
// lack features that the statements use.
const (
	OldestPostgreSQL = 15
	NewestPostgreSQL = 18
)

// ErrSharedSessions means that a pooler switches connections between transactions.
var ErrSharedSessions = say.New("the connection pooler in front of PostgreSQL does not keep a session for each " +
	"of its clients: " +
	"set pool_mode = session for this database (with PgBouncer's own server_reset_query, DISCARD ALL), or put the " +
	"address of PostgreSQL itself in the URL")

// Server is a database server that a ledger can work with.
type Server struct {
	Version string
	Major   int
}

// Untried reports whether the server is newer than the versions that the tests run on.
func (s Server) Untried() bool { return s.Major > NewestPostgreSQL }

// Inspect returns an error if the server is too old, or if a pooler switches connections between transactions. Roles,
// settings, locks of migrations, prepared statements and LISTEN belong to sessions: such a pooler would pass them to
// other clients.
func Inspect(ctx context.Context, url string) (s Server, err error) {
	conn, err := connectPlain(ctx, url)
	if err != nil {
		return s, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	asking, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	var process uint32
	if err := conn.QueryRow(
		asking,
		"SELECT pg_backend_pid(), current_setting('server_version'), current_setting('server_version_num')::integer / 10000",
	).
		Scan(&process, &s.Version, &s.Major); err != nil {
		return s, say.Errorf("ask the database for its version: %w", err)
	}
	if s.Major < OldestPostgreSQL {
		return s, say.Errorf("PostgreSQL %s is too old: use version %d to %d", s.Version, OldestPostgreSQL, NewestPostgreSQL)
	}
	if process == conn.PgConn().PID() {
		return s, nil // no pooler: it would give its clients its own process numbers
	}
	if err := conn.Close(ctx); err != nil {
		return s, say.Errorf("close a session: %w", err)
	}
	return s, keepsSessions(ctx, url)
}

const (
	// sessionPatience limits how long a pooler may take to provide a connection, which it may accept before it has one,
	// and to end a session after its client has disconnected.
	sessionPatience = 10 * time.Second
	// sessionLooks is the number of attempts to examine a pooler if connections are lost.
	sessionLooks = 3
)

// errUnsure means that the observation does not prove anything about a pooler, because a lost connection looks the
// same.
var errUnsure = say.New(
	"connections were lost while the connection pooler in front of PostgreSQL was examined, or lead to different " +
		"servers: try again",
)

// keepsSessions returns ErrSharedSessions only if no lost connection can explain the observation. Otherwise it tries
// again, and finally returns the last error.
func keepsSessions(ctx context.Context, url string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	for range sessionLooks {
		if err = lookAtSessions(ctx, url); err == nil || errors.Is(err, ErrSharedSessions) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// sight is a client's view, through a pooler, of the process whose session has taken a lock. A process that has ended
// has released the lock, and another server has neither.
type sight struct {
	lives bool
	met   bool // it is the process that answers the client
	held  bool // it holds the lock
}

// owner judges the view of the client that took the lock and is still connected: it must keep its process and its lock.
func (s sight) owner() error {
	switch {
	case !s.lives:
		return errUnsure
	case !s.met || !s.held:
		return ErrSharedSessions
	}
	return nil
}

// heir judges the view of another client once the owner has disconnected.
func (s sight) heir() error {
	switch {
	case s.met && s.held: // the session still holds the owner's lock
		return ErrSharedSessions
	case s.met:
		return errUnsure
	}
	return nil
}

// lookAtSessions takes a lock in the session of one client, the owner. The lock must be held while the owner is
// connected and idle, must be released once the owner disconnects, and no other client may get the process that holds
// it. A pooler that switches connections fails this test, whichever connection it picks.
func lookAtSessions(ctx context.Context, url string) error {
	owner, err := connectPlain(ctx, url)
	if err != nil {
		return err
	}
	defer owner.Close(context.WithoutCancel(ctx))
	const class = 0x73657373 // used only by this lock; its second key is the holder's process
	const take = `SELECT pid, extract(epoch FROM backend_start)::text FROM pg_stat_activity, pg_try_advisory_lock($1, pg_backend_pid())
		WHERE pid = pg_backend_pid()`
	var holder int
	var since string // together with the number it identifies a process across servers
	if err := owner.QueryRow(ctx, take, class).Scan(&holder, &since); err != nil {
		return say.Errorf("ask the connection pooler for a session: %w", err)
	}
	look := func(ctx context.Context, from *pgx.Conn) (s sight, err error) {
		const question = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $3),
			pg_backend_pid() = $1, EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND pid = $1 AND classid::bigint = $2 AND objid::bigint = $1 AND objsubid = 2)`
		if err := from.QueryRow(ctx, question, holder, class, since).Scan(&s.lives, &s.met, &s.held); err != nil {
			return s, say.Errorf("ask the connection pooler for a session: %w", err)
		}
		return s, nil
	}
	// A pooler that resets a connection after each transaction does so after it has answered and before it reuses the
	// connection: the process that the owner gets now has lost the lock by then.
	own, err := look(ctx, owner)
	if err = cmp.Or(err, own.owner()); err != nil {
		return err
	}
	other, err := connectPlain(ctx, url)
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	seen, err := look(ctx, other)
	waited := errors.Is(err, context.DeadlineExceeded)
	if err != nil && !waited {
		return err
	}
	// A pooler may reuse the session of an owner that was cut off. Check that the owner is still connected.
	still, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	own, lost := look(still, owner)
	lost = cmp.Or(lost, own.owner())
	switch {
	case waited && lost == nil:
		return say.Errorf("the connection pooler gave no second connection within %s: raise its pool size", sessionPatience)
	case waited || lost != nil:
		return cmp.Or(err, lost)
	case seen.met:
		return ErrSharedSessions
	case !seen.held:
		return errUnsure
	}
	if err := owner.Close(ctx); err != nil {
		return say.Errorf("close a session: %w", err)
	}
	for deadline := time.Now().Add(sessionPatience / 2); seen.held && time.Now().Before(deadline); {
		if err := wait.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		seen, err = look(ctx, other)
		if err = cmp.Or(err, seen.heir()); err != nil {
			return err
		}
	}
	if !seen.held {
		return nil
	}
	// Either the session is never reset, and the next client gets it unchanged, or its process cannot be reached.
	next, err := connectPlain(ctx, url)
	if err != nil {
		return err
	}
	defer next.Close(context.WithoutCancel(ctx))
	seen, err = look(ctx, next)
	if err = cmp.Or(err, seen.heir()); err == nil && seen.held {
		err = say.Errorf("a session keeps its lock for %s after its client has disconnected: the connection pooler must "+
			"reset it (server_reset_query = DISCARD ALL) and must reach the server", sessionPatience/2)
	}
	return err
}

// Coordinator returns the URL of the coordinator if entry leads to a Citus worker, otherwise entry. nodes is the URL
// template of the nodes (Primary.Nodes). Statements about all shards, and changes of the schema, must go to the
// coordinator.
func Coordinator(ctx context.Context, entry, nodes connect.Source) (connect.Source, error) {
	conn, err := connectPlain(ctx, entry())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	const there = "SELECT to_regclass('pg_dist_local_group') IS NOT NULL AND to_regclass('pg_dist_node') IS NOT NULL"
	var citus bool
	if err := conn.QueryRow(ctx, there).Scan(&citus); err != nil || !citus {
		return entry, err
	}
	const coordinator = `SELECT n.nodename, n.nodeport FROM pg_dist_node n, pg_dist_local_group l
		WHERE l.groupid <> 0 AND n.groupid = 0 AND n.noderole = 'primary'`
	var host string
	var port int32
	switch err := conn.QueryRow(ctx, coordinator).Scan(&host, &port); {
	case errors.Is(err, pgx.ErrNoRows): // entry is the coordinator, or knows none
		return entry, nil
	case err != nil:
		return nil, say.Errorf("ask for the coordinator of the cluster: %w", err)
	}
	return atNode(entry, nodes, host, uint16(port)), nil
}

// entrance is the state of a coordinator that is found through a worker.
type entrance struct {
	mu      sync.Mutex
	missing time.Time      // last search, or first failed connection; zero while it answers
	source  connect.Source // its new address, if it has moved
}

// reached records that the coordinator answers.
func (e *entrance) reached() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missing = time.Time{}
}

// look reports whether to search for the coordinator: once a second while it does not answer.
func (e *entrance) look() (yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	yes = !e.missing.IsZero() && now.Sub(e.missing) > askAgain
	if yes || e.missing.IsZero() {
		e.missing = now
	}
	return yes
}

// readdress points a new connection to the coordinator's current address and returns its source. If the worker does not
// answer, the last known address stays.
func (p *Primary) readdress(ctx context.Context, config *pgx.ConnConfig) connect.Source {
	if p.entry.look() {
		looking, cancel := context.WithTimeout(ctx, connect.Timeout)
		defer cancel()
		if source, err := Coordinator(looking, p.Entry, p.Nodes); err == nil {
			p.entry.mu.Lock()
			p.entry.source = source
			p.entry.mu.Unlock()
		}
	}
	p.entry.mu.Lock()
	source := p.entry.source
	p.entry.mu.Unlock()
	if source == nil {
		return p.source
	}
	if found, err := pgx.ParseConfig(source()); err == nil { // otherwise Renew reports the error
		config.Host, config.Port, config.TLSConfig, config.Fallbacks = found.Host, found.Port, found.TLSConfig,
			found.Fallbacks
	}
	return source
}

// connectPlain opens a connection that works even through a pooler that switches connections.
func connectPlain(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := connect.Config(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return connect.OpenConfig(ctx, config)
}
