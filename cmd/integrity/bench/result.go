package bench

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"
)

// Target is one row of the table of targets.
type Target struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Value    *float64 `json:"value"` // null: not measured
	Least    bool     `json:"atLeast"`
	Target   float64  `json:"target"`
	Moonshot float64  `json:"moonshot,omitempty"` // 0: none
	Verdict  string   `json:"verdict"`
	Note     string   `json:"note,omitempty"` // or why it was not measured
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

	atLeast = true
	atMost  = false

	verdictMoonshot = "moonshot"
	verdictReached  = "reached"
	verdictMissed   = "missed"
	notMeasured     = "not measured"
)

// measurement is a value, or why it is missing.
type measurement struct {
	value         float64
	note, missing string
}

func newTarget(name, unit string, least bool, target, moonshot float64, m measurement) Target {
	t := Target{Name: name, Unit: unit, Least: least, Target: target, Moonshot: moonshot, Verdict: notMeasured, Note: m.missing}
	if m.missing != "" {
		return t
	}
	t.Value, t.Note, t.Verdict = &m.value, m.note, verdictMissed
	better := func(than float64) bool { return least && m.value >= than || !least && m.value <= than }
	switch {
	case moonshot != 0 && better(moonshot):
		t.Verdict = verdictMoonshot
	case better(target):
		t.Verdict = verdictReached
	}
	return t
}

// targets are the rows in the order of the design. A ratio is the median of the ratios of the rounds.
func (r *run) targets() []Target {
	ratio := func(of, to string) measurement {
		a, b := r.figures[of], r.figures[to]
		for _, f := range []*Figure{a, b} {
			if f.NotMeasured != "" {
				return measurement{missing: f.Name + ": " + f.NotMeasured}
			}
		}
		ratios := make([]float64, len(a.Rounds))
		for i := range ratios {
			ratios[i] = a.Rounds[i].PerSecond / b.Rounds[i].PerSecond
		}
		m := measurement{value: median(ratios, func(v float64) float64 { return v })}
		if len(ratios) > 1 {
			m.note = fmt.Sprintf("rounds from %.2f to %.2f", slices.Min(ratios), slices.Max(ratios))
		}
		return m
	}
	proved := ratio(evidences, comparisons)
	if exports := r.exports.Load(); exports > 0 {
		proved.note = strings.TrimPrefix(fmt.Sprintf("%s; %d %% of the evidence held a proof of inclusion", proved.note, r.proofs.Load()*100/exports), "; ")
	}
	light := r.figures[httpLight]
	p50 := milliseconds(light.P50)
	return []Target{
		newTarget("in process : group size one, 16 organizations", unitRatio, atLeast, 7, 12, ratio(groupsMany, singleMany)),
		newTarget("in process : group size one, 1 organization, c = 512", unitRatio, atLeast, 12, 20, ratio(groupsOne, singleOne)),
		newTarget("in process : pgbench on the same tables", unitRatio, atLeast, 0.33, 0.5, ratio(groupsMany, ceiling)),
		newTarget("over HTTP, c = 256 : empty JSON POST", unitRatio, atLeast, 0.30, 0.45, ratio(httpBusy, emptyPOST)),
		newTarget("batch endpoint : in process, 16 organizations", unitRatio, atLeast, 0.8, 0.95, ratio(batches, groupsMany)),
		newTarget("p99 over HTTP, c = 64", unitTime, atMost, 2*p50+10, 2*p50,
			measurement{value: milliseconds(light.P99), note: fmt.Sprintf("wanted 2 × p50 + 10 ms, moonshot 2 × p50; p50 is %.3g ms", p50)}),
		newTarget("public comparison : empty JSON GET", unitRatio, atLeast, 0.25, 0.5, ratio(comparisons, emptyGET)),
		newTarget("feed over HTTP : the same pages by SQL", unitRatio, atLeast, 0.2, 0.5, ratio(feedHTTP, feedSQL)),
		newTarget("evidence : public comparison", unitRatio, atLeast, 0.5, 0.8, proved),
		newTarget(targetGrowth, unitRatio, atMost, 1.3, 1.1, r.measured[targetGrowth]),
		newTarget(targetDisk, unitSize, atMost, 2.5, 1.8, r.measured[targetDisk]),
		newTarget(targetWAL, unitSize, atMost, 5, 3, r.measured[targetWAL]),
		newTarget(targetMemory, unitMB, atMost, 250, 120, r.measured[targetMemory]),
		newTarget(targetWebhooks, unitRate, atLeast, 2000, 5000, r.measured[targetWebhooks]),
		newTarget(targetRebuild, unitRate, atLeast, 20_000, 60_000, r.measured[targetRebuild]),
	}
}

