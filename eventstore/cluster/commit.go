package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrUnknown says that a transaction may have been committed, or may be lost with a server.
var ErrUnknown = errors.New("outcome of the commit is unknown")

// warnedKey is where a connection's CustomData says that the server warned, for instance that it committed without
// waiting for the synchronous standby, or, a coordinator of Citus, that the node did not answer to the COMMIT.
const warnedKey = "warned"

func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		c.CustomData()[warnedKey] = true
	}
}

// ForgetWarnings begins a transaction whose warnings Warned reports.
func ForgetWarnings(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), warnedKey) }

// Warned reports whether the server has warned since ForgetWarnings: a commit's outcome is unknown then.
func Warned(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[warnedKey] != nil }

// Commit commits a transaction and requires the server's plain word for it. After an error, ErrUnknown or another, the
// transaction may be there all the same.
func Commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn()
	ForgetWarnings(conn)
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if Warned(conn) {
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
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err.Error()
	}
	return fmt.Sprintf("PostgreSQL answered %s %s (%s), constraint %q, table %q",
		refused.SeverityUnlocalized, refused.Code, Reason(refused.Code), refused.ConstraintName, refused.TableName)
}

// Reason says in a few words, for operators, why a server refused with a SQLSTATE.
func Reason(code string) string {
	switch code {
	case "53100":
		return "the database's disk is full"
	case "53200":
		return "the database has no memory left"
	case "53300":
		return "the database has no connection left (max_connections)"
	case "57014":
		return "the database does not answer in time"
	case "57P03":
		return "the database is starting or stopping"
	case ReadOnly:
		return "the database takes no writes (it is a standby, or default_transaction_read_only is on)"
	default:
		return "the database refuses to write"
	}
}
