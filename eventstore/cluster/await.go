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
)

// awaitPause is between two attempts of Await.
const awaitPause = 500 * time.Millisecond

// Await has a process that starts try to reach the server that accepts writes until there is one, for as long as patience: in
// the middle of a failover no server does. try may be begun again at any point. What waiting cannot mend ends it at once.
// waits is called once, with the reason.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitPause):
		}
	}
}

// mayCome reports whether a connection that failed, or was lost, may succeed later with the same URL.
func mayCome(err error) bool {
	if connecting, failed := errors.AsType[*pgconn.ConnectError](err); failed {
		return worthWaiting(attempts(connecting))
	}
	if answer, answered := errors.AsType[*pgconn.PgError](err); answered { // of a server that ends or takes no more writes, or of a pooler that lost its server
		return strings.HasPrefix(answer.Code, "08") || slices.Contains([]string{"57P01", "57P02", "57P03", "25006"}, answer.Code)
	}
	_, network := errors.AsType[*net.OpError](err)
	return network || slices.ContainsFunc([]error{errUnsure, context.DeadlineExceeded, pgconn.ErrConnClosed, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF}, func(lost error) bool { return errors.Is(err, lost) })
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

// worthWaiting reports whether any server may let us in later. Without TLS a server may refuse whom it lets in with TLS, so
// a refusal alone is final only where nothing else was met.
func worthWaiting(attempts []error) bool {
	others := len(attempts) == 0
	for _, err := range attempts {
		answer, _ := errors.AsType[*pgconn.PgError](err)
		_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
		switch {
		case answer != nil && slices.Contains([]string{"28P01", "3D000", insufficientPrivilege}, answer.Code): // a wrong password, no such database
			return false
		case !certificate && (answer == nil || answer.Code != "28000"):
			others = true
		}
	}
	return others
}
