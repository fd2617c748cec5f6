package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/client/outbox/outboxtest"
	"integrityledger/handlers/wire"
)

// origin is a program with its own database, which inserts rows, and the workers of its outbox.
type origin struct {
	t       *testing.T
	name    string // the source of its declarations
	address string
	lose    func()         // kills the database and starts it again; nil if this origin never kills its database
	sample  *invoiceSample // inserts the rows in the place of insert
	deaths  []float64      // when the sample is killed, in inserted rows
	env     []string
	args    []string
	workers [2]atomic.Pointer[os.Process]
	logs    string

	acknowledged, rolledBack map[string]bool
}

// supervise runs a worker, and runs it again whenever it ends, as the unit of the manual does: a worker does not start
// while its database is away.
func (o *origin) supervise(ctx context.Context, n int) {
	log, err := os.OpenFile(o.logs, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		o.t.Error(err)
		return
	}
	defer log.Close()
	for ctx.Err() == nil {
		w := exec.CommandContext(ctx, os.Getenv(binaryVariable), o.args...)
		w.Env, w.Stderr = cleanEnviron(o.env...), log
		w.Cancel = func() error { return w.Process.Signal(syscall.SIGTERM) }
		if err := w.Start(); err != nil {
			if ctx.Err() == nil {
				o.t.Error(err)
			}
			return
		}
		o.workers[n].Store(w.Process)
		_ = w.Wait()
		_ = wait.For(ctx, 100*time.Millisecond)
	}
}

func (o *origin) killWorker(n int) {
	if worker := o.workers[n].Load(); worker != nil {
		_ = worker.Kill() // it may have ended
	}
}

// insert adds versions of documents until there are n, and rolls one in a hundred back. After a failure, whose outcome is
// not known, it goes on with the next one, as a program would that has lost its database.
func (o *origin) insert(ctx context.Context, company string, n int, inserted func()) error {
	for k := range n {
		document, version := fmt.Sprint("d-", k/3), k%3+1
		sum := sha256.Sum256([]byte(fmt.Sprint(o.name, k)))
		key := fmt.Sprintf("%s v%d", document, version)
		rollBack := k%100 == 50
		committed, err := o.insertOne(ctx, rollBack, fmt.Sprintf(
			`INSERT INTO integrity_outbox (company_reference, source, document_reference, version, sha256, size_bytes)
			VALUES ('%s', '%s', '%s', %d, '%x', %d)`, company, o.name, document, version, sum, k,
		))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if err := wait.For(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		case committed:
			o.acknowledged[key] = true
		}
		if rollBack { // never committed, whatever failed
			o.rolledBack[key] = true
		}
		inserted()
	}
	return nil
}

func (o *origin) insertOne(ctx context.Context, rollBack bool, statement string) (committed bool, err error) {
	db, _, err := outbox.OpenDatabase(ctx, o.address)
	if err != nil {
		return false, err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if _, err := tx.ExecContext(ctx, statement); err != nil || rollBack {
		return false, err
	}
	return true, tx.Commit()
}

// TestOutboxSurvivesKills kills workers, databases and the service while programs insert rows into PostgreSQL, MariaDB
// and SQLite.
func TestOutboxSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills everything for a while")
	}
	t.Parallel()
	maria := outboxtest.NewMariaDB(t)
	server, losePostgres := mortalPostgres(t)
	file := write(t, filepath.Join(t.TempDir(), "origin.db"), "")
	surviveKills(t, 120, []*origin{
		{name: "postgres", address: server, lose: losePostgres},
		{name: "mariadb", address: maria.Database("origin"), lose: maria.Lose},
		{name: "sqlite", address: "sqlite:" + file},
	})
}

// mortalPostgres starts a PostgreSQL of its own. lose ends it by SIGKILL and starts it again.
func mortalPostgres(t *testing.T) (url string, lose func()) {
	t.Helper()
	dir := pgtest.ClusterDir(t)
	durable := map[string]string{"synchronous_commit": "on"} // a commit is in the files when it is acknowledged
	server := pgtest.StartMortal(t, dir, durable)
	return server.URL("postgres"), func() {
		pgtest.Kill(t, server)
		server = pgtest.StartMortal(t, dir, durable)
	}
}

