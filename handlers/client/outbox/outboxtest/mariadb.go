// Package outboxtest runs a throwaway MariaDB for the tests of an outbox.
package outboxtest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"integrityledger/eventstore/wait"
)

// MariaDB is a server without accounts that listens only on a socket in its own directory.
type MariaDB struct {
	t       testing.TB
	program string
	dir     string
	server  *exec.Cmd
	ended   chan struct{}
}

// NewMariaDB starts a server that ends with the test. Without the program the test is skipped, except in CI.
func NewMariaDB(t testing.TB) *MariaDB {
	t.Helper()
	program, err := exec.LookPath("mariadbd")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/mariadbd")
	}
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("MariaDB is missing; .ci/tools fetches it:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "maria") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	m := &MariaDB{t: t, program: program, dir: dir}
	t.Cleanup(func() {
		m.Kill()
		_ = os.RemoveAll(dir)
	})
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.Start()
	// The files of a new server survive a kill once it was stopped in order.
	_ = m.server.Process.Signal(syscall.SIGTERM)
	<-m.ended
	m.Start()
	return m
}

// Start starts the server and waits until it answers.
func (m *MariaDB) Start() {
	m.t.Helper()
	var log bytes.Buffer
	args := []string{
		// A server that starts deletes the temporary files of others in the same directory.
		"--no-defaults", "--datadir=" + filepath.Join(m.dir, "data"), "--tmpdir=" + m.dir, "--socket=" + m.Socket(),
		"--skip-networking",
		"--skip-grant-tables", "--pid-file=" + filepath.Join(m.dir, "pid"), "--innodb-buffer-pool-size=32M",
		"--innodb-log-file-size=16M", "--innodb-use-native-aio=0",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	m.server = exec.Command(m.program, args...) //nolint:gosec,noctx // found by its name; Kill ends it
	m.server.Stdout, m.server.Stderr = &log, &log
	if err := m.server.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	m.ended = ended
	server := m.server
	go func() {
		defer close(ended)
		_ = server.Wait() // it is killed
	}()
	db := m.open("")
	defer db.Close()
	deadline := time.Now().Add(time.Minute)
	for db.PingContext(context.Background()) != nil {
		if over := wait.Interrupted(20*time.Millisecond, ended, nil); over || time.Now().After(deadline) {
			m.Kill()
			m.t.Fatalf("MariaDB did not start: %s", log.String())
		}
	}
}

// Kill ends the server by SIGKILL, as a loss of power does.
func (m *MariaDB) Kill() {
	_ = m.server.Process.Kill() // it may have ended
	<-m.ended
}

// Lose ends the server as Kill does, and starts it again.
func (m *MariaDB) Lose() {
	m.Kill()
	m.Start()
}

// Socket returns the path of the socket on which the server listens.
func (m *MariaDB) Socket() string { return filepath.Join(m.dir, "s") }

type silent struct{}

func (silent) Print(...any) {}

func (m *MariaDB) open(database string) *sql.DB {
	m.t.Helper()
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.Logger = "root", "unix", m.Socket(), database, silent{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		m.t.Fatal(err)
	}
	return sql.OpenDB(connector)
}

// Database creates a database and returns its address for outbox.Open.
func (m *MariaDB) Database(name string) string {
	m.t.Helper()
	db := m.open("")
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), "CREATE DATABASE "+name); err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprintf("mysql://root@localhost/%s?socket=%s", name, m.Socket())
}
