package eventstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// serviceRole is the role that serving connections take on. It has no right to
// change an event: a guard against mistakes, not against a stolen URL.
const serviceRole = "integrity_service"

// CommitPool opens the connections that commit groups. Their plans are fixed to
// index look-ups (with near-empty statistics a cached generic plan would scan
// whole tables), and a process that freezes between its two round trips loses
// the shard's lock after five seconds.
func CommitPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, url, maxConns, map[string]string{
		"application_name":                    "integrity commit",
		"enable_seqscan":                      "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
		"enable_bitmapscan":                   "off",
		"enable_material":                     "off",
		"join_collapse_limit":                 "1",
		"from_collapse_limit":                 "1",
		"plan_cache_mode":                     "force_generic_plan",
		"idle_in_transaction_session_timeout": "5s",
		"lock_timeout":                        "10s",
		"statement_timeout":                   "20s",
		"tcp_keepalives_idle":                 "10",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
	})
}

// CommitConns is how many connections a process commits with: a group a
// processor and one that waits for its shard's lock, but no more than two a
// shard. More would only cut the same commands into smaller groups.
func CommitConns(shards int) int { return min(2*shards, runtime.GOMAXPROCS(0)+1) }

// QueuePool opens the connections of workers on the queues. Their plans are fixed
// to index look-ups as those of CommitPool are. What they write does not wait for
// the disk: a crash that loses it makes the work be done again.
func QueuePool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, url, maxConns, map[string]string{
		"application_name":                    "integrity queue",
		"synchronous_commit":                  "off",
		"enable_seqscan":                      "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
		"enable_bitmapscan":                   "off",
		"join_collapse_limit":                 "1",
		"from_collapse_limit":                 "1",
		"plan_cache_mode":                     "force_generic_plan",
		"idle_in_transaction_session_timeout": "5s",
		"lock_timeout":                        "5s",
		"statement_timeout":                   "10s",
	})
}

// ReadPool opens connections for queries and authentication. All of them look rows
// up by key, so their plans are fixed too: planning each of them anew cost more
// than answering it.
func ReadPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPool(ctx, url, maxConns, map[string]string{
		"application_name":                    "integrity read",
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
		"idle_in_transaction_session_timeout": "10s",
		"lock_timeout":                        "5s",
		"statement_timeout":                   "15s",
	})
}

// NotifyPool opens the connections of a Notifier. A notification that a crash loses
// is covered by polling, so it waits for no disk.
func NotifyPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	return openPool(ctx, url, 2, map[string]string{
		"application_name":        "integrity wake",
		"synchronous_commit":      "off",
		"statement_timeout":       "5s",
		"tcp_keepalives_idle":     "10",
		"tcp_keepalives_interval": "5",
		"tcp_keepalives_count":    "3",
	})
}

// RebuildPool opens the connections of a rebuild, as the role of the URL: they
// replace rows of projections, which the service role may not delete. What they
// write goes to the tables of the schema rebuild, by the same plans as a group's,
// and needs no flush: all of it can be made again. A commit that waits for its
// standby holds a shard's lock for up to 20 s.
func RebuildPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	return openPoolAs(ctx, url, maxConns, "", map[string]string{
		"application_name":                    "integrity rebuild",
		"search_path":                         "rebuild, public",
		"synchronous_commit":                  "off",
		"enable_seqscan":                      "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
		"enable_bitmapscan":                   "off",
		"enable_material":                     "off",
		"join_collapse_limit":                 "1",
		"from_collapse_limit":                 "1",
		"plan_cache_mode":                     "force_generic_plan",
		"idle_in_transaction_session_timeout": "60s",
		"lock_timeout":                        "30s",
		"statement_timeout":                   "0", // whatever is set for role or database
	})
}

