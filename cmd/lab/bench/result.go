package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Target is one row of the table of targets.
type Target struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// the value to judge: for two contenders the ratio of their processor time; null: not measured
	Value     *float64 `json:"value"`
	PerSecond float64  `json:"perSecond,omitempty"`
	WallRatio float64  `json:"wallRatio,omitempty"`
	CPURatio  float64  `json:"cpuRatio,omitempty"`
	Least     bool     `json:"atLeast"`
	Target    float64  `json:"target"`
	Moonshot  float64  `json:"moonshot,omitempty"` // 0: no moonshot
	Verdict   string   `json:"verdict"`
	Note      string   `json:"note,omitempty"` // includes the reason if it was not measured
}

const (
	targetDisk   = "disk a registration"
	targetWAL    = "WAL a registration, over a whole checkpoint cycle"
	targetMemory = "memory of the service, c = 1,024"
	targetGrowth = "cost of a registration in a grown ledger : at 50,000 records"

	unitRatio = ": 1"
	unitTime  = "ms"
	unitSize  = "KB"
	unitMB    = "MB"
	unitRate  = "/s"
	unitCPU   = "µs"
	unitShare = "%"

	atLeast = true
	atMost  = false

	verdictMoonshot = "moonshot"
	verdictReached  = "reached"
	verdictMissed   = "missed"
	verdictNone     = "no target"
	notMeasured     = "not measured"
	cpuUnknown      = "the processor time of the database is not known"
)

// measurement is a value, or the reason why it is missing. In the other figures 0 means unknown.
type measurement struct {
	value, perSecond, wall, cpu float64
	base                        float64 // added to the bounds of the goal
	note, missing               string
}

// goal is a target of the design. measure is nil if the value is in measured under the goal's name.
type goal struct {
	name, unit       string
	least            bool
	target, moonshot float64 // 0: none
	measure          func(*run) measurement
}

// goals are the rows of the table of targets, in the design's order.
var goals = []goal{
	{"over HTTP, c = 256 : empty JSON POST", unitRatio, atLeast, 0.26, 0.32, ratio(httpBusy, emptyPOST)},
	{"over HTTP, c = 64 : empty JSON POST", unitRatio, atLeast, 0.17, 0.22, ratio(httpLight, emptyPOST)},
	{"one caller over HTTP, p50", unitTime, atMost, 1.6, 1.1, figure(httpAlone, func(f *Figure) measurement {
		return measurement{value: milliseconds(f.P50)}
	})},
	{"one caller over HTTP, CPU in all", unitCPU, atMost, 2200, 1400, figure(httpAlone, costs)},
	{"in process : group size one, 16 organizations", unitRatio, atLeast, 9, 12, ratio(groupsMany, singleMany)},
	{"in process : group size one, 1 organization, c = 512", unitRatio, atLeast, 14, 20, ratio(groupsOne, singleOne)},
	{"in process : pgbench on the same tables", unitRatio, atLeast, 0.33, 0.5, ratio(groupsMany, ceiling)},
	{"batch endpoint, an item : in process, 16 organizations", unitRatio, atLeast, 0.9, 1, ratio(batches, groupsMany)},
	{"public comparison : empty JSON GET", unitRatio, atLeast, 0.30, 0.45, ratio(comparisons, emptyGET)},
	{"evidence : public comparison", unitRatio, atLeast, 0.5, 0.7, ratio(evidences, comparisons)},
	{"look-up by reference, CPU of service and database", unitCPU, atMost, 250, 150, figure(lookups, serves)},
	{"record by public id, CPU of service and database", unitCPU, atMost, 250, 150, figure(records, serves)},
	{"feed over HTTP : the same pages by SQL", unitRatio, atLeast, 0.2, 0.5, ratio(feedHTTP, feedSQL)},
	{"an event of the feed over HTTP, CPU in all", unitCPU, atMost, 6, 4, figure(feedHTTP, costs)},
	// the limits are 2 × p50 + 10 ms, and 2 × p50
	{"p99 over HTTP, c = 64", unitTime, atMost, 10, 0, figure(httpLight, func(f *Figure) measurement {
		p50 := milliseconds(f.P50)
		return measurement{
			value: milliseconds(f.P99), base: 2 * p50,
			note: fmt.Sprintf("wanted 2 × p50 + 10 ms, moonshot 2 × p50; p50 is %.3g ms", p50),
		}
	})},
	{targetGrowth, unitRatio, atMost, 1.2, 1.1, nil},
	{targetDisk, unitSize, atMost, 2.2, 1.8, nil},
	{targetWAL, unitSize, atMost, 4, 3, nil},
	{targetMemory, unitMB, atMost, 250, 150, nil},
	{targetQuietBatches, unitRatio, atMost, 4, 2, nil},
	{targetQuietSingles, unitRatio, atMost, 4, 2, nil},
	{targetFlooding, unitRatio, atLeast, 0.9, 1, nil},
	{"a page of the console, CPU of the service", unitCPU, atMost, 2000, 1000, figure(
		peoplePages, func(f *Figure) measurement { return measurement{value: microseconds(f.CPU.Service)} },
	)},
	{targetPeople, unitRatio, atLeast, 0.95, 1, besidePeople},
	{targetPeopleWait, unitRatio, atMost, 1.5, 1.1, waitsBesidePeople},
	{targetRebuild, unitRate, atLeast, 30_000, 60_000, nil},
	{targetAudit, unitRate, atLeast, 25_000, 60_000, nil},
	{targetExport, unitRate, atLeast, 25_000, 60_000, nil},
	{targetIdle, unitShare, atMost, 0.6, 0.3, nil},
	{targetImport, unitRate, atLeast, 1000, 2000, nil},
	{targetQuietImport, unitRatio, atMost, 4, 2, nil},
	{targetWebhooks, unitRate, atLeast, 2000, 5000, nil},
	{targetSoak, unitRatio, atLeast, 0.85, 0, nil},
	{targetPause, unitTime, atMost, 1000, 0, nil},
}

