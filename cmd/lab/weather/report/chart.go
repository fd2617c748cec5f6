package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"integrityledger/cmd/lab/weather/history"
)

// tally counts calls by outcome.
type tally struct{ Answered, Refused, Unknown int }

func (t *tally) add(o history.Outcome) {
	switch o {
	case history.Answered:
		t.Answered++
	case history.Refused:
		t.Refused++
	default:
		t.Unknown++
	}
}

// All is the sum.
func (t tally) All() int { return t.Answered + t.Refused + t.Unknown }

// of counts an outcome by the class of its drawings.
func (t tally) of(class string) int {
	switch class {
	case "answered":
		return t.Answered
	case "refused":
		return t.Refused
	}
	return t.Unknown
}

// chart is what happened over time. A call counts where it ended.
type chart struct {
	Column     int64 // the length of one
	Columns    []column
	Ticks      []tick
	Throughput panel
	Errors     panel
	Latency    panel
	Marks      []mark // calls that show a violation
}

// column is one of the chart, in figures.
type column struct {
	At int64
	tally
	P50, P99 int64
}

// panel is a drawing with a scale.
type panel struct {
	Most  float64
	Scale []tick
	Paths []path
}

type path struct{ Class, D string }

// frame is what lies below and beside a drawing.
type frame struct {
	Ticks  []tick
	Bottom px
	Label  px // of the ticks
	Height px
	Shade  string // when anything was broken
	Marks  []mark
}

// Frame is around a drawing that ends at bottom; only a panel has shade.
func (p page) Frame(bottom px, panel bool) frame {
	f := frame{Ticks: p.Chart.Ticks, Bottom: bottom, Label: bottom + 15, Height: bottom + 22, Marks: p.Chart.Marks}
	if panel {
		f.Shade = p.Faults.Shade
	}
	return f
}

// PanelBottom is the base line of a panel.
func (p page) PanelBottom() px { return panelTop + panelHeight }

// mark is a moment at which a check found something.
type mark struct {
	At   px
	Text string
}

const (
	panelTop    = 12.0
	panelHeight = 120.0
)

func newChart(calls []history.Call, a axis) chart {
	c := chart{Column: a.column, Columns: make([]column, a.columns), Ticks: a.ticks()}
	for i := range calls {
		c.Columns[a.at(calls[i].End)].add(calls[i].Outcome)
	}
	lengths := make([][]int64, a.columns)
	for i, of := range c.Columns {
		lengths[i] = make([]int64, 0, of.All())
	}
	for i := range calls {
		at := a.at(calls[i].End)
		lengths[at] = append(lengths[at], calls[i].End-calls[i].Start)
	}
	for i := range lengths {
		slices.Sort(lengths[i])
		c.Columns[i].At = int64(i) * a.column
		c.Columns[i].P50, c.Columns[i].P99 = quantile(lengths[i], .5), quantile(lengths[i], .99)
	}
	c.Throughput = c.stack(a, "answered", "refused", "unknown")
	c.Errors = c.stack(a, "refused", "unknown")
	c.Latency = c.latency(a)
	return c
}

// stack draws calls a second, one outcome on the other.
func (c chart) stack(a axis, classes ...string) (p panel) {
	rate := func(n int) float64 { return float64(n) / time.Duration(a.column).Seconds() }
	most := 0.0
	for i := range c.Columns {
		n := 0
		for _, class := range classes {
			n += c.Columns[i].of(class)
		}
		most = max(most, rate(n))
	}
	p.Most = round(most)
	y := func(v float64) px { return px(panelTop + panelHeight*(1-v/p.Most)) }
	below := make([]int, len(c.Columns))
	for _, class := range classes {
		var d strings.Builder
		for i := range c.Columns {
			n := c.Columns[i].of(class)
			if n > 0 {
				bottom := y(rate(below[i]))
				fmt.Fprintf(&d, "M%v %vH%vV%vH%vz", a.edge(i), bottom, a.edge(i+1), y(rate(below[i]+n)), a.edge(i))
			}
			below[i] += n
		}
		p.Paths = append(p.Paths, path{class, d.String()})
	}
	for i := range 5 {
		v := p.Most * float64(i) / 4
		p.Scale = append(p.Scale, tick{y(v), fmt.Sprintf("%.4g", v)})
	}
	return p
}

