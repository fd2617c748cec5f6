package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/eventstore/pgtest"
	"integrityledger/handlers/wire"
)

// declared returns a declaration of one document of the company c.
func declared(version int32) wire.Declaration {
	return wire.Declaration{
		CompanyReference: "c", Source: "s", DocumentReference: "d", Version: version, SHA256: strings.Repeat("ab", 32),
		SizeBytes: 1,
		MimeType:  "text/plain", GeneratedAt: "2026-01-02T03:04:05Z",
	}
}

func (s *running) registers(key string, version int32) (status int) {
	status, err := call(plainHTTP(), http.MethodPost, s.base+"/api/v1/integrity/records", key, declared(version), nil)
	if status == 0 {
		s.t.Error(err)
	}
	return status
}

// TestOutdatedProgram: once the ledger no longer accepts the version of a running process, the process commits nothing
// more, logs the reason once, and answers reads. No other process of that version starts, and no command writes.
func TestOutdatedProgram(t *testing.T) {
	t.Parallel()
	url := foreignDatabase(t.Context(), t)
	database := []string{"INTEGRITY_DATABASE_URL=" + url}
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	s := surroundings{env: database}.start(t, dir, "--issuer", "outdated")
	key := externalAccount(t, database)
	if status := s.registers(key, 1); status != http.StatusCreated {
		t.Fatal(status)
	}
	var view operator.UpgradeView
	mustJSON(t, database, &view, "upgrade", "status")
	if len(view.Processes) != 1 || view.Processes[0].Version != view.Version || view.MinimumVersion != view.Version ||
		len(view.Rules) != len(domain.Rules()) {
		t.Errorf("%+v", view)
	}
	if said := must(t, database, "upgrade", "finish"); said != "every rule of this version was already on\n" {
		t.Error(said)
	}
	// A later version switches a rule on while this process is frozen, and so counts as dead.
	signal := func(is syscall.Signal) {
		t.Helper()
		if err := s.cmd.Process.Signal(is); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	pgtest.Exec(t, url, "UPDATE processes SET seen_at = now() - interval '31 seconds'")
	later := domain.ThisRelease + 1000 // the next minor version
	for _, table := range []string{"ledger", "shard_heads"} {
		pgtest.Exec(t, url, fmt.Sprintf("UPDATE %s SET minimum_version = %d", table, later))
	}
	frozen := make(chan int)
	go func() { frozen <- s.registers(key, 3) }()
	signal(syscall.SIGCONT)
	for _, status := range []int{<-frozen, s.registers(key, 2)} {
		if status != http.StatusServiceUnavailable {
			t.Errorf("a registration: %d", status)
		}
	}
	sentence := fmt.Sprintf(
		"this program is version %s and the ledger takes %s or later: install that version and start it again",
		domain.ThisRelease, later,
	)
	eventually(t, "not ready", func() error {
		response, err := plainHTTP().Get(s.base + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), sentence) {
			return fmt.Errorf("%d %s %w", response.StatusCode, text, err)
		}
		return nil
	})
	if status, err := call(
		plainHTTP(), http.MethodGet, s.base+"/api/v1/integrity/usage", key, nil, nil,
	); status != http.StatusOK {
		t.Errorf("a read: %d %v", status, err)
	}
	if text := readLog(t, s); strings.Count(text, sentence) < 1 ||
		strings.Count(text, `msg="commits and workers stopped`) != 1 {
		t.Errorf("log: %s", text)
	}
	for _, args := range [][]string{
		{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0"}, {"migrate"}, {"rebuild"},
		{"organization", "create", "Y", "--plan", "internal"},
		{"upgrade", "finish"}, {"audit", "--data-dir", dir},
	} {
		if r := integrity(t, database, args...); r.code != cli.ExitFailed || !strings.Contains(r.errs, sentence) {
			t.Errorf("%v: %d %s", args, r.code, r.errs)
		}
	}
	s.stop()
	if n, err := pgtest.Ask[int](url, "SELECT count(*)::int FROM processes"); n != 0 || err != nil {
		t.Errorf("%d processes show themselves after the end: %v", n, err)
	}
}

// batch registers batches of three declarations, and repeats one until every declaration in it is acknowledged.
func (l *drill) batch() {
	w := &writer{}
	l.writers = append(l.writers, w)
	l.all.Go(func() {
		for version := int32(1); !l.stop.Load(); version++ {
			var request wire.BatchRequest
			for _, document := range []string{"batch-a", "batch-b", "batch-c"} {
				d := declared(version)
				d.DocumentReference = document
				request.Declarations = append(request.Declarations, d)
			}
			var answer wire.Batch
			for done := false; !done && !l.t.Failed(); {
				w.attempts++
				answer = wire.Batch{}
				status, err := call(
					l.client, http.MethodPost, l.base+"/api/v1/integrity/records/batch", l.key, request, &answer,
				)
				if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
					l.t.Errorf("a batch was answered with %d", status)
				}
				done = status == http.StatusOK && !slices.ContainsFunc(answer.Results, func(r wire.BatchResult) bool {
					return r.Data == nil
				})
			}
			for i, r := range answer.Results {
				if r.Data != nil {
					w.acks = append(w.acks, acknowledged{request.Declarations[i], r.Data.PublicID, time.Now()})
					l.count.Add(1)
				}
			}
		}
	})
}

