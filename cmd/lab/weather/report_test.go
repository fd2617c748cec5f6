package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/check/checktest"
	"integrityledger/cmd/lab/weather/history"
)

func simulated(t *testing.T, spoil func(*history.History)) *history.History {
	t.Helper()
	h, err := checktest.Simulate(t.TempDir(), 1, 300)
	if err == nil {
		spoil(h)
		err = checktest.Write(h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func read(t *testing.T, h *history.History, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Directory, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCheckAgain: the command passes a correct run, finds the fault in a corrupted one, writes reports of both, and
// rejects unknown input.
func TestCheckAgain(t *testing.T) {
	t.Parallel()
	right := simulated(t, func(*history.History) {})
	wrong := simulated(t, func(h *history.History) { h.End.Verdicts[0].Clean = false })
	for _, c := range []struct {
		args []string
		of   *history.History
		good bool
		says string
	}{
		{nil, right, true, "0 violations, 0 undecided, 0 checks skipped, 0 found by the harness"},
		{nil, wrong, false, "verdict        1 violations"},
		{[]string{"-skip", "verdict"}, wrong, true, "verdict        skipped"},
	} {
		var out strings.Builder
		good, err := checkAgain(append(append(c.args, "-go-alone"), c.of.Directory), &out)
		if err != nil || good != c.good || !strings.Contains(out.String(), c.says) ||
			read(t, c.of, textFile) != out.String() {
			t.Errorf("%v: good %t, error %v:\n%s", c.args, good, err, &out)
		}
		if page := read(t, c.of, pageFile); !strings.Contains(page, "</html>") || !strings.Contains(page, `"kill"`) {
			t.Errorf("the page shows no fault: %.2000s", page)
		}
	}
	for _, args := range [][]string{nil, {"-skip", "weather", wrong.Directory}, {t.TempDir()}} {
		if _, err := checkAgain(args, new(strings.Builder)); err == nil {
			t.Errorf("not refused: %v", args)
		}
	}
}

// TestReport: the text shows the verdict, each finding, each recovery, and the clients' observations over time. Texts
// from a history cannot control a terminal or inject markup into the page.
func TestReport(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b[2J</script><script>alert(1)</script>"
	second := int64(time.Second)
	h := &history.History{Directory: t.TempDir(), Faults: []history.Fault{
		{Number: 1, Name: "kill", Target: "service-1", Start: second, End: 3 * second, RecoveredAt: 4 * second},
		{Number: 2, Name: "kill", Target: "service-2", Start: 2 * second, End: 3 * second, RecoveredAt: 5 * second},
		{Number: 3, Name: "cut", Target: "service-1 → pg-one", Start: 5 * second, End: 6 * second},
	}}
	for i := range 10 {
		h.Calls = append(h.Calls,
			history.Call{Number: int64(i + 1), Client: fmt.Sprint("c", i%2), Operation: history.Register,
				Outcome: history.Answered,
				Start:   int64(i) * second, End: int64(i)*second + second/100})
	}
	h.Calls[5].Outcome, h.Calls[5].Code = history.Unknown, hostile
	v := verdicts{Again: "make weather SEED=9", Found: []string{"an alarm"}, Report: check.Report{
		Violations: []check.Violation{{Check: check.Feed, Of: "org_1", Text: hostile, Calls: []int64{6}}},
		Undecided:  []check.Violation{{Check: check.Key, Of: "key_1", Text: "too long"}},
		Counts:     map[string]int64{"calls": 10},
	}}
	if err := v.save(h); err != nil {
		t.Fatal(err)
	}
	text, page := read(t, h, textFile), read(t, h, pageFile)
	spaces := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		"make weather SEED=9", `violation, found by the harness: "an alarm"`, "feed 1 violations violation: ", "(calls 6)",
		"key undecided undecided: ", "version holds",
		"kill 2 2 2s 2s", "cut 1 0 – –", "1s kill service-1 2s 1s", "5s 0 0 1 – – cut service-1 → pg-one",
		"9s 1 0 0 10ms 10ms", "10 calls",
		"1 violations, 1 undecided, 0 checks skipped, 1 found by the harness",
	} {
		if !strings.Contains(spaces, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Contains(page, "<script>alert(1)") {
		t.Errorf("what a history says is obeyed:\n%s", text)
	}
	if !strings.Contains(page, "6 register: unknown") || !strings.Contains(page, "service-1 → pg-one") {
		t.Error("the page lacks a call or a fault")
	}
}