// latency draws quantiles on a logarithmic scale. Where no call ended, the line is broken.
func (c chart) latency(a axis) (p panel) {
	const least = float64(time.Millisecond)
	most := 10 * least
	for i := range c.Columns {
		most = max(most, float64(c.Columns[i].P99))
	}
	decades := math.Ceil(math.Log10(most/least) - 1e-9)
	p.Most = least * math.Pow(10, decades)
	y := func(v float64) px { return px(panelTop + panelHeight*(1-math.Log10(max(v, least)/least)/decades)) }
	draw := func(class string, of func(column) int64) {
		var d strings.Builder
		pen := "M"
		for i, at := range c.Columns {
			if at.All() == 0 {
				pen = "M"
				continue
			}
			v := y(float64(of(at)))
			fmt.Fprintf(&d, "%s%v %vH%v", pen, a.edge(i), v, a.edge(i+1))
			pen = "L"
		}
		p.Paths = append(p.Paths, path{class, d.String()})
	}
	draw("p50", func(c column) int64 { return c.P50 })
	draw("p99", func(c column) int64 { return c.P99 })
	for i := range int(decades) + 1 {
		v := least * math.Pow(10, float64(i))
		p.Scale = append(p.Scale, tick{y(v), strings.Replace(length(int64(v)), ".0 ", " ", 1)})
	}
	return p
}

// mark shows where the calls are of which a check complains.
func (c *chart) mark(checks []checked, a axis) {
	for _, check := range checks {
		for _, f := range check.Findings {
			if f.Word == violated && len(f.Calls) > 0 && len(c.Marks) < mostRows {
				c.Marks = append(c.Marks, mark{a.x(f.Calls[0].Start), check.Name + ": " + f.Of})
			}
		}
	}
}

// operation is a row of the table of operations.
type operation struct {
	Name string
	tally
	P50, P99, Most int64
}

func operations(calls []history.Call) (all []operation, total tally) {
	byName := map[string]*operation{}
	lengths := map[string][]int64{}
	for i := range calls {
		name := short(60, calls[i].Operation)
		if byName[name] == nil && len(byName) == mostRows {
			name = "others"
		}
		if byName[name] == nil {
			byName[name] = &operation{Name: name}
		}
		byName[name].add(calls[i].Outcome)
		total.add(calls[i].Outcome)
		lengths[name] = append(lengths[name], calls[i].End-calls[i].Start)
	}
	for _, name := range sortedKeys(byName) {
		o := byName[name]
		slices.Sort(lengths[name])
		o.P50, o.P99, o.Most = quantile(lengths[name], .5), quantile(lengths[name], .99), quantile(lengths[name], 1)
		all = append(all, *o)
	}
	slices.SortStableFunc(all, func(a, b operation) int { return b.All() - a.All() })
	return all, total
}

// code is what refusals and unknown outcomes came with.
type code struct {
	Outcome string
	Status  int // 0 without an answer
	Code    string
	Count   int
}

func codes(calls []history.Call) (all []code) {
	const most = 40
	counts := map[code]int{}
	for i := range calls {
		if calls[i].Outcome == history.Answered {
			continue
		}
		key := code{Outcome: "unknown", Status: calls[i].Status, Code: short(80, calls[i].Code)}
		if calls[i].Outcome == history.Refused {
			key.Outcome = "refusal"
		}
		if _, is := counts[key]; !is && len(counts) >= mostRows {
			key.Status, key.Code = 0, "others"
		}
		counts[key]++
	}
	for key, n := range counts {
		key.Count = n
		all = append(all, key)
	}
	slices.SortFunc(all, func(a, b code) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return all[:min(len(all), most)]
}
