package bench

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
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
		{atLeast, 7, 12, measurement{missing: "no such thing"}, notMeasured},
	} {
		got := newTarget("a target", unitRatio, c.least, c.target, c.moonshot, c.measured)
		if got.Verdict != c.want || (got.Value == nil) != (c.want == notMeasured) {
			t.Errorf("%+v: %s, value %v", c, got.Verdict, got.Value)
		}
	}
}

// TestRatiosAreOfOneRound: a slow round of both is no change of the ratio.
func TestRatiosAreOfOneRound(t *testing.T) {
	rounds := func(list ...float64) *Figure {
		f := &Figure{}
		for _, v := range list {
			f.Rounds = append(f.Rounds, Round{PerSecond: v})
		}
		return f
	}
	r := &run{figures: map[string]*Figure{}, measured: map[string]measurement{}}
	for _, name := range []string{singleOne, singleMany, groupsOne, ceiling, httpBusy, httpLight, emptyPOST, batches, comparisons, emptyGET, feedHTTP, feedSQL, evidences} {
		r.figures[name] = rounds(1, 1, 1)
	}
	r.figures[groupsMany], r.figures[singleMany] = rounds(900, 90, 950), rounds(100, 10, 100)
	r.figures[ceiling] = &Figure{Name: ceiling, NotMeasured: "not installed"}
	targets := r.targets()
	if first := targets[0]; first.Value == nil || *first.Value != 9 || first.Note != "rounds from 9.00 to 9.50" {
		t.Errorf("%+v, not the ratio 9 of the median round", first)
	}
	if c := targets[2]; c.Value != nil || c.Verdict != notMeasured || !strings.Contains(c.Note, "not installed") {
		t.Errorf("a contender that is missing gives %+v", c)
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

// TestLoadFails: a missing answer ends the round and is reported, with a pace and without.
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

// TestLoadEndsWhenAsked: every caller calls at least once without a pace, and a call under way is counted.
func TestLoadEndsWhenAsked(t *testing.T) {
	end := make(chan struct{})
	close(end)
	round, err := load{workers: 4, call: func(context.Context, int) (int, error) { return 3, nil }}.until(context.Background(), end)
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

// TestDeclaration: what the load generator writes is what the API reads.
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

// result has every kind of row.
func result() Result {
	value := 0.4
	return Result{
		Environment: Environment{CPU: "A & B <cpu>", PostgreSQL: map[string]string{"server_version": "15"}},
		Figures: []*Figure{
			{Name: emptyPOST, Concurrency: 256, Unit: "requests", Round: Round{PerSecond: 30_000}},
			{Name: ceiling, Unit: "registrations", NotMeasured: "not installed"},
		},
		Targets: []Target{
			newTarget("one", unitRatio, atLeast, 0.3, 0.5, measurement{value: value, note: "at 5 records"}),
			newTarget("two", unitMB, atMost, 250, 120, measurement{value: 3000}),
			newTarget("three", unitRate, atLeast, 2000, 5000, measurement{missing: "not there"}),
		},
		Soak:     &Soak{Concurrency: 256, Slices: []SoakSlice{{Length: time.Minute, Round: Round{PerSecond: 9000}}}},
		Verified: 42,
	}
}

func TestChart(t *testing.T) {
	chart := result().Chart()
	d := xml.NewDecoder(strings.NewReader(chart))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"prefers-color-scheme: dark", "A &amp; B &lt;cpu&gt;", "0.40 (≥ 0.30): reached", "3e+03 MB (≤ 250 MB): missed", "not measured: not there", "30000 requests/s"} {
		if !strings.Contains(chart, want) {
			t.Errorf("the chart lacks %q", want)
		}
	}
}

func TestTable(t *testing.T) {
	table := result().Table()
	for _, want := range []string{"not measured: not installed", "not measured: not there", "reached", "missed", "at 5 records", "verified: 42"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	text, err := json.Marshal(result())
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Targets []Target }
	if err := json.Unmarshal(text, &back); err != nil || !slices.EqualFunc(back.Targets, result().Targets, func(a, b Target) bool {
		return a.Name == b.Name && a.Verdict == b.Verdict && (a.Value == nil) == (b.Value == nil)
	}) {
		t.Errorf("%v: %s", err, text)
	}
}
