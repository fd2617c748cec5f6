package postgres_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
)

// patience limits every wait, generously, because the machine may be busy.
const patience = 4 * time.Minute

// holdVariable makes the test binary a service that holds the data directory in the variable until its input ends.
const holdVariable = "INTEGRITY_TEST_HOLD"

// enterVariable makes the test binary a process that connects to the URL in the variable.
const enterVariable = "INTEGRITY_TEST_ENTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdVariable); dir != "" {
		if err := hold(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if url := os.Getenv(enterVariable); url != "" {
		if _, err := try(url, "SELECT 'in'"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Verify(m)
}

func hold(dir string) error {
	ctx := context.Background()
	s, err := postgres.Start(ctx, config(dir))
	if err != nil {
		return err
	}
	fmt.Println(s.PID())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Stop(ctx)
}

func config(dir string) postgres.Config {
	return postgres.Config{
		DataDir: dir, Purpose: "test service", Serving: true, Settings: map[string]string{"shared_buffers": "16MB"},
	}
}

// dataDir returns a data directory that users other than root can reach.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != filepath.Dir(d) && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "data")
}

func start(t *testing.T, cfg postgres.Config) *postgres.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := postgres.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func stop(t *testing.T, s *postgres.Server) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// try runs one statement on a new connection.
func try(url, sql string, args ...any) (value string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return "", err
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(values, ","), err
}

func query(t *testing.T, s *postgres.Server, sql string, args ...any) string {
	t.Helper()
	value, err := try(s.URL(postgres.Database), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: ", what)
		}
	}
}

func alive(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(state, "Z")
}

// service is the test binary running as a process that holds a data directory.
type service struct {
	cmd        *exec.Cmd
	input      io.Closer
	postmaster int
}

func runService(t *testing.T, dir string) *service {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holdVariable+"="+dir)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal("the service did not start: ", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the directory is removed
		_ = cmd.Process.Kill()
		eventually(t, "its PostgreSQL ends", func() bool { return !alive(pid) })
	})
	return &service{cmd: cmd, input: input, postmaster: pid}
}

func (s *service) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestStartsAndStops(t *testing.T) {
	dir := dataDir(t)
	s := start(t, config(dir))
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "data_checksums": "on", "listen_addresses": "",
		"server_encoding": "UTF8", "shared_buffers": "16MB", "TimeZone": "UTC",
	} {
		if got := query(t, s, "SELECT current_setting($1)", name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if got := query(t, s, "SELECT datcollate FROM pg_database WHERE datname = current_database()"); got != "C" {
		t.Errorf("the collation is %q", got)
	}
	info, err := os.Stat(filepath.Join(dir, "socket"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: %v %v", info, err)
	}
	if group, err := syscall.Getpgid(s.PID()); err != nil || group == syscall.Getpgrp() {
		t.Errorf("a ^C meant for us would stop the server: group %d, %v", group, err)
	}
	query(t, s, "CREATE TABLE kept AS SELECT 7 AS n")
	pid := s.PID()
	stop(t, s)
	if alive(pid) {
		t.Error("it still runs")
	}
	select {
	case <-s.Done():
	default:
		t.Error("Done is open after Stop")
	}
	again := start(t, config(dir))
	if got := query(t, again, "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("read %q", got)
	}
}

// TestRecoversFromKill kills the service under load. Afterwards every acknowledged row exists exactly once.
func TestRecoversFromKill(t *testing.T) {
	kills := map[string]func(t *testing.T, s *service){
		"service":             func(t *testing.T, s *service) { s.kill(t) },
		"both":                func(t *testing.T, s *service) { kill(t, s.postmaster); s.kill(t) },
		"both, service first": func(t *testing.T, s *service) { s.kill(t); _ = syscall.Kill(s.postmaster, syscall.SIGKILL) },
	}
	for name, killed := range kills {
		t.Run(name, func(t *testing.T) {
			dir := dataDir(t)
			for round := range 2 {
				s := runService(t, dir)
				attached, err := postgres.Attach(context.Background(), dir)
				if err != nil {
					t.Fatal(err)
				}
				query(t, attached, "CREATE TABLE IF NOT EXISTS written (n bigint PRIMARY KEY)")
				acknowledged := write(attached.URL(postgres.Database), round*1_000_000, func(n int) {
					if n == 50 {
						killed(t, s)
					}
				})
				again := start(t, config(dir))
				var missing []string
				for _, n := range acknowledged {
					if query(t, again, "SELECT count(*)::text FROM written WHERE n = $1", n) != "1" {
						missing = append(missing, strconv.Itoa(n))
					}
				}
				if len(missing) > 0 || len(acknowledged) < 50 {
					t.Errorf("of %d acknowledged these are missing: %v", len(acknowledged), missing)
				}
				stop(t, again)
				if alive(s.postmaster) {
					t.Error("the killed service's server still runs")
				}
			}
		})
	}
}

// write inserts numbers one by one until the server is gone, and returns the acknowledged ones.
func write(url string, first int, after func(n int)) (acknowledged []int) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil
	}
	for n := 1; ; n++ {
		if _, err := conn.Exec(ctx, "INSERT INTO written VALUES ($1)", first+n); err != nil {
			_ = conn.Close(ctx)
			return acknowledged
		}
		acknowledged = append(acknowledged, first+n)
		after(n)
	}
}

