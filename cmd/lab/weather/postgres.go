package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
)

// The database servers: a primary and its synchronous standby, and a late standby.
const (
	serverOne, serverTwo, serverLate = "pg-one", "pg-two", "pg-late"

	synchronousName = "weather"
	lateness        = "1500ms"
)

// server is a PostgreSQL server that can be killed with all its processes, frozen, and made to fail with its control
// file.
type server struct {
	w    *world
	name string
	dir  string
	from string // where a standby finds the primary, through links

	mu      sync.Mutex
	running *postgres.Server
	wanted  bool
}

func serverSettings() map[string]string {
	settings := pgtest.ClusterSettings()
	for name, value := range map[string]string{
		"fsync": "on", "max_connections": "300", "wal_keep_size": "2GB", "max_wal_senders": "10",
		"wal_sender_timeout": "10s", "wal_receiver_timeout": "10s",
		"wal_receiver_status_interval": "1s", "wal_retrieve_retry_interval": "500ms", "restart_after_crash": "on",
		"max_wal_size": "1GB", "checkpoint_timeout": "60s",
		"hot_standby_feedback": "on", "cluster_name": "",
		"max_standby_streaming_delay": "30s", // a session whose client vanished must not block replay forever
	} {
		settings[name] = value
	}
	return settings
}

func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	running, err := postgres.Start(ctx, postgres.Config{
		DataDir: s.dir, Purpose: "tests", Disposable: true, Mortal: true, Settings: serverSettings(), Wait: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.running, s.wanted = running, true
	s.w.running.Go(func() {
		<-running.Done()
		s.gone(running)
	})
	return nil
}

// gone restarts a server that ended without being stopped.
func (s *server) gone(was *postgres.Server) {
	s.mu.Lock()
	ours := s.running == was
	if ours {
		s.running = nil
	}
	wanted := ours && s.wanted
	s.mu.Unlock()
	if !wanted {
		return
	}
	s.w.note("%s ended by itself; the supervisor starts it again", s.name)
	for !s.w.over.Load() {
		time.Sleep(time.Second) // as a supervisor waits between restarts
		s.mu.Lock()
		wanted := s.wanted && s.running == nil
		s.mu.Unlock()
		if !wanted {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := s.start(ctx)
		cancel()
		if err == nil {
			return
		}
		s.w.note("%v", err)
	}
}

// revive restarts a server that a fault has ended, and retries until it runs.
func (s *server) revive() {
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		err := s.start(ctx)
		cancel()
		if err == nil {
			return
		}
		s.w.note("%v", err)
		if attempt%5 == 4 && s.name == serverLate {
			// It may have replayed commits that a failover has lost, none of which was acknowledged. Then it is copied again.
			if err := s.copyFrom(s.w.primary.Load()); err != nil {
				s.w.note("%v", err)
			}
		}
		if attempt == 20 {
			s.w.t.Errorf("%s cannot be started: %v", s.name, err)
			return
		}
		time.Sleep(time.Second)
	}
}

// pids returns all processes of the server: they work in its data directory.
func (s *server) pids() (all []int) {
	data := filepath.Join(s.dir, "pgdata")
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err == nil && cwd == data {
			all = append(all, pid)
		}
	}
	return all
}

func (s *server) signal(signal syscall.Signal) {
	for _, pid := range s.pids() {
		_ = syscall.Kill(pid, signal) // it may have ended
	}
}

// kill ends all processes at once, like the loss of a machine.
func (s *server) kill() {
	s.mu.Lock()
	running := s.running
	s.running, s.wanted = nil, false
	s.mu.Unlock()
	s.signal(syscall.SIGSTOP) // so that no process starts another
	for len(s.pids()) > 0 {
		s.signal(syscall.SIGKILL)
		time.Sleep(5 * time.Millisecond)
	}
	if running != nil {
		<-running.Done()
	}
}

// stop shuts the server down cleanly.
func (s *server) stop() {
	s.mu.Lock()
	running := s.running
	s.running, s.wanted = nil, false
	s.mu.Unlock()
	if running == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := running.Stop(ctx); err != nil {
		s.w.note("stop %s: %v", s.name, err)
	}
}

