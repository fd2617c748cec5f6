package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