// TestComesBackByItself kills only PostgreSQL, while one of its processes computes and would not notice.
func TestComesBackByItself(t *testing.T) {
	s := start(t, config(dataDir(t)))
	query(t, s, "CREATE TABLE written (n bigint PRIMARY KEY)")
	busy := make(chan error)
	go func() {
		_, err := try(s.URL(postgres.Database), "DO $$ BEGIN LOOP END LOOP; END $$")
		busy <- err
	}()
	eventually(t, "the endless statement runs", func() bool {
		return query(t, s, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'") == "1"
	})
	for round := range 3 {
		pid := s.PID()
		acknowledged := write(s.URL(postgres.Database), round*1_000_000, func(n int) {
			if n == 20 {
				kill(t, pid)
			}
		})
		eventually(t, "a new server", func() bool { return s.PID() != 0 && s.PID() != pid })
		if got := query(
			t, s, "SELECT count(*)::text FROM written WHERE n > $1", round*1_000_000,
		); got != strconv.Itoa(len(acknowledged)) &&
			got != strconv.Itoa(len(acknowledged)+1) { // the last insert may have been committed
			t.Errorf("%s rows, %d acknowledged", got, len(acknowledged))
		}
		if round == 0 {
			if err := <-busy; err == nil {
				t.Error("the endless statement ended well")
			}
		}
	}
}

// TestRecycledProcessNumber simulates a reboot: postmaster.pid names a process that is now another program of the same
// user.
func TestRecycledProcessNumber(t *testing.T) {
	dir := dataDir(t)
	s := runService(t, dir)
	// While stopped, it cannot replace the killed process.
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill(t, s.postmaster)
	s.kill(t)
	path := filepath.Join(dir, "pgdata", "postmaster.pid")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner")
	}
	other := exec.Command("sleep", "600")
	if os.Geteuid() == 0 {
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}}
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	_, rest, _ := strings.Cut(string(raw), "\n")
	for _, file := range []string{path, filepath.Join(dir, "socket", ".s.PGSQL.5432.lock")} {
		if err := os.WriteFile(file, []byte(strconv.Itoa(other.Process.Pid)+"\n"+rest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	query(t, start(t, config(dir)), "SELECT 'well'")
	if !alive(other.Process.Pid) {
		t.Error("it ended a foreign process")
	}
}

func TestOneHolder(t *testing.T) {
	ctx := context.Background()
	dir := dataDir(t)
	if _, err := postgres.Attach(ctx, dir); !errors.Is(err, postgres.ErrNotRunning) {
		t.Fatal(err)
	}
	s := runService(t, dir)
	want := fmt.Sprintf("in use by process %d (test service)", s.cmd.Process.Pid)
	if _, err := postgres.Start(ctx, config(dir)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a second holder: %v", err)
	}
	command := config(dir)
	command.Serving, command.Wait, command.Purpose = false, patience, "a command"
	attached, err := postgres.StartOrAttach(ctx, command)
	if err != nil {
		t.Fatal(err)
	}
	query(t, attached, "SELECT 'x'")
	stop(t, attached)
	if !alive(s.postmaster) {
		t.Fatal("a command stopped the service's server")
	}

	// The service ends. The next command starts its own server, and the next service waits for it.
	if err := errors.Join(s.input.Close(), s.cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	own, err := postgres.StartOrAttach(ctx, command)
	if err != nil {
		t.Fatal(err)
	}
	hurried := config(dir)
	hurried.Wait = 200 * time.Millisecond
	var held *postgres.HeldError
	if _, err := postgres.Start(ctx, hurried); !errors.As(err, &held) || held.PID != os.Getpid() ||
		held.Purpose != "a command" {
		t.Errorf("while a command runs: %v", err)
	}
	if _, err := postgres.Attach(ctx, dir); !errors.As(err, &held) {
		t.Errorf("attached to a command's server: %v", err)
	}
	patient := config(dir)
	patient.Wait = patience
	started := make(chan error)
	go func() {
		s, err := postgres.Start(ctx, patient)
		if err == nil {
			err = s.Stop(ctx)
		}
		started <- err
	}()
	stop(t, own)
	if err := <-started; err != nil {
		t.Error(err)
	}
}

func TestRefusesAnotherMajorVersion(t *testing.T) {
	dir := dataDir(t)
	stop(t, start(t, config(dir)))
	version := filepath.Join(dir, "pgdata", "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := postgres.Start(context.Background(), config(dir))
	if err == nil || !strings.Contains(err.Error(), "written by PostgreSQL 9") ||
		!strings.Contains(err.Error(), "install") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pgdata", "base")); err != nil {
		t.Error("the data is gone: ", err)
	}
}

func TestUnfinishedInitdbIsThrownAway(t *testing.T) {
	dir := dataDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "pgdata.init", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	query(t, start(t, config(dir)), "SELECT 'x'")
}

func TestRefusesADirectoryThatIsNoDatabase(t *testing.T) {
	dir := dataDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "pgdata", "photos"), 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "pgdata"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.Start(context.Background(), config(dir)); err == nil ||
		!strings.Contains(err.Error(), "not a PostgreSQL data directory") {
		t.Errorf("got %v", err)
	}
}

func TestLongPathTakesAShortSocketDirectory(t *testing.T) {
	dir := filepath.Join(dataDir(t), strings.Repeat("long", 25), "with, comma and 'quotes\"")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, config(dir))
	query(t, s, "SELECT 'x'")
	attached, err := postgres.Attach(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	socket := query(t, attached, `SELECT trim(both '"' FROM current_setting('unix_socket_directories'))`)
	stop(t, s)
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket directory %s is left: %v", socket, err)
	}
	// Another user has put a file where the socket directory would be.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(socket)
	if _, err := postgres.Start(context.Background(), config(dir)); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("got %v", err)
	}
}

