package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/eventstore/pgtest"
	"integrityledger/eventstore/pgtest/network"
)

// options configure a run.
type options struct {
	length   time.Duration
	seed     uint64
	source   string // root of the product's source
	previous string // commits; the first one that builds is the previous version
	dir      string // for the history and the page
	fair     bool   // without faults, to develop the harness
	region   bool   // lose the region at the end
	program  string // already built; likewise the previous version
	former   string
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == brokerCommand {
		os.Exit(serveBroker(os.Args[2], os.Args[3]))
	}
	if len(os.Args) > 1 && os.Args[1] == checkCommand {
		good, err := checkAgain(os.Args[2:], os.Stdout)
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "weather check:", err)
			os.Exit(2)
		case !good:
			os.Exit(1)
		}
		return
	}
	var o options
	flag.DurationVar(&o.length, "length", 3*time.Minute, "for how long there are faults, at least 10s")
	seed := flag.String("seed", "", "number that all faults and calls are drawn from (default: a random one)")
	flag.StringVar(&o.source, "source", ".", "root of the source to build")
	flag.StringVar(&o.previous, "previous", "",
		"commits, with spaces between; the first that builds is the version before")
	flag.StringVar(&o.dir, "dir", "", "directory for the history and its page (default: a temporary one)")
	flag.BoolVar(&o.fair, "fair", false, "no faults, to work on the drill itself")
	flag.BoolVar(&o.region, "region", true, "lose the region after the storm, and heal what it has lost")
	flag.StringVar(&o.program, "program", "", "program to use instead of building one")
	flag.StringVar(&o.former, "former", "", "with -program: the version before")
	timeout := flag.Duration("timeout", 0, "panic, with all stacks, if the run takes longer (default: no limit)")
	flag.Parse()
	if *timeout > 0 {
		time.AfterFunc(*timeout, func() {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("the run took longer than %s", *timeout))
		})
	}
	var err error
	if *seed == "" {
		o.seed = rand.Uint64() >> 12
	} else if o.seed, err = strconv.ParseUint(*seed, 10, 64); err != nil {
		err = fmt.Errorf("-seed must be a number: %q", *seed)
	}
	if o.length < 10*time.Second || flag.NArg() > 0 {
		err = errors.Join(err, errors.New("-length must be at least 10s, and nothing may follow the flags"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weather:", err)
		os.Exit(2)
	}
	if d := new(drill); !d.run(func(t testing.TB) { weather(t, o) }) {
		os.Exit(1)
	}
}

// calm is how long clients continue after the last fault, so that each recovery is seen.
const calm = 15 * time.Second

// weather is the drill.
func weather(t testing.TB, o options) {
	again := fmt.Sprintf("make weather LENGTH=%s SEED=%d", o.length, o.seed)
	w := newWorld(t, o)
	fmt.Printf("%s\nin %s\n", again, w.dir)
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Printf("FAILED: %s\nsee %s\n", again, w.dir)
		}
	})
	w.begin(t)
	w.weather()
	defer w.limitEnd(endPatience+regionPatience+o.length, w.abandon)()
	w.settle()
	w.waits("look-ups of unknown writes")
	w.lookUpUnknown()
	log := w.finish(t)
	w.collect(t, log)
	if err := w.history.Close(); err != nil {
		t.Fatal(err)
	}
	judged := []string{w.dir}
	if o.region {
		w.loseRegion(t, log)
		judged = append(judged, w.dir)
	}
	w.waits("all processes to stop")
	w.stop()
	w.waits("the checker")
	for _, of := range judged {
		w.judge(t, of, again)
	}
}

