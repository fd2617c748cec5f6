package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/wait"
)

// OldestPostgreSQL and NewestPostgreSQL are the major versions that the tests run on. Older ones lack what the
// statements use.
const (
	OldestPostgreSQL = 15
	NewestPostgreSQL = 18
)

// ErrSharedSessions refuses a pooler that hands connections on between transactions.
var ErrSharedSessions = errors.New("the connection pooler in front of PostgreSQL does not keep a session for each " +
	"of its clients: " +
	"set pool_mode = session for this database (with PgBouncer's own server_reset_query, DISCARD ALL), or name " +
	"PostgreSQL itself in the URL")

// Server is a database server that a ledger can work with.
type Server struct {
	Version string
	Major   int
}

// Untried says that the server is newer than what the tests run on.
func (s Server) Untried() bool { return s.Major > NewestPostgreSQL }

// Inspect refuses a server that is too old, and a pooler that hands connections on between transactions. Roles,
// settings, locks of migrations, prepared statements and LISTEN belong to sessions: such a pooler would give them to
// strangers.
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
		return s, fmt.Errorf("ask the database for its version: %w", err)
	}
	if s.Major < OldestPostgreSQL {
		return s, fmt.Errorf("PostgreSQL %s is too old: use version %d to %d", s.Version, OldestPostgreSQL, NewestPostgreSQL)
	}
	if process == conn.PgConn().PID() {
		return s, nil // nothing is in between: a pooler gives its clients numbers of its own
	}
	if err := conn.Close(ctx); err != nil {
		return s, fmt.Errorf("close a session: %w", err)
	}
	return s, keepsSessions(ctx, url)
}

const (
	// sessionPatience is how long a pooler may take to give a connection, which it may promise before it has any, and to
	// end a session whose client has gone.
	sessionPatience = 10 * time.Second
	// sessionLooks is how often connections may be lost while a pooler is examined.
	sessionLooks = 3
)

// errUnsure: what was seen is no proof against a pooler, because a lost connection looks like it.
var errUnsure = errors.New(
	"connections were lost while the connection pooler in front of PostgreSQL was examined, or lead to different " +
		"servers: try again",
)

// keepsSessions accuses a pooler only of what no lost connection explains. Otherwise it looks again, and in the end
// returns what went wrong.
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

// sight is what a client of a pooler sees of the process whose session has taken a lock. A process that ended took the
// lock along, and another server has neither.
type sight struct {
	lives bool
	met   bool // it is the process that answers
	held  bool // it has the lock
}

// owner is what the client sees that took the lock and is still there: its process must stay its own and lose nothing.
func (s sight) owner() error {
	switch {
	case !s.lives:
		return errUnsure
	case !s.met || !s.held:
		return ErrSharedSessions
	}
	return nil
}

// heir is what another client sees once the owner has gone.
func (s sight) heir() error {
	switch {
	case s.met && s.held: // the session came with what the owner has left in it
		return ErrSharedSessions
	case s.met:
		return errUnsure
	}
	return nil
}

// lookAtSessions takes a lock that belongs to the session of a client, the owner. It must be held while the owner is
// connected and does nothing, must be gone once the owner is, and no other client may meet the process that holds it. A
// pooler that hands connections on fails this whichever of them it picks.
func lookAtSessions(ctx context.Context, url string) error {
	owner, err := connectPlain(ctx, url)
	if err != nil {
		return err
	}
	defer owner.Close(context.WithoutCancel(ctx))
	const class = 0x73657373 // of this lock alone; its other half is the holder's process
	const take = `SELECT pid, extract(epoch FROM backend_start)::text FROM pg_stat_activity, pg_try_advisory_lock($1, pg_backend_pid())
		WHERE pid = pg_backend_pid()`
	var holder int
	var since string // with its number it is the name of a process, which no other server has
	if err := owner.QueryRow(ctx, take, class).Scan(&holder, &since); err != nil {
		return fmt.Errorf("ask the connection pooler for a session: %w", err)
	}
	look := func(ctx context.Context, from *pgx.Conn) (s sight, err error) {
		const question = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $3),
			pg_backend_pid() = $1, EXISTS (SELECT FROM pg_locks
			WHERE locktype = 'advisory' AND pid = $1 AND classid::bigint = $2 AND objid::bigint = $1 AND objsubid = 2)`
		if err := from.QueryRow(ctx, question, holder, class, since).Scan(&s.lives, &s.met, &s.held); err != nil {
			return s, fmt.Errorf("ask the connection pooler for a session: %w", err)
		}
		return s, nil
	}
	// A pooler that resets a connection after each transaction does so after it has answered, and before it gives the
	// connection to anybody: the process that the owner meets now has lost the lock by then.
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
	// A pooler may give the session of an owner that was cut off to anybody. One that is still there was not.
	still, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	own, lost := look(still, owner)
	lost = cmp.Or(lost, own.owner())
	switch {
	case waited && lost == nil:
		return fmt.Errorf("the connection pooler gave no second connection within %s: raise its pool size", sessionPatience)
	case waited || lost != nil:
		return cmp.Or(err, lost)
	case seen.met:
		return ErrSharedSessions
	case !seen.held:
		return errUnsure
	}
	if err := owner.Close(ctx); err != nil {
		return fmt.Errorf("close a session: %w", err)
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
	// Either nobody resets the session, and then the next client gets it as it is, or the way to its process is stuck.
	next, err := connectPlain(ctx, url)
	if err != nil {
		return err
	}
	defer next.Close(context.WithoutCancel(ctx))
	seen, err = look(ctx, next)
	if err = cmp.Or(err, seen.heir()); err == nil && seen.held {
		err = fmt.Errorf("a session keeps its lock for %s after its client has gone: the connection pooler must reset it "+
			"(server_reset_query = DISCARD ALL), "+
			"and must reach the server", sessionPatience/2)
	}
	return err
}

// Coordinator is the URL of the coordinator where entry leads to a worker of Citus, and entry itself elsewhere. nodes
// is how the nodes are reached (Primary.Nodes). What concerns all shards, and the schema, is the coordinator's.
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
	case errors.Is(err, pgx.ErrNoRows): // it is the coordinator, or knows none
		return entry, nil
	case err != nil:
		return nil, fmt.Errorf("ask for the coordinator of the cluster: %w", err)
	}
	return atNode(entry, nodes, host, uint16(port)), nil
}

// entrance is what is known of a coordinator that was found through a worker.
type entrance struct {
	mu      sync.Mutex
	missing time.Time      // since when it is connected to in vain; zero while it answers
	source  connect.Source // where it was found last, once it was not where it had been
}

// reached notes that the coordinator answers.
func (e *entrance) reached() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missing = time.Time{}
}

// look reports whether the coordinator is to be looked for: while it does not answer, once in a second.
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

// readdress leads a new connection to where the coordinator is now, and returns its source. A worker that does not
// answer tells nothing new.
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
	if found, err := pgx.ParseConfig(source()); err == nil { // else Renew says what is wrong
		config.Host, config.Port, config.TLSConfig, config.Fallbacks = found.Host, found.Port, found.TLSConfig,
			found.Fallbacks
	}
	return source
}

// connectPlain opens a connection that also a pooler which hands connections on would serve.
func connectPlain(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := connect.Config(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return connect.OpenConfig(ctx, config)
}
