package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/lab/weather/history"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/pgtest/network"
)

// world is everything that runs.
type world struct {
	t testing.TB
	options
	data    string // key files and kept bytes, shared by the services
	second  string // the second region's services are called so; empty: the first region still works
	history *history.Writer
	quiet   *log.Logger
	log     *log.Logger
	header  history.Header
	calls   string // the request ids of the clients' calls begin with it
	running sync.WaitGroup
	over    atomic.Bool

	programs string // directory of PostgreSQL's programs
	library  bool   // PostgreSQL's clock and disk can be made to fail

	links     map[string]*network.Link
	servers   map[string]*server
	primary   atomic.Pointer[server]
	processes map[string]*process
	addresses [services]string
	front     *front
	receivers *receivers
	broker    *broker

	organizations []*organization
	recoveries    recoveries
	waiting       atomic.Pointer[string] // what the end is waiting for
	foundMu       sync.Mutex
	found         []string // by the harness itself
}

func serviceName(i int) string { return "service-" + strconv.Itoa(i+1) }

// note logs an event for the reader.
func (w *world) note(format string, args ...any) {
	w.log.Printf(format, args...)
}

// violation fails the run without ending it.
func (w *world) violation(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("VIOLATION: %s", text)
	w.t.Error(text)
	w.foundMu.Lock()
	defer w.foundMu.Unlock()
	w.found = append(w.found, text)
}

// clean returns our environment without the service's settings.
func clean(more ...string) (env []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, config.Prefix) {
			env = append(env, entry)
		}
	}
	return append(env, more...)
}

// ledgerEnv reaches the ledger without any link. It looks for the primary among the servers of the region.
func (w *world) ledgerEnv() []string {
	url := w.primary.Load().socketURL()
	if w.second == "" {
		url = fmt.Sprintf(
			"postgres:///integrity?host=%s,%s&port=5432,5432&user=integrity",
			filepath.Join(w.servers[serverOne].dir, "socket"), filepath.Join(w.servers[serverTwo].dir, "socket"),
		)
	}
	return clean(
		"INTEGRITY_DATABASE_URL="+url, "INTEGRITY_DATA_DIR="+w.data, "INTEGRITY_PLANS="+w.plansPath(),
		"INTEGRITY_SECRET_KEY="+strings.Repeat("ab", 32),
	)
}

func (w *world) plansPath() string { return filepath.Join(w.data, "plans.json") }

// result is how a command ended.
type result struct {
	out, errs string
	code      int
}

// run runs a command of the service.
func (w *world) run(patience time.Duration, env []string, args ...string) result {
	return w.runProgram(w.program, patience, env, args...)
}

func (w *world) runProgram(program string, patience time.Duration, env []string, args ...string) result {
	w.waits("integrity " + strings.Join(args, " "))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = env
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return result{errs: err.Error(), code: -1}
	}
	return result{out.String(), errs.String(), command.ProcessState.ExitCode()}
}

// must runs a command that may not fail, before the faults.
func (w *world) must(into any, args ...string) string {
	w.t.Helper()
	if into != nil {
		args = append(args, "--json")
	}
	r := w.run(integritytest.Patient, w.ledgerEnv(), args...)
	if r.code != 0 {
		w.t.Fatalf("integrity %v: exit code %d: %s%s", args, r.code, r.out, r.errs)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(r.out), into); err != nil {
			w.t.Fatalf("integrity %v: %v in %s", args, err, r.out)
		}
	}
	return r.out
}

const (
	issuer      = "weather"
	witnessName = "witness.example/weather"
)

