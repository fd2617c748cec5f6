package eventstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// timelines is what a process knows of the history of its database's servers. Every
// promotion of a standby begins a timeline with a higher number, so a server on a
// lower one than was seen at a primary is a primary that was replaced, or follows
// one, and does not know it.
type timelines struct {
	mu     sync.Mutex
	newest uint64
}

type timelinesKey struct{}

// OnePrimary looks at every server of a database URL and returns a context for
// opening pools that share what was seen then, and what any of them sees later: none
// of them uses a former primary once its successor was met. Pools that are opened
// without it know only of themselves.
//
// While the successor cannot be reached, a process that starts takes the former
// primary for the present one. Keeping a replaced primary down is the operator's
// matter.
func OnePrimary(ctx context.Context, url string) (context.Context, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	seen := &timelines{}
	servers := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	var looking sync.WaitGroup
	for _, server := range servers {
		looking.Go(func() {
			one := config.Copy()
			one.Host, one.Port, one.TLSConfig, one.Fallbacks = server.Host, server.Port, server.TLSConfig, nil
			one.ConnectTimeout, one.ValidateConnect = connectTimeout, seen.primary
			if conn, err := pgx.ConnectConfig(ctx, one); err == nil { // else it is away, or no primary
				_ = conn.Close(ctx)
			}
		})
	}
	looking.Wait()
	return context.WithValue(ctx, timelinesKey{}, seen), nil
}

// follow makes a pool choose and keep its servers by what is known; accept judges
// new connections.
func follow(ctx context.Context, config *pgxpool.Config, accept func(*timelines, context.Context, *pgconn.PgConn) error) {
	seen, ok := ctx.Value(timelinesKey{}).(*timelines)
	if !ok {
		seen = &timelines{}
	}
	config.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error { return accept(seen, ctx, conn) }
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		number, _ := conn.PgConn().CustomData()[timelineKey].(uint64)
		return seen.current(number), nil
	}
}

// timelineKey is where a connection's CustomData holds its server's timeline.
const timelineKey = "timeline"

// primary accepts a server that takes writes and was not replaced. It is asked for
// each server of a URL in turn.
func (t *timelines) primary(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return err
	}
	number, err := t.judge(ctx, conn)
	if err == nil {
		t.mu.Lock()
		t.newest = max(t.newest, number)
		t.mu.Unlock()
	}
	return err
}

// replica accepts a server that follows the present primary, or is it. A standby
// that has just gone over to another timeline is refused until its next restart
// point, because only then it says so.
func (t *timelines) replica(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := t.judge(ctx, conn)
	return err
}

// readTimeline: the first eight digits of a WAL file's name are the timeline it is
// written on, which a standby does not write.
const readTimeline = `SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT to_hex(timeline_id) FROM pg_control_checkpoint())
	ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END`

// judge refuses a server that has a successor. One that does not tell its timeline,
// because it is not quite PostgreSQL, is on timeline 0 and as good as any.
func (t *timelines) judge(ctx context.Context, conn *pgconn.PgConn) (number uint64, err error) {
	results, err := conn.Exec(ctx, readTimeline).ReadAll()
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && !conn.IsClosed():
	case err != nil:
		return 0, fmt.Errorf("timeline of the server: %w", err)
	default:
		if number, err = strconv.ParseUint(string(results[0].Rows[0][0]), 16, 32); err != nil {
			return 0, fmt.Errorf("timeline of the server: %w", err)
		}
	}
	conn.CustomData()[timelineKey] = number
	if !t.current(number) {
		return number, fmt.Errorf("this server is on timeline %d, but a standby was promoted since: make it follow the present primary (pg_rewind), or restart this process if the database was replaced on purpose", number)
	}
	return number, nil
}

func (t *timelines) current(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return number == 0 || number >= t.newest
}

// keepUsable says whether a connection may be used on after an error of the
// server. One that answers that it is read-only was made a standby, or is being
// taken out of service.
func keepUsable(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.SeverityUnlocalized != "FATAL" && err.SeverityUnlocalized != "PANIC" && err.Code != readOnly
}

// readOnly is read_only_sql_transaction.
const readOnly = "25006"
