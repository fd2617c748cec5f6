package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
)

// TestInspect: a pooler that keeps sessions is accepted. Every other pooler is refused, whichever connection it picks.
func TestInspect(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	for name, test := range map[string]struct {
		settings []string
		idle     int // idle connections of the pooler to the server
		shared   bool
	}{
		"session":                       {[]string{"pool_mode = session"}, 3, false},
		"session, no reset":             {[]string{"pool_mode = session", "server_reset_query ="}, 0, true},
		"transaction":                   {[]string{"pool_mode = transaction"}, 0, true},
		"transaction, several idle":     {[]string{"pool_mode = transaction"}, 4, true},
		"transaction, taken in turn":    {[]string{"pool_mode = transaction", "server_round_robin = 1"}, 4, true},
		"transaction, reset each time":  {[]string{"pool_mode = transaction", "server_reset_query_always = 1"}, 4, true},
		"statement":                     {[]string{"pool_mode = statement"}, 2, true},
		"statement, taken in turn":      {[]string{"pool_mode = statement", "server_round_robin = 1"}, 4, true},
		"transaction, a single process": {[]string{"pool_mode = transaction", "default_pool_size = 1"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			pooled := pgtest.NewPooler(t, url, test.settings...)
			leaveIdle(t, url, pooled, test.idle)
			s, err := Inspect(ctx, pooled)
			if test.shared != errors.Is(err, ErrSharedSessions) || !test.shared && err != nil || s.Major < OldestPostgreSQL ||
				s.Untried() {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	if s, err := Inspect(ctx, url); err != nil || s.Version == "" {
		t.Errorf("without a pooler: %+v, %v", s, err)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := Inspect(
		short, pgtest.NewPooler(t, url, "pool_mode = session", "default_pool_size = 1"),
	); errors.Is(err, ErrSharedSessions) || err == nil || !strings.Contains(err.Error(), "raise its pool size") {
		t.Errorf("a pool of one: %v", err)
	}
}

// TestInspectInBadWeather: lost connections are no proof against a pooler. Each event happens when the second client
// that checks the lock arrives.
func TestInspectInBadWeather(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	other := pgtest.StartMortal(t, pgtest.ClusterDir(t), nil).URL(postgres.Database)
	pgtest.Exec(t, other, "CREATE DATABASE "+strings.TrimPrefix(parse(t, url).Path, "/"))
	elsewhere := pgtest.NewPooler(t, other, "pool_mode = session")
	const holder = "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = x'73657373'::int)"
	end := func(t *testing.T, cut func() error) {
		if err := cut(); err != nil {
			t.Error(err)
		}
		pgtest.Eventually(t, "the session has ended", func() (bool, error) {
			return pgtest.Ask[bool](url, "SELECT NOT EXISTS "+holder)
		})
	}
	for name, happens := range map[string]func(t *testing.T, p *pgtest.Proxy){
		"the owner's link is cut": func(t *testing.T, p *pgtest.Proxy) {
			end(t, func() error { p.Cut(); return nil })
		},
		"the owner's process ends": func(t *testing.T, _ *pgtest.Proxy) {
			end(t, func() error { _, err := pgtest.Ask[bool](url, "SELECT pg_terminate_backend("+holder+")"); return err })
		},
		"the owner's process hangs":         func(t *testing.T, _ *pgtest.Proxy) { freeze(t, url, "SELECT "+holder) },
		"the next is led to another server": func(_ *testing.T, p *pgtest.Proxy) { p.Set(pgtest.Weather{Away: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			proxy := pgtest.NewProxy(t, pgtest.NewPooler(t, url, "pool_mode = session"))
			happened := false
			front := announce(t, proxy.URL, func(client int) {
				if client == 3 { // the first asks for the version
					happened = true
					happens(t, proxy)
				}
			})
			if s, err := Inspect(ctx, both(t, front, elsewhere)); err != nil || s.Major < OldestPostgreSQL || !happened {
				t.Errorf("%+v, %v, happened: %t", s, err, happened)
			}
		})
	}
	proxy := pgtest.NewProxy(t, pgtest.NewPooler(t, url, "pool_mode = session"))
	front := announce(t, proxy.URL, func(client int) { proxy.Set(pgtest.Weather{Hole: client == 3}) })
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := Inspect(short, front); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrSharedSessions) ||
		strings.Contains(err.Error(), "pool size") {
		t.Errorf("a network that passes nothing on: %v", err)
	}
}

// TestSights: a pooler that has replaced a broken session, or that resets sessions, passes nothing on.
func TestSights(t *testing.T) {
	for s, want := range map[sight]struct{ owner, heir error }{
		{lives: true, met: true, held: true}: {nil, ErrSharedSessions},
		{lives: true, met: true}:             {ErrSharedSessions, errUnsure},
		{lives: true, held: true}:            {ErrSharedSessions, nil},
		{lives: true}:                        {ErrSharedSessions, nil},
		{}:                                   {errUnsure, nil},
	} {
		if owner, heir := s.owner(), s.heir(); !errors.Is(owner, want.owner) || !errors.Is(heir, want.heir) {
			t.Errorf("%+v: %v, %v", s, owner, heir)
		}
	}
}

// both returns a URL of two servers that are tried in turn.
func both(t *testing.T, first, second string) string {
	t.Helper()
	a, b := parse(t, first), parse(t, second).Query()
	query := a.Query()
	query.Set("host", query.Get("host")+","+b.Get("host"))
	query.Set("port", query.Get("port")+","+b.Get("port"))
	a.RawQuery = query.Encode()
	return a.String()
}

func parse(t *testing.T, url string) *neturl.URL {
	t.Helper()
	parsed, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// announce listens in front of url until the test ends. It calls arrived with the number of each client before it
// forwards anything.
func announce(t *testing.T, url string, arrived func(client int)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "front") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := parse(t, url)
	query := at.Query()
	socket := ".s.PGSQL." + query.Get("port")
	target := filepath.Join(query.Get("host"), socket)
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for n := 1; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			arrived(n)
			serving.Go(func() {
				defer client.Close()
				server, err := net.Dial("unix", target)
				if err != nil {
					return
				}
				defer server.Close()
				serving.Go(func() {
					_, _ = io.Copy(server, client)
					_ = server.Close()
				})
				_, _ = io.Copy(client, server)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	query.Set("host", dir)
	at.RawQuery = query.Encode()
	return at.String()
}

// freeze stops the process that query returns until the test ends.
func freeze(t *testing.T, url, query string) {
	pid, err := pgtest.Ask[int](url, query)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}

// leaveIdle makes a pooler open n connections to the server and leaves them idle.
func leaveIdle(t *testing.T, url, pooled string, n int) {
	t.Helper()
	ctx := context.Background()
	const lock = 17
	holder, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(ctx)
	if _, err := holder.Exec(ctx, "SELECT pg_advisory_lock($1)", lock); err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	for range n {
		go func() {
			conn, err := connectPlain(ctx, pooled)
			if err == nil {
				_, err = conn.Exec(ctx, "SELECT pg_advisory_xact_lock_shared($1)", lock)
				err = errors.Join(err, conn.Close(ctx))
			}
			results <- err
		}()
	}
	pgtest.Eventually(t, "each has a connection of its own", func() (bool, error) {
		return pgtest.Ask[bool](
			url,
			fmt.Sprintf(
				"SELECT count(*) = %d FROM pg_locks WHERE locktype = 'advisory' AND objid = %d AND NOT granted", n, lock,
			),
		)
	})
	if err := holder.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}

// TestPoolsBehindAPooler: every pool has its settings and its role, with and without a pooler that keeps sessions.
func TestPoolsBehindAPooler(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	pools := map[string]func(context.Context, string) (*pgxpool.Pool, error){
		"integrity commit": func(ctx context.Context, url string) (*pgxpool.Pool, error) {
			return At(url).CommitPool(ctx, 2)
		},
		"integrity queue": func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).QueuePool(ctx, 2) },
		"integrity read":  func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).ReadPool(ctx, 2) },
		"integrity replica": func(ctx context.Context, url string) (*pgxpool.Pool, error) {
			return At(url).ReplicaPool(ctx, connect.Fixed(url), 2)
		},
		"integrity rebuild": func(ctx context.Context, url string) (*pgxpool.Pool, error) {
			return At(url).RebuildPool(ctx, 2)
		},
		"integrity wake": func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).NotifyPool(ctx, 2) },
	}
	const ask = `SELECT current_user::text || ' ' || array_to_string(array(SELECT name || '=' || setting FROM pg_settings
		WHERE source IN ('session', 'client') AND name <> ALL('{client_encoding,DateStyle,extra_float_digits}') ORDER BY name), ' ')`
	pooled := pgtest.NewPooler(t, url, "pool_mode = session")
	for name, open := range pools {
		var got []string
		for _, at := range []string{url, pooled} {
			pool, err := open(ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			var settings string
			err = pool.QueryRow(ctx, ask).Scan(&settings)
			pool.Close()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, settings)
		}
		wantRole := name != "integrity rebuild"
		if got[0] != got[1] || !strings.Contains(got[0], "application_name="+name) ||
			strings.HasPrefix(got[0], serviceRole+" ") != wantRole ||
			len(strings.Fields(got[0])) < 5 || !slices.ContainsFunc(strings.Fields(got[0]), func(s string) bool {
			return strings.HasPrefix(s, "statement_timeout=")
		}) {
			t.Errorf("%s:\n%s\nbehind a pooler:\n%s", name, got[0], got[1])
		}
	}
}

// TestNotificationsBehindAPooler: an idle session receives another session's notifications.
func TestNotificationsBehindAPooler(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := At(pgtest.NewPooler(t, pgtest.New(t), "pool_mode = session")).NotifyPool(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	listener, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	if _, err := listener.Exec(ctx, "LISTEN heard"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "NOTIFY heard, 'x'"); err != nil {
		t.Fatal(err)
	}
	if n, err := listener.Conn().WaitForNotification(ctx); err != nil || n.Payload != "x" {
		t.Errorf("%v, %v", n, err)
	}
}