// judge compares a measurement with the goal.
func (g goal) judge(m measurement) Target {
	t := Target{
		Name: g.name, Unit: g.unit, PerSecond: m.perSecond, WallRatio: m.wall, CPURatio: m.cpu,
		Least: g.least, Target: m.base + g.target, Moonshot: m.base + g.moonshot, Verdict: notMeasured, Note: m.missing,
	}
	if m.missing != "" {
		return t
	}
	t.Value, t.Note, t.Verdict = &m.value, m.note, verdictMissed
	if t.Target == 0 {
		t.Verdict = verdictNone
		return t
	}
	better := func(than float64) bool { return g.least && m.value >= than || !g.least && m.value <= than }
	switch {
	case t.Moonshot != 0 && better(t.Moonshot):
		t.Verdict = verdictMoonshot
	case better(t.Target):
		t.Verdict = verdictReached
	}
	return t
}

// figure measures something of one contender.
func figure(name string, of func(*Figure) measurement) func(*run) measurement {
	return func(r *run) measurement {
		f := r.figures[name]
		if f == nil || f.NotMeasured != "" {
			return lacking(name, f)
		}
		return of(f)
	}
}

// costs is the processor time of a unit.
func costs(f *Figure) measurement {
	if f.CPU.PostgreSQL == 0 {
		return measurement{missing: cpuUnknown}
	}
	return measurement{value: microseconds(f.CPU.total())}
}

// serves is the processor time of a unit without the load generator's.
func serves(f *Figure) measurement {
	m := costs(f)
	if m.missing == "" {
		m.value -= microseconds(f.CPU.Load)
	}
	return m
}

// lacking says why a contender has no figure.
func lacking(name string, f *Figure) measurement {
	if f == nil {
		return measurement{missing: name + ": " + notChosen}
	}
	return measurement{missing: name + ": " + f.NotMeasured}
}

// ratio compares how much of one contender's work and of another's can be done in the same processor time, which is
// judged, and in the same wall-clock time. Both are medians of the ratios of each round.
func ratio(of, to string) func(*run) measurement {
	return func(r *run) (m measurement) {
		a, b := r.figures[of], r.figures[to]
		if a == nil || a.NotMeasured != "" {
			return lacking(of, a)
		}
		if b == nil || b.NotMeasured != "" {
			return lacking(to, b)
		}
		wall, cpu := make([]float64, len(a.Rounds)), make([]float64, len(a.Rounds))
		known := r.Server != nil // an external database's processor time is unknown
		for i, round := range a.Rounds {
			wall[i] = round.PerSecond / b.Rounds[i].PerSecond
			known = known && round.CPU.total() > 0 && b.Rounds[i].CPU.total() > 0
			cpu[i] = float64(b.Rounds[i].CPU.total()) / float64(round.CPU.total())
		}
		m.perSecond, m.wall = a.PerSecond, medianOf(wall)
		if !known {
			m.missing = cpuUnknown
			return m
		}
		m.cpu = medianOf(cpu)
		m.value = m.cpu
		if len(cpu) > 1 {
			m.note = fmt.Sprintf(
				"rounds from %.2f to %.2f, by the clock from %.2f to %.2f", slices.Min(cpu), slices.Max(cpu), slices.Min(wall),
				slices.Max(wall),
			)
		}
		if exports := r.exports.Load(); of == evidences && exports > 0 {
			m.note = strings.TrimPrefix(
				fmt.Sprintf("%s; %d %% of the evidence held a proof of inclusion", m.note, r.proofs.Load()*100/exports), "; ",
			)
		}
		return m
	}
}

