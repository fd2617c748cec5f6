package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// OldestPostgreSQL and NewestPostgreSQL are the major versions that the tests run on. Older ones lack what the
// statements use.
const (
	OldestPostgreSQL = 15
	NewestPostgreSQL = 18
)

// ErrSharedSessions refuses a pooler that hands connections on between transactions.
var ErrSharedSessions = errors.New("the connection pooler in front of PostgreSQL does not keep a session for each of its clients: " +
	"set pool_mode = session for this database (with PgBouncer's own server_reset_query, DISCARD ALL), or name PostgreSQL itself in the URL")

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
	var process uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid(), current_setting('server_version'), current_setting('server_version_num')::integer / 10000").
		Scan(&process, &s.Version, &s.Major); err != nil {
		return s, fmt.Errorf("ask the database for its version: %w", err)
	}
	if s.Major < OldestPostgreSQL {
		return s, fmt.Errorf("PostgreSQL %s is too old: use version %d to %d", s.Version, OldestPostgreSQL, NewestPostgreSQL)
	}
	if process == conn.PgConn().PID() {
		return s, nil // nothing is in between: a pooler gives its clients numbers of its own
	}
	return s, keepsSessions(ctx, url, conn)
}

// sessionPatience is how long a pooler may take to give a second connection, and to end a session whose client has
// gone.
const sessionPatience = 10 * time.Second

// keepsSessions takes a lock that belongs to conn's session. It must be held while conn is open and does nothing, must
// be gone once conn is closed, and no other client may meet the process that holds it. A pooler that hands connections
// on fails this whichever of them it picks.
func keepsSessions(ctx context.Context, url string, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	const class = 0x73657373 // of this lock alone; its other half is the holder's process
	var holder int
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid() FROM pg_try_advisory_lock($1, pg_backend_pid())", class).Scan(&holder); err != nil {
		return fmt.Errorf("ask the connection pooler for a session: %w", err)
	}
	const question = `SELECT pg_backend_pid() = $1, EXISTS (SELECT FROM pg_locks
		WHERE locktype = 'advisory' AND pid = $1 AND classid::bigint = $2 AND objid::bigint = $1 AND objsubid = 2)`
	look := func(from *pgx.Conn) (met, held bool, err error) {
		err = from.QueryRow(ctx, question, holder, class).Scan(&met, &held)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && from != conn:
			err = fmt.Errorf("the connection pooler gave no second connection within %s: raise its pool size: %w", sessionPatience, err)
		case err != nil:
			err = fmt.Errorf("ask the connection pooler for a session: %w", err)
		}
		return met, held, err
	}
	// A pooler that resets a connection after each transaction does so after it has answered, and before it gives the
	// connection to anybody: the process that this session meets now has lost the lock by then.
	met, held, err := look(conn)
	if err != nil || !met || !held {
		return cmp.Or(err, ErrSharedSessions)
	}
	other, err := connectPlain(ctx, url)
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	if met, held, err = look(other); err != nil || met || !held {
		return cmp.Or(err, ErrSharedSessions)
	}
	if err := conn.Close(ctx); err != nil {
		return fmt.Errorf("close a session: %w", err)
	}
	for deadline := time.Now().Add(sessionPatience / 2); held; time.Sleep(20 * time.Millisecond) {
		if met, held, err = look(other); err != nil || met || held && time.Now().After(deadline) {
			return cmp.Or(err, ErrSharedSessions)
		}
	}
	return nil
}

// Coordinator is the URL of the coordinator where url leads to a worker of Citus, and url itself elsewhere. nodes is how the
// nodes are reached (Primary.Nodes). What concerns all shards, and the schema, is the coordinator's.
func Coordinator(ctx context.Context, url, nodes string) (string, error) {
	conn, err := connectPlain(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const there = "SELECT to_regclass('pg_dist_local_group') IS NOT NULL AND to_regclass('pg_dist_node') IS NOT NULL"
	var citus bool
	if err := conn.QueryRow(ctx, there).Scan(&citus); err != nil || !citus {
		return url, err
	}
	const coordinator = `SELECT n.nodename, n.nodeport FROM pg_dist_node n, pg_dist_local_group l
		WHERE l.groupid <> 0 AND n.groupid = 0 AND n.noderole = 'primary'`
	var host string
	var port int32
	switch err := conn.QueryRow(ctx, coordinator).Scan(&host, &port); {
	case errors.Is(err, pgx.ErrNoRows): // it is the coordinator, or knows none
		return url, nil
	case err != nil:
		return "", fmt.Errorf("ask for the coordinator of the cluster: %w", err)
	}
	if nodes != "" {
		return nodeURL(nodes, host, uint16(port)), nil
	}
	at, err := neturl.Parse(url)
	if err != nil {
		return "", fmt.Errorf("database URL: %w", err)
	}
	at.Host = ""
	settings := at.Query() // where a host may also be a directory of sockets
	settings.Set("host", host)
	settings.Set("port", strconv.Itoa(int(port)))
	at.RawQuery = settings.Encode()
	return at.String(), nil
}

// connectPlain opens a connection that also a pooler which hands connections on would serve.
func connectPlain(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return conn, nil
}
