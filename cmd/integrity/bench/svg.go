package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The chart is plain SVG without a script, and takes its colours from what the
// reader prefers. Verdicts are words too, so that no colour carries a meaning alone.
const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>Integrity Ledger, benchmark</title>
<style>
  .paper { fill: #ffffff } .ink { fill: #1f2328 } .faint { fill: #59636e }
  .line { stroke: #1f2328; stroke-width: 1.5 } .moon { stroke: #6639ba; stroke-width: 2; stroke-dasharray: 3 2 }
  .bar { fill: #8c959f } .moonshot { fill: #6639ba } .reached { fill: #1a7f37 } .missed { fill: #cf222e }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9198a1 }
    .line { stroke: #e6edf3 } .moon { stroke: #b083f0 }
    .bar { fill: #6e7681 } .moonshot { fill: #8957e5 } .reached { fill: #2ea043 } .missed { fill: #f85149 }
  }
</style>
<rect class="paper" width="100%%" height="100%%"/>
`

const (
	chartWidth  = 1000
	chartLabels = 410 // where bars begin
	chartBars   = 330 // width of the longest
	chartRow    = 24
	chartMost   = 2.5 // times the target: longer bars are cut
)

// Chart draws the targets, each bar in units of its target (the inverse where less
// is better), and below them the figures on a logarithmic scale.
func (r Result) Chart() string {
	var b strings.Builder
	y := 30
	e := r.Environment
	chartText(&b, 20, y, "ink", "Integrity Ledger, benchmark", `font-size="18" font-weight="600"`)
	y += 22
	chartText(&b, 20, y, "faint", fmt.Sprintf("%s, %d CPUs, %s, PostgreSQL %s, commit %.12s, %s", e.CPU, e.CPUs, e.Go, e.PostgreSQL["server_version"], e.Commit,
		e.StartedAt.Format("2006-01-02")), "")
	y += 36
	chartText(&b, 20, y, "ink", "Targets (line: what is wanted; dashes: moonshot; longer is better)", `font-weight="600"`)
	y += 12
	unit := chartBars / chartMost
	top := y
	for _, t := range r.Targets {
		if t.Value != nil {
			y = t.draw(&b, y, unit)
			continue
		}
		chartText(&b, 20, y+16, "ink", t.Name, "")
		chartText(&b, chartLabels+8+int(unit), y+16, "faint", notMeasured+": "+t.Note, "")
		y += chartRow
	}
	fmt.Fprintf(&b, `<line class="line" x1="%[1]d" x2="%[1]d" y1="%[2]d" y2="%[3]d"/>`+"\n", chartLabels+int(unit), top, y)
	y += 30
	rows := r.chartRows()
	if len(rows) > 0 {
		chartText(&b, 20, y, "ink", "Figures (logarithmic; absolute figures belong to this machine and moment)", `font-weight="600"`)
		y += 12
	}
	most := 10.0
	for _, row := range rows {
		most = max(most, row.value)
	}
	for _, row := range rows {
		chartText(&b, 20, y+16, "ink", row.name, "")
		length := chartBars * math.Log10(max(1, row.value)) / math.Log10(most)
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", chartLabels, y+4, length, chartRow-8)
		chartText(&b, chartLabels+int(length)+8, y+16, "ink", row.text, "")
		y += chartRow
	}
	return fmt.Sprintf(chartHead, chartWidth, y+20) + b.String() + "</svg>\n"
}

func (t Target) draw(b *strings.Builder, y int, unit float64) int {
	share := func(v float64) float64 {
		times := v / t.Target
		if !t.Least {
			times = t.Target / v
		}
		return min(chartMost, times)
	}
	chartText(b, 20, y+16, "ink", t.Name, "")
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", t.Verdict, chartLabels, y+4, unit*share(*t.Value), chartRow-8)
	if t.Moonshot != 0 {
		fmt.Fprintf(b, `<line class="moon" x1="%[1]f" x2="%[1]f" y1="%[2]d" y2="%[3]d"/>`+"\n", chartLabels+unit*share(t.Moonshot), y+2, y+chartRow-2)
	}
	chartText(b, chartLabels+chartBars+12, y+16, "ink", fmt.Sprintf("%s (%s%s): %s", t.quantity(*t.Value), t.bound(), t.quantity(t.Target), t.Verdict), "")
	return y + chartRow
}

type chartLine struct {
	name, text string
	value      float64
}

func (r Result) chartRows() []chartLine {
	var rows []chartLine
	for _, f := range r.Figures {
		if f.NotMeasured == "" {
			rows = append(rows, chartLine{fmt.Sprintf("%s, c = %d", f.Name, f.Concurrency), fmt.Sprintf("%.0f %s/s", f.PerSecond, f.Unit), f.PerSecond})
		}
	}
	if r.Soak != nil {
		for i, s := range r.Soak.Slices {
			rows = append(rows, chartLine{fmt.Sprintf("%s %d", s.Length, i+1), fmt.Sprintf("%.0f registrations/s", s.PerSecond), s.PerSecond})
		}
	}
	return rows
}

func chartText(b *strings.Builder, x, y int, class, text, more string) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" %s>%s</text>`+"\n", class, x, y, more, html.EscapeString(text))
}