// byClock is ratio, judged by the wall-clock time.
func byClock(of, to string) func(*run) measurement {
	return func(r *run) measurement {
		m := ratio(of, to)(r)
		if m.wall > 0 {
			m.value, m.missing = m.wall, ""
		}
		return m
	}
}

// targets returns the goals that apply to this run.
func (r *run) targets() (list []Target) {
	for _, g := range slices.Concat(goals, outboxGoals(), r.peerGoals()) {
		m, tried := r.measured[g.name]
		if g.measure != nil {
			m = g.measure(r)
			tried = len(r.figures) > 0
		}
		if tried && (r.Only == nil || m.missing == "") {
			list = append(list, g.judge(m))
		}
	}
	return list
}

// Table formats a result for people.
func (r Result) Table() string {
	var b strings.Builder
	r.environmentLines(&b)
	if len(r.Figures) > 0 {
		columns(&b, 34, "\tc\torgs\tper second\t\tp50\tp99\tWAL B\tCPU µs\tservice\tPostgreSQL\tload",
			func(row func(...any)) {
				for _, f := range r.Figures {
					if f.NotMeasured == "" {
						row(f.Name, f.Concurrency, f.Organizations, whole(f.PerSecond), f.Unit, f.P50, f.P99, f.WAL, f.CPU)
					}
				}
			})
		for _, f := range r.Figures {
			switch {
			case f.NotMeasured != "":
				fmt.Fprintf(&b, "  %s: %s: %s\n", f.Name, notMeasured, f.NotMeasured)
			case f.Note != "":
				fmt.Fprintf(&b, "  %s: %s\n", f.Name, f.Note)
			}
		}
	}
	for i, h := range r.HOT {
		share := "none"
		if h.Updates > 0 {
			share = fmt.Sprintf("%.1f %% of %d", float64(h.HOT)*100/float64(h.Updates), h.Updates)
		}
		fmt.Fprintf(&b, "%s%s %s", []string{"\nupdates that changed no index (HOT): ", ", "}[min(i, 1)], h.Table, share)
	}
	if len(r.HOT) > 0 {
		b.WriteByte('\n')
	}
	if r.Growth != nil {
		r.Growth.table(&b)
	}
	if r.Soak != nil {
		fmt.Fprintf(&b, "\nregistrations over HTTP, c = %d", r.Soak.Concurrency)
		columns(&b, 10, "until\tper second\tp50\tp99\tservice at most", func(row func(...any)) {
			var until time.Duration
			for _, s := range r.Soak.Slices {
				until += s.Length
				row(until.String(), whole(s.PerSecond), s.P50, s.P99, whole(float64(s.ResidentPeak)/1e6)+" MB")
			}
		})
	}
	if m := r.Rebuild; m != nil {
		fmt.Fprintf(&b, "\nrebuild of %d records under load: %d events in %s, %.0f/s; a shard was held for %.3g ms at most",
			m.Records, m.Rebuilt.Events,
			m.Rebuilt.duration(), m.Rebuilt.EventsPerSecond, m.Rebuilt.LongestPauseMs)
		columns(&b, 14, "\tregistrations\tper second\tp50\tp99\tlongest", func(row func(...any)) {
			row("before", m.Before.Done, whole(m.Before.PerSecond), m.Before.P50, m.Before.P99, m.Before.Longest)
			row("meanwhile", m.During.Done, whole(m.During.PerSecond), m.During.P50, m.During.P99, m.During.Longest)
		})
	}
	if r.Flood != nil {
		fmt.Fprintf(&b, "\na tenant that registers %d a second, beside another that floods its shard", time.Second/quietPace)
		columns(&b, 22,
			"\tc\tquiet p50\tquiet p99\trefused\tflood/s\trefused\tsignatures\tCPU µs\tservice\tPostgreSQL\tload",
			func(row func(...any)) {
				row("alone", 0, r.Flood.Alone.P50, r.Flood.Alone.P99, 0, 0, 0, 0, CPU{})
				for _, p := range r.Flood.Floods {
					row(p.Name, p.Concurrency, p.Quiet.P50, p.Quiet.P99, fmt.Sprint(p.QuietRefused), whole(p.Flooding.PerSecond),
						fmt.Sprint(p.Refused),
						fmt.Sprintf("%.2f", p.SignaturesPerCommit), p.Flooding.CPU)
				}
			})
	}
	if r.Flood != nil && r.Flood.Note != "" {
		fmt.Fprintf(&b, "  alone: %s\n", r.Flood.Note)
	}
	columns(&b, 62, "target\tfigure\twall ratio\tCPU ratio\twanted\tmoonshot\tverdict", func(row func(...any)) {
		for _, t := range r.Targets {
			value := known(t.PerSecond, whole(t.PerSecond)+"/s")
			if t.Value != nil && t.Unit != unitRatio {
				value = t.quantity(*t.Value)
			}
			row(t.Name, value, known(t.WallRatio, t.quantity(t.WallRatio)), known(t.CPURatio, t.quantity(t.CPURatio)),
				known(t.Target, t.bound()+t.quantity(t.Target)), known(t.Moonshot, t.bound()+t.quantity(t.Moonshot)), t.Verdict)
		}
	})
	b.WriteByte('\n')
	for _, t := range r.Targets {
		note := t.Note
		if t.Value == nil {
			note = notMeasured + ": " + note
		}
		if note != "" {
			fmt.Fprintf(&b, "  %s: %s\n", t.Name, note)
		}
	}
	fmt.Fprintf(
		&b,
		"\nverified: %d registrations acknowledged; each is there once, in the log and in every projection, with no hole "+
			"in positions or sequences\n",
		r.Verified,
	)
	return b.String()
}

