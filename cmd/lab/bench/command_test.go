package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/postgres"
)

// benchTime is how long a benchmark may take on a machine that is busy with other tests.
const benchTime = 15 * time.Minute

// runningBench is a benchmark with its temporary files in a directory of the test.
type runningBench struct {
	cmd       *exec.Cmd
	temp      string
	out, errs bytes.Buffer
	exited    chan struct{}
}

// programs is a directory with the released forms of the benchmark and of the program that it measures.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "bench"); err != nil {
		return "", err
	}
	programsDir = dir
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", dir, ".", "integrityledger/cmd/integrity")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build: %w: %s", err, out)
	}
	return dir, os.Chmod(dir, 0o755)
})

// programsDir is empty until a test needs the programs.
var programsDir string

type tests struct{ *testing.M }

func (m tests) Run() int {
	defer func() { os.RemoveAll(programsDir) }()
	return m.M.Run()
}

func TestMain(m *testing.M) { pgtest.Main(tests{m}) }

func benchCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(filepath.Join(dir, "bench"), args...)
}

// tempDir has a short path, because socket paths are limited, and PostgreSQL's own user can traverse it.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ended is how a command ended.
type ended struct {
	out, errs string
	code      int
}

// bench runs the benchmark to its end.
func bench(t *testing.T, env []string, args ...string) ended {
	t.Helper()
	var out, errs bytes.Buffer
	c := benchCommand(t, args...)
	c.Env, c.Stdout, c.Stderr = append(foreignEnviron(), env...), &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatalf("bench %v: %v", args, err)
	}
	return ended{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

func startBench(t *testing.T, args ...string) *runningBench {
	t.Helper()
	b := &runningBench{temp: tempDir(t), exited: make(chan struct{}), cmd: benchCommand(t, args...)}
	b.cmd.Env, b.cmd.Stdout, b.cmd.Stderr = append(foreignEnviron(), "TMPDIR="+b.temp), &b.out, &b.errs
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = b.cmd.Wait() // the result is in ProcessState
		close(b.exited)
	}()
	t.Cleanup(func() { _ = b.cmd.Process.Kill() })
	return b
}

// wait returns the exit code. It requires that no file is left, and no process that has one open there.
func (b *runningBench) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-b.exited:
	case <-time.After(benchTime):
		t.Fatalf("the benchmark has not ended after %s", benchTime)
	}
	left, err := os.ReadDir(b.temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd+"/", b.temp+"/") {
			t.Errorf("%s is still at work in %s", link, cwd)
		}
	}
	return b.cmd.ProcessState.ExitCode()
}

// measured runs the benchmark, and returns its result and its progress.
func measured(t *testing.T, args ...string) (result Result, progress string) {
	t.Helper()
	b := startBench(t, append(args, "--json")...)
	if code := b.wait(t); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, b.errs.String())
	}
	if err := json.Unmarshal(b.out.Bytes(), &result); err != nil {
		t.Fatalf("%v: %s", err, b.out.String())
	}
	return result, b.errs.String()
}

// TestBench runs everything that --quick measures, in the shortest possible rounds. It checks only that the figures
// exist.
func TestBench(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the benchmark")
	}
	profiles := t.TempDir()
	result, _ := measured(t, "--quick", "--seconds", "0.1", "--profile", profiles)
	var registered int64
	for _, f := range result.Figures {
		if f.PerSecond <= 0 && f.NotMeasured == "" {
			t.Errorf("%s: no figure, and no reason", f.Name)
		}
		if f.Unit == "registrations" && !strings.HasPrefix(f.Name, "pgbench") {
			registered += f.Done
		}
		if strings.HasPrefix(f.Name, "over HTTP") && (f.CPU.Service == 0 && f.Done > 1000) {
			t.Errorf("%s: the service used no CPU for %d registrations", f.Name, f.Done)
		}
	}
	if registered == 0 || result.Verified < registered {
		t.Errorf("%d registrations were counted, %d verified", registered, result.Verified)
	}
	missing := map[string]int{}
	for _, target := range result.Targets {
		if target.Value == nil {
			missing[target.Note]++
		}
	}
	if len(result.Targets) != 30 || result.Flood == nil || len(result.HOT) != 4 {
		t.Errorf("%d targets, flood %+v, %+v", len(result.Targets), result.Flood, result.HOT)
	}
	for _, reason := range []string{"needs --growth", "left out by --quick"} {
		if missing[reason] == 0 {
			t.Errorf("no target is missing because %q", reason)
		}
		delete(missing, reason)
	}
	// On a busy machine a tenth of a second may contain no processor time, by a clock that counts hundredths.
	const unknown = "the processor time of the database is not known"
	if missing[unknown] <= 2 {
		delete(missing, unknown)
	}
	if len(missing) > 0 {
		t.Errorf("targets are missing: %v", missing)
	}
	for _, name := range []string{
		"in-process--16-organizations.pprof", "over-HTTP--throughput.pprof", "over-HTTP--latency.pprof",
		"over-HTTP--one-caller.pprof",
	} {
		if info, err := os.Stat(filepath.Join(profiles, name)); err != nil || info.Size() == 0 {
			t.Errorf("the profile %s: %v", name, err)
		}
	}
}

