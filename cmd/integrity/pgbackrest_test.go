package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/eventstore/pgtest"
)

// serveS3 runs an S3 server with TLS and one bucket. Its key is KEY with the secret SECRET, as on the page.
func serveS3(t *testing.T, dir, bucket string) (port, authority string) {
	t.Helper()
	authority = filepath.Join(dir, "s3.crt")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	certify(t, 1, authority, filepath.Join(dir, "s3.key"), x509.NewCertPool())
	if err := errors.Join(
		os.Chmod(authority, 0o644), os.MkdirAll(filepath.Join(dir, "data", bucket), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	address := integritytest.ServeS3(t, dir, "--cert", authority, "--key", filepath.Join(dir, "s3.key"))
	_, port, _ = net.SplitHostPort(address)
	return port, authority
}

// debianServer puts a PostgreSQL where the page's commands expect Debian's cluster 15/main, and returns its URL.
func (p *pageShell) debianServer(root string) (url string) {
	p.Helper()
	bin := os.Getenv("INTEGRITY_PG_BINDIR")
	if bin == "" {
		bin = "/usr/lib/postgresql/15/bin"
	}
	data, conf := filepath.Join(root, "main"), filepath.Join(root, "conf.d")
	_, port, _ := net.SplitHostPort(freeAddress(p.T))
	as := ""
	if os.Geteuid() == 0 {
		as = "runuser -u postgres -- "
		p.run("chown -R postgres " + root)
	} else {
		p.program("runuser", `shift 3; exec "$@"`)
	}
	p.env = append(p.env, "PGHOST="+root, "PGPORT="+port, "PGUSER=postgres", "PGBACKREST_PG1_SOCKET_PATH="+root,
		"PGBACKREST_PG1_PORT="+port, "PGBACKREST_PG1_USER=postgres")
	p.run(as + bin + "/initdb --pgdata=" + data + " --username=postgres --auth=trust --data-checksums --no-sync\n" +
		"mkdir -p " + conf + "\ncat >>" + data + "/postgresql.conf <<END\ninclude_dir = '" + conf + "'\n" +
		"listen_addresses = ''\nunix_socket_directories = '" + root + "'\nport = " + port + "\nEND\n")
	control := as + bin + "/pg_ctl --silent --wait --timeout=300 --pgdata=" + data + " --log=" + root + "/log "
	p.program("systemctl", `set -e
case "$*" in
"restart postgresql@15-main") `+control+`restart ;;
"stop postgresql@15-main") `+control+`--mode=fast stop ;;
"start postgresql@15-main") `+control+`start ;;
*) echo "systemctl $*?" >&2; exit 1 ;;
esac`)
	p.run(control + "start")
	p.Cleanup(func() {
		if out, err := exec.Command("sh", "-c", control+"--mode=immediate stop").CombinedOutput(); err != nil {
			p.Errorf("stop PostgreSQL: %v %s", err, out)
		}
	})
	return fmt.Sprintf("postgres:///postgres?host=%s&port=%s&user=postgres", root, port)
}

// TestPgBackRestPage follows the manual's page with pgBackRest, PostgreSQL and an S3 server: encrypted backups, full
// and incremental, and a restore to a moment. Only the names of directories and of the store are others.
func TestPgBackRestPage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("backs up and restores a server")
	}
	root, err := os.MkdirTemp("", "it")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	port, authority := serveS3(t, filepath.Join(root, "s3"), "ledger-backup")
	dir := dataDir(t)
	page := newPageShell(t, root, []string{
		"INTEGRITY_DATA_DIR=" + dir, "PGBACKREST_CONFIG=" + root + "/pgbackrest.conf", "PGBACKREST_REPO1_S3_URI_STYLE=path",
		"PGBACKREST_REPO1_STORAGE_PORT=" + port, "PGBACKREST_REPO1_STORAGE_CA_FILE=" + authority,
		"PGBACKREST_LOCK_PATH=" + root + "/lock", "PGBACKREST_LOG_LEVEL_FILE=off", "PGBACKREST_LOG_LEVEL_CONSOLE=warn",
	}, "/etc/pgbackrest.conf", root+"/pgbackrest.conf", "s3.eu-west-1.amazonaws.com", "localhost",
		"/var/lib/postgresql/15", root, "/etc/postgresql/15/main", root)
	page.program("apt-get", "exit 0")
	url := page.debianServer(root)
	setUp, restore := section(t, "pgbackrest.md", "Set up", 3), section(t, "pgbackrest.md", "Restore to a moment", 3)
	const asPostgres = `as_postgres() { runuser -u postgres -- "$@"; }` + "\n"
	if !strings.Contains(setUp[1], asPostgres) {
		t.Fatal("the page does not define as_postgres")
	}
	page.run(setUp[0])
	if os.Geteuid() == 0 {
		page.run("chown postgres " + root + "/pgbackrest.conf") // the shell's install gives it no group
	}
	page.run(setUp[1])

	page.env = append(page.env, "INTEGRITY_DATABASE_URL="+url)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, page.env, "migrate", "--issuer", "ledger-of-the-test")
	makeLogKey(t, page.env)
	s := surroundings{env: page.env}.start(t, dir)
	p := &persistent{base: s.base, key: externalAccount(t, page.env), client: s.client, stop: make(chan struct{})}
	register := func(document string) {
		t.Helper()
		if status, answer, err := p.post(document, 1); err != nil || status != http.StatusCreated {
			t.Fatalf("register: %d %s %v", status, answer, err)
		}
	}
	register("before")
	// What the timers start.
	text, err := os.ReadFile("manual/pgbackrest.md")
	if err != nil {
		t.Fatal(err)
	}
	started := regexp.MustCompile(`ExecStart=/usr/bin/(.*)`).FindSubmatch(text)
	if started == nil {
		t.Fatal("the page has no timer")
	}
	incremental := strings.ReplaceAll(string(started[1]), "%i", "incr")
	page.run(asPostgres + "as_postgres " + incremental)
	register("kept")
	published := func() (head logHead) {
		t.Helper()
		events, err := pgtest.Ask[int64](url, "SELECT count(*) FROM events")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "every event is published", func() (err error) {
			if head, err = s.logHead(); err == nil && head.N < events {
				err = fmt.Errorf("%d leaves of %d", head.N, events)
			}
			return err
		})
		return head
	}
	published()
	moment, err := pgtest.Ask[string](
		url, "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')",
	)
	if err != nil {
		t.Fatal(err)
	}
	register("lost")
	write(t, filepath.Join(root, "newest"), published().text)
	s.stop()
	pgtest.Exec(t, url, "DROP TABLE feed") // the recovery undoes it

	dated := regexp.MustCompile(`--target='[^']*'`)
	if !dated.MatchString(restore[0]) {
		t.Fatal("the page names no moment")
	}
	steps := strings.SplitAfter(
		asPostgres+dated.ReplaceAllString(restore[0], "--target='"+moment+"'"), "start postgresql@15-main\n",
	)
	page.run(steps[0])
	eventually(t, "PostgreSQL has replayed the archive", func() error {
		if got := page.run(asPostgres + steps[1]); strings.TrimSpace(got) != "f" {
			return fmt.Errorf("in recovery: %s", got)
		}
		return nil
	})
	if out := page.run(restore[1]); !strings.Contains(out, "0 rows differ") {
		t.Errorf("after the restore: %s", out)
	}
	p.base = surroundings{env: page.env}.start(t, dir).base
	if out := page.run(strings.TrimSpace(restore[2]) + " || true"); !strings.Contains(out, "published leaves were lost") {
		t.Errorf("the loss is not named: %s", out)
	}
	for document, want := range map[string]int{
		"before": http.StatusOK, "kept": http.StatusOK, "lost": http.StatusCreated,
	} {
		if status, answer, err := p.post(document, 1); err != nil || status != want {
			t.Errorf("%s, sent again: %d %s %v, want %d", document, status, answer, err, want)
		}
	}
	_, again, _ := strings.Cut(string(text), "**6. Back up again:** `")
	again, _, _ = strings.Cut(again, "`")
	page.run(asPostgres + again)
	info := page.run(asPostgres + "as_postgres pgbackrest --output=text info")
	for _, want := range []string{"status: ok", "cipher: aes-256-cbc", "full backup: ", "incr backup: "} {
		if !strings.Contains(info, want) {
			t.Errorf("info does not say %q:\n%s", want, info)
		}
	}
}
