package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"integrityledger/cmd/lab/weather/check"
	"integrityledger/cmd/lab/weather/history"
)

// The report's files in a run's directory.
const (
	textFile     = "weather.txt"
	pageFile     = "weather.html"
	verdictsFile = "verdicts.json"
)

// verdicts is the result of a run.
type verdicts struct {
	Again string   `json:"again"` // the command that repeats it
	Found []string `json:"found"` // found by the harness itself: alarms, wrong answers, parts that never settled
	check.Report
}

// judge checks the history in a directory and reports on it.
func (w *world) judge(t testing.TB, dir, again string) {
	h, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := check.Check(h, check.Options{
		Now: time.Now(), Workers: runtime.NumCPU(), Picture: filepath.Join(dir, "illegal"), Limit: 5 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	v := verdicts{again, w.found, r}
	if err := errors.Join(v.write(os.Stdout, h), v.save(h)); err != nil {
		t.Fatal(err)
	}
	if !r.Good() {
		t.Errorf("%d violations and %d undecided", len(r.Violations), len(r.Undecided))
	}
}

const checkCommand = "check"

// checkAgain judges a recorded run and writes its report again.
func checkAgain(args []string, out io.Writer) (good bool, err error) {
	flags := flag.NewFlagSet(checkCommand, flag.ContinueOnError)
	o := check.Options{Now: time.Now()}
	flags.DurationVar(&o.Limit, "limit", 2*time.Minute, "for how long one partition may be searched")
	flags.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "how many partitions are searched at once")
	flags.BoolVar(&o.GoAlone, "go-alone", false, "leave out the verifiers in Python and JavaScript")
	skip := flags.String("skip", "", "checks to leave out, with commas between")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() != 1 {
		return false, errors.New("give one directory of a recorded run")
	}
	for _, name := range strings.FieldsFunc(*skip, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(check.Names(), check.Name(name)) {
			return false, fmt.Errorf("there is no check %q; there are %v", name, check.Names())
		}
		o.Skip = append(o.Skip, check.Name(name))
	}
	h, err := history.Read(flags.Arg(0))
	if err != nil {
		return false, err
	}
	o.Picture = filepath.Join(h.Directory, "illegal")
	var v verdicts
	if text, err := os.ReadFile(filepath.Join(h.Directory, verdictsFile)); err == nil {
		if err := json.Unmarshal(text, &v); err != nil {
			return false, fmt.Errorf("%s: %w", verdictsFile, err)
		}
	}
	if v.Report, err = check.Check(h, o); err != nil {
		return false, err
	}
	return v.Good() && len(v.Found) == 0, errors.Join(v.write(out, h), v.save(h))
}

// save writes the report to the run's directory.
func (v verdicts) save(h *history.History) error {
	inDirectory := func(name string, write func(io.Writer) error) error {
		file, err := os.Create(filepath.Join(h.Directory, name))
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	return errors.Join(
		inDirectory(verdictsFile, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(v)
		}),
		inDirectory(textFile, func(w io.Writer) error { return v.write(w, h) }),
		inDirectory(pageFile, func(w io.Writer) error { return check.Draw(w, h, v.Report) }))
}

const (
	maxFindings = 20 // per check
	maxFaults   = 1000
	maxSlices   = 60 // of a run's time
)

// write writes the report as text: the faults, the clients' observations over time, the findings and their number.
func (v verdicts) write(out io.Writer, h *history.History) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nseed %d, begun %s, faults for %ds, %v\n",
		v.Again, h.Header.Seed, h.Header.StartedAt, h.Header.Seconds, h.Header.Versions)
	faultTables(&b, h.Faults)
	timeline(&b, h)
	b.WriteString("\ncounts\n")
	for _, name := range slices.Sorted(maps.Keys(v.Counts)) {
		fmt.Fprintf(&b, "%9d  %s\n", v.Counts[name], name)
	}
	b.WriteByte('\n')
	v.findings(&b) // at the end, because a log is read from there
	fmt.Fprintf(&b, "\n%d violations, %d undecided, %d checks skipped, %d found by the harness\n",
		len(v.Violations), len(v.Undecided), len(v.Skipped), len(v.Found))
	_, err := io.WriteString(out, b.String())
	return err
}

