package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"integrityledger/cmd/lab/weather/history"
)

// faults is the drawing and the tables of what was broken.
type faults struct {
	Count   int
	Longest int64 // the longest recovery
	Height  px
	Lanes   []lane
	Kinds   []kind
	Rows    []row
	More    int    // faults that the list leaves out
	Shade   string // when anything was broken
}

// lane is a target.
type lane struct {
	Name      string
	Top, Next px
	Bars      []bar
}

// bar is a fault: until it was healed, and from there until its target had recovered.
type bar struct {
	history.Fault
	X, Y, W, Back px
	Look, Label   string
}

// kind is a row of the table of recovery times, all faults of one name.
type kind struct {
	Name, Look              string
	Count                   int
	Lasted                  int64 // the longest
	Median, Slow, Slowest   int64
	Recovered, NotRecovered int
}

// row is a fault in the list.
type row struct {
	history.Fault
	Lasted, Recovery int64
	Recovered        bool
}

const (
	barHeight   = 15.0
	rowHeight   = 18.0
	mostLanes   = 60
	mostBars    = 3000
	lanesRows   = 12 // most rows of a lane; what has no room covers others
	fewFaults   = 120
	looks       = 16 // eight colours, full and hollow
	letterWidth = 6.2
)

func newFaults(all []history.Fault, a axis) faults {
	f := faults{Count: len(all)}
	f.kinds(all)
	for _, one := range all[:min(len(all), mostRows)] {
		r := row{Fault: one, Lasted: max(0, one.End-one.Start), Recovered: one.RecoveredAt >= one.End && one.RecoveredAt > 0}
		if r.Recovered {
			r.Recovery = one.RecoveredAt - one.End
		}
		f.Rows = append(f.Rows, r)
	}
	f.More = len(all) - len(f.Rows)
	f.draw(all[:min(len(all), mostBars)], a)
	broken := make([]bool, a.columns)
	for _, one := range all {
		for i := a.at(one.Start); i <= a.at(max(one.Start, one.End)); i++ {
			broken[i] = true
		}
	}
	f.Shade = a.runs(panelTop, panelHeight, func(i int) bool { return broken[i] })
	return f
}

func (f *faults) kinds(all []history.Fault) {
	recoveries, byName := map[string][]int64{}, map[string]*kind{}
	for _, one := range all {
		name := short(60, one.Name)
		if byName[name] == nil && len(byName) == mostLanes {
			name = "others"
		}
		if byName[name] == nil {
			byName[name] = &kind{Name: name}
		}
		k := byName[name]
		k.Count++
		k.Lasted = max(k.Lasted, one.End-one.Start)
		if one.RecoveredAt > 0 && one.RecoveredAt >= one.End {
			recoveries[name] = append(recoveries[name], one.RecoveredAt-one.End)
			f.Longest = max(f.Longest, one.RecoveredAt-one.End)
		} else {
			k.NotRecovered++
		}
	}
	for i, name := range sortedKeys(byName) {
		k := byName[name]
		k.Look = fmt.Sprintf("f%d bar", i%looks)
		if i%looks >= looks/2 {
			k.Look = fmt.Sprintf("f%d hollow", i%looks)
		}
		sorted := recoveries[name]
		slices.Sort(sorted)
		k.Recovered, k.Median, k.Slow, k.Slowest = len(sorted), quantile(sorted, .5), quantile(sorted, .95), quantile(sorted, 1)
		f.Kinds = append(f.Kinds, *k)
	}
}

// draw gives each target a lane, and faults that overlap in it rows of their own. While there are few faults, each has
// room for its name.
func (f *faults) draw(all []history.Fault, a axis) {
	lookOf := map[string]string{}
	for _, k := range f.Kinds {
		lookOf[k.Name] = k.Look
	}
	byTarget := map[string][]history.Fault{}
	for _, one := range all {
		target := cmp.Or(one.Target, "everything")
		if byTarget[target] == nil && len(byTarget) == mostLanes {
			target = "others"
		}
		byTarget[target] = append(byTarget[target], one)
	}
	top := px(panelTop)
	for _, target := range sortedKeys(byTarget) {
		l := lane{Name: target, Top: top}
		var ends []px // of rows
		for _, one := range byTarget[target] {
			b := bar{Fault: one, X: a.x(one.Start), Look: cmp.Or(lookOf[short(60, one.Name)], "f7 bar")}
			b.W = max(2.5, a.x(max(one.Start, one.End))-b.X)
			end := b.X + b.W
			if one.RecoveredAt > one.End {
				b.Back = a.x(one.RecoveredAt)
				end = max(end, b.Back)
			}
			label := short(24, one.Name)
			if needs := px(letterWidth*float64(len([]rune(label))) + 8); needs <= b.W {
				b.Label = label
			} else if len(all) <= fewFaults && end+needs < width {
				b.Label = label
				end += needs
			}
			r := slices.IndexFunc(ends, func(e px) bool { return e+1 <= b.X })
			switch {
			case r < 0 && len(ends) < lanesRows:
				r, ends = len(ends), append(ends, end)
			case r < 0:
				r = lanesRows - 1
				fallthrough
			default:
				ends[r] = end
			}
			b.Y = top + px(float64(r)*rowHeight) + (rowHeight-barHeight)/2
			l.Bars = append(l.Bars, b)
		}
		top += px(float64(len(ends))*rowHeight) + 6
		l.Next = top
		f.Lanes = append(f.Lanes, l)
	}
	f.Height = top
}

// Middle is the baseline of a bar's text.
func (b bar) Middle() px { return b.Y + barHeight - 4 }

// Healed is the end of the fault itself.
func (b bar) Healed() px { return b.X + b.W }

// Line is where the way back to normal is drawn.
func (b bar) Line() px { return b.Y + barHeight/2 }

// LabelX is in the bar where it has room, and behind the way back otherwise.
func (b bar) LabelX() px {
	if b.Inside() {
		return b.X + 4
	}
	return max(b.X+b.W, b.Back) + 4
}

// Ink is the look of a bar's name: on its colour, or on the page's.
func (b bar) Ink() string {
	if b.Inside() && !strings.HasSuffix(b.Look, "hollow") {
		return "in"
	}
	return "out"
}

// Inside reports whether the bar has room for its name.
func (b bar) Inside() bool { return px(letterWidth*float64(len([]rune(b.Label)))+8) <= b.W }

// Says is the fault in words.
func (b bar) Says() string {
	text := fmt.Sprintf("%s: %s, %s to %s", short(80, b.Target), short(80, b.Name), clock(b.Start), clock(b.End))
	if b.Back > 0 {
		text += ", recovered after " + length(b.RecoveredAt-b.End)
	}
	return text
}

// Baseline is that of a lane's name.
func (l lane) Baseline() px { return l.Top + barHeight - 2 }
