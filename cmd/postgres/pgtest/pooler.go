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

// NewPooler starts PgBouncer until the test ends in front of a database whose URL names a Unix socket, as New's do, and
// returns the URL through it. settings are lines of its configuration, such as "pool_mode = session".
func NewPooler(t testing.TB, database string, settings ...string) string {
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
	info, err := os.Stat(host)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	owner := info.Sys().(*syscall.Stat_t) // only this user may enter the server's socket directory
	dir, err := os.MkdirTemp("", "pooler")
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own, users, config, log := filepath.Join(dir, "pgbouncer"), filepath.Join(dir, "users"), filepath.Join(dir, "ini"), filepath.Join(dir, "log")
	lines := append([]string{
		"[databases]", "* = host=" + host + " port=" + port,
		"[pgbouncer]", "unix_socket_dir = " + dir, "listen_addr =", "listen_port = " + port, "auth_type = trust", "auth_file = " + users,
		"default_pool_size = 60", "log_connections = 0", "log_disconnections = 0", "max_client_conn = 200", "logfile = " + log,
	}, settings...)
	for path, text := range map[string]string{own: string(program), users: fmt.Sprintf("%q \"\"\n", query.Get("user")), config: strings.Join(lines, "\n") + "\n", log: ""} {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o700), os.Chown(path, int(owner.Uid), int(owner.Gid))); err != nil { //nolint:gosec // one of them is run
			t.Fatal("pgtest:", err)
		}
	}
	if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal("pgtest:", err)
	}
	pooler := exec.Command(own, "--quiet", config) //nolint:gosec,noctx // a copy, because the owner may not reach the original; the test ends it
	pooler.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		pooler.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	if err := pooler.Start(); err != nil {
		t.Fatal("pgtest: start PgBouncer:", err)
	}
	t.Cleanup(func() {
		_ = pooler.Process.Kill()
		_ = pooler.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log)
			t.Logf("PgBouncer says: %s", said)
		}
	})
	Eventually(t, "PgBouncer listens", func() (bool, error) {
		conn, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL."+port)) //nolint:noctx // a socket of this machine
		if err == nil {
			err = conn.Close()
		}
		return err == nil, err
	})
	query.Set("host", dir)
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("PgBouncer is not here (Debian package pgbouncer; make test fetches it where it may): nothing behind a pooler is tested")
}
