package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/postgres/pgtest"
)

// TestInspect: a pooler that keeps sessions is as good as none, every other is refused, whichever connection it picks.
func TestInspect(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	for name, test := range map[string]struct {
		settings []string
		idle     int // connections of the pooler to the server that nobody uses at the moment
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
			if test.shared != errors.Is(err, ErrSharedSessions) || !test.shared && err != nil || s.Major < OldestPostgreSQL || s.Untried() {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	if s, err := Inspect(ctx, url); err != nil || s.Version == "" {
		t.Errorf("without a pooler: %+v, %v", s, err)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := Inspect(short, pgtest.NewPooler(t, url, "pool_mode = session", "default_pool_size = 1")); errors.Is(err, ErrSharedSessions) || err == nil || !strings.Contains(err.Error(), "raise its pool size") {
		t.Errorf("a pool of one: %v", err)
	}
}

// leaveIdle makes a pooler open so many connections to the server, and leaves them to it.
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
		return pgtest.Ask[bool](url, fmt.Sprintf("SELECT count(*) = %d FROM pg_locks WHERE locktype = 'advisory' AND objid = %d AND NOT granted", n, lock))
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
		"integrity commit":  func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).CommitPool(ctx, 2) },
		"integrity queue":   func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).QueuePool(ctx, 2) },
		"integrity read":    func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).ReadPool(ctx, 2) },
		"integrity replica": func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).ReplicaPool(ctx, url, 2) },
		"integrity rebuild": func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).RebuildPool(ctx, 2) },
		"integrity wake":    func(ctx context.Context, url string) (*pgxpool.Pool, error) { return At(url).NotifyPool(ctx, 2) },
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
		if got[0] != got[1] || !strings.Contains(got[0], "application_name="+name) || strings.HasPrefix(got[0], serviceRole+" ") != wantRole ||
			len(strings.Fields(got[0])) < 5 || !slices.ContainsFunc(strings.Fields(got[0]), func(s string) bool { return strings.HasPrefix(s, "statement_timeout=") }) {
			t.Errorf("%s:\n%s\nbehind a pooler:\n%s", name, got[0], got[1])
		}
	}
}

// TestNotificationsBehindAPooler: a session that rests hears what another sends.
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
