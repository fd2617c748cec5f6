// Package pgtest gives every test a real database of its own, cloned from one migrated template.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// and each test calls New. Under pgtest/run all packages share one throwaway server; otherwise each package starts its
// own. Because tests create and drop databases, pgtest refuses a server that it did not create, whatever the
// environment says.
//
// If INTEGRITY_TEST_CITUS_URL names a Citus coordinator (any of its databases that has the extension and the nodes),
// New creates databases in that cluster, distributed by migrations.Distribute. The cluster_name of the coordinator and
// of each node must begin with "integrity-test-". With -citus, pgtest/run starts such a cluster of three servers on
// this machine.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/postgres"
)

const (
	// Variable is the environment variable with the URL of the throwaway server.
	Variable = "INTEGRITY_TEST_POSTGRES"

	// Prefix begins the cluster_name of every server that tests may touch.
	Prefix = "integrity-test-"
	// marker is a file beside pgdata. It contains the token at the end of the server's cluster_name.
	marker = "integrity-test.token"
)

// Server is a throwaway server in its own directory under the temp dir.
type Server struct {
	server *postgres.Server
	dir    string
}

// Start starts a server that is fast and loses everything in a crash.
func Start(ctx context.Context) (*Server, error) { return start(ctx, nil) }

func start(ctx context.Context, settings map[string]string) (_ *Server, err error) {
	sweep(ctx, os.TempDir())
	dir, err := os.MkdirTemp("", Prefix)
	if err != nil {
		return nil, fmt.Errorf("test server: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	token := rand.Text()
	if err := os.WriteFile(filepath.Join(dir, marker), []byte(token), 0o600); err != nil {
		return nil, fmt.Errorf("test server: %w", err)
	}
	own := map[string]string{"cluster_name": Prefix + token, "max_connections": "300"}
	maps.Copy(own, settings)
	server, err := postgres.Start(ctx, postgres.Config{DataDir: dir, Purpose: "tests", Disposable: true, Settings: own})
	if err != nil {
		return nil, fmt.Errorf("test server: %w", err)
	}
	return &Server{server: server, dir: dir}, nil
}

// URL returns the value for Variable.
func (s *Server) URL() string { return s.server.URL("postgres") }

// Stop stops and removes the server.
func (s *Server) Stop(ctx context.Context) error {
	return errors.Join(s.server.Stop(ctx), os.RemoveAll(s.dir))
}

// sweep removes the directories that killed runs have left in the temp dir. They must be ours by name and marker, not
// held by a process, and not new, because a directory is created before it is locked. sweep ignores errors.
func sweep(ctx context.Context, temp string) {
	markers, err := filepath.Glob(filepath.Join(temp, Prefix+"*", marker))
	if err != nil {
		return
	}
	for _, path := range markers {
		info, err := os.Lstat(path)
		if err != nil || time.Since(info.ModTime()) < 10*time.Minute {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		_, err = postgres.Attach(ctx, filepath.Dir(path))
		cancel()
		if errors.Is(err, postgres.ErrNotRunning) {
			os.RemoveAll(filepath.Dir(path))
		}
	}
}

// verify refuses a server that Start did not start: its cluster_name and the marker beside its data directory must
// share a token.
func verify(ctx context.Context, conn *pgx.Conn) error {
	var name, data string
	if err := conn.QueryRow(
		ctx, "SELECT current_setting('cluster_name'), current_setting('data_directory')",
	).Scan(&name, &data); err != nil {
		return fmt.Errorf("ask the test server for its name: %w", err)
	}
	token, ours := strings.CutPrefix(name, Prefix)
	written, err := os.ReadFile(filepath.Join(filepath.Dir(data), marker))
	if !ours || token == "" || err != nil || string(written) != token {
		return fmt.Errorf(
			"%s points to a server that is not a throwaway of these tests (cluster_name %q): refusing to touch it", Variable,
			name,
		)
	}
	return nil
}