// columns writes rows under a heading. The first column has the width first and is left-aligned. A dash stands for an
// unknown number, 0.
func columns(b *strings.Builder, first int, heading string, rows func(row func(...any))) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	name, others, _ := strings.Cut(heading, "\t")
	fmt.Fprintf(w, "\n%-*s\t%s\t\n", first, name, others)
	rows(func(cells ...any) {
		for i, cell := range cells {
			switch v := cell.(type) {
			case time.Duration:
				cell = shortDuration(v)
			case CPU:
				each := []string{"–", "–", "–", "–"}
				for k, d := range []time.Duration{v.total(), v.Service, v.PostgreSQL, v.Load} {
					if d != 0 {
						each[k] = fmt.Sprintf("%.1f", microseconds(d))
					}
				}
				cell = strings.Join(each, "\t")
			case int:
				if v == 0 {
					cell = "–"
				}
			}
			if i == 0 {
				cell = fmt.Sprintf("%-*s", first, cell)
			}
			fmt.Fprintf(w, "%v\t", cell)
		}
		fmt.Fprintln(w)
	})
	_ = w.Flush() // a Builder never fails
}

// known returns text, or a dash if the value is not known.
func known(v float64, text string) string {
	if v == 0 {
		return "–"
	}
	return text
}

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

func (r Result) environmentLines(b *strings.Builder) {
	e := r.Environment
	fmt.Fprintf(
		b, "%s, %d CPUs, load average %s, Linux %s, %s, commit %s, %s\nPostgreSQL", e.CPU, e.CPUs, e.Load, e.Kernel, e.Go,
		e.Commit, e.StartedAt.Format(time.RFC3339),
	)
	for i, name := range shownSettings {
		if i == 0 {
			fmt.Fprintf(b, " %s:", e.PostgreSQL[name])
			continue
		}
		fmt.Fprintf(b, " %s %s", name, e.PostgreSQL[name])
	}
	if e.Nodes > 0 {
		fmt.Fprintf(b, " Citus nodes %d", e.Nodes)
	}
	if e.External {
		b.WriteString(
			"\nthe database was given: its processor time is not known and stands as 0; only ratios of one run mean something\n",
		)
		return
	}
	b.WriteString("\nload generator, service and PostgreSQL share the machine: only ratios of one run mean something\n")
}

func (t Target) bound() string {
	if t.Least {
		return "≥ "
	}
	return "≤ "
}

func (t Target) quantity(v float64) string {
	switch t.Unit {
	case unitRatio:
		if v >= 3 {
			return fmt.Sprintf("%.1f", v)
		}
		return fmt.Sprintf("%.2f", v)
	case unitCPU:
		return fmt.Sprintf("%.0f %s", v, t.Unit)
	case unitRate:
		return fmt.Sprintf("%.0f/s", v)
	default:
		return fmt.Sprintf("%.3g %s", v, t.Unit)
	}
}
