package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/eventstore/postgres"
)

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		least            bool
		target, moonshot float64
		measured         measurement
		want             string
	}{
		{atLeast, 7, 12, measurement{value: 12}, verdictMoonshot},
		{atLeast, 7, 12, measurement{value: 7}, verdictReached},
		{atLeast, 7, 12, measurement{value: 6.9}, verdictMissed},
		{atMost, 250, 120, measurement{value: 120}, verdictMoonshot},
		{atMost, 250, 120, measurement{value: 121}, verdictReached},
		{atMost, 250, 120, measurement{value: 251}, verdictMissed},
		{atLeast, 0.85, 0, measurement{value: 2}, verdictReached},
		{atMost, 10, 0, measurement{value: 40, base: 40}, verdictMoonshot},
		{atMost, 10, 0, measurement{value: 50, base: 40}, verdictReached},
		{atMost, 10, 0, measurement{value: 51, base: 40}, verdictMissed},
		{atLeast, 7, 12, measurement{missing: "no such thing", wall: 13}, notMeasured},
	} {
		got := goal{"a target", unitRatio, c.least, c.target, c.moonshot, nil}.judge(c.measured)
		if got.Verdict != c.want || (got.Value == nil) != (c.want == notMeasured) {
			t.Errorf("%+v: %s, value %v", c, got.Verdict, got.Value)
		}
	}
}

// TestRatiosCompareTheSameRound: a round that is slow for both contenders does not change the ratio, and processor time
// is judged.
func TestRatiosCompareTheSameRound(t *testing.T) {
	rounds := func(micros ...float64) *Figure {
		f := &Figure{}
		for _, v := range micros {
			spent := time.Duration(v * float64(time.Microsecond))
			f.Rounds = append(
				f.Rounds, Round{PerSecond: 1e6 / v / 2, CPU: CPU{Service: spent / 2, PostgreSQL: spent / 4, Load: spent / 4}},
			)
		}
		f.finish()
		return f
	}
	r := &run{figures: map[string]*Figure{}, measured: map[string]measurement{targetDisk: {missing: "no disk"}}}
	for _, name := range []string{
		singleOne, groupsOne, httpAlone, httpBusy, httpLight, emptyPOST, batches, comparisons, emptyGET, feedHTTP, feedSQL,
		evidences,
	} {
		r.figures[name] = rounds(1, 1, 1)
	}
	r.figures[groupsMany], r.figures[singleMany] = rounds(100, 1000, 100), rounds(900, 9000, 950)
	r.figures[groupsMany].Rounds[0].PerSecond *= 2 // only by the clock
	r.figures[ceiling] = &Figure{Name: ceiling, NotMeasured: "not installed"}
	const many, pgbench = "in process : group size one, 16 organizations", "in process : pgbench on the same tables"
	named := func(name string) Target {
		t.Helper()
		targets := r.targets()
		i := slices.IndexFunc(targets, func(target Target) bool { return target.Name == name })
		if i < 0 {
			t.Fatalf("%s is no target", name)
		}
		return targets[i]
	}
	if c := named(many); c.Value != nil || c.CPURatio != 0 || c.WallRatio != 9.5 || c.Verdict != notMeasured ||
		c.Note != cpuUnknown {
		t.Errorf("a database whose processor time is not known gives %+v", c)
	}
	r.Server = new(postgres.Server)
	if c := named(many); c.Value == nil || *c.Value != 9 || c.CPURatio != 9 || c.WallRatio != 9.5 ||
		c.Note != "rounds from 9.00 to 9.50, by the clock from 9.00 to 18.00" {
		t.Errorf("%+v, not the ratio 9 of the median round", c)
	}
	for name, why := range map[string]string{pgbench: "not installed", targetDisk: "no disk"} {
		if c := named(name); c.Value != nil || c.WallRatio != 0 || c.Verdict != notMeasured ||
			!strings.Contains(c.Note, why) {
			t.Errorf("what is missing gives %+v", c)
		}
	}
	if slices.ContainsFunc(r.targets(), func(target Target) bool { return target.Name == targetSoak }) {
		t.Error("a target that this run did not try is listed")
	}
}

// TestPagesAreSubtracted: the cost of people's pages does not count against registrations; every other cost does.
func TestPagesAreSubtracted(t *testing.T) {
	round := func(perSecond float64, micros, done int64, p99 time.Duration) *Figure {
		f := &Figure{
			Rounds: []Round{
				{PerSecond: perSecond, P99: p99, Done: done, CPU: CPU{Service: time.Duration(micros) * time.Microsecond}},
			},
		}
		f.finish()
		return f
	}
	r := &run{Config: Config{Server: new(postgres.Server)}, figures: map[string]*Figure{}}
	if m := besidePeople(r); m.missing == "" {
		t.Errorf("without people: %+v", m)
	}
	r.figures[peopleAlone], r.figures[peopleIdle] = round(4000, 300, 4000, 20), round(4000, 300, 4000, 20)
	r.figures[peopleBeside] = round(3600, 340, 1000, 30)
	r.figures[peopleOpened], r.figures[peoplePages] = round(20, 0, 10, 1), round(500, 4000, 500, 1)
	// 10 pages of 4,000 µs beside 1,000 registrations are 40 µs per registration.
	if m := besidePeople(r); m.value != 1 || m.wall != 0.9 ||
		!strings.Contains(
			m.note, "with nothing taken off 0.88; 20 pages/s, each 4000 µs in all; beside 200 idle sessions 1.00",
		) {
		t.Errorf("%+v", m)
	}
	if m := waitsBesidePeople(r); m.value != 1.5 {
		t.Errorf("%+v", m)
	}
	r.Server = nil
	if m := besidePeople(r); m.missing != cpuUnknown {
		t.Errorf("%+v", m)
	}
}

