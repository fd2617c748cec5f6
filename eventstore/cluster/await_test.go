package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"integrityledger/eventstore/cluster/connect"
)

// TestAwaitGivesUp: the wait is bounded, reports its reason once, returns the last error, and ends at once when its
// context ends.
func TestAwaitGivesUp(t *testing.T) {
	_, away := connectPlain(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if !mayCome(away) {
		t.Fatalf("a server that is away: %v", away)
	}
	synctest.Test(t, func(t *testing.T) {
		told, looks, began := 0, 0, time.Now()
		wait := func(ctx context.Context, answer func() error) error {
			return Await(ctx, time.Minute, func(error) { told++ }, func() error { looks++; return answer() })
		}
		if err := wait(
			t.Context(), func() error { return fmt.Errorf("look %d: %w", looks, away) },
		); !errors.Is(err, away) || err.Error() != fmt.Sprintf("look %d: %v", looks, away) ||
			time.Since(began) != time.Minute {
			t.Errorf("after %s and %d looks: %v", time.Since(began), looks, err)
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began = time.Now()
		if err := wait(ctx, func() error { cancel(); return away }); !errors.Is(err, context.Canceled) ||
			time.Since(began) > 0 {
			t.Errorf("cancelled: %v", err)
		}
		damaged := errors.New("another error")
		if err := wait(t.Context(), func() error { return damaged }); err != damaged || time.Since(began) > 0 || told != 1 { //nolint:errorlint // the same
			t.Errorf("another error: %v", err)
		}
	})
}

// TestAPoolerWithoutAServerIsNotWaitedForWithoutEnd: such a pooler accepts clients and holds their queries until it has
// a server.
func TestAPoolerWithoutAServerIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			client := pgproto3.NewBackend(conn, conn)
			_, _ = client.ReceiveStartupMessage()
			client.Send(&pgproto3.AuthenticationOk{})
			client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
			client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
			client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			_ = client.Flush()
		}
	}()
	url := "postgres://nobody@" + listener.Addr().String() + "/none?sslmode=disable"
	var asking sync.WaitGroup
	for name, ask := range map[string]func() error{
		"for the coordinator": func() error { _, err := Coordinator(t.Context(), connect.Fixed(url), nil); return err },
		"for the version":     func() error { _, err := Inspect(t.Context(), url); return err },
	} {
		asking.Go(func() {
			if err := ask(); !mayCome(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	asking.Wait()
}

// TestLostConnectionsMayComeBack: an attempt whose connection was lost is repeated. A refusal by a server or by
// ourselves is not.
func TestLostConnectionsMayComeBack(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&pgconn.PgError{Code: "57P01"}, true},
		{&pgconn.PgError{Code: "25006"}, true},
		{&pgconn.PgError{Code: "08P01"}, true},
		{pgconn.ErrConnClosed, true},
		{io.ErrUnexpectedEOF, true},
		{&net.OpError{Op: "read", Err: os.ErrClosed}, true},
		{errUnsure, true},
		{context.DeadlineExceeded, true},
		{ErrSharedSessions, false},
		{&pgconn.PgError{Code: "42501"}, false},
		{&pgconn.PgError{Code: "55P03"}, false},
	} {
		if got := mayCome(fmt.Errorf("a step: %w", test.err)); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}

// TestWhatWaitingCannotMend: a missing database or privilege is final. A refused role or password is not, because it
// may be in the middle of a rotation. A nonexistent name is final unless another server may become available, and a
// failure of DNS is not final.
func TestWhatWaitingCannotMend(t *testing.T) {
	starting, refused := &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "28000"}
	missing := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "db", IsNotFound: true}}
	for _, test := range []struct {
		of   []error
		want bool
	}{
		{[]error{errors.New("ValidateConnect failed: read only connection")}, true},
		{[]error{starting, refused}, true},
		{[]error{refused, fmt.Errorf("of a server: %w", refused)}, true},
		{[]error{starting, &pgconn.PgError{Code: "28P01"}}, true},
		{[]error{&pgconn.PgError{Code: "28P01"}}, true},
		{[]error{missing, missing}, false},
		{[]error{missing, starting}, true},
		{[]error{missing, &net.DNSError{Err: "server misbehaving", Name: "db", IsTemporary: true}}, true},
		{[]error{&net.DNSError{Err: "i/o timeout", Name: "db", IsTimeout: true}}, true},
		{[]error{&tls.CertificateVerificationError{Err: errors.New("unknown")}}, false},
		{[]error{errors.New("away"), &pgconn.PgError{Code: "3D000"}}, false},
		{[]error{&pgconn.PgError{Code: "42501"}}, false},
	} {
		if got := worthWaiting(test.of); got != test.want {
			t.Errorf("%v: %t", test.of, got)
		}
	}
}
