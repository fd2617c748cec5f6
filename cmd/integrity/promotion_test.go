package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// promoted is a service on a cluster whose standby lacks the last commits.
type promoted struct {
	*running
	t       *testing.T
	cluster *pgtest.Cluster
	env     []string
	key     string
	n       int
}

// servePair serves a new ledger on both servers of a cluster.
func servePair(t *testing.T, synchronous bool, more ...string) *promoted {
	t.Helper()
	p := &promoted{t: t, cluster: pgtest.NewCluster(t, synchronous)}
	dir := dataDir(t)
	p.env = []string{"INTEGRITY_DATABASE_URL=" + p.cluster.URL(t), "INTEGRITY_DATA_DIR=" + dir}
	must(t, nil, "keys", "generate", "--data-dir", dir)
	must(t, p.env, "migrate", "--issuer", "ledger-of-a-pair")
	for _, step := range []string{"--stage", "--activate"} {
		must(t, p.env, "keys", "rotate", "--transparency-log", step)
	}
	p.key = externalAccount(t, p.env)
	p.running = surroundings{env: append(p.env, more...)}.start(t, dir)
	return p
}

// register registers once more and returns the status.
func (p *promoted) register() int {
	p.t.Helper()
	p.n++
	status, err := call(plainHTTP(), http.MethodPost, p.base+"/api/v1/integrity/records", p.key, wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: "d-" + strconv.Itoa(p.n), Version: 1,
		SHA256: strings.Repeat("ab", 32), SizeBytes: 1,
		MimeType: "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return status
}

func (p *promoted) registers(n int) {
	p.t.Helper()
	for range n {
		eventually(p.t, "a registration is acknowledged", func() error {
			if status := p.register(); status != http.StatusCreated {
				return fmt.Errorf("%d", status)
			}
			return nil
		})
	}
}

// signed waits until a checkpoint covers every event of a server.
func (p *promoted) signed(database string) (h logHead) {
	p.t.Helper()
	events, err := pgtest.Ask[int64](database, "SELECT sum(position)::bigint FROM shard_heads")
	if err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, "the events are signed", func() (err error) {
		if h, err = p.logHead(); err == nil && h.N < events {
			err = fmt.Errorf("%d leaves of %d", h.N, events)
		}
		return err
	})
	return h
}

// cutOff ends the replication, so that the standby misses all later commits.
func (p *promoted) cutOff() {
	p.t.Helper()
	pgtest.Exec(p.t, p.cluster.StandbyURL(), "ALTER SYSTEM SET primary_conninfo = ''")
	pgtest.Exec(p.t, p.cluster.StandbyURL(), "SELECT pg_reload_conf()")
	pgtest.Eventually(p.t, "the standby receives nothing", func() (bool, error) {
		return pgtest.Ask[bool](p.cluster.PrimaryURL(), "SELECT NOT EXISTS (SELECT FROM pg_stat_replication)")
	})
}

// readiness returns the status of /readyz and the reason in it.
func (s *running) readiness() (status int, detail string, err error) {
	response, err := plainHTTP().Get(s.base + "/readyz")
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	var body struct{ Error struct{ Detail string } }
	err = json.NewDecoder(response.Body).Decode(&body)
	return response.StatusCode, body.Error.Detail, err
}

func (s *running) stands(what string) {
	s.t.Helper()
	eventually(s.t, "the service stands still", func() error {
		status, detail, err := s.readiness()
		if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(detail, what) {
			return fmt.Errorf("readyz: %d %q %w", status, detail, err)
		}
		return nil
	})
}