// control writes the file that the library reads in the server's processes.
func (s *server) control(skew time.Duration, syncFails, full bool) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(skew.Microseconds()))
	for i, on := range []bool{syncFails, full} {
		if on {
			binary.LittleEndian.PutUint32(b[8+4*i:], 1)
		}
	}
	f, err := os.OpenFile(s.controlPath(), os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteAt(b[:], 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.w.t.Error(err)
	}
}

func (s *server) controlPath() string { return filepath.Join(s.dir, "faults") }

// socketURL is the server's database without any link.
func (s *server) socketURL() string {
	return "postgres:///integrity?host=" + url.QueryEscape(filepath.Join(s.dir, "socket")) + "&port=5432&user=integrity"
}

// sql runs statements on a separate connection, without a link.
func (s *server) sql(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.socketURL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, statement, err)
		}
	}
	return nil
}

func ask[T any](s *server, sql string) (value T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.socketURL())
	if err != nil {
		return value, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, sql).Scan(&value)
	return value, err
}

// copyFrom makes the server a standby with a fresh copy of the primary. The server must not be running.
func (s *server) copyFrom(primary *server) error {
	data := filepath.Join(s.dir, "pgdata")
	owner, err := os.Stat(filepath.Join(primary.dir, "pgdata"))
	if err != nil {
		return err
	}
	stat := owner.Sys().(*syscall.Stat_t)
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if out, err := s.w.baseBackup(primary, data); err != nil {
		return fmt.Errorf("copy %s for %s: %w: %s", primary.name, s.name, err, out)
	}
	name, delay := synchronousName, "0"
	if s.name == serverLate {
		name, delay = "late", lateness
	}
	conf := fmt.Sprintf(
		"\nprimary_conninfo = '%s application_name=%s connect_timeout=3'\nrecovery_min_apply_delay = '%s'\n", s.from, name,
		delay,
	)
	f, err := os.OpenFile(filepath.Join(data, "postgresql.auto.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(conf)
		err = errors.Join(err, f.Close(), os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o600))
	}
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if out, err := exec.Command(
			"chown", "-R", fmt.Sprintf("%d:%d", stat.Uid, stat.Gid), data,
		).CombinedOutput(); err != nil {
			return fmt.Errorf("chown: %w: %s", err, out)
		}
	}
	return nil
}

// baseBackup copies a running server.
func (w *world) baseBackup(from *server, to string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(
		ctx, filepath.Join(w.programs, "pg_basebackup"), "-h", filepath.Join(from.dir, "socket"), "-p", "5432", "-U",
		"integrity", "-D", to, "-X", "stream", "-c", "fast", "--no-sync",
	)
	out, err := command.CombinedOutput()
	return string(out), err
}

func (w *world) verifyBackup(at string) (string, error) {
	out, err := exec.Command(filepath.Join(w.programs, "pg_verifybackup"), at).CombinedOutput()
	return string(out), err
}

// wrapPrograms puts wrappers of PostgreSQL's programs in front of the machine's: each server loads the library, if
// there is one.
func (w *world) wrapPrograms(t testing.TB, library string) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
		if len(found) == 0 {
			t.Fatal("no programs of PostgreSQL are here: install postgresql")
		}
		initdb = found[len(found)-1]
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		t.Fatal(err)
	}
	w.programs = filepath.Dir(initdb)
	if _, err := os.Stat(filepath.Join(w.programs, "pg_basebackup")); err != nil {
		t.Fatalf("pg_basebackup must stand beside %s: install postgresql-client", initdb)
	}
	if library == "" {
		return
	}
	dir := pgtest.ClusterDir(t)
	script := strings.NewReplacer("PROGRAMS", w.programs, "LIBRARY", library).Replace(`#!/bin/sh
if [ "$1" = -D ] && [ -f "${2%/pgdata}/faults" ]; then
	WEATHER_FAULTS=${2%/pgdata}/faults LD_PRELOAD=LIBRARY
	export WEATHER_FAULTS LD_PRELOAD
fi
exec PROGRAMS/postgres "$@"
`)
	for name, text := range map[string]string{
		"postgres": script, "initdb": "#!/bin/sh\nexec " + w.programs + "/initdb \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