// ReplicaPool opens connections to a standby, or to several, for queries that may be
// answered by an earlier state. They never write, also where the standby has become
// a primary.
func ReplicaPool(ctx context.Context, url string, maxConns int) (*pgxpool.Pool, error) {
	config, err := poolConfig(url, maxConns, serviceRole, map[string]string{
		"application_name":                    "integrity replica",
		"default_transaction_read_only":       "on",
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
		"idle_in_transaction_session_timeout": "10s",
		"statement_timeout":                   "5s",
	})
	if err != nil {
		return nil, err
	}
	follow(ctx, config, (*timelines).replica)
	return newPool(ctx, config)
}

func openPool(ctx context.Context, url string, maxConns int, settings map[string]string) (*pgxpool.Pool, error) {
	return openPoolAs(ctx, url, maxConns, serviceRole, settings)
}

// openPoolAs opens connections to the primary, that take on a role; none means that
// of the URL. A URL may name several servers: whichever is the primary is used.
func openPoolAs(ctx context.Context, url string, maxConns int, role string, settings map[string]string) (*pgxpool.Pool, error) {
	config, err := poolConfig(url, maxConns, role, settings)
	if err != nil {
		return nil, err
	}
	follow(ctx, config, (*timelines).primary)
	return newPool(ctx, config)
}

// pingTimeout is how long a connection that has rested may take to show that it
// still leads somewhere.
const pingTimeout = 2 * time.Second

// connectTimeout is for each server that is tried.
const connectTimeout = 5 * time.Second

func poolConfig(url string, maxConns int, role string, settings map[string]string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	config.MaxConns = int32(max(1, maxConns))
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.PingTimeout = pingTimeout
	// A server that vanished without a word is noticed also by those who only listen.
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
	config.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	config.ConnConfig.OnPgError = keepUsable
	config.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.CustomData()[warned] = true
		}
	}
	begin := sessionBegin(role, settings)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerArrays(conn.TypeMap())
		tag, err := conn.Exec(ctx, begin)
		if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == insufficientPrivilege && role != "" {
			return fmt.Errorf("take on the role %s: %w: let a superuser run GRANT %s TO %s (from PostgreSQL 16 on: … WITH SET TRUE)", role, err, role, pgx.Identifier{conn.Config().User}.Sanitize())
		}
		if err != nil {
			return fmt.Errorf("prepare a connection with the role %q: %w", role, err)
		}
		if tag.RowsAffected() > 0 {
			conn.PgConn().CustomData()[citus] = true
		}
		return nil
	}
	return config, nil
}

// insufficientPrivilege is the SQLSTATE of what a role may not do.
const insufficientPrivilege = "42501"

// sessionBegin makes a session what its pool needs, in one round trip. Settings are
// not among the parameters that a connection starts with: a pooler refuses those.
func sessionBegin(role string, settings map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "SELECT set_config('%s', '%s', false); ", name, settings[name])
	}
	if role != "" {
		b.WriteString("SET ROLE " + role + "; ")
	}
	return b.String() + planByParameters
}

func newPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}

// planByParameters lets Citus, where it is installed, see the shard when it plans a
// statement: it can route none by a generic plan.
const planByParameters = "SELECT set_config('plan_cache_mode', 'auto', false) FROM pg_extension WHERE extname = 'citus'"

// citus marks a connection to a database that has the extension.
const citus = "citus"

// OnCitus says whether a connection of one of these pools is to a cluster, which
// moves no row by its place (ctid).
func OnCitus(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[citus] != nil }

// warned marks a connection on which the server warned, for instance that it
// committed without waiting for the synchronous standby, or, a coordinator of
// Citus, that the node did not answer to the COMMIT.
const warned = "warned"

// Commit commits a transaction and requires the server's plain word for it. After an
// error the transaction may be there all the same; also where the server only
// warned, that it has not waited for the synchronous standby.
func Commit(ctx context.Context, tx pgx.Tx) error {
	data := tx.Conn().PgConn().CustomData()
	delete(data, warned)
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if data[warned] != nil {
		return errUnknown
	}
	return nil
}
