package report

import (
	"cmp"
	"encoding/json"
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// clients is what each of them saw.
type clients struct {
	Height px
	Strips []strip
	More   int // clients without a strip
}

// strip is a client: three rows of columns, one an outcome, each painted where calls with that outcome were under
// way, in three levels by their share.
type strip struct {
	Name string
	tally
	Top   px
	Paths []path
}

const (
	mostStrips  = 100
	stripHeight = 20.0
	stripRow    = 5.0
)

// newClients draws those with the most unknown outcomes where there are too many for all.
func newClients(calls []history.Call, a axis) (c clients) {
	tallies := map[string]*tally{}
	for i := range calls {
		t := tallies[calls[i].Client]
		if t == nil {
			t = &tally{}
			tallies[calls[i].Client] = t
		}
		t.add(calls[i].Outcome)
	}
	names := sortedKeys(tallies)
	if c.More = max(0, len(names)-mostStrips); c.More > 0 {
		slices.SortStableFunc(names, func(x, y string) int {
			return cmp.Or(tallies[y].Unknown-tallies[x].Unknown, tallies[y].All()-tallies[x].All())
		})
		names = names[:mostStrips]
		slices.Sort(names)
	}
	seen := map[string][]tally{} // by column
	for _, name := range names {
		seen[name] = make([]tally, a.columns)
	}
	for i := range calls {
		if columns := seen[calls[i].Client]; columns != nil {
			for at := a.at(calls[i].Start); at <= a.at(calls[i].End); at++ {
				columns[at].add(calls[i].Outcome)
			}
		}
	}
	top := px(panelTop)
	for _, name := range names {
		s := strip{Name: cmp.Or(name, "without a name"), tally: *tallies[name], Top: top}
		for i, class := range []string{"answered", "refused", "unknown"} {
			for _, level := range []struct {
				class       string
				above, most float64 // share of the calls
			}{{class + " pale", 0, .1}, {class + " half", .1, .5}, {class, .5, 1}} {
				s.Paths = append(s.Paths, path{level.class, a.runs(top+px(float64(i)*stripRow), stripRow-.5, func(at int) bool {
					share := float64(seen[name][at].of(class)) / float64(max(1, seen[name][at].All()))
					return share > level.above && share <= level.most
				})})
			}
		}
		c.Strips = append(c.Strips, s)
		top += stripHeight
	}
	c.Height = top
	return c
}

// Baseline is that of a strip's name.
func (s strip) Baseline() px { return s.Top + 11 }

// resolution is what became of the writes whose clients never learned it.
type resolution struct {
	Known bool // the end state has the log, which tells
	Rows  []resolved
	Total resolved
}

// resolved counts unknown outcomes of an operation. What a request has done stands in the log under its id.
type resolved struct {
	Name            string
	Reads           int // which change nothing
	Effect, None    int
	AnsweredByAgain int // of all writes: a later call with the same Idempotency-Key was answered
}

func (r resolved) add(o resolved) resolved {
	return resolved{r.Name, r.Reads + o.Reads, r.Effect + o.Effect, r.None + o.None, r.AnsweredByAgain + o.AnsweredByAgain}
}

// All is the number of unknown outcomes.
func (r resolved) All() int { return r.Reads + r.Effect + r.None }

// item is what an event says of an item of a batch, whose items share the id of their request.
type item struct {
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
}

type repetition struct{ organization, key string }

func resolve(h *history.History) resolution {
	r := resolution{Known: len(h.End.Log) > 0}
	var unknown []*history.Call
	events := map[string][]item{} // by request; one that stays nil has no event
	lastAnswer := map[repetition]int64{}
	for i := range h.Calls {
		c := &h.Calls[i]
		switch {
		case c.Outcome == history.Answered && c.Request.IdempotencyKey != "":
			lastAnswer[repetition{c.Organization, c.Request.IdempotencyKey}] = c.Start
		case c.Outcome == history.Unknown:
			unknown = append(unknown, c)
			events[c.RequestID] = nil
		}
	}
	for i := range h.End.Log {
		e := &h.End.Log[i]
		if _, is := events[e.RequestID]; !is {
			continue
		}
		var of item
		_ = json.Unmarshal(e.Data, &of) // other events have other data
		events[e.RequestID] = append(events[e.RequestID], of)
	}
	byName := map[string]resolved{}
	for _, c := range unknown {
		name := short(60, c.Operation)
		if _, is := byName[name]; !is && len(byName) >= mostRows {
			name = "others"
		}
		one := resolved{Name: name}
		switch {
		case !c.Operation.Writes():
			one.Reads = 1
		case took(c, events[c.RequestID]):
			one.Effect = 1
		default:
			one.None = 1
		}
		if key := c.Request.IdempotencyKey; one.Reads == 0 && key != "" && lastAnswer[repetition{c.Organization, key}] > c.Start {
			one.AnsweredByAgain = 1
		}
		byName[name] = one.add(byName[name])
		r.Total = r.Total.add(one)
	}
	for _, name := range sortedKeys(byName) {
		r.Rows = append(r.Rows, byName[name])
	}
	return r
}

func took(c *history.Call, events []item) bool {
	if c.Batch == 0 {
		return len(events) > 0
	}
	return slices.Contains(events, item{c.Request.Source, c.Request.Document, c.Request.Version})
}
