package check_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/check/checktest"
	"integrityledger/cmd/lab/weather/history"
)

var options = check.Options{
	Limit: 20 * time.Second, Workers: runtime.GOMAXPROCS(0), GoAlone: true, Now: checktest.Now.Add(time.Hour),
}

func judge(t *testing.T, h *history.History, o check.Options) check.Report {
	t.Helper()
	r, err := check.Check(h, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lines(list []check.Violation) string {
	var text strings.Builder
	for i, v := range list {
		if i == 12 {
			fmt.Fprintf(&text, "\n… and %d more", len(list)-i)
			break
		}
		fmt.Fprint(&text, "\n", v)
	}
	return text.String()
}

// TestCorrectHistoriesPass: histories of a correct ledger pass, also after being written and read.
func TestCorrectHistoriesPass(t *testing.T) {
	t.Parallel()
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			made, err := checktest.Simulate(t.TempDir(), seed, 1200)
			if err != nil {
				t.Fatal(err)
			}
			if err := checktest.Write(made); err != nil {
				t.Fatal(err)
			}
			h, err := history.Read(made.Directory)
			if err != nil {
				t.Fatal(err)
			}
			r := judge(t, h, options)
			if !r.Good() {
				t.Errorf("violations:%s\nundecided:%s", lines(r.Violations), lines(r.Undecided))
			}
			for _, name := range []string{
				"unknown: happened", "unknown: never happened", "refused: VERSION_CONFLICT",
				"refused: REGISTRATION_QUOTA_EXHAUSTED", "refused: INVALID_KEY", "refused: COMPANY_NOT_AUTHORIZED",
				"operation: certify", "linear: porcupine's operations",
			} {
				if r.Counts[name] == 0 {
					t.Errorf("the history has nothing of %q", name)
				}
			}
		})
	}
}
