package weather

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/cmd/integrity/weather/check"
	"integrityledger/cmd/integrity/weather/history"
	"integrityledger/cmd/integrity/weather/report"
	"integrityledger/cmd/postgres/pgtest"
	"integrityledger/cmd/postgres/pgtest/network"
)

// Variables of a run, which needs a length.
const (
	lengthVariable   = "INTEGRITY_WEATHER_LENGTH"
	seedVariable     = "INTEGRITY_WEATHER_SEED"     // drawn where it is not given
	previousVariable = "INTEGRITY_WEATHER_PREVIOUS" // commits, of which the first that builds is the version before
	dirVariable      = "INTEGRITY_WEATHER_DIR"      // of the history and the page; printed where it is not given
	fairVariable     = "INTEGRITY_WEATHER_FAIR"     // not empty: without faults, to change the harness by
	programVariable  = "INTEGRITY_WEATHER_PROGRAM"  // built already; the same of the version before
	formerVariable   = "INTEGRITY_WEATHER_FORMER"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(brokerVariable); address != "" {
		os.Exit(serveBroker(address))
	}
	if os.Getenv(lengthVariable) == "" {
		pgtest.Verify(m)
		return
	}
	pgtest.Main(m)
}

// calm is how long clients go on after the last fault, so that each recovery is seen.
const calm = 15 * time.Second

// TestWeather is the drill.
func TestWeather(t *testing.T) {
	if os.Getenv(lengthVariable) == "" {
		t.Skip("make weather runs it: it sets " + lengthVariable)
	}
	length, err := time.ParseDuration(os.Getenv(lengthVariable))
	if err != nil || length < 10*time.Second {
		t.Fatalf("%s must be a duration of at least 10s: %q", lengthVariable, os.Getenv(lengthVariable))
	}
	seed := rand.Uint64() >> 12
	if text := os.Getenv(seedVariable); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s must be a number: %q", seedVariable, text)
		}
	}
	again := fmt.Sprintf("make weather LENGTH=%s SEED=%d", length, seed)
	w := newWorld(t)
	fmt.Printf("%s\nin %s\n", again, w.dir)
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Printf("FAILED: %s\nsee %s\n", again, w.dir)
		}
	})
	w.begin(t, seed, length)
	w.weather(seed, length)
	defer w.limitEnd(endPatience+length, w.abandon)()
	w.settle()
	w.waits("look-ups of unknown writes")
	w.lookUpUnknown()
	log := w.finish(t)
	w.collect(t, log)
	w.waits("all processes to stop")
	w.stop()
	if err := w.history.Close(); err != nil {
		t.Fatal(err)
	}
	w.waits("the checker")
	w.judge(t, again)
}

// TestLongEndSaysWhatItWaitsFor: the end is bounded, and its reader need not guess.
func TestLongEndSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		ends := ""
		w.waits("the stream")
		w.limitEnd(time.Minute, func(string) { t.Error("it was over in time") })()
		w.limitEnd(time.Hour, func(why string) { ends = why })
		w.waits("the tree")
		time.Sleep(2 * time.Hour)
		if !strings.Contains(ends, "not over 1h0m0s after") || !strings.Contains(ends, "waits for: the tree") {
			t.Errorf("it says %q", ends)
		}
	})
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, dir: os.Getenv(dirVariable), data: t.TempDir(), quiet: log.New(io.Discard, "", 0),
		links: map[string]*network.Link{}, servers: map[string]*server{}, processes: map[string]*process{},
	}
	w.recoveries.w = w
	var err error
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "weather"); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"logs", "evidence"} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if w.dir, err = filepath.Abs(w.dir); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(w.dir, "weather.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	w.log = log.New(file, "", log.Ltime|log.Lmicroseconds)
	return w
}

