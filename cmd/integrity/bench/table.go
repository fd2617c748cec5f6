package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

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
