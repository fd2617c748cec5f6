package main

import (
	"slices"
	"testing"
	"time"

	"integrityledger/eventstore/postgres"
)

// TestPeerGoals: ratios to peers are judged by the clock, those without a target are shown without a verdict, and
// nothing is shown of a contender that was left out.
func TestPeerGoals(t *testing.T) {
	figure := func(perSecond float64, service, database, load time.Duration) *Figure {
		f := &Figure{Rounds: []Round{{PerSecond: perSecond, P50: 1, CPU: CPU{service, database, load}}}}
		f.finish()
		return f
	}
	r := &run{
		Config: Config{Peers: "bin/peers", Only: besidePeers, Server: new(postgres.Server)},
		figures: map[string]*Figure{
			httpBusy: figure(4000, 200, 100, 100), immudbSet256: figure(4000, 150, 0, 50),
			httpAlone: figure(200, 1000, 1000, 0), immudbSet1: figure(150, 2000, 0, 1000),
			tesseraPublished: figure(2000, 100, 0, 100), lookups: figure(5000, 1, 1, 1),
		},
	}
	targets := r.targets()
	got := func(name string) Target {
		t.Helper()
		i := slices.IndexFunc(targets, func(target Target) bool { return target.Name == name })
		if i < 0 {
			t.Fatalf("%s is not shown: %+v", name, targets)
		}
		return targets[i]
	}
	for name, want := range map[string]Target{
		"registration : immudb Set, c = 256, by the clock":    {WallRatio: 1, CPURatio: 0.5, Verdict: verdictMoonshot},
		"registration : immudb Set, one caller, by the clock": {WallRatio: 200.0 / 150, CPURatio: 1.5, Verdict: verdictMissed},
		"registration : " + tesseraPublished:                  {WallRatio: 2, CPURatio: 0.5, Verdict: verdictNone},
	} {
		if target := got(name); target.Value == nil || *target.Value != want.WallRatio || target.WallRatio != want.WallRatio ||
			target.CPURatio != want.CPURatio || target.Verdict != want.Verdict {
			t.Errorf("%s: %+v, not %+v", name, target, want)
		}
	}
	for _, target := range targets {
		if target.Value == nil || *target.Value == 0 {
			t.Errorf("what was not measured is shown: %+v", target)
		}
	}
	if r.Peers = ""; len(r.peerGoals()) > 0 {
		t.Error("without peers there are ratios to them")
	}
}

func TestReadLatencies(t *testing.T) {
	round, err := readLatencies([]byte(`{"elapsedNanoseconds":2000000000,"latenciesNanoseconds":[3,1,2]}`))
	if want := (Round{PerSecond: 1.5, P50: 2, P99: 3, Longest: 3, Done: 3}); err != nil || round != want {
		t.Errorf("%+v, %v", round, err)
	}
	for _, answer := range []string{"max concurrency limit exceeded", `{"elapsedNanoseconds":1}`} {
		if _, err := readLatencies([]byte(answer)); err == nil {
			t.Errorf("%s: nothing was measured, and that is not reported", answer)
		}
	}
}

func TestReadPgbenchLog(t *testing.T) {
	got, err := readPgbenchLog("0 1 2130 0 1764471000 123456\n1 1 900 0 1764471000 123999\n")
	if want := []time.Duration{2130 * time.Microsecond, 900 * time.Microsecond}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"0 1\n", "0 1 skipped 0 1 1\n"} {
		if _, err := readPgbenchLog(text); err == nil {
			t.Errorf("%q is not reported", text)
		}
	}
}
