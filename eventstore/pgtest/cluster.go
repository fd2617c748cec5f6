package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/postgres"
)

// Cluster is a primary and a standby that streams from it, in separate directories.
type Cluster struct {
	Primary, Standby *postgres.Server

	primaryDir string
}

// ClusterSettings returns settings that make a cluster's commits as durable as in production. A replay that continues
// after a long pause cancels no statement, not even the one that resumes it.
func ClusterSettings() map[string]string {
	return map[string]string{
		"synchronous_commit": "on", "full_page_writes": "on", "wal_keep_size": "256MB", "max_connections": "60",
		"max_standby_streaming_delay": "-1",
	}
}

// NewCluster starts a cluster and stops it when the test ends. A synchronous cluster acknowledges a commit only once
// the standby has also flushed it.
func NewCluster(t testing.TB, synchronous bool) *Cluster {
	t.Helper()
	c := &Cluster{primaryDir: ClusterDir(t)}
	c.Primary = StartMortal(t, c.primaryDir, ClusterSettings())
	c.Primary, c.Standby = WithStandby(t, c.Primary, c.primaryDir, ClusterSettings())
	if synchronous {
		Synchronous(t, c.PrimaryURL())
	}
	return c
}

// Synchronous makes a primary acknowledge a commit only once its standby has also flushed it.
func Synchronous(t testing.TB, primary string) {
	t.Helper()
	Exec(t, primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	Exec(t, primary, "SELECT pg_reload_conf()")
	Eventually(t, "the standby is synchronous", func() (bool, error) {
		return Ask[bool](primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
	})
}

// PrimaryURL returns the database URL of the server that began as the primary.
func (c *Cluster) PrimaryURL() string { return c.Primary.URL(postgres.Database) }

// StandbyURL returns the database URL of the server that began as the standby.
func (c *Cluster) StandbyURL() string { return c.Standby.URL(postgres.Database) }

// URL returns a URL of both servers, the original primary first.
func (c *Cluster) URL(t testing.TB) string {
	t.Helper()
	return URLOf(t, c.PrimaryURL(), c.StandbyURL())
}

// URLOf returns a URL of the servers of several URLs.
func URLOf(t testing.TB, urls ...string) string {
	t.Helper()
	var hosts, ports []string
	var last *url.URL
	for _, one := range urls {
		parsed, err := url.Parse(one)
		if err != nil {
			t.Fatal("pgtest:", err)
		}
		hosts, ports, last = append(hosts, parsed.Query().Get("host")), append(ports, parsed.Query().Get("port")), parsed
	}
	query := last.Query()
	query.Set("host", strings.Join(hosts, ","))
	query.Set("port", strings.Join(ports, ","))
	last.RawQuery = query.Encode()
	return last.String()
}

// Kill ends a server as abruptly as the loss of its machine, and returns when it is gone.
func (c *Cluster) Kill(t testing.TB, server *postgres.Server) {
	t.Helper()
	Kill(t, server)
}

// Kill ends a server as abruptly as the loss of its machine, and returns once it is gone. All its processes must die
// together: a session that notices the end while it waits for the standby would show others its commit, which the
// standby may lack.
func Kill(t testing.TB, server *postgres.Server) {
	t.Helper()
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil { // it starts no more processes
		t.Fatal("pgtest: kill a server:", err)
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil { // it has ended
			continue
		}
		var pid, parent int
		var state string
		_, after, _ := strings.Cut(string(stat), ") ")
		if _, err := fmt.Sscan(after, &state, &parent); err == nil && parent == server.PID() {
			_, _ = fmt.Sscan(string(stat), &pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if err := syscall.Kill(server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal("pgtest: kill a server:", err)
	}
	<-server.Done()
}

// Promote makes the standby a primary with commits that wait for no other server.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	Promote(t, c.StandbyURL())
}

// Promote makes a standby a primary.
func Promote(t testing.TB, standby string) {
	t.Helper()
	// Do not wait inside pg_promote: recovery may cancel the query.
	if _, err := Ask[bool](standby, "SELECT pg_promote(false)"); err != nil {
		t.Fatal("pgtest: promote the standby:", err)
	}
	Eventually(t, "the standby is a primary", func() (bool, error) {
		return Ask[bool](standby, "SELECT NOT pg_is_in_recovery()")
	})
}

// ReturnPrimary restarts the killed primary. It becomes a second primary, with the state in which it died, and its
// commits wait for no standby.
func (c *Cluster) ReturnPrimary(t testing.TB) {
	t.Helper()
	c.Primary = StartMortal(t, c.primaryDir, ClusterSettings())
	Exec(t, c.PrimaryURL(), "ALTER SYSTEM RESET synchronous_standby_names")
	Exec(t, c.PrimaryURL(), "SELECT pg_reload_conf()")
}

// WithStandby starts a standby of a server. It restarts the server, because it copies the stopped server's files:
// pg_basebackup is not a server program and may be missing.
func WithStandby(
	t testing.TB, server *postgres.Server, of string, settings map[string]string,
) (primary, standby *postgres.Server) {
	t.Helper()
	dir := ClusterDir(t)
	from, to := filepath.Join(of, "pgdata"), filepath.Join(dir, "pgdata")
	if err := server.Stop(context.Background()); err != nil {
		t.Fatal("pgtest: stop the primary:", err)
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil { //nolint:noctx,gosec // it is short; both directories are ours
		t.Fatalf("pgtest: copy the primary: %v: %s", err, out)
	}
	primary = StartMortal(t, of, settings)
	Exec(t, primary.URL("postgres"), "SELECT pg_create_physical_replication_slot('standby')")
	parsed, err := url.Parse(primary.URL("postgres"))
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	query := parsed.Query()
	follow := fmt.Sprintf(
		"primary_conninfo = 'host=%s port=%s user=%s'\nprimary_slot_name = 'standby'\n", query.Get("host"),
		query.Get("port"), query.Get("user"),
	)
	f, err := os.OpenFile(filepath.Join(to, "postgresql.auto.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(follow)
		err = errors.Join(err, f.Close(), os.WriteFile(filepath.Join(to, "standby.signal"), nil, 0o644)) //nolint:gosec // the server's user reads it
	}
	if err != nil {
		t.Fatal("pgtest: make a standby:", err)
	}
	return primary, StartMortal(t, dir, settings)
}

// ClusterDir returns a directory for a server. It is removed when the test ends.
func ClusterDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "integrity-cluster")
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal("pgtest:", err)
	}
	return dir
}

// StartMortal starts a server that is not restarted if it is killed, and stops it when the test ends.
func StartMortal(t testing.TB, dir string, settings map[string]string) *postgres.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, err := postgres.Start(ctx, postgres.Config{
		DataDir: dir, Purpose: "tests", Disposable: true, Mortal: true, Settings: settings, Wait: patience,
	})
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		// Do not stop cleanly: a clean stop may wait for a standby, and the data is no longer needed.
		stopping, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Stop(stopping)
	})
	return server
}

// Exec runs one statement on a new connection.
func Exec(t testing.TB, database, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err == nil {
		_, err = conn.Exec(ctx, sql)
		_ = conn.Close(ctx)
	}
	if err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

// Ask reads one value on a new connection.
func Ask[T any](database, sql string) (value T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return value, fmt.Errorf("pgtest: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, sql).Scan(&value)
	return value, err
}

// Eventually waits until holds returns true.
func Eventually(t testing.TB, what string, holds func() (bool, error)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, err := holds()
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
