package cluster

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"integrityledger/eventstore/wait"

	"github.com/jackc/pgx/v5/pgconn"
)

// awaitPause is between two attempts of Await.
const awaitPause = 500 * time.Millisecond

// Await has a process that starts try to reach the server that accepts writes until there is one, for as long as
// patience: in the middle of a failover no server does. try may be begun again at any point. What waiting cannot mend
// ends it at once. waits is called once, with the reason.
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

// mayCome reports whether a connection that failed, or was lost, may succeed later with the same URL.
func mayCome(err error) bool {
	if connecting, failed := errors.AsType[*pgconn.ConnectError](err); failed {
		return worthWaiting(attempts(connecting))
	}
	if answer, answered := errors.AsType[*pgconn.PgError](err); answered {
		// of a server that ends or takes no more writes, or of a pooler that lost its server
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

// attempts are the errors of the servers that were tried.
func attempts(err error) []error {
	for err != nil {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			return several.Unwrap()
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// worthWaiting reports whether any server may let us in later. A refused role or password may be in the middle of its
// rotation. A missing database or right is final. A wrong certificate, or a name that DNS says does not exist, is
// final unless another attempt met something else: while DNS itself fails, the name may exist.
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

// unknownName is the server's name that DNS says does not exist.
func unknownName(err error) string {
	if failed, ok := errors.AsType[*net.DNSError](err); ok && failed.IsNotFound {
		return failed.Name
	}
	return ""
}

// refusesRole reports whether a server does not let the role of a URL in: invalid authorization specification, or
// password.
func refusesRole(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(answer.Code, "28")
}

// Explain names the setting that holds a URL, and what to correct, when no server lets the URL's role in or the
// server's name does not exist. Other errors stay as they are.
func Explain(setting string, err error) error {
	connecting, failed := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case failed && refusesRole(err):
		return fmt.Errorf("%s: PostgreSQL does not let the role %q in: "+
			"correct the role's password here or in PostgreSQL, or pg_hba.conf: %w", setting, connecting.Config.User, err)
	case failed && unknownName(err) != "":
		return fmt.Errorf("%s: the server's name %q does not resolve: correct the name here, or add it to DNS: %w",
			setting, unknownName(err), err)
	}
	return err
}
