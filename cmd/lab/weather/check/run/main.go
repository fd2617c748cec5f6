// Command run checks a recorded run of bad weather, and prints what it found and how much there was of what.
//
//	go -C cmd/lab run ./weather/check/run DIRECTORY
//
// Exit code 0: the run is that of a correct ledger. 1: it is not, or something could not be decided. 2: it could not be
// checked.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/history"
)

func main() {
	good, err := run(os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	case !good:
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) (good bool, err error) {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	o := check.Options{Now: time.Now()}
	flags.DurationVar(&o.Limit, "limit", 2*time.Minute, "for how long one partition may be searched")
	flags.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "how many partitions are searched at once")
	flags.BoolVar(&o.GoAlone, "go-alone", false, "leave out the verifiers in Python and JavaScript")
	flags.StringVar(&o.Picture, "picture", "", "a directory for porcupine's pages of what is not linearizable")
	skip := flags.String("skip", "", "checks to leave out, with commas between")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() != 1 {
		return false, fmt.Errorf("give one directory of a recorded run")
	}
	for name := range strings.SplitSeq(*skip, ",") {
		if name == "" {
			continue
		}
		if !slices.Contains(check.Names(), check.Name(name)) {
			return false, fmt.Errorf("there is no check %q; there are %v", name, check.Names())
		}
		o.Skip = append(o.Skip, check.Name(name))
	}
	h, err := history.Read(flags.Arg(0))
	if err != nil {
		return false, err
	}
	began := time.Now()
	report, err := check.Check(h, o)
	if err != nil {
		return false, err
	}
	if *asJSON {
		return report.Good(), json.NewEncoder(out).Encode(report)
	}
	return report.Good(), write(out, h, report, time.Since(began))
}

// most is how many violations of one check are printed.
const most = 20

func write(out io.Writer, h *history.History, r check.Report, took time.Duration) error {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, begun %s, checked in %s\n\n", h.Header.Seed, h.Header.StartedAt, took.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&text, "%9d  %s\n", r.Counts[name], name)
	}
	fmt.Fprintln(&text)
	for _, name := range check.Names() {
		switch n := count(r.Violations, name); {
		case slices.Contains(r.Skipped, name):
			fmt.Fprintf(&text, "%-14s skipped\n", name)
		case n > 0:
			fmt.Fprintf(&text, "%-14s %d violations\n", name, n)
		case count(r.Undecided, name) > 0:
			fmt.Fprintf(&text, "%-14s undecided\n", name)
		default:
			fmt.Fprintf(&text, "%-14s holds\n", name)
		}
	}
	printed := map[check.Name]int{}
	for _, v := range r.Violations {
		if printed[v.Check]++; printed[v.Check] <= most {
			fmt.Fprintf(&text, "\nviolation: %s", v)
		}
	}
	for _, v := range r.Undecided {
		fmt.Fprintf(&text, "\nundecided: %s", v)
	}
	fmt.Fprintf(&text, "\n%d violations, %d undecided, %d checks skipped\n", len(r.Violations), len(r.Undecided), len(r.Skipped))
	_, err := io.WriteString(out, text.String())
	return err
}

func count(list []check.Violation, name check.Name) (n int) {
	for _, v := range list {
		if v.Check == name {
			n++
		}
	}
	return n
}
