package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
			var answer wire.Results[wire.Registration]
			for done := false; !done && !l.t.Failed(); {
				w.attempts++
				answer = wire.Results[wire.Registration]{}
				status, err := call(
					l.client, http.MethodPost, l.base+"/api/v1/integrity/records/batch", l.key, request, &answer,
				)
				if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
					l.t.Errorf("a batch was answered with %d", status)
				}
				done = status == http.StatusOK && !slices.ContainsFunc(answer.Results, func(r wire.Result[wire.Registration]) bool {
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

// unfailing is a transport that fails the test when a request fails. It pauses before each request, longer during an
// audit: every step of an upgrade audits all that was registered, so that must not be much.
type unfailing struct {
	t        *testing.T
	auditing *atomic.Bool
}

func (u unfailing) RoundTrip(r *http.Request) (*http.Response, error) {
	pause := 20 * time.Millisecond
	if u.auditing.Load() {
		pause *= 20
	}
	time.Sleep(pause)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusInternalServerError {
		u.t.Errorf("%s %s: %v %v", r.Method, r.URL.Path, response, err)
	}
	return response, err
}

// since returns the rules that programs of an earlier version, major.minor.patch, lack.
func since(t *testing.T, version string) (rules []domain.Rule) {
	t.Helper()
	var major, minor, patch domain.Release
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatalf("%q: %v", version, err)
	}
	for _, r := range domain.Rules() {
		if r.Since > major*1_000_000+minor*1_000+patch {
			rules = append(rules, r.Name)
		}
	}
	return rules
}

// TestUpgradeForthAndBack replaces two processes behind a load balancer, one at a time, with the previous version and
// this one in every order, under a load of registrations, batches, comparisons and a reader of the feed. No request
// fails. After every step both versions find the history and the projections correct. In the end nothing acknowledged
// is lost. If this version has a rule that the previous one lacks, the upgrade cannot be finished beside it, and once
// it is finished, a process of the previous version commits nothing more and none starts. INTEGRITY_TEST_PREVIOUS names
// the previous program, which creates the ledger.
func TestUpgradeForthAndBack(t *testing.T) {
	const this, former, writers = 0, 1, 2
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
	must(t, env, "migrate")
	for _, step := range []string{"--stage", "--activate"} {
		must(t, env, "keys", "rotate", "--transparency-log", step, "--data-dir", dir)
	}
	serve := func(program int, args ...string) *running {
		return surroundings{env: env, program: programs[program]}.start(t, dir, args...)
	}
	var servers [2]*running
	for i := range servers {
		servers[i] = serve(former, "--listen", addresses[i])
	}
	apart := serve(former) // gets no requests of the load balancer
	key := externalAccount(t, env)
	b := newBalancer(t, [2]string{servers[0].base, servers[1].base})
	var auditing atomic.Bool
	l := &drill{
		t: t, dir: dir, base: b.URL, key: key,
		client:   &http.Client{Transport: unfailing{t, &auditing}, Timeout: patient},
		followed: map[string]int{},
	}
	l.begin(writers)
	l.batch()
	began := time.Now()
	clean := func(name string, by ...int) {
		t.Helper()
		from := l.count.Load()
		eventually(t, name+": registrations go on", func() error {
			if n := l.count.Load() - from; n < 60 && !t.Failed() {
				return fmt.Errorf("%d acknowledged", n)
			}
			return nil
		})
		auditing.Store(true)
		defer auditing.Store(false)
		var checks sync.WaitGroup
		for _, program := range by {
			for _, command := range [][]string{{"audit", "--data-dir", dir}, {"rebuild", "--check"}} {
				checks.Go(func() {
					r := runs(t, programs[program], env, command...)
					if r.code != cli.ExitOK || command[0] == "rebuild" && !strings.HasSuffix(r.out, "0 rows differ\n") {
						t.Errorf("%s: %v by %d: exit code %d\n%s%s", name, command, program, r.code, r.out, r.errs)
					}
				})
			}
		}
		checks.Wait()
		t.Logf("%s: %s, %d acknowledged", name, time.Since(began).Round(time.Millisecond), l.count.Load())
		if t.Failed() {
			t.FailNow()
		}
	}
	clean("former and former", former)
	use(this)
	must(t, env, "migrate")
	clean("on the newer schema", former, this)

	var view operator.UpgradeView
	mustJSON(t, env, &view, "upgrade", "status")
	lacks := since(t, view.Processes[0].Version)
	for _, p := range view.Processes {
		if !slices.Equal(p.Lacks, lacks) {
			t.Errorf("%s of version %s lacks %q, want %q", p.Name, p.Version, p.Lacks, lacks)
		}
	}
	running := [2]int{former, former}
	for _, next := range [][2]int{
		{this, former}, {this, this}, {former, this}, {former, former}, {former, this}, {this, this},
	} {
		for i := range servers {
			if running[i] == next[i] {
				continue
			}
			b.drain(t, i)
			servers[i].stop()
			servers[i] = serve(next[i], "--listen", addresses[i])
			b.out[i].Store(false)
			b.wait(t, i)
		}
		running = next
		clean(fmt.Sprintf("this is 0, former is 1: %v", running), former, this)
		if r := integrity(t, env, "upgrade", "finish"); len(lacks) > 0 &&
			(r.code != cli.ExitNegative || strings.Count(r.errs, "\n") != 1) {
			t.Errorf("finished beside the previous version: %d %s", r.code, r.errs)
		}
	}
	if len(lacks) > 0 {
		lockedOut(t, apart, env, url, key)
		use(former)
		r := integrity(t, env, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0")
		if r.code != cli.ExitFailed || !strings.Contains("\n"+r.errs, "\nintegrity: this program is version ") ||
			!strings.Contains(r.errs, " or later: install that version and start it again\n") {
			t.Errorf("the previous version after the end of the upgrade: %d %s", r.code, r.errs)
		}
	}
	clean("after the end of the upgrade", this)
	l.nothingLost(url)
	if w := l.writers[writers]; 3*w.attempts != len(w.acks) {
		t.Errorf("%d registrations in %d batches: some failed", len(w.acks), w.attempts)
	}
}

// lockedOut finishes the upgrade while a process of the previous version is frozen and so counts as dead. Afterwards
// that process commits nothing more.
func lockedOut(t *testing.T, former *running, env []string, url, key string) {
	t.Helper()
	signal := func(is syscall.Signal) {
		if err := former.cmd.Process.Signal(is); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	pgtest.Exec(t, url, "UPDATE processes SET seen_at = now() - interval '31 seconds'")
	must(t, env, "upgrade", "finish")
	signal(syscall.SIGCONT)
	for version := range int32(2) {
		if got := former.registers(key, version+1); got != http.StatusServiceUnavailable {
			t.Errorf("version %d: %d", version+1, got)
		}
	}
}