// TestAsynchronousPromotion promotes, under a running service, a standby that lacks acknowledged registrations and a
// published checkpoint. The service then commits and signs nothing, even after a restart, until the operator has raised
// the epoch. The log continues under another key.
func TestAsynchronousPromotion(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills a server")
	}
	metrics := freeAddress(t)
	p := servePair(t, false, "INTEGRITY_METRICS_LISTEN="+metrics)
	p.registers(5)
	kept := p.signed(p.cluster.PrimaryURL())
	pgtest.Eventually(t, "the standby has it", func() (bool, error) {
		return pgtest.Ask[bool](p.cluster.StandbyURL(), fmt.Sprintf("SELECT size >= %d FROM transparency_checkpoint", kept.N))
	})
	p.cutOff()
	p.registers(7)
	lost := p.signed(p.cluster.PrimaryURL())
	if lost.N <= kept.N {
		t.Fatalf("%d leaves were signed, and %d before", lost.N, kept.N)
	}
	p.cluster.Kill(t, p.cluster.Primary)
	p.cluster.Promote(t)
	p.stands("the database has lost")
	if status := p.register(); status != http.StatusServiceUnavailable {
		t.Errorf("a registration is answered with %d", status)
	}
	eventually(t, "the metric tells", func() error {
		return scrapeOf(t, metrics).Want(1, "integrity_history_lost", "cause", "signed_head")
	})
	if text := p.logText(); !strings.Contains(text, "integrity restore --external") ||
		!strings.Contains(text, "integrity log resume") {
		t.Errorf("the log does not say what to do: %s", tail(p.log))
	}
	if r := integrity(t, p.env, "doctor"); r.code == cli.ExitOK || !strings.Contains(r.out, "lacks the tree of") {
		t.Errorf("doctor: %d %s%s", r.code, r.out, r.errs)
	}

	p.stop()
	p.running = begin(t, p.dir, p.env...)
	p.stands("the database has lost")
	if status := p.register(); status != http.StatusServiceUnavailable {
		t.Errorf("a registration after a restart is answered with %d", status)
	}
	if h, err := p.logHead(); err != nil || h.N > kept.N {
		t.Errorf("another history was signed: %d leaves after %d of %d, %v", h.N, kept.N, lost.N, err)
	}

	must(t, p.env, "restore", "--external")
	p.registers(3)
	published := write(t, filepath.Join(t.TempDir(), "published"), lost.text)
	if r := integrity(t, p.env, "log", "resume", "--published", published); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "published leaves were lost") {
		t.Errorf("log resume: %d %s%s", r.code, r.out, r.errs)
	}
	older := write(t, filepath.Join(t.TempDir(), "older"), kept.text)
	if r := integrity(t, p.env, "log", "resume", "--published", older); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, strconv.FormatInt(lost.N, 10)) {
		t.Errorf("log resume with an older checkpoint: %d %s%s", r.code, r.out, r.errs)
	}
	must(t, p.env, "log", "resume", "--fork", "--stage")
	must(t, p.env, "keys", "rotate", "--transparency-log", "--activate")
	must(t, p.env, "log", "resume", "--fork", "--published", published)
	p.reload()
	p.registers(2)
	if h := p.signed(p.cluster.StandbyURL()); h.key == lost.key {
		t.Errorf("the fork is signed by %s", h.key)
	}
	var feed struct{ Events []wire.FeedEvent }
	if status, err := call(
		plainHTTP(), http.MethodGet, p.base+"/api/v1/integrity/changes?companyReference=c&epoch=1", p.key, nil, &feed,
	); err != nil || status != http.StatusUnprocessableEntity {
		t.Errorf("the feed of the former epoch: %d %v", status, err)
	}
	if out := must(t, p.env, "audit"); !strings.Contains(out, "verdict: everything that was checked is correct") {
		t.Errorf("audit: %s", out)
	}
}

// TestSynchronousPromotion: no commit is lost, so the same process continues, also with the log; and so does the next
// one.
func TestSynchronousPromotion(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills a server")
	}
	p := servePair(t, true)
	p.registers(5)
	before := p.signed(p.cluster.PrimaryURL())
	p.cluster.Kill(t, p.cluster.Primary)
	p.cluster.Promote(t)
	p.registers(5)
	after := p.signed(p.cluster.StandbyURL())
	if after.key != before.key || after.N <= before.N {
		t.Errorf("%d leaves signed by %s, and %d by %s", before.N, before.key, after.N, after.key)
	}
	p.stop()
	p.running = surroundings{env: p.env}.start(t, p.dir)
	p.registers(1)
	p.signed(p.cluster.StandbyURL())
	if text := p.logText(); strings.Contains(text, "the database has lost") {
		t.Errorf("a false alarm: %s", tail(p.log))
	}
}

// TestNewLedgerInAnOldDirectory: the stored head belongs to one ledger. Another ledger in the same directory works.
func TestNewLedgerInAnOldDirectory(t *testing.T) {
	t.Parallel()
	address := freeAddress(t) // the log is named after it
	s := start(t, dataDir(t), "--demo", "--listen", address)
	s.included(s.registerOne("d-1"))
	s.stop()
	heads, err := filepath.Glob(filepath.Join(s.dir, keyfiles.SignedHeadFile+"*.json"))
	if err != nil || len(heads) != 1 {
		t.Fatalf("signed heads: %v, %v", heads, err)
	}
	if info, err := os.Stat(heads[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of %s: %v, %v", heads[0], info.Mode(), err)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "pgdata")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.dir, demo.File)); err != nil {
		t.Fatal(err)
	}
	s = start(t, s.dir, "--demo", "--listen", address)
	s.included(s.registerOne("d-1"))
}
