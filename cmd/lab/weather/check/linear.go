package check

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/anishathalye/porcupine"

	"integrityledger/cmd/lab/weather/history"
)

// line is the history of one object with state S: all writes that took effect on it, in the log's order, and all reads
// of it. It is linearizable if every write and every read can be placed at one moment within its call, the writes in
// that order, so that each read agrees with the state at its moment.
//
// The log fixes the order of the writes, so the number of earlier writes determines the state. That number is
// porcupine's state, and the search is only for the moments.
type line[S any] struct {
	check  Name
	of     string
	init   S
	writes []write[S]
	reads  []read[S]
}

type write[S any] struct {
	event *event
	call  *history.Call // nil: by no call of this history
	// apply returns the state after the write. It also returns why the write, or its answer, is impossible; empty if it is
	// possible.
	apply         func(S) (S, string)
	after, before int64
}

type read[S any] struct {
	call  *history.Call
	says  string // reads with the same text agree with the same states
	holds func(S) bool
	// least is the organization's sequence that a read with Integrity-Read-After requires, or nil. Such a read may show a
	// past state.
	least *int64

	start, end int64
	lo, hi     int  // it is surely after lo writes, and not after more than hi
	sure       bool // at its end exactly lo writes had happened, whatever else was observed
}

// observe adds a read, with its call's moments.
func (l *line[S]) observe(call *history.Call, says string, holds func(S) bool) {
	l.reads = append(
		l.reads,
		read[S]{call: call, says: says, holds: holds, least: call.Request.ReadAfter, start: call.Start, end: call.End},
	)
}

// happen adds a write. Writes must be added in the log's order.
func (l *line[S]) happen(e *event, apply func(S) (S, string)) {
	l.writes = append(l.writes, write[S]{event: e, call: e.call, apply: apply, after: e.after, before: e.before})
}

// small is the largest number of operations given to porcupine at once. Its memory grows with the square.
const small = 3000

// decide judges a line.
func decide[S any](c *checker, l *line[S]) {
	states, why := l.states()
	l.place()
	reads := l.essential(states)
	c.add("linear: partitions", 1)
	c.add("linear: operations", int64(len(l.writes)+len(l.reads)))
	if len(l.writes)+len(reads) <= c.small {
		l.judge(c, states, why, 0, len(l.writes), reads)
		return
	}
	if calls, text := l.tighten(states, reads); text != "" {
		c.violate(l.check, l.of, calls, "it is not linearizable: %s", text)
		return
	}
	l.segments(c.small/4, reads, func(from, to int, reads []read[S]) { l.judge(c, states, why, from, to, reads) })
}

// states returns the state after each number of writes, and why each write is impossible, if it is.
func (l *line[S]) states() (states []S, why []string) {
	states, why = make([]S, len(l.writes)+1), make([]string, len(l.writes))
	states[0] = l.init
	for i, w := range l.writes {
		states[i+1], why[i] = w.apply(states[i])
	}
	return states, why
}

// place finds the writes between which each read can be.
func (l *line[S]) place() {
	over, begun := make([]int64, len(l.writes)), make([]int64, len(l.writes))
	least, latest := int64(never), int64(0)
	for i := len(l.writes) - 1; i >= 0; i-- { // before is also the limit of any later write
		least = min(least, l.writes[i].before)
		over[i] = least
	}
	for i, w := range l.writes {
		latest = max(latest, w.after)
		begun[i] = latest
	}
	for i := range l.reads {
		r := &l.reads[i]
		r.lo = sort.Search(len(over), func(i int) bool { return over[i] >= r.start })
		if r.least != nil {
			r.lo = sort.Search(len(l.writes), func(i int) bool { return l.writes[i].event.Sequence > *r.least })
			r.start = 0
			if r.lo > 0 {
				r.start = min(r.end, l.writes[r.lo-1].after)
			}
		}
		r.hi = sort.Search(len(begun), func(i int) bool { return begun[i] > r.end })
		r.sure = r.lo == r.hi && (r.lo == 0 || over[r.lo-1] <= r.end)
	}
}