func TestLogHoldsNothingOfTheData(t *testing.T) {
	dir := dataDir(t)
	s := start(t, config(dir))
	query(t, s, "CREATE TABLE people (mail text PRIMARY KEY, age int CHECK (age > 0))")
	for _, sql := range []string{
		"INSERT INTO people VALUES ($1)", "INSERT INTO people VALUES ($1)", "INSERT INTO people VALUES ('secret-literal', 0)",
		"INSERT INTO people VALUES ($1 || 'other', 1 / 0)", "DO $$ BEGIN RAISE WARNING 'secret-warning'; END $$",
	} {
		var args []any
		if strings.Contains(sql, "$1") {
			args = []any{"secret-parameter"}
		}
		_, _ = try(s.URL(postgres.Database), sql, args...)
	}
	stop(t, s)
	raw, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	if err != nil || len(raw) == 0 {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "secret") {
		t.Errorf("%s", raw)
	}
	for _, want := range []string{
		`ERROR:  duplicate key value violates unique constraint "people_pkey"`,
		`ERROR:  new row for relation "people" violates check constraint "people_age_check"`, "ERROR:  division by zero",
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the log lacks %s: %s", want, raw)
		}
	}
}

func TestRootCannotHandDownWhatIsOutOfReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as somebody else")
	}
	parent := filepath.Dir(dataDir(t))
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := postgres.Start(context.Background(), config(filepath.Join(parent, "data")))
	if err == nil || !strings.Contains(err.Error(), "INTEGRITY_DATA_DIR") || !strings.Contains(err.Error(), parent) {
		t.Errorf("got %v", err)
	}
}

func TestBadSettingIsReportedAtOnce(t *testing.T) {
	cfg := config(dataDir(t))
	cfg.Settings = map[string]string{"shared_buffers": "plenty"}
	var log bytes.Buffer // its handler locks
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := postgres.Start(context.Background(), cfg); err == nil ||
		!strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(log.String(), "has not started yet") {
		t.Errorf("it was tried again:\n%s", log.String())
	}
}

func TestCancelledStartLeavesNothingBehind(t *testing.T) {
	dir := dataDir(t)
	for _, after := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		s, err := postgres.Start(ctx, config(dir))
		cancel()
		if err == nil {
			stop(t, s)
		}
	}
	query(t, start(t, config(dir)), "SELECT 'x'")
}

