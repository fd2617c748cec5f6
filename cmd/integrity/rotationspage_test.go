package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/wire"
)

// pageShell runs the commands of a page of the manual. Programs of the test stand in place of the system's.
type pageShell struct {
	*testing.T
	dir, bin string
	env      []string
	replaced *strings.Replacer
}

func newPageShell(t *testing.T, dir string, env []string, replaced ...string) *pageShell {
	t.Helper()
	p := &pageShell{T: t, dir: dir, bin: t.TempDir(), env: env, replaced: strings.NewReplacer(replaced...)}
	p.program("integrity", fmt.Sprintf(`exec %q "$@"`, os.Getenv(binaryVariable)))
	// The test's machine has no group of the service.
	install, err := exec.LookPath("install")
	if err != nil {
		t.Fatal(err)
	}
	p.program("install", fmt.Sprintf(`for a; do shift; [ "$a" = -g ] && skip=1 && continue
		[ -n "$skip" ] && skip= || set -- "$@" "$a"; done; exec %q "$@"`, install))
	return p
}

func (p *pageShell) program(name, script string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		p.Fatal(err)
	}
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// section returns the blocks of commands below a heading of a page. It requires their number.
func section(t *testing.T, page, heading string, blocks int) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("manual/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(text), "\n## "+heading+"\n")
	body, _, _ = strings.Cut(body, "\n## ")
	for _, block := range shellBlock.FindAllStringSubmatch(body, -1) {
		commands = append(commands, block[1])
	}
	if !found || len(commands) != blocks {
		t.Fatalf("%s has %d blocks of commands below %q, not %d", page, len(commands), heading, blocks)
	}
	return commands
}

