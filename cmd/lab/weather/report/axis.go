package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"integrityledger/cmd/lab/weather/history"
)

// All drawings have the same axis of time, so that what happens at once stands in one line.
const (
	width     = 1000.0
	plotLeft  = 150.0
	plotRight = 865.0
	columns   = 300 // most columns of a drawing
)

// px is a place in a drawing.
type px float64

func (p px) String() string { return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64) }

// axis is the time of a run, cut into columns.
type axis struct {
	length  int64 // of the run
	column  int64 // of one column
	columns int
}

// steps are round lengths of time, for columns and for the marks of the axis.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour,
}

// step is the shortest round one of which most are enough.
func step(length int64, most int64) int64 {
	for _, s := range steps {
		if length/int64(s) < most {
			return int64(s)
		}
	}
	return length/most + 1
}

func newAxis(h *history.History) axis {
	length := int64(time.Second)
	for i := range h.Calls {
		length = max(length, h.Calls[i].End)
	}
	for _, f := range h.Faults {
		length = max(length, f.Start, f.End, f.RecoveredAt)
	}
	column := step(length, columns)
	return axis{length: length, column: column, columns: int((length-1)/column) + 1}
}

func (a axis) x(at int64) px {
	return px(plotLeft + (plotRight-plotLeft)*float64(min(max(0, at), a.length))/float64(a.length))
}

// at is the column of a time.
func (a axis) at(t int64) int { return int(min(max(0, t), a.length-1) / a.column) }

// edge is where a column begins. The last one may be cut.
func (a axis) edge(column int) px {
	if column >= a.columns {
		return plotRight
	}
	return a.x(int64(column) * a.column)
}

// tick is a mark of an axis.
type tick struct {
	At   px
	Text string
}

func (a axis) ticks() (all []tick) {
	every := step(a.length, 10)
	for at := int64(0); at <= a.length && at >= 0; at += every {
		all = append(all, tick{a.x(at), clock(at)})
	}
	return all
}

// runs are the columns for which holds is true, those that touch joined to one, drawn from top on with a height.
func (a axis) runs(top, height px, holds func(column int) bool) string {
	var path strings.Builder
	for from := 0; from < a.columns; from++ {
		if !holds(from) {
			continue
		}
		to := from + 1
		for to < a.columns && holds(to) {
			to++
		}
		fmt.Fprintf(&path, "M%v %vH%vv%vH%vz", a.edge(from), top, a.edge(to), height, a.edge(from))
		from = to
	}
	return path.String()
}

// clock is a moment of a run, as minutes and seconds.
func clock(at int64) string {
	s := at / int64(time.Second)
	text := fmt.Sprintf("%d:%02d", s/60, s%60)
	if s >= 3600 {
		text = fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	if rest := at % int64(time.Second) / int64(time.Millisecond); rest > 0 {
		text += fmt.Sprintf(".%03d", rest)
	}
	return text
}

// length is a stretch of time for people.
func length(of int64) string {
	d := time.Duration(of)
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// count writes an integer in groups of three digits.
func count(n any) string {
	if limit, is := n.(*int64); is {
		n = *limit
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// short cuts a foreign text after so many characters, without looking at the rest of it.
func short(most int, text any) string {
	s := fmt.Sprint(text)
	s = strings.ToValidUTF8(s[:min(len(s), utf8.UTFMax*(most+1))], "\ufffd")
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + " …"
}

// quantile is by the nearest rank, of sorted values; 0 without any.
func quantile(sorted []int64, q float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// round is the next round number, for the top of a scale.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(v, 1e-3))))
	for _, m := range []float64{1, 2, 4, 5, 8} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// sortedKeys are those of a map, in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