// TestBenchInterrupted: ^C ends the children and PostgreSQL, and removes every file.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the benchmark")
	}
	b := startBench(t, "--duration", "1h", "--c", "4")
	log := filepath.Join(b.temp, "integrity-bench-*", "serve.log")
	integritytest.Eventually(t, "the service is started", func() error {
		if found, err := filepath.Glob(log); err != nil || len(found) != 1 {
			return fmt.Errorf("%d logs: %w", len(found), err)
		}
		return nil
	})
	if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := b.wait(t); code != cli.ExitFailed {
		t.Errorf("exit code %d: %s", code, b.errs.String())
	}
}

// TestBenchOnAGivenDatabase: a database with any content is refused and left unchanged; an empty one is filled.
func TestBenchOnAGivenDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the benchmark")
	}
	theirs := foreignDatabase(t)
	env := []string{"INTEGRITY_DATABASE_URL=" + theirs}
	soak := []string{"--quick", "--duration", "1s", "--c", "8", "--json"}
	pgtest.Exec(t, theirs, "CREATE TABLE theirs (n integer)")
	r := bench(t, env, soak...)
	if r.code != cli.ExitFailed || !strings.Contains(r.errs, "1 tables, views or sequences (theirs)") ||
		!strings.Contains(r.errs, "it must be empty") {
		t.Errorf("a database in use: exit code %d: %s", r.code, r.errs)
	}
	const tables = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
	if n, err := pgtest.Ask[int](theirs, tables); err != nil || n != 1 {
		t.Errorf("there are %d tables in it now: %v", n, err)
	}
	pgtest.Exec(t, theirs, "DROP TABLE theirs")
	var result Result
	if r := bench(t, append(env, "INTEGRITY_SHARDS=3"), soak...); r.code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", r.code, r.errs)
	} else if err := json.Unmarshal([]byte(r.out), &result); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	if shards, err := pgtest.Ask[int](theirs, "SELECT shards FROM ledger"); err != nil || shards != 3 ||
		!result.Environment.External || result.Verified == 0 {
		t.Errorf("%d shards, %d registrations verified, %+v: %v", shards, result.Verified, result.Environment, err)
	}
	if r := bench(t, env, "--growth"); r.code != cli.ExitFailed || !strings.Contains(r.errs, "--growth must have") {
		t.Errorf("--growth: exit code %d: %s", r.code, r.errs)
	}
}

// foreignDatabase is a database of a PostgreSQL that the benchmark did not start.
func foreignDatabase(t *testing.T) (url string) {
	t.Helper()
	server, err := postgres.Start(
		context.Background(), postgres.Config{DataDir: filepath.Join(tempDir(t), "data"), Purpose: "test", Disposable: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server.URL(postgres.Database)
}

func TestBenchFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--seconds", "0"}, {"--rounds", "0"}, {"--c", "8"}, {"--growth=10"}, {"--growth", "--quick"}, {"--rebuild=10"},
		{"--rebuild", "--duration", "1m"}, {"--duration", "1ms"}, {"--c", "0", "--duration", "1m"}, {"--flood", "--quick"},
		{"--outbox", "--flood"}, {"--import", "--outbox"}, {"--import=10"}, {"--origin", "sqlite:origin.db"}, {"now"},
		{"--peers", "nowhere"}, {"--peers", ".", "--flood"}, {"--peers", ".", "--seconds", "60"},
	} {
		r := bench(t, nil, args...)
		if r.code != cli.ExitFailed || !strings.Contains(r.errs, "must be") && !strings.Contains(r.errs, "must read") {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.errs)
		}
	}
}

// TestBenchImport kills an import three times.
func TestBenchImport(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the benchmark")
	}
	result, progress := measured(t, "--import=8000", "--seconds", "0.1")
	killed := strings.Count(progress, "integrity import: signal: killed")
	if killed != importKills || result.Flood.Floods[0].Flooding.Done != 8000 || len(result.Targets) != 3 {
		t.Errorf("%d kills, %+v, %+v", killed, result.Flood, result.Targets)
	}
}

// TestBenchRebuild measures registrations before and during a rebuild.
func TestBenchRebuild(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the benchmark")
	}
	result, _ := measured(t, "--rebuild=5000", "--seconds", "0.1")
	m := result.Rebuild
	if m == nil || m.Records != 5000 || m.Rebuilt.Events < m.Records || m.During.Done == 0 || m.Before.Done == 0 ||
		m.During.Longest == 0 || result.Verified < m.Records {
		t.Errorf("%+v, %d verified", m, result.Verified)
	}
}