func TestPercentile(t *testing.T) {
	var list []time.Duration
	for i := range 200 {
		list = append(list, time.Duration(i+1))
	}
	if percentile(list, 50) != 100 || percentile(list, 99) != 198 || percentile(list[:1], 99) != 1 {
		t.Error(percentile(list, 50), percentile(list, 99), percentile(list[:1], 99))
	}
	if m := median([]float64{5, 1, 9}, func(v float64) float64 { return v }); m != 5 {
		t.Error(m)
	}
}

// TestLoadFails: a missing answer ends the round and is reported, with and without a pace.
func TestLoadFails(t *testing.T) {
	lost := errors.New("lost")
	for _, pace := range []time.Duration{0, time.Microsecond} {
		var calls atomic.Int64
		if _, err := (load{workers: 4, pace: pace, call: func(context.Context, int) (int, error) {
			if calls.Add(1) == 10 {
				return 0, lost
			}
			return 1, nil
		}}).lasting(context.Background(), time.Hour); !errors.Is(err, lost) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if _, err := (load{workers: 4, pace: pace, call: func(context.Context, int) (int, error) {
			cancel()
			return 1, nil
		}}).lasting(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestLoadEndsWhenAsked: without a pace every caller calls at least once, and a call in progress is counted.
func TestLoadEndsWhenAsked(t *testing.T) {
	end := make(chan struct{})
	close(end)
	round, err := load{
		workers: 4, call: func(context.Context, int) (int, error) { return 3, nil },
	}.until(context.Background(), end)
	if err != nil || round.Done != 12 {
		t.Errorf("%+v, %v", round, err)
	}
}

func TestProcess(t *testing.T) {
	own, waited, _, err := spentBy(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all, err := treeCPU(os.Getpid())
	if err != nil || all < own+waited {
		t.Errorf("with children %s, alone %s: %v", all, own, err)
	}
	if peak, err := residentPeak(os.Getpid()); err != nil || peak < 1<<20 {
		t.Errorf("%d bytes, %v", peak, err)
	}
}

// TestTreeCPU: a child's processor time does not vanish while the child ends.
func TestTreeCPU(t *testing.T) {
	t.Parallel()
	var group errgroup.Group
	var over atomic.Int64
	const burners = 3
	for range burners {
		group.Go(func() error {
			defer over.Add(1)
			for range 8 {
				if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").Run(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var last time.Duration
	for over.Load() < burners {
		now, err := treeCPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now < last-20*time.Millisecond { // the time of each process is rounded
			t.Errorf("%s, and before %s", now, last)
		}
		last = now
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestDeclaration: the API accepts the load generator's declarations.
func TestDeclaration(t *testing.T) {
	var l lab
	d := new(lab).declaration()
	value, err := strictjson.Parse(l.appendDeclaration(nil), 4)
	if err != nil {
		t.Fatal(err)
	}
	object := strictjson.Decode(value)
	if got := domain.ReadDeclaration(object); got != d || len(object.Problems()) > 0 {
		t.Errorf("%+v, %v", got, object.Problems())
	}
}

// result returns a result with every kind of row.
func result() Result {
	value := 0.4
	return Result{
		Environment: Environment{CPU: "A & B <cpu>", PostgreSQL: map[string]string{"server_version": "15"}},
		Figures: []*Figure{
			{Name: emptyPOST, Concurrency: 256, Unit: "requests", Round: Round{PerSecond: 30_000}},
			{Name: ceiling, Unit: "registrations", NotMeasured: "not installed"},
		},
		HOT: []HOT{{Table: "documents"}, {Table: "usage", Updates: 200, HOT: 199}},
		Targets: []Target{
			goal{"one", unitRatio, atLeast, 0.3, 0.5, nil}.judge(measurement{
				value: value, cpu: value, wall: 0.77, perSecond: 4321, note: "at 5 records",
			}),
			goal{"two", unitMB, atMost, 250, 120, nil}.judge(measurement{value: 3000}),
			goal{"three", unitRate, atLeast, 2000, 5000, nil}.judge(measurement{missing: "not there"}),
			goal{"four", unitRatio, atLeast, 2, 5, nil}.judge(measurement{missing: cpuUnknown, wall: 1.23}),
		},
		Soak:     &Soak{Concurrency: 256, Slices: []SoakSlice{{Length: time.Minute, Round: Round{PerSecond: 9000}}}},
		Verified: 42,
	}
}

func TestTable(t *testing.T) {
	table := result().Table()
	spaces := regexp.MustCompile(` +`)
	short := spaces.ReplaceAllString(table, " ")
	for _, want := range []string{
		"\n one 4321/s 0.77 0.40 ≥ 0.30 ≥ 0.50 reached\n", "\n two 3e+03 MB – – ≤ 250 MB ≤ 120 MB missed\n",
		"\n three – – – ≥ 2000/s ≥ 5000/s not measured\n",
		"\n four – 1.23 – ≥ 2.00 ≥ 5.0 not measured\n",
		"(HOT): documents none, usage 99.5 % of 200\n",
	} {
		if !strings.Contains(short, want) {
			t.Errorf("the table lacks %q:\n%s", want, short)
		}
	}
	for _, want := range []string{
		"not measured: not installed", "not measured: not there", "reached", "missed", "at 5 records", "verified: 42",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	text, err := json.Marshal(result())
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Targets []Target }
	if err := json.Unmarshal(text, &back); err != nil ||
		!slices.EqualFunc(back.Targets, result().Targets, func(a, b Target) bool {
			return a.Name == b.Name && a.Verdict == b.Verdict && (a.Value == nil) == (b.Value == nil)
		}) {
		t.Errorf("%v: %s", err, text)
	}
}
