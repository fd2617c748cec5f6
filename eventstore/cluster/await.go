package cluster

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
)

// awaitPause is the pause between two attempts of Await.
const awaitPause = 500 * time.Millisecond

// Await calls try until it succeeds, for at most patience. A starting process uses it to wait for a server that accepts
// writes, because during a failover no server does. try must be repeatable from any point. Await returns at once on an
// error that waiting cannot fix. It calls waits once, with the reason for waiting.
func Await(ctx context.Context, patience time.Duration, waits func(why error), try func() error) error {
	began := time.Now()
	for first := true; ; first = false {
		err := try()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil || !mayCome(err) || time.Since(began) >= patience {
			return err
		}
		if first {
			waits(err)
		}
		if err := wait.For(ctx, awaitPause); err != nil {
			return err
		}
	}
}

// mayCome reports whether a failed or lost connection may succeed later with the same URL.
func mayCome(err error) bool {
	if connecting, failed := errors.AsType[*pgconn.ConnectError](err); failed {
		return worthWaiting(attempts(connecting))
	}
	if answer, answered := errors.AsType[*pgconn.PgError](err); answered {
		// from a server that stops or accepts no more writes, or from a pooler that lost its server
		return strings.HasPrefix(answer.Code, "08") ||
			slices.Contains([]string{"57P01", "57P02", "57P03", "25006"}, answer.Code)
	}
	_, network := errors.AsType[*net.OpError](err)
	return network ||
		slices.ContainsFunc([]error{
			errUnsure, context.DeadlineExceeded, pgconn.ErrConnClosed, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF,
		}, func(lost error) bool {
			return errors.Is(err, lost)
		})
}

// attempts returns the errors of the servers that were tried.
func attempts(err error) []error {
	for err != nil {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			return several.Unwrap()
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// worthWaiting reports whether any server may accept a connection later. A refused role or password may be in the
// middle of a rotation. A missing database or privilege is final. A wrong certificate, or a name that DNS reports as
// nonexistent, is final unless another attempt failed differently: while DNS itself fails, the name may exist.
func worthWaiting(attempts []error) bool {
	others := len(attempts) == 0
	for _, err := range attempts {
		answer, ok := errors.AsType[*pgconn.PgError](err)
		if ok && (answer.Code == "3D000" || answer.Code == insufficientPrivilege) {
			return false
		}
		_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
		if !certificate && unknownName(err) == "" {
			others = true
		}
	}
	return others
}

// unknownName returns the server name that DNS reports as nonexistent, if any.
func unknownName(err error) string {
	if failed, ok := errors.AsType[*net.DNSError](err); ok && failed.IsNotFound {
		return failed.Name
	}
	return ""
}

// refusesRole reports whether a server rejects the role of a URL: invalid authorization specification or password.
func refusesRole(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(answer.Code, "28")
}

// Explain adds to an error the setting that holds the URL and what to correct, if no server accepts the URL's role or
// the server's name does not exist. It returns other errors unchanged.
func Explain(setting string, err error) error {
	connecting, failed := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case failed && refusesRole(err):
		return say.Errorf("%s: PostgreSQL does not let the role %q in: "+
			"correct the role's password here or in PostgreSQL, or pg_hba.conf: %w", setting, connecting.Config.User, err)
	case failed && unknownName(err) != "":
		return say.Errorf("%s: the server's name %q does not resolve: correct the name here, or add it to DNS: %w",
			setting, unknownName(err), err)
	}
	return err
}