// TestUpgradeForthAndBack replaces two processes behind a load balancer, one at a time, with the previous version and
// this one in every order, under a load of registrations, batches, comparisons and a reader of the feed. No request
// fails. After every step both versions find the history and the projections correct. In the end nothing acknowledged
// is lost, and once the upgrade is finished, the previous version is refused in one sentence. INTEGRITY_TEST_PREVIOUS
// names the previous program, which creates the ledger.
func TestUpgradeForthAndBack(t *testing.T) {
	const this, former, writers = 0, 1, 4
	previous := os.Getenv("INTEGRITY_TEST_PREVIOUS")
	if previous == "" {
		t.Skip("INTEGRITY_TEST_PREVIOUS names no earlier version: make upgrade does")
	}
	programs := [2]string{os.Getenv(binaryVariable), previous}
	use := func(program int) { t.Setenv(binaryVariable, programs[program]) } // for commands
	url := foreignDatabase(t.Context(), t)
	env := []string{
		"INTEGRITY_DATABASE_URL=" + url, "INTEGRITY_ISSUER=forth-and-back", "INTEGRITY_PUBLIC_PER_MINUTE=10000000",
	}
	dir, addresses := dataDir(t), [2]string{freeAddress(t), freeAddress(t)}
	use(former)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	var servers [2]*running
	start := func(i, program int) {
		servers[i] = surroundings{env: env, program: programs[program]}.start(t, dir, "--listen", addresses[i])
	}
	start(0, former)
	start(1, former)
	key := externalAccount(t, env)
	b := newBalancer(t, [2]string{servers[0].base, servers[1].base})
	b.wait(t, 0)
	b.wait(t, 1)
	l := &drill{
		t: t, dir: dir, base: b.URL, key: key, client: &http.Client{Transport: failOnLie{t}, Timeout: 45 * time.Second},
		followed: map[string]int{},
	}
	l.begin(writers)
	l.batch()
	l.hold("former and former")
	must(t, env, "audit", "--data-dir", dir)
	use(this)
	must(t, env, "migrate")
	l.hold("on the newer schema")

	running := [2]int{former, former}
	finish := func() result { return integrity(t, env, "upgrade", "finish") }
	for _, next := range [][2]int{
		{this, former}, {this, this}, {former, this}, {former, former}, {former, this}, {this, this},
	} {
		for i := range servers {
			if running[i] == next[i] {
				continue
			}
			b.out[i].Store(true)
			for n := l.count.Load(); l.count.Load() < n+20 && !t.Failed(); time.Sleep(healthInterval) {
			} // all requests sent to it have been answered
			servers[i].stop()
			start(i, next[i])
			b.out[i].Store(false)
			b.wait(t, i)
		}
		running = next
		name := fmt.Sprintf("this and former (0, 1): %v", running)
		l.hold(name)
		for _, program := range []int{former, this} {
			use(program)
			must(t, env, "audit", "--data-dir", dir)
			if out := must(t, env, "rebuild", "--check"); !strings.HasSuffix(out, "0 rows differ\n") {
				t.Errorf("%s: rebuild --check by %d: %s", name, program, out)
			}
		}
		if slices.Contains(next[:], former) {
			if r := finish(); r.code != cli.ExitNegative || strings.Count(r.errs, "\n") != 1 {
				t.Errorf("%s: finished: %d %s", name, r.code, r.errs)
			}
		}
	}
	must(t, env, "upgrade", "finish")
	use(former)
	r := integrity(t, env, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0")
	if r.code != cli.ExitFailed || strings.Count(r.errs, "\n") != 1 ||
		!strings.Contains(r.errs, "which this program (version ") {
		t.Errorf("the previous version after the end of the upgrade: %d %s", r.code, r.errs)
	}
	use(this)
	l.hold("after the end of the upgrade")
	must(t, env, "audit", "--data-dir", dir)
	l.nothingLost(url)
	for i, w := range l.writers[:writers] {
		if w.attempts != len(w.acks) {
			t.Errorf("writer %d: %d requests for %d registrations: some failed", i, w.attempts, len(w.acks))
		}
	}
}

// TestFormerVersionIsLockedOut: the previous version creates a ledger and writes beside this version and after it until
// the upgrade is finished. From then on the previous version, which lacks a rule of this one, commits nothing more. The
// history is clean.
func TestFormerVersionIsLockedOut(t *testing.T) {
	previous := os.Getenv("INTEGRITY_TEST_PREVIOUS")
	if previous == "" {
		t.Skip("INTEGRITY_TEST_PREVIOUS names no earlier version: make upgrade does")
	}
	url := foreignDatabase(t.Context(), t)
	database := []string{"INTEGRITY_DATABASE_URL=" + url}
	dir := dataDir(t)
	must(t, nil, "keys", "generate", "--data-dir", dir)
	before, in := surroundings{env: database, program: previous}, surroundings{env: database}
	former := before.start(t, dir, "--issuer", "former")
	newer := in.start(t, dir)
	key := externalAccount(t, database)
	version := int32(0)
	registers := func(s *running, want int) {
		t.Helper()
		version++
		if got := s.registers(key, version); got != want {
			t.Errorf("version %d: %d, want %d", version, got, want)
		}
	}
	for _, s := range []*running{former, newer, former} {
		registers(s, http.StatusCreated)
	}
	// Back to the previous version, and forward again.
	newer.stop()
	registers(former, http.StatusCreated)
	newer = in.start(t, dir)
	var view operator.UpgradeView
	mustJSON(t, database, &view, "upgrade", "status")
	if !slices.ContainsFunc(view.Processes, func(p operator.ProcessView) bool { return len(p.Lacks) > 0 }) {
		t.Fatalf("the previous version knows every rule of this one: %+v", view)
	}
	// The command does not lock out a process that is serving.
	if r := integrity(t, database, "upgrade", "finish"); r.code != cli.ExitNegative {
		t.Errorf("finished beside a process that does not know every rule: %d %s", r.code, r.errs)
	}
	// The previous version is frozen, and so counts as dead. Without heartbeats its row stays old.
	if err := former.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "UPDATE processes SET seen_at = now() - interval '31 seconds'")
	must(t, database, "upgrade", "finish")
	if err := former.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	registers(former, http.StatusServiceUnavailable)
	registers(newer, http.StatusCreated)
	registers(former, http.StatusServiceUnavailable)
	must(t, database, "audit", "--data-dir", dir)
	if out := must(t, database, "rebuild", "--check"); !strings.HasSuffix(out, "0 rows differ\n") {
		t.Errorf("rebuild --check: %s", out)
	}
}
