package bench

import (
	"fmt"
	"strings"
	"time"
)

// Table writes a result for people.
func (r Result) Table() string {
	var b strings.Builder
	r.environmentLines(&b)
	if len(r.Figures) > 0 {
		figureLines(&b, r.Figures)
	}
	if r.Soak != nil {
		fmt.Fprintf(&b, "\nregistrations over HTTP, c = %d\n%10s %12s %10s %10s %16s\n", r.Soak.Concurrency, "until", "per second", "p50", "p99", "service at most")
		var until time.Duration
		for _, s := range r.Soak.Slices {
			until += s.Length
			fmt.Fprintf(&b, "%10s %12.0f %10s %10s %13.0f MB\n", until, s.PerSecond, shortDuration(s.P50), shortDuration(s.P99), float64(s.ResidentPeak)/1e6)
		}
	}
	if r.Mending != nil {
		r.Mending.lines(&b)
	}
	if r.Flood != nil {
		r.Flood.lines(&b)
	}
	fmt.Fprintf(&b, "\n%-62s %10s %10s %10s  %s\n", "target", "value", "wanted", "moonshot", "")
	for _, t := range r.Targets {
		value := "–"
		if t.Value != nil {
			value = t.quantity(*t.Value)
		}
		moonshot := "–"
		if t.Moonshot != 0 {
			moonshot = t.bound() + t.quantity(t.Moonshot)
		}
		verdict := t.Verdict
		if t.Note != "" && t.Value == nil {
			verdict += ": " + t.Note
		}
		fmt.Fprintf(&b, "%-62s %10s %10s %10s  %s\n", t.Name, value, t.bound()+t.quantity(t.Target), moonshot, verdict)
		if t.Note != "" && t.Value != nil {
			fmt.Fprintf(&b, "    %s\n", t.Note)
		}
	}
	fmt.Fprintf(&b, "\nverified: %d registrations acknowledged; each is there once, in the log and in every projection, with no hole in positions or sequences\n", r.Verified)
	return b.String()
}

func (m *Mending) lines(b *strings.Builder) {
	seconds := time.Duration(m.Rebuilt.DurationSeconds * float64(time.Second)).Round(time.Millisecond)
	fmt.Fprintf(b, "\nrebuild of %d records under load: %d events in %s, %.0f/s\n", m.Records, m.Rebuilt.Events, seconds, m.Rebuilt.EventsPerSecond)
	fmt.Fprintf(b, "%d rows of %d projections were made wrong: %d found, %d mended, none left; a shard was held for %.3g ms at most\n",
		m.Corrupted, m.Projected, m.Rebuilt.Differences, m.Rebuilt.Mended, m.Rebuilt.LongestPauseMs)
	fmt.Fprintf(b, "%d webhooks were delivered, %d of them again; no registration failed\n", m.Delivered, m.Repeated)
	fmt.Fprintf(b, "%14s %14s %12s %10s %10s %10s %18s\n", "", "registrations", "per second", "p50", "p99", "longest", "longest silence")
	for _, line := range []struct {
		name string
		Paced
	}{{"before", m.Before}, {"meanwhile", m.During}} {
		fmt.Fprintf(b, "%14s %14d %12.0f %10s %10s %10s %18s\n", line.name, line.Done, line.PerSecond, shortDuration(line.P50), shortDuration(line.P99),
			shortDuration(line.Longest), shortDuration(line.Silence))
	}
}

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

func figureLines(b *strings.Builder, figures []*Figure) {
	fmt.Fprintf(b, "\n%-34s %5s %6s %12s %-14s %10s %10s   CPU µs each: %8s %10s %6s\n", "", "c", "orgs", "per second", "", "p50", "p99", "service", "PostgreSQL", "load")
	micro := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }
	for _, f := range figures {
		if f.NotMeasured != "" {
			fmt.Fprintf(b, "%-34s %s: %s\n", f.Name, notMeasured, f.NotMeasured)
			continue
		}
		organizations := "–"
		if f.Organizations > 0 {
			organizations = fmt.Sprint(f.Organizations)
		}
		fmt.Fprintf(b, "%-34s %5d %6s %12.0f %-14s %10s %10s %23s %10s %6s\n", f.Name, f.Concurrency, organizations, f.PerSecond, f.Unit,
			shortDuration(f.P50), shortDuration(f.P99), micro(f.CPU.Service), micro(f.CPU.PostgreSQL), micro(f.CPU.Load))
	}
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