func (v verdicts) findings(b *strings.Builder) {
	of := func(list []check.Violation, name check.Name) (found []check.Violation) {
		return slices.DeleteFunc(slices.Clone(list), func(v check.Violation) bool { return v.Check != name })
	}
	show := func(word string, list []check.Violation) {
		for _, one := range list[:min(len(list), maxFindings)] {
			fmt.Fprintf(b, "    %s: %q\n", word, one.String()) // quoted, so that it cannot control a terminal
		}
		if more := len(list) - maxFindings; more > 0 {
			fmt.Fprintf(b, "    and %d more in %s\n", more, verdictsFile)
		}
	}
	for _, text := range v.Found {
		fmt.Fprintf(b, "violation, found by the harness: %q\n", text)
	}
	for _, name := range check.Names() {
		violations, undecided := of(v.Violations, name), of(v.Undecided, name)
		word := "holds"
		switch {
		case slices.Contains(v.Skipped, name):
			word = "skipped"
		case len(violations) > 0:
			word = fmt.Sprintf("%d violations", len(violations))
		case len(undecided) > 0:
			word = "undecided"
		}
		fmt.Fprintf(b, "%-14s %s\n", name, word)
		show("violation", violations)
		show("undecided", undecided)
	}
}

func short(nanoseconds int64) time.Duration {
	return time.Duration(nanoseconds).Round(time.Millisecond)
}

// columns writes rows whose cells are separated by tabs.
func columns(b *strings.Builder, heading string, rows func(io.Writer)) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\n"+heading)
	rows(w)
	_ = w.Flush() // a Builder never fails
}

// faultTables shows each kind of fault, with the time from healing to a client's next acknowledged write, and each
// fault.
func faultTables(b *strings.Builder, faults []history.Fault) {
	took, count := map[string][]int64{}, map[string]int{}
	for _, f := range faults {
		if count[f.Name]++; f.RecoveredAt > 0 {
			took[f.Name] = append(took[f.Name], max(0, f.RecoveredAt-f.End))
		}
	}
	columns(b, "fault\tmade\trecovered\thalf within\tall within", func(w io.Writer) {
		for _, name := range slices.Sorted(maps.Keys(count)) {
			all := slices.Sorted(slices.Values(took[name]))
			half, last := "–", "–"
			if len(all) > 0 {
				half, last = short(all[len(all)/2]).String(), short(all[len(all)-1]).String()
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", name, count[name], len(all), half, last)
		}
	})
	columns(b, "at\tfault\ttarget\tlasted\trecovered after\t", func(w io.Writer) {
		for _, f := range faults[:min(len(faults), maxFaults)] {
			recovered := "–"
			if f.RecoveredAt > 0 {
				recovered = short(f.RecoveredAt - f.End).String()
			}
			lasted := short(f.End - f.Start)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", short(f.Start), f.Name, f.Target, lasted, recovered, f.Detail)
		}
		if more := len(faults) - maxFaults; more > 0 {
			fmt.Fprintf(w, "and %d more\n", more)
		}
	})
}

// timeline cuts the run into slices, and shows the outcomes of the calls that ended in each, and the faults.
func timeline(b *strings.Builder, h *history.History) {
	last := int64(1)
	for i := range h.Calls {
		last = max(last, h.Calls[i].End)
	}
	length := max(int64(time.Second), (last/maxSlices/int64(time.Second)+1)*int64(time.Second))
	type slice struct {
		outcomes map[history.Outcome]int
		took     []int64
	}
	all := make([]slice, last/length+1)
	for i := range h.Calls {
		c := &h.Calls[i]
		s := &all[max(0, c.End)/length]
		if s.outcomes == nil {
			s.outcomes = map[history.Outcome]int{}
		}
		if s.outcomes[c.Outcome]++; c.Outcome != history.Unknown {
			s.took = append(s.took, max(0, c.End-c.Start))
		}
	}
	columns(b, "from\tanswered\trefused\tunknown\tp50\tp99\tfaults", func(w io.Writer) {
		for i, s := range all {
			from := int64(i) * length
			names := map[string]bool{}
			for _, f := range h.Faults {
				if f.Start < from+length && f.End >= from {
					names[f.Name+" "+f.Target] = true
				}
			}
			p50, p99 := "–", "–"
			if slices.Sort(s.took); len(s.took) > 0 {
				p50, p99 = short(s.took[len(s.took)/2]).String(), short(s.took[len(s.took)*99/100]).String()
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n", time.Duration(from),
				s.outcomes[history.Answered], s.outcomes[history.Refused], s.outcomes[history.Unknown],
				p50, p99, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	})
}