// begin starts everything.
func (w *world) begin(t *testing.T, seed uint64, length time.Duration) {
	t.Cleanup(w.stop)
	dir := pgtest.ClusterDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if w.program, w.former = os.Getenv(programVariable), os.Getenv(formerVariable); w.program == "" {
		root, err := filepath.Abs("../../..")
		if err != nil {
			t.Fatal(err)
		}
		w.program = filepath.Join(dir, "integrity")
		if err := build(t, root, w.program); err != nil {
			t.Fatal(err)
		}
		if commits := strings.Fields(os.Getenv(previousVariable)); len(commits) > 0 {
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
	header := history.Header{
		Seed: seed, StartedAt: time.Now().UTC().Format(time.RFC3339), Seconds: int64(length / time.Second), SkewNanoseconds: mostSkew * int64(time.Second),
		Versions: map[string]string{"go": runtime.Version(), "service": strings.TrimSpace(w.run(time.Minute, clean(), "version").out)},
	}
	if version, err := ask[string](w.primary.Load(), "SHOW server_version"); err == nil {
		header.Versions["PostgreSQL"] = version
	}
	for _, o := range w.organizations {
		header.Organizations = append(header.Organizations, o.Organization)
	}
	if w.history, err = history.Create(w.dir, header); err != nil {
		t.Fatal(err)
	}
	w.receivers = w.startReceivers(t, rand.New(rand.NewPCG(seed, 1<<32)))
	w.receivers.fair.Store(os.Getenv(fairVariable) != "")
	w.startServices(t, witnesses)
	w.processes["witness"].start()
	w.makeDestinations(t)
	w.startMonitor()
}

// weather is the run itself: clients, faults and what is seen of the log meanwhile.
func (w *world) weather(seed uint64, length time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients := w.startClients(ctx, seed)
	watching := w.watchCheckpoints(ctx)
	if os.Getenv(fairVariable) != "" {
		time.Sleep(length)
	} else {
		w.storm(w.drawPlans(rand.New(rand.NewPCG(seed, 0)), length))
	}
	w.heal()
	w.note("everything is healed")
	time.Sleep(calm) // the clients go on
	cancel()
	clients.Wait()
	watching.Wait()
	for _, f := range w.recoveries.close() {
		w.note("nothing was acknowledged after %s of %s", f.Name, f.Target)
	}
	w.note("the clients have ended")
}

// watchCheckpoints keeps the checkpoints that anybody could see.
func (w *world) watchCheckpoints(ctx context.Context) *sync.WaitGroup {
	var watching sync.WaitGroup
	watching.Go(func() {
		last := ""
		for ctx.Err() == nil {
			if note, err := w.checkpoint(); err == nil && note != last {
				last = note
				w.history.End(history.End{Checkpoint: &history.Checkpoint{Seen: w.history.Now(), By: "a reader", Note: note}})
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	return &watching
}

// finish waits for rest, and returns the log.
func (w *world) finish(t *testing.T) []history.LogEvent {
	var log []history.LogEvent
	if err := within(time.Minute, func() (err error) {
		log, err = w.readLog()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.rest(log)
	if more, err := w.readLog(); err == nil {
		log = more // a warning of requests may have come meanwhile
	}
	return log
}

// stop ends everything.
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

// judge has the history checked and shown.
func (w *world) judge(t *testing.T, again string) {
	h, err := history.Read(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r, err := check.Check(h, check.Options{Now: time.Now(), Workers: runtime.NumCPU(), Picture: filepath.Join(w.dir, "illegal"), Limit: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sortedNames(r.Counts) {
		fmt.Printf("%8d %s\n", r.Counts[name], name)
	}
	tellRecoveries(h.Faults)
	fmt.Printf("checked in %s\n", time.Since(began).Round(time.Second))
	w.show(t, h, r, again)
	perCheck := map[check.Name]int{}
	for _, v := range slices.Concat(r.Violations, r.Undecided) {
		if perCheck[v.Check]++; perCheck[v.Check] <= shown {
			t.Errorf("%s", v)
		}
	}
	for name, n := range perCheck {
		if n > shown {
			t.Errorf("%s: %d in all, see %s", name, n, filepath.Join(w.dir, report.VerdictsFileName))
		}
	}
}

// tellRecoveries prints how long it took after each kind of fault until a client's write was acknowledged.
func tellRecoveries(faults []history.Fault) {
	took := map[string][]time.Duration{}
	for _, f := range faults {
		if f.RecoveredAt > 0 {
			took[f.Name] = append(took[f.Name], time.Duration(f.RecoveredAt-f.End))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(took)) {
		all := took[name]
		slices.Sort(all)
		fmt.Printf("%8d %s healed: half recovered within %s, all within %s\n", len(all), name, all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
}

// shown is how many violations of one check are printed.
const shown = 5

// ended is the check of what the harness itself has found: alarms, answers that must not be, and what never came to rest.
const ended = "run"

// show makes the page.
func (w *world) show(t *testing.T, h *history.History, r check.Report, again string) {
	v := report.Verdicts{Again: again, Checks: []string{ended}, Counts: r.Counts}
	for _, name := range check.Names() {
		v.Checks = append(v.Checks, string(name))
	}
	for _, name := range r.Skipped {
		v.Skipped = append(v.Skipped, string(name))
	}
	for _, text := range w.found {
		v.Violations = append(v.Violations, report.Finding{Check: ended, Of: "the run", Text: text})
	}
	for _, one := range r.Violations {
		v.Violations = append(v.Violations, report.Finding{Check: string(one.Check), Of: one.Of, Text: one.Text, Calls: one.Calls})
	}
	for _, one := range r.Undecided {
		v.Undecided = append(v.Undecided, report.Finding{Check: string(one.Check), Of: one.Of, Text: one.Text, Calls: one.Calls})
	}
	if err := report.Save(h, v); err != nil {
		t.Error(err)
	}
}

func sortedNames(counts map[string]int64) []string { return slices.Sorted(maps.Keys(counts)) }