func newWorld(t testing.TB, o options) *world {
	w := &world{
		t: t, options: o, data: t.TempDir(), calls: "w", quiet: log.New(io.Discard, "", 0),
		links: map[string]*network.Link{}, servers: map[string]*server{}, processes: map[string]*process{},
	}
	w.recoveries.w = w
	var err error
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "weather"); err != nil {
			t.Fatal(err)
		}
	}
	if w.dir, err = filepath.Abs(w.dir); err != nil {
		t.Fatal(err)
	}
	makeDirectories(t, w.dir)
	file, err := os.OpenFile(filepath.Join(w.dir, "weather.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	w.log = log.New(file, "", log.Ltime|log.Lmicroseconds)
	return w
}

// makeDirectories makes the directories for the files of a history.
func makeDirectories(t testing.TB, dir string) {
	for _, name := range []string{"logs", "evidence"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// begin starts everything.
func (w *world) begin(t testing.TB) {
	t.Cleanup(w.stop)
	dir := pgtest.ClusterDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if w.program == "" {
		root, err := filepath.Abs(w.source)
		if err != nil {
			t.Fatal(err)
		}
		w.program = filepath.Join(dir, "integrity")
		if err := build(t, root, w.program); err != nil {
			t.Fatal(err)
		}
		if commits := strings.Fields(w.previous); len(commits) > 0 {
			w.former = filepath.Join(dir, "integrity-before")
			buildFormer(t, root, commits, w.former)
		}
	}
	library := filepath.Join(dir, "faults.so")
	ok, err := buildFaults(t.Context(), library)
	if err != nil {
		t.Fatal(err)
	}
	if w.library = ok; !ok {
		library = ""
		fmt.Println("THERE IS NO C COMPILER (cc): the disk and the clock of PostgreSQL do not fail in this run.")
	}
	if w.former == "" {
		fmt.Println("THERE IS NO VERSION BEFORE (PREVIOUS=commit): no rolling restart in this run.")
	}
	w.wrapPrograms(t, library)
	w.startDatabases(t)
	w.startBroker(t)
	w.makeLedger(t)
	witnesses := w.startWitness(t)
	w.makeOrganizations()
	text, err := os.ReadFile(filepath.Join(w.data, "trusted-keys.json"))
	if err == nil {
		err = os.WriteFile(w.pinnedPath(), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.header = history.Header{
		Seed: w.seed, StartedAt: time.Now().UTC().Format(time.RFC3339), Seconds: int64(w.length / time.Second),
		SkewNanoseconds: maxSkew * int64(time.Second), Former: w.former != "",
		Versions: map[string]string{
			"go": runtime.Version(), "service": strings.TrimSpace(w.run(time.Minute, clean(), "version").out),
		},
	}
	if version, err := ask[string](w.primary.Load(), "SHOW server_version"); err == nil {
		w.header.Versions["PostgreSQL"] = version
	}
	for _, o := range w.organizations {
		w.header.Organizations = append(w.header.Organizations, o.Organization)
	}
	if w.history, err = history.Create(w.dir, w.header); err != nil {
		t.Fatal(err)
	}
	w.receivers = w.startReceivers(t, rand.New(rand.NewPCG(w.seed, 1<<32)))
	w.receivers.fair.Store(w.fair)
	w.startServices(t, witnesses)
	w.processes["witness"].start()
	w.makeDestinations(t)
	w.startMonitor()
}

// weather is the run itself: clients, faults, and observations of the log.
func (w *world) weather() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients := w.startClients(ctx, w.seed, inStorm)
	watching := w.watchCheckpoints(ctx)
	if w.fair {
		time.Sleep(w.length)
	} else {
		w.storm(w.drawPlans(rand.New(rand.NewPCG(w.seed, 0)), w.length))
	}
	w.heal()
	w.note("everything is healed")
	time.Sleep(calm) // clients continue
	cancel()
	clients.Wait()
	watching.Wait()
	for _, f := range w.recoveries.close() {
		w.note("nothing was acknowledged after %s of %s", f.Name, f.Target)
	}
	w.note("the clients have ended")
}

// watchCheckpoints keeps the checkpoints that the public API shows.
func (w *world) watchCheckpoints(ctx context.Context) *sync.WaitGroup {
	var watching sync.WaitGroup
	watching.Go(func() {
		last := ""
		for ctx.Err() == nil {
			if note, err := w.checkpoint(); err == nil && note != last {
				last = note
				seen := &history.Checkpoint{Seen: w.history.Now(), By: "a reader", Note: note}
				w.history.End(history.End{Checkpoint: seen})
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	return &watching
}

// finish waits until the system is at rest, and returns the log.
func (w *world) finish(t testing.TB) []history.LogEvent {
	var log []history.LogEvent
	if err := within(time.Minute, func() (err error) {
		log, err = w.readLog()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.rest(log)
	if more, err := w.readLog(); err == nil {
		log = more // a request warning may have been added
	}
	return log
}

// stop stops everything.
func (w *world) stop() {
	w.over.Store(true)
	w.thaw()
	for _, name := range []string{"monitor", serviceName(0), serviceName(1), serviceName(2)} {
		if p := w.processes[name]; p != nil {
			p.stop()
		}
	}
	for _, p := range w.processes {
		p.kill()
	}
	for _, s := range w.servers {
		s.kill()
	}
	w.running.Wait()
}
