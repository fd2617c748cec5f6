package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Pooler holds the command of a PgBouncer and the URL through it. The caller may end it and run it again.
type Pooler struct {
	Program    string
	Args       []string
	Credential *syscall.Credential // nil means this process's user
	Log, URL   string

	socket string
}

// PreparePooler writes the files of a PgBouncer in front of a database whose URL has a Unix socket, like New's.
// PgBouncer runs as the owner of a path, and settings are lines of its configuration, such as "pool_mode = session".
// Without PgBouncer the test is skipped.
func PreparePooler(t testing.TB, database, owned string, settings ...string) Pooler {
	t.Helper()
	found, err := findPgBouncer()
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	program, err := os.ReadFile(found)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	query := parsed.Query()
	host, port := query.Get("host"), query.Get("port")
	info, err := os.Stat(owned)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	dir, err := os.MkdirTemp("", "pooler")
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own, users, config, log := filepath.Join(dir, "pgbouncer"), filepath.Join(dir, "users"), filepath.Join(dir, "ini"),
		filepath.Join(dir, "log")
	lines := append([]string{
		"[databases]", "* = host=" + host + " port=" + port,
		"[pgbouncer]", "unix_socket_dir = " + dir, "listen_addr =", "listen_port = " + port, "auth_type = trust",
		"auth_file = " + users,
		"default_pool_size = 60", "log_connections = 0", "log_disconnections = 0", "max_client_conn = 200",
		"logfile = " + log,
	}, settings...)
	for path, text := range map[string]string{
		own: string(program), users: fmt.Sprintf("%q \"\"\n", query.Get("user")), config: strings.Join(lines, "\n") + "\n",
		log: "",
	} {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o700), os.Chown(path, int(owner.Uid), int(owner.Gid))); err != nil { //nolint:gosec // one of them is executed
			t.Fatal("pgtest:", err)
		}
	}
	if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal("pgtest:", err)
	}
	// Run a copy, because the owner may not have access to the original.
	p := Pooler{Program: own, Args: []string{"--quiet", config}, Log: log, socket: filepath.Join(dir, ".s.PGSQL."+port)}
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		p.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	query.Set("host", dir)
	parsed.RawQuery = query.Encode()
	p.URL = parsed.String()
	return p
}

// NewPooler runs PgBouncer until the test ends, as the user that may enter the database's socket directory, and returns
// the URL through it.
func NewPooler(t testing.TB, database string, settings ...string) string {
	t.Helper()
	parsed, err := url.Parse(database)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	p := PreparePooler(t, database, parsed.Query().Get("host"), settings...)
	pooler := exec.Command(p.Program, p.Args...) //nolint:gosec,noctx // our copy; the test ends it
	pooler.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: p.Credential}
	if err := pooler.Start(); err != nil {
		t.Fatal("pgtest: start PgBouncer:", err)
	}
	t.Cleanup(func() {
		_ = pooler.Process.Kill()
		_ = pooler.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(p.Log)
			t.Logf("PgBouncer says: %s", said)
		}
	})
	Eventually(t, "PgBouncer listens", func() (bool, error) {
		conn, err := net.Dial("unix", p.socket) //nolint:noctx // a socket of this machine
		if err == nil {
			err = conn.Close()
		}
		return err == nil, err
	})
	return p.URL
}

func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New(
		"PgBouncer is not here (Debian package pgbouncer; make test fetches it where it may): nothing behind a pooler is " +
			"tested",
	)
}
