package eventstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// primaries is what a process knows of the servers that were its database's
// primary. Every promotion of a standby begins a timeline with a higher number, so
// a server that takes writes on a lower one than was seen is a primary that was
// replaced and does not know it.
type primaries struct {
	mu     sync.Mutex
	newest uint64
}

type primariesKey struct{}

// OnePrimary returns a context for opening pools that share what they see of
// primaries: none of them uses a former primary that came back, from when one of
// them has met its successor. Pools opened without it know only of themselves.
//
// A process that starts afterwards knows nothing yet and takes the first server of
// the URL that accepts writes: keeping a replaced primary down is the operator's
// matter.
func OnePrimary(ctx context.Context) context.Context {
	return context.WithValue(ctx, primariesKey{}, &primaries{})
}

func primariesOf(ctx context.Context) *primaries {
	if p, ok := ctx.Value(primariesKey{}).(*primaries); ok {
		return p
	}
	return &primaries{}
}

// timeline is the key of CustomData under which a connection's server's stands.
const timeline = "timeline"

// validate accepts a new connection to a server that takes writes and was not
// replaced. It is asked for each host of a URL in turn.
func (p *primaries) validate(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return err
	}
	// The first eight digits of a WAL file's name are its timeline. Services that are not quite PostgreSQL may
	// not tell: their connections have timeline 0, and are as good as any.
	var number uint64
	if results, err := conn.Exec(ctx, "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)").ReadAll(); err == nil {
		if number, err = strconv.ParseUint(string(results[0].Rows[0][0]), 16, 32); err != nil {
			return fmt.Errorf("timeline of the server: %w", err)
		}
	} else if conn.IsClosed() {
		return fmt.Errorf("timeline of the server: %w", err)
	}
	conn.CustomData()[timeline] = number
	p.mu.Lock()
	defer p.mu.Unlock()
	if number != 0 && number < p.newest {
		return fmt.Errorf("this server is on timeline %d, another was promoted to timeline %d: it is a former primary; make it a standby of the other, or restart this process if the database was replaced on purpose", number, p.newest)
	}
	p.newest = max(p.newest, number)
	return nil
}

// replaced is true of a connection whose server has a successor.
func (p *primaries) replaced(conn *pgconn.PgConn) bool {
	number, _ := conn.CustomData()[timeline].(uint64)
	p.mu.Lock()
	defer p.mu.Unlock()
	return number != 0 && number < p.newest
}

// keepUsable says whether a connection may be used on after an error of the
// server. One that answers that it is read-only was made a standby, or is being
// taken out of service.
func keepUsable(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.SeverityUnlocalized != "FATAL" && err.SeverityUnlocalized != "PANIC" && err.Code != readOnly
}

// readOnly is read_only_sql_transaction.
const readOnly = "25006"