// makeLedger creates the schema, the keys and the plans.
func (w *world) makeLedger(t testing.TB) {
	plan := func(perMonth string) string {
		return `{"priceEur": 0, "perMinute": 1000000, "versionsPerMonth": ` + perMonth +
			`, "requestsPerMonth": null, "registrationsPerMonth": null, "webhookAttemptsPerMonth": null, "administrativeEventsPerDay": 10000}`
	}
	integritytest.Write(
		t, w.plansPath(),
		fmt.Sprintf(`{"gratis": %s, "small": %s, "wide": %s}`, plan("1000"), plan(strconv.Itoa(smallQuota)), plan("null")),
	)
	w.must(nil, "keys", "generate")
	// If a previous version is given, it creates the ledger: it cannot write to a ledger created by this version.
	for _, program := range []string{w.former, w.program} {
		if program == "" {
			continue
		}
		r := w.runProgram(
			program, integritytest.Patient, append(w.ledgerEnv(), "INTEGRITY_SHARDS=2"), "migrate", "--issuer", issuer,
		)
		if r.code != 0 {
			t.Fatal(r.errs)
		}
	}
	for _, step := range []string{"--stage", "--activate"} {
		w.must(nil, "keys", "rotate", "--transparency-log", "--issuer", issuer, step)
	}
}