// enterAs connects as a system user and returns PostgreSQL's answer.
func enterAs(t *testing.T, program, url string, uid, gid uint32) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env, cmd.Dir = []string{enterVariable + "=" + url}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "in"
	}
	return string(out)
}

// copyOfTest copies the test binary to a path where every user may run it.
func copyOfTest(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(dataDir(t)), "test")
	if err := os.WriteFile(program, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

func ownerOf(t *testing.T, path string) (uid, gid uint32) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner")
	}
	return stat.Uid, stat.Gid
}

// TestLetsInTheServiceAlone: the user that PostgreSQL runs as, and all others, are turned away, even in an older
// program's data directory that trusts them.
func TestLetsInTheServiceAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take on other users")
	}
	program := copyOfTest(t)
	dir := dataDir(t)
	for _, was := range []string{"new", "trusting"} {
		s := start(t, config(dir))
		query(t, s, "SELECT 'the service itself'")
		socket := filepath.Join(dir, "socket")
		uid, gid := ownerOf(t, socket)
		if uid == 0 || uid == 65534 {
			t.Errorf("PostgreSQL runs as user %d", uid)
		}
		if err := os.Chmod(socket, 0o711); err != nil { // file modes must not be the only protection
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(socket, ".s.PGSQL.5432"), 0o777); err != nil {
			t.Fatal(err)
		}
		for name, credential := range map[string][2]uint32{
			"the account": {uid, gid}, "nobody": {65534, 65534}, "a user without a name": {61000, 61000},
		} {
			if said := enterAs(
				t, program, s.URL(postgres.Database), credential[0], credential[1],
			); !strings.Contains(said, "28000") {
				t.Errorf("%s data directory: %s is answered %q", was, name, said)
			}
		}
		if said := enterAs(t, program, s.URL(postgres.Database), 0, 0); said != "in" {
			t.Errorf("%s data directory: root is answered %q", was, said)
		}
		stop(t, s)
		if err := os.Chmod(socket, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(
			filepath.Join(dir, "pgdata", "pg_hba.conf"), []byte("local all all trust\nlocal replication all trust\n"), 0o600,
		); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLinkInPlaceOfTheRules: a link that the account has put into its directory is replaced, not followed.
func TestLinkInPlaceOfTheRules(t *testing.T) {
	dir := dataDir(t)
	stop(t, start(t, config(dir)))
	precious := filepath.Join(filepath.Dir(dir), "precious")
	rules := filepath.Join(dir, "pgdata", "pg_hba.conf")
	if err := errors.Join(
		os.WriteFile(precious, []byte("kept"), 0o600), os.Remove(rules), os.Symlink(precious, rules),
	); err != nil {
		t.Fatal(err)
	}
	query(t, start(t, config(dir)), "SELECT 'x'")
	if text, err := os.ReadFile(precious); string(text) != "kept" {
		t.Errorf("it was written through the link: %q %v", text, err)
	}
}

// TestAccountWithoutAName: initdb does not run as a user without a name, but PostgreSQL does.
func TestAccountWithoutAName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as another user")
	}
	dir := dataDir(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for d := temp; d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm()&0o001 == 0 {
			if err := errors.Join(err, os.Chmod(d, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 61001, 61001)); err != nil {
		t.Fatal(err)
	}
	s := start(t, config(dir))
	query(t, s, "SELECT 'x'")
	if uid, _ := ownerOf(t, filepath.Join(dir, "pgdata", "PG_VERSION")); uid != 61001 {
		t.Errorf("the data belong to user %d", uid)
	}
	if uid, _ := ownerOf(t, filepath.Join("/proc", strconv.Itoa(s.PID()))); uid != 61001 {
		t.Errorf("PostgreSQL runs as user %d", uid)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "integrity-initdb-*")); len(left) != 0 {
		t.Error(left, err)
	}
}

// TestSaysThatNobodyIsShared: a data directory that belongs to the user nobody is still served, with a warning.
func TestSaysThatNobodyIsShared(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as another user")
	}
	dir := dataDir(t)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // its handler locks
	cfg := config(dir)
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := postgres.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "user=nobody") {
		t.Error(log.String())
	}
}

// TestAsOrdinaryUser runs the other tests again without root's rights.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the whole run is an ordinary user's")
	}
	program := copyOfTest(t)
	// Keep it short: the socket's path has a length limit.
	temp, err := os.MkdirTemp("", "it")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chown(temp, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.skip=^TestAsOrdinaryUser$")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "HOME="+temp)
	cmd.Dir = temp
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
