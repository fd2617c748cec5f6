package main

import (
	"strings"
	"testing"

	"integrityledger/cmd/lab/weather/check/checktest"
)

// The command passes a correct run, tells a spoiled one, and refuses what it does not know.
func TestRun(t *testing.T) {
	t.Parallel()
	h, err := checktest.Simulate(t.TempDir(), 1, 300)
	if err == nil {
		err = checktest.Write(h)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if good, err := run([]string{"-go-alone", h.Directory}, &out); err != nil || !good || !strings.Contains(out.String(), "0 violations, 0 undecided, 0 checks skipped") {
		t.Errorf("good %t, error %v:\n%s", good, err, &out)
	}
	spoiled, err := checktest.Simulate(t.TempDir(), 1, 300)
	if err == nil {
		spoiled.End.Verdicts[0].Clean = false
		err = checktest.Write(spoiled)
	}
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if good, err := run([]string{"-go-alone", spoiled.Directory}, &out); err != nil || good || !strings.Contains(out.String(), "verdict        1 violations") {
		t.Errorf("good %t, error %v:\n%s", good, err, &out)
	}
	out.Reset()
	if good, err := run([]string{"-go-alone", "-skip", "verdict", spoiled.Directory}, &out); err != nil || !good || !strings.Contains(out.String(), "verdict        skipped") {
		t.Errorf("good %t, error %v:\n%s", good, err, &out)
	}
	for _, args := range [][]string{nil, {"-skip", "weather", spoiled.Directory}, {t.TempDir()}} {
		if _, err := run(args, &out); err == nil {
			t.Errorf("not refused: %v", args)
		}
	}
}