// startWitness starts a separate installation on a database without faults; only its link has faults.
func (w *world) startWitness(t testing.TB) (witnesses string) {
	dir := pgtest.ClusterDir(t)
	address := integritytest.FreeAddress(t)
	env := clean(
		"INTEGRITY_DATABASE_URL="+pgtest.New(t), "INTEGRITY_DATA_DIR="+dir, "INTEGRITY_METRICS_LISTEN=off",
		"INTEGRITY_WITNESS_NAME="+witnessName, "INTEGRITY_ISSUER=witness",
	)
	if r := w.run(integritytest.Patient, env, "migrate"); r.code != 0 {
		t.Fatal(r.errs)
	}
	key := w.run(time.Minute, env, "keys", "witness")
	if key.code != 0 {
		t.Fatal(key.errs)
	}
	verifier := strings.TrimSpace(key.out)
	w.must(nil, "keys", "add-witness", verifier)
	trusted, err := keyfiles.ReadTrusted(filepath.Join(w.data, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	logs := integritytest.Write(t, filepath.Join(dir, "logs"), trusted.LogKeys()[0].VerifierKey+"\n")
	w.processes["witness"] = &process{
		w: w, name: "witness", program: w.program,
		env: append(
			env, "INTEGRITY_WITNESS_LISTEN="+address, "INTEGRITY_WITNESS_LOGS="+logs, "INTEGRITY_WITNESS_PER_MINUTE=100000",
		),
		args: []string{"witness"},
	}
	link := network.Listen(
		t, network.Address{Network: "tcp", Name: "127.0.0.1:0"}, network.Address{Network: "tcp", Name: address},
	)
	w.links["services → witness"] = link
	return verifier + " http://" + link.At.Name
}

// startServices starts the processes and all links in front of them.
func (w *world) startServices(t testing.TB, witnesses string) {
	for i := range services {
		w.addresses[i] = integritytest.FreeAddress(t)
	}
	w.front = w.startFront(t)
	const in = "postgres:///integrity?host=%s,%s&port=5432,5432&user=integrity"
	for i := range services {
		name := serviceName(i)
		var hosts []string
		for _, s := range []string{serverOne, serverTwo} {
			socket := filepath.Join(w.servers[s].dir, "socket")
			if i < services-1 {
				hosts = append(hosts, w.socketLink(t, name+" → "+s, socket))
				continue
			}
			// The last service reaches each server through a pooler, whose own link to the server may fail.
			behind := w.socketLink(t, "pooler of "+s+" → "+s, socket)
			pooler := pgtest.PreparePooler(t, "postgres:///integrity?host="+behind+"&port=5432&user=integrity",
				filepath.Join(w.servers[s].dir, "pgdata"),
				"pool_mode = session", "server_connect_timeout = 3", "server_login_retry = 1", "query_wait_timeout = 10")
			p := &process{
				w: w, name: "pooler of " + s, program: pooler.Program, args: pooler.Args, uid: pooler.Credential, env: clean(),
			}
			w.processes[p.name] = p
			p.start()
			hosts = append(hosts, filepath.Dir(pooler.Log))
		}
		broker := network.Listen(
			t, network.Address{Network: "tcp", Name: "127.0.0.1:0"},
			network.Address{Network: "tcp", Name: strings.TrimPrefix(w.broker.url, "nats://")},
		)
		w.links[name+" → broker"] = broker
		p := &process{
			w: w, name: name, program: w.program, args: []string{"serve"},
			env: clean(
				"INTEGRITY_DATABASE_URL="+fmt.Sprintf(in, hosts[0], hosts[1]),
				"INTEGRITY_REPLICA_URL=postgres:///integrity?port=5432&user=integrity&host="+w.socketLink(
					t, name+" → "+serverLate, filepath.Join(w.servers[serverLate].dir, "socket"),
				),
				"INTEGRITY_DATA_DIR="+w.data, "INTEGRITY_LISTEN="+w.addresses[i], "INTEGRITY_BASE_URL="+w.front.url,
				"INTEGRITY_ISSUER="+issuer, "INTEGRITY_PLANS="+w.plansPath(),
				"INTEGRITY_METRICS_LISTEN=off", "INTEGRITY_NATS_URL=nats://"+broker.At.Name, "INTEGRITY_WITNESSES="+witnesses,
				"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true",
				"INTEGRITY_SECRET_KEY="+strings.Repeat("ab", 32), "INTEGRITY_PUBLIC_PER_MINUTE=10000000",
				"INTEGRITY_PUBLIC_PAGES_PER_MINUTE=10000000",
				"INTEGRITY_DRAIN_DELAY=1s", "INTEGRITY_LOG_FORMAT=json", clockVariable+"="+w.clockPath(i)),
		}
		w.setClock(i, 0)
		w.processes[name] = p
	}
	for i := range services {
		w.processes[serviceName(i)].start()
		// One after the other: on two cores, starting all at once is slow.
		if err := within(integritytest.Patient, func() error {
			if !w.front.ready[i].Load() {
				return errors.New(serviceName(i) + " is not ready")
			}
			return nil
		}); err != nil {
			t.Fatal(err, tail(w.processes[serviceName(i)].logPath()))
		}
	}
}

func (w *world) clockPath(i int) string { return filepath.Join(w.data, "clock-"+strconv.Itoa(i)) }

// setClock moves a service's clock by whole seconds.
func (w *world) setClock(i int, seconds int) {
	path := w.clockPath(i)
	if err := errors.Join(
		os.WriteFile(path+".new", []byte(strconv.Itoa(seconds)), 0o600), os.Rename(path+".new", path),
	); err != nil {
		w.t.Error(err)
	}
}

// startMonitor watches the log through the front for the whole run.
func (w *world) startMonitor() {
	w.processes["monitor"] = &process{
		w: w, name: "monitor", program: w.program, env: clean(),
		args: []string{
			"monitor", w.front.url, "--trusted-keys", w.pinnedPath(), "--state", w.monitorState(), "--follow", "--every", "2s",
			"--json",
		},
		final: func(how string) bool {
			alarm := how == "exit status 1"
			if alarm {
				w.violation("the monitor raises an alarm: %s", lastLine(tail(w.processes["monitor"].logPath())))
			}
			return alarm
		},
	}
	w.processes["monitor"].start()
}

func (w *world) pinnedPath() string   { return filepath.Join(w.dir, "trusted-keys.json") }
func (w *world) monitorState() string { return filepath.Join(w.dir, "monitor.json") }

// thaw resumes everything that a fault may have frozen.
func (w *world) thaw() {
	for _, p := range w.processes {
		p.signal(syscall.SIGCONT)
	}
	for _, s := range w.servers {
		s.signal(syscall.SIGCONT)
	}
}

func tail(path string) string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