// surviveKills ends the service, workers, and each database that can be lost by SIGKILL, again and again, while the
// programs of the origins insert rows. At the end each committed row is registered once, and its evidence verifies.
// OUTBOX_SEED repeats a run's choices, and OUTBOX_ROWS is the number of rows of each origin. More rows see more kills.
func surviveKills(t *testing.T, rows uint64, origins []*origin) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	for name, to := range map[string]*uint64{"OUTBOX_SEED": &seed, "OUTBOX_ROWS": &rows} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *to, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	t.Logf("OUTBOX_SEED=%d OUTBOX_ROWS=%d", seed, rows)
	choices := rand.New(rand.NewPCG(seed, 0))
	address := freeAddress(t)
	s := start(t, dataDir(t), "--demo", "--listen", address)
	access := s.demo()
	trusted := filepath.Join(s.dir, keyfiles.TrustedKeysFile)
	ctx, cancel := context.WithTimeout(t.Context(), patient+time.Duration(rows)*time.Second/10)
	working, stop := context.WithCancel(t.Context())
	var programs, workers sync.WaitGroup
	defer func() {
		cancel()
		stop()
		programs.Wait()
		workers.Wait()
	}()
	progress := make(chan struct{}, len(origins)*int(rows))
	inserted := func() { progress <- struct{}{} }
	victims := []string{"service", "worker", "worker", "worker", "worker", "worker", "worker"}
	storms := 1 + int(rows)/1000
	for _, o := range origins {
		if o.lose != nil {
			victims = append(victims, o.name)
		}
		o.t, o.acknowledged, o.rolledBack = t, map[string]bool{}, map[string]bool{}
		o.logs = filepath.Join(t.TempDir(), o.name+".log")
		o.env = []string{
			config.VariableAPIKey + "=" + access.Keys.Worker, config.VariableBaseURL + "=http://" + address,
			"INTEGRITY_OUTBOX_DATABASE=" + o.address,
		}
		o.args = []string{"outbox", "run", "--lease", "5s", "--poll", "100ms", "--trusted-keys", trusted}
		must(t, o.env, "outbox", "install", "--apply")
		for n := range o.workers {
			workers.Go(func() { o.supervise(working, n) })
		}
		insert := o.insert
		if o.sample != nil {
			insert = o.runSample
			for range 5 * storms {
				o.deaths = append(o.deaths, choices.Float64()*float64(rows))
			}
			slices.Sort(o.deaths)
		}
		programs.Go(func() {
			if err := insert(ctx, access.CompanyReference, int(rows), inserted); err != nil {
				t.Errorf("%s: %v; %s", o.name, err, tail(o.logs))
			}
		})
	}
	all := make(chan struct{}) // closed when all rows are inserted
	go func() {
		defer close(all)
		programs.Wait()
	}()
	// After each part of the rows something dies: workers most often, each database and the service once a storm.
	victims = slices.Repeat(victims, storms)
	choices.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, victim := range victims {
		for range len(origins) * int(rows) / (len(victims) + 1) {
			select {
			case <-progress:
			case <-all:
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
		}
		o := origins[choices.IntN(len(origins))]
		t.Logf("killing the %s (%s)", victim, o.name)
		switch victim {
		case "service":
			if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-s.exited
			s = start(t, s.dir, "--demo", "--listen", address)
		case "worker":
			o.killWorker(choices.IntN(len(o.workers)))
		default:
			for _, o := range origins {
				if o.name == victim {
					o.lose()
				}
			}
		}
	}
	<-all
	for _, o := range origins {
		o.wantEachOnce(access, trusted)
	}
}

// feedOf returns how often each version was registered, by source.
func feedOf(t *testing.T, env []string, access demo.Access) map[string]map[string]int {
	t.Helper()
	times := map[string]map[string]int{}
	for line := range strings.Lines(must(t, env, "changes", "--company", access.CompanyReference, "--json")) {
		var event wire.FeedEvent
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		if event.Type != domain.RecordRegistered {
			continue
		}
		if times[event.Source] == nil {
			times[event.Source] = map[string]int{}
		}
		times[event.Source][fmt.Sprintf("%s v%d", event.DocumentReference, event.Version)]++
	}
	return times
}

// wantEachOnce compares the committed rows with the feed, and verifies their evidence.
func (o *origin) wantEachOnce(access demo.Access, trustedFile string) {
	t := o.t
	t.Helper()
	db, _, err := outbox.OpenDatabase(t.Context(), o.address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	eventually(t, o.name+": everything is registered, with evidence", func() error {
		var all, done int
		if err := db.QueryRowContext(
			t.Context(), `SELECT count(*), count(evidence_at) FROM integrity_outbox`,
		).Scan(&all, &done); err != nil || all == done {
			return err
		}
		return fmt.Errorf("%d of %d; %s", done, all, tail(o.logs))
	})
	trusted, err := keyfiles.ReadTrusted(trustedFile)
	if err != nil {
		t.Fatal(err)
	}
	committed := map[string]string{} // hashes by version
	if err := outbox.Read(t.Context(), db, func(i outbox.Item) error {
		d := i.Declaration
		key := fmt.Sprintf("%s v%d", d.DocumentReference, d.Version)
		if committed[key] = d.SHA256; o.rolledBack[key] || i.State != outbox.Registered {
			t.Errorf("%s: %s is %s", o.name, key, i.State)
		}
		_, err := client.VerifyDeclared(i.Evidence, trusted, d, time.Now())
		return err
	}); err != nil {
		t.Error(err)
	}
	for key := range o.acknowledged {
		if committed[key] == "" {
			t.Errorf("%s: the committed %s is lost", o.name, key)
		}
	}
	registered := feedOf(t, o.env, access)[o.name]
	for key, times := range registered {
		if times != 1 || committed[key] == "" {
			t.Errorf("%s: %s was registered %d times, committed: %q", o.name, key, times, committed[key])
		}
	}
	if len(registered) != len(committed) || len(o.rolledBack) == 0 {
		t.Errorf("%s: %d rows, %d registered, %d rolled back", o.name, len(committed), len(registered), len(o.rolledBack))
	}
	if o.sample != nil {
		wantInvoices(t, db, committed)
	}
	t.Logf("%s: %d rows, %d acknowledged, %d rolled back", o.name, len(committed), len(o.acknowledged), len(o.rolledBack))
}