// Table writes a result for people.
func (r Result) Table() string {
	var b strings.Builder
	r.environmentLines(&b)
	if len(r.Figures) > 0 {
		columns(&b, 34, "\tc\torgs\tper second\t\tp50\tp99\tCPU µs each:\tservice\tPostgreSQL\tload", func(row func(...any)) {
			for _, f := range r.Figures {
				if f.NotMeasured == "" {
					row(f.Name, f.Concurrency, f.Organizations, whole(f.PerSecond), f.Unit, f.P50, f.P99, "", f.CPU)
				}
			}
		})
		for _, f := range r.Figures {
			if f.NotMeasured != "" {
				fmt.Fprintf(&b, "  %s: %s: %s\n", f.Name, notMeasured, f.NotMeasured)
			}
		}
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
		fmt.Fprintf(&b, "\nrebuild of %d records under load: %d events in %s, %.0f/s; a shard was held for %.3g ms at most", m.Records, m.Rebuilt.Events,
			m.Rebuilt.duration(), m.Rebuilt.EventsPerSecond, m.Rebuilt.LongestPauseMs)
		columns(&b, 14, "\tregistrations\tper second\tp50\tp99\tlongest", func(row func(...any)) {
			row("before", m.Before.Done, whole(m.Before.PerSecond), m.Before.P50, m.Before.P99, m.Before.Longest)
			row("meanwhile", m.During.Done, whole(m.During.PerSecond), m.During.P50, m.During.P99, m.During.Longest)
		})
	}
	if r.Flood != nil {
		fmt.Fprintf(&b, "\na tenant that registers %d a second, beside another that floods its shard", time.Second/quietPace)
		columns(&b, 22, "\tc\tquiet p50\tquiet p99\trefused\tflood/s\trefused\tsignatures\tCPU µs each:\tservice\tPostgreSQL\tload", func(row func(...any)) {
			row("alone", 0, r.Flood.Alone.P50, r.Flood.Alone.P99, 0, 0, 0, 0, "", 0, 0, 0)
			for _, p := range r.Flood.Floods {
				row(p.Name, p.Concurrency, p.Quiet.P50, p.Quiet.P99, fmt.Sprint(p.QuietRefused), whole(p.Flooding.PerSecond), fmt.Sprint(p.Refused),
					fmt.Sprintf("%.2f", p.SignaturesPerCommit), "", p.Flooding.CPU)
			}
		})
	}
	columns(&b, 62, "target\tvalue\twanted\tmoonshot\tverdict", func(row func(...any)) {
		for _, t := range r.Targets {
			value, moonshot := "–", "–"
			if t.Value != nil {
				value = t.quantity(*t.Value)
			}
			if t.Moonshot != 0 {
				moonshot = t.bound() + t.quantity(t.Moonshot)
			}
			row(t.Name, value, t.bound()+t.quantity(t.Target), moonshot, t.Verdict)
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
	fmt.Fprintf(&b, "\nverified: %d registrations acknowledged; each is there once, in the log and in every projection, with no hole in positions or sequences\n", r.Verified)
	return b.String()
}

// columns writes rows under a heading, the first column as wide as first and to the left. A number that is not known, 0, is a dash.
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
				micro := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
				cell = fmt.Sprintf("%.1f\t%.1f\t%.1f", micro(v.Service), micro(v.PostgreSQL), micro(v.Load))
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
	_ = w.Flush() // a Builder takes everything
}

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

func (r Result) environmentLines(b *strings.Builder) {
	e := r.Environment
	fmt.Fprintf(b, "%s, %d CPUs, load average %s, Linux %s, %s, commit %s, %s\nPostgreSQL", e.CPU, e.CPUs, e.Load, e.Kernel, e.Go, e.Commit, e.StartedAt.Format(time.RFC3339))
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
		b.WriteString("\nthe database was given: its processor time is not known and stands as 0; only ratios of one run mean something\n")
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
	case unitRate:
		return fmt.Sprintf("%.0f/s", v)
	default:
		return fmt.Sprintf("%.3g %s", v, t.Unit)
	}
}

//go:embed chart.svg.tmpl
var chartText string

// bar is a line of the chart: a label, a bar of a class and length, and a text after it; Moon is where the moonshot is.
type bar struct {
	Y, Length, Moon    int
	Label, Class, Text string
}

// Chart draws the targets, each bar in units of its target (the inverse where less
// is better), and below them the figures on a logarithmic scale.
func (r Result) Chart() string {
	const row, longest, most = 24, 330, 2.5 // a bar longer than 2.5 times the target is cut
	const unit = longest / most
	chart := struct {
		Environment
		Targets, Figures    []bar
		Figure, End, Height int
	}{Environment: r.Environment}
	y := 100
	add := func(to *[]bar, b bar) {
		b.Y = y
		*to, y = append(*to, b), y+row
	}
	for _, t := range r.Targets {
		share := func(v float64) int {
			times := v / t.Target
			if !t.Least {
				times = t.Target / v
			}
			return int(unit * min(most, times))
		}
		b := bar{Label: t.Name, Text: notMeasured + ": " + t.Note}
		if t.Value != nil {
			b.Class, b.Length, b.Text = t.Verdict, share(*t.Value), fmt.Sprintf("%s (%s%s): %s", t.quantity(*t.Value), t.bound(), t.quantity(t.Target), t.Verdict)
		}
		if t.Value != nil && t.Moonshot != 0 {
			b.Moon = share(t.Moonshot)
		}
		add(&chart.Targets, b)
	}
	chart.End, chart.Figure = y, y+30
	y += 42
	figure := func(name, unit string, perSecond float64) {
		add(&chart.Figures, bar{Label: name, Class: "bar", Length: int(longest * math.Log10(max(1, perSecond)) / 6), Text: fmt.Sprintf("%.0f %s/s", perSecond, unit)})
	}
	for _, f := range r.Figures {
		if f.NotMeasured == "" {
			figure(fmt.Sprintf("%s, c = %d", f.Name, f.Concurrency), f.Unit, f.PerSecond)
		}
	}
	if r.Soak != nil {
		for i, s := range r.Soak.Slices {
			figure(fmt.Sprintf("%s %d", s.Length, i+1), registrations, s.PerSecond)
		}
	}
	chart.Height = y + 20
	var b strings.Builder
	if err := template.Must(template.New("chart").Parse(chartText)).Execute(&b, chart); err != nil {
		panic(err) // the template is ours
	}
	return b.String()
}