// run runs a block of commands. More replaces further words in it, in pairs.
func (p *pageShell) run(block string, more ...string) string {
	p.Helper()
	c := exec.CommandContext(
		p.Context(), "bash", "-euo", "pipefail", "-c", p.replaced.Replace(strings.NewReplacer(more...).Replace(block)),
	)
	c.Dir, c.Env = p.dir, append(cleanEnviron(p.env...), "PATH="+p.bin+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil {
		p.Fatalf("%s: %v\n%s", block, err, out)
	}
	return string(out)
}

// TestRotationsPage follows the manual's page with one service under load. No request fails.
func TestRotationsPage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a service through all rotations under load")
	}
	role := pgtest.NewPasswordRole(t, "ledger_service", "former-horse")
	dir, signing := keyDir(t)
	etc := filepath.Join(filepath.Dir(dir), "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(etc, name) }
	roots := x509.NewCertPool()
	certify(t, 1, in("tls.crt"), in("tls.key"), roots)
	certify(t, 2, filepath.Join(dir, "new.crt"), filepath.Join(dir, "new.key"), roots)
	write(t, in("database-url"), role.URL(t, "former-horse"))
	client := func() *http.Client {
		return &http.Client{Timeout: patient, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	}
	env := []string{
		"INTEGRITY_DATABASE_URL_FILE=" + in("database-url"), "INTEGRITY_DATA_DIR=" + dir,
		"INTEGRITY_TLS_CERT=" + in("tls.crt"), "INTEGRITY_TLS_KEY=" + in("tls.key"),
	}
	must(t, env, "migrate", "--issuer", "ledger-of-the-test", "--shards", "2")
	makeLogKey(t, env)
	s := surroundings{env: env, encrypted: client()}.start(t, dir)
	page := newPageShell(t, dir, env, "/etc/integrity", etc,
		"@127.0.0.1/ledger", "@/ledger_service?"+socketOf(t, role.Superuser))
	page.program("systemctl", fmt.Sprintf(`[ "$*" = "reload integrity-ledger" ] && exec kill -HUP %d`, s.cmd.Process.Pid))
	page.program("su", `[ "$1 $2 $3" = "postgres -c psql" ] && exec psql --no-psqlrc -v ON_ERROR_STOP=1 "`+
		role.Superuser+`"`)

	p := &persistent{
		base: s.base, key: externalAccount(t, env), client: client(), stop: make(chan struct{}),
	}
	p.begin(t)
	goesOn := func(t *testing.T) {
		t.Helper()
		more(t, "registrations afterwards", &p.taken, 30)
		if refused := p.refused.Load(); refused != 0 {
			t.Errorf("%d requests were refused", refused)
		}
	}

	t.Run("TLS certificate", func(t *testing.T) {
		page.run(section(t, "rotations.md", "TLS certificate", 1)[0])
		eventually(t, "the new certificate is shown", func() error {
			response, err := client().Get(s.base + "/healthz")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if serial := response.TLS.PeerCertificates[0].SerialNumber.Int64(); serial != 2 {
				return fmt.Errorf("certificate %d", serial)
			}
			return nil
		})
		if key := mode(t, in("tls.key")); key != 0o640 {
			t.Errorf("the key's mode is %v", key)
		}
		goesOn(t)
	})
	t.Run("Signing key", func(t *testing.T) {
		for i, block := range section(t, "rotations.md", "Signing key", 3) {
			page.run(block, "KEY_ID", signing.KeyID)
			hangUp(t, s)
			goesOn(t)
			var registered struct{ Data wire.Registration }
			status, answer, err := p.post("signing", int32(i)+1)
			if err := errors.Join(err, json.Unmarshal(answer, &registered)); err != nil || status != http.StatusCreated {
				t.Fatalf("register: %d %s %v", status, answer, err)
			}
			var view struct{ KeyID string }
			status, err = call(
				s.client, http.MethodGet,
				s.base+"/api/public/integrity/"+registered.Data.PublicID+"?sha256="+strings.Repeat("ab", 32), "", nil, &view,
			)
			if former := view.KeyID == signing.KeyID; err != nil || status != http.StatusOK || former != (i == 0) {
				t.Errorf("after step %d, %s signs: %d %v", i+1, view.KeyID, status, err)
			}
		}
		if keyfiles.Exists(filepath.Join(dir, "signing-key.previous.pem")) {
			t.Error("the former private key is still there")
		}
	})
	t.Run("Log key", func(t *testing.T) {
		var former logHead
		eventually(t, "the log has a checkpoint", func() (err error) {
			former, err = s.logHead()
			return err
		})
		for line := range strings.Lines(section(t, "rotations.md", "Log key", 1)[0]) {
			page.run(line)
			hangUp(t, s) // as the text says
		}
		eventually(t, "the new log key signs", func() error {
			head, err := s.logHead()
			if err == nil && head.key == former.key {
				err = errors.New("the former one still does")
			}
			return err
		})
		if keys := trustedAt(t, dir).LogKeys(); len(keys) != 2 {
			t.Errorf("%d log keys are trusted", len(keys))
		}
		goesOn(t)
	})
	worksWith := func(t *testing.T, login string) {
		t.Helper()
		must(t, env, "organization", "list")
		text, err := os.ReadFile(in("database-url"))
		if err != nil || !strings.Contains(string(text), "postgres://"+login+":") {
			t.Errorf("the file names %s: %v", text, err)
		}
	}
	t.Run("Database password", func(t *testing.T) {
		page.run(section(t, "rotations.md", "Database password", 1)[0])
		worksWith(t, "ledger_service")
		if _, err := pgtest.Ask[int](role.URL(t, "former-horse"), "SELECT 1"); err == nil {
			t.Error("the former password is still valid")
		}
		more(t, "registrations", &p.taken, 30)
	})
	t.Run("Database password with two logins", func(t *testing.T) {
		before := p.refused.Load()
		blocks := section(t, "rotations.md", "Database password with two logins", 3)
		page.run(blocks[0])
		for _, logins := range [][2]string{{"ledger_service_b", "ledger_service"}, {"ledger_service", "ledger_service_b"}} {
			to, from := logins[0], logins[1]
			page.run(blocks[1], "LOGIN=ledger_service_b", "LOGIN="+to)
			worksWith(t, to)
			more(t, "registrations", &p.taken, 30)
			if refused := p.refused.Load() - before; refused != 0 {
				t.Errorf("to %s: %d requests were refused", to, refused)
			}
			page.run(blocks[2], "FORMER=ledger_service ", "FORMER="+from+" ")
			more(t, "registrations", &p.taken, 30)
			if left, err := pgtest.Ask[int](
				role.Superuser, "SELECT count(*)::int FROM pg_stat_activity WHERE usename = '"+from+"'",
			); err != nil || left != 0 {
				t.Errorf("%s has %d connections: %v", from, left, err)
			}
			before = p.refused.Load()
		}
	})
}

// makeLogKey gives a ledger in an external database a log key, as the page Install does.
func makeLogKey(t *testing.T, env []string) {
	t.Helper()
	for _, step := range []string{"--stage", "--activate"} {
		must(t, env, "keys", "rotate", "--transparency-log", step)
	}
}

// socketOf returns the parameters by which a URL reaches a test's server.
func socketOf(t *testing.T, url string) string {
	t.Helper()
	parsed, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	query.Del("user")
	return query.Encode()
}

// TestWitnessKeyPage follows the manual's section: a log goes on while its witness gets another key, and has
// cosignatures by both.
func TestWitnessKeyPage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs two installations")
	}
	b := start(t, dataDir(t))
	former := strings.TrimSpace(must(t, nil, "keys", "witness", "--data-dir", b.dir, "--witness-name", witnessName))
	dir := dataDir(t)
	a := start(t, dir, "--demo")
	logs := filepath.Join(t.TempDir(), "logs")
	write(t, logs, trustedAt(t, dir).LogKeys()[0].VerifierKey+"\n")
	w := startWitness(t, b.dir, logs)
	restart := func(key string) {
		t.Helper()
		a.stop()
		a = start(t, dir, "--demo", "--listen", strings.TrimPrefix(a.base, "http://"),
			"--witnesses", key+" http://"+w.address)
	}
	must(t, nil, "keys", "add-witness", former, "--data-dir", dir)
	restart(former)
	cosigned := func(key string) {
		t.Helper()
		only, err := transparency.NewWitness(key, "http://"+w.address)
		if err != nil {
			t.Fatal(err)
		}
		a.registerOne(fmt.Sprintf("cosigned-%08x", only.KeyHash()))
		eventually(t, "the checkpoint is cosigned", func() error {
			head, err := a.logHead()
			if err == nil {
				_, err = note.Open([]byte(head.text), note.VerifierList(only))
			}
			return err
		})
	}
	cosigned(former)

	page := newPageShell(t, b.dir, []string{"INTEGRITY_WITNESS_NAME=" + witnessName}, "/var/lib/integrity", b.dir)
	blocks := section(t, "rotations.md", "Witness key", 2)
	key := strings.TrimSpace(page.run(blocks[0]))
	must(t, nil, "keys", "add-witness", key, "--data-dir", dir) // the log's operator
	hangUp(t, a)
	page.run(blocks[1])
	w.stop()
	w.start()
	a.registerOne("between") // the log goes on
	eventually(t, "the log warns", func() error {
		if !strings.Contains(readLog(t, a), "contains no cosignature") {
			return errors.New("it does not")
		}
		return nil
	})
	restart(key)
	cosigned(key)
	if keys := trustedAt(t, dir).WitnessKeys(); len(keys) != 2 {
		t.Errorf("%d keys of witnesses are pinned", len(keys))
	}
	w.stop()
	if !keyfiles.Exists(filepath.Join(b.dir, "witness-key.former.pem")) {
		t.Error("the former key is gone")
	}
}
