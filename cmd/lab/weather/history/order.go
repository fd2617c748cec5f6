package history

import (
	"cmp"
	"slices"
)

// sort sorts calls and faults by their starts; they are written in the order of their ends.
func (h *History) sort() {
	slices.SortStableFunc(h.Calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Number, b.Number))
	})
	slices.SortStableFunc(h.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Number, b.Number))
	})
}
