package report

import (
	"cmp"
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// checked is a check as the page shows it.
type checked struct {
	Name     string
	Word     string // violated, undecided, skipped or passed
	Findings []finding
	More     int // findings that are not shown
}

type finding struct {
	Word, Of, Text string
	Calls          []history.Call
	More           int // calls that are not shown
}

// verdict is the one sentence about a run.
type verdict struct {
	Word                                   string // violated, undecided or passed
	Violations, Undecided, Skipped, Checks int
}

// counted is how much was checked of something.
type counted struct {
	Name  string
	Count int64
}

// The words, in the order in which they matter.
const (
	violated  = "violated"
	undecided = "undecided"
	skipped   = "skipped"
	passed    = "passed"
)

// Few findings tell what many more would.
const (
	mostFindings = 50 // of a check
	mostCalls    = 12 // of a finding
)

// judge brings the checks into the order in which they matter. A check that has found something counts though nobody has
// named it.
func judge(h *history.History, v Verdicts) (all []checked, said verdict) {
	byName := map[string]*checked{}
	var order []string
	of := func(name string) *checked {
		if byName[name] == nil {
			byName[name] = &checked{Name: name, Word: passed}
			order = append(order, name)
		}
		return byName[name]
	}
	for _, name := range v.Checks {
		of(name)
	}
	for _, name := range v.Skipped {
		of(name).Word = skipped
	}
	wanted := map[int64]*history.Call{}
	take := func(word string, found []Finding) {
		for _, f := range found {
			c := of(f.Check)
			if c.Word != violated {
				c.Word = word
			}
			if len(c.Findings) == mostFindings {
				c.More++
				continue
			}
			one := finding{Word: word, Of: f.Of, Text: f.Text, More: max(0, len(f.Calls)-mostCalls)}
			for _, number := range f.Calls[:len(f.Calls)-one.More] {
				one.Calls = append(one.Calls, history.Call{Number: number})
				wanted[number] = nil
			}
			c.Findings = append(c.Findings, one)
		}
	}
	take(violated, v.Violations)
	take(undecided, v.Undecided)
	for i := range h.Calls {
		if _, is := wanted[h.Calls[i].Number]; is {
			wanted[h.Calls[i].Number] = &h.Calls[i]
		}
	}
	said = verdict{Word: undecided, Violations: len(v.Violations), Undecided: len(v.Undecided), Checks: len(order)}
	for _, word := range []string{violated, undecided, skipped, passed} {
		for _, name := range order {
			if c := byName[name]; c.Word == word {
				c.fill(wanted)
				all = append(all, *c)
				if word == skipped {
					said.Skipped++
				}
			}
		}
	}
	switch {
	case said.Violations > 0:
		said.Word = violated
	case len(all) > said.Skipped && said.Undecided == 0:
		said.Word = passed
	}
	return cut(all), said
}

// fill puts calls in place of their numbers, those that are in the history, by start.
func (c *checked) fill(calls map[int64]*history.Call) {
	for i := range c.Findings {
		var known []history.Call
		for _, named := range c.Findings[i].Calls {
			if call := calls[named.Number]; call != nil {
				known = append(known, *call)
			}
		}
		slices.SortFunc(known, func(a, b history.Call) int { return cmp.Compare(a.Start, b.Start) })
		c.Findings[i].Calls = known
	}
}

func newCounts(counts map[string]int64) (all []counted) {
	for _, name := range cut(sortedKeys(counts)) {
		all = append(all, counted{name, counts[name]})
	}
	return all
}