// essential drops reads that cannot fail, and reads that another read implies: a read that agrees with the only state
// it can see, and a read that lasts longer than another one with the same text.
func (l *line[S]) essential(states []S) []read[S] {
	slices.SortStableFunc(l.reads, func(a, b read[S]) int { return compareInts(a.end, b.end) })
	type kind struct {
		says  string
		least int64
	}
	latest := map[kind]int64{}
	var list []read[S]
	for _, r := range l.reads {
		if r.sure && r.holds(states[r.lo]) {
			continue
		}
		k := kind{r.says, -1}
		if r.least != nil {
			k.least = int64(r.lo)
		}
		if start, known := latest[k]; known && start >= r.start {
			continue
		}
		latest[k] = r.start
		list = append(list, r)
	}
	return list
}

func compareInts(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// tighten narrows the moments of writes with the reads' states: the writes up to the first matching state came before
// the end of the read, and the writes after the last one came after its start. It returns reads that contradict each
// other or the writes.
func (l *line[S]) tighten(states []S, reads []read[S]) (calls []*history.Call, text string) {
	n := len(l.writes)
	after, before := make([]int64, n), make([]int64, n)
	afterBy, beforeBy := make([]*history.Call, n), make([]*history.Call, n)
	for i, w := range l.writes {
		after[i], before[i], afterBy[i], beforeBy[i] = w.after, w.before, w.call, w.call
	}
	for _, r := range reads {
		first, last := l.held(states, r)
		if first < 0 {
			return l.around(r), l.explain(states, r)
		}
		if first > 0 && r.end < before[first-1] {
			before[first-1], beforeBy[first-1] = r.end, r.call
		}
		if last < n && r.start > after[last] {
			after[last], afterBy[last] = r.start, r.call
		}
	}
	for i := 1; i < n; i++ {
		if after[i-1] > after[i] {
			after[i], afterBy[i] = after[i-1], afterBy[i-1]
		}
	}
	for i := n - 2; i >= 0; i-- {
		if before[i+1] < before[i] {
			before[i], beforeBy[i] = before[i+1], beforeBy[i+1]
		}
	}
	for i := range n {
		if after[i] > before[i] {
			return []*history.Call{l.writes[i].call, beforeBy[i], afterBy[i]}, fmt.Sprintf(
				"%s must have come before the end of one call, but after the start of another that began later", l.writes[i].event,
			)
		}
		l.writes[i].after, l.writes[i].before = after[i], before[i]
	}
	return nil, ""
}

// held returns the first and the last state within a read's time that agree with the read, or −1 if no state does.
func (l *line[S]) held(states []S, r read[S]) (first, last int) {
	first, last = -1, -1
	for i := r.lo; i <= r.hi; i++ {
		if r.holds(states[i]) {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return first, last
}

// segments cuts a long line at places that no remaining read can cross. The order of the writes on both sides, and
// their moments, agree with the log, so the line is linearizable if each segment is.
func (l *line[S]) segments(size int, reads []read[S], take func(from, to int, reads []read[S])) {
	l.reads = reads
	l.place()
	reads = l.reads
	slices.SortStableFunc(reads, func(a, b read[S]) int { return a.lo - b.lo })
	from, furthest := 0, 0
	var mine []read[S]
	for k := 0; k <= len(l.writes); k++ {
		for len(reads) > 0 && reads[0].lo == k {
			if furthest <= k && (k-from)+len(mine) > size && k > from {
				take(from, k, mine)
				from, mine = k, nil
			}
			furthest = max(furthest, reads[0].hi)
			mine, reads = append(mine, reads[0]), reads[1:]
		}
		if furthest <= k && (k-from)+len(mine) > size && k > from {
			take(from, k, mine)
			from, mine = k, nil
		}
	}
	if from < len(l.writes) || len(mine) > 0 {
		take(from, len(l.writes), mine)
	}
}

// judge lets porcupine decide a range of writes with the reads among them.
func (l *line[S]) judge(c *checker, states []S, why []string, from, to int, reads []read[S]) {
	if from == to && len(reads) == 0 {
		return
	}
	var operations []porcupine.Operation
	for i := from; i < to; i++ {
		w := l.writes[i]
		operations = append(
			operations,
			porcupine.Operation{ClientId: client(w.call), Input: i, Output: why[i], Call: w.after, Return: w.before},
		)
	}
	for i := range reads {
		operations = append(
			operations,
			porcupine.Operation{ClientId: client(reads[i].call), Input: -1 - i, Call: reads[i].start, Return: reads[i].end},
		)
	}
	model := porcupine.Model{
		Init: func() any { return from },
		Step: func(state, input, output any) (bool, any) {
			k, i := state.(int), input.(int)
			if i >= 0 {
				return i == k && output == "", k + 1
			}
			r := &reads[-1-i]
			return k >= r.lo && r.holds(states[k]), k
		},
		DescribeOperation: func(input, _ any) string {
			if i := input.(int); i < 0 {
				return reads[-1-i].says
			}
			return l.writes[input.(int)].event.String()
		},
	}
	c.add("linear: porcupine's operations", int64(len(operations)))
	picture := c.Picture != ""
	var result porcupine.CheckResult
	var info porcupine.LinearizationInfo
	if picture {
		result, info = porcupine.CheckOperationsVerbose(model, operations, c.Limit)
	} else {
		result = porcupine.CheckOperationsTimeout(model, operations, c.Limit)
	}
	switch result {
	case porcupine.Ok:
	case porcupine.Illegal:
		calls, text := l.culprit(states, why, from, to, reads)
		c.violate(l.check, l.of, calls, "it is not linearizable: %s", text)
		if picture {
			first, last := operations[0].Call, operations[0].Return
			for _, o := range operations {
				first, last = min(first, o.Call), max(last, o.Return)
			}
			c.draw(string(l.check)+" "+l.of, model, info, first, last)
		}
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Contains(c.Skip, l.check) {
			c.report.Undecided = append(
				c.report.Undecided,
				Violation{
					Check: l.check, Of: l.of, Text: fmt.Sprintf("%d operations were not decided within %s", len(operations), c.Limit),
				},
			)
		}
	}
}

func client(call *history.Call) int {
	if call == nil {
		return 0
	}
	return int(call.Number)
}

// culprit finds an operation that shows a person why a line is not linearizable.
func (l *line[S]) culprit(states []S, why []string, from, to int, reads []read[S]) ([]*history.Call, string) {
	for i := from; i < to; i++ {
		if why[i] != "" {
			return []*history.Call{l.writes[i].call}, fmt.Sprintf("%s: %s", l.writes[i].event, why[i])
		}
	}
	for _, r := range reads {
		if first, _ := l.held(states, r); first < 0 {
			return l.around(r), l.explain(states, r)
		}
	}
	if calls, text := l.tighten(states, reads); text != "" {
		return calls, text
	}
	var calls []*history.Call
	for _, r := range reads {
		calls = append(calls, r.call)
	}
	return calls, "each call can be put at a moment of its own, but not all of them together"
}

// around returns the calls of a read and of the writes that it can be next to.
func (l *line[S]) around(r read[S]) []*history.Call {
	calls := []*history.Call{r.call}
	for i := max(0, r.lo-1); i < min(len(l.writes), r.hi+1); i++ {
		calls = append(calls, l.writes[i].call)
	}
	return calls[:min(len(calls), 8)]
}

func (l *line[S]) explain(states []S, r read[S]) string {
	if r.lo > r.hi {
		return fmt.Sprintf("%s: no moment of this call is after %d writes and before the next", r.says, r.lo)
	}
	var held []string
	for i := r.lo; i <= r.hi && len(held) < 4; i++ {
		held = append(held, fmt.Sprintf("%+v", states[i]))
	}
	return fmt.Sprintf("%s, but during the call it was %s", r.says, strings.Join(held, ", then "))
}

// linear decides all lines, several at once.
func (c *checker) linear() {
	jobs := make(chan func())
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	c.lines(func(job func()) { jobs <- job })
	close(jobs)
	workers.Wait()
}
