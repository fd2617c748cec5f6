package bench

import (
	_ "embed"
	"fmt"
	"math"
	"strings"
	"text/template"
)

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
