package check

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"integrityledger/cmd/lab/weather/history"
)

// feed compares every page that a reader got, and the final feed, with the log.
func (c *checker) feed() {
	for i := range c.Calls {
		call := &c.Calls[i]
		if call.Operation == history.FeedPage && call.Outcome == history.Answered {
			c.page(call)
		}
	}
	c.copies(Feed, "the feed", c.End.Feed, func(f history.FeedEvent) string { return f.CompanyReference })
}

// shows returns the event of the log that a feed element must be, or nil.
func (c *checker) shows(check Name, of string, f history.FeedEvent, calls ...*history.Call) *event {
	e := c.byID[f.ID]
	if e == nil || !e.inFeed() {
		c.violate(check, of, calls, "event %s (sequence %d) is not in the log", f.ID, f.Sequence)
		return nil
	}
	is := c.element(e)
	if f.SHA256 == "" && c.Header.Former && check != Feed { // the end state is read from this version
		is.SHA256 = ""
	}
	if is != f {
		c.violate(check, of, calls, "event %s is shown as %+v, but the log has %+v", f.ID, f, is)
	}
	return e
}

// element converts an event to the form in feeds.
func (c *checker) element(e *event) history.FeedEvent {
	hash := ""
	if r := c.registrations[e.of]; r != nil {
		hash = r.declared
	}
	return history.FeedEvent{
		ID: e.ID, Sequence: e.Sequence, Type: e.Type, OccurredAt: e.OccurredAt, PublicID: e.Subject, SHA256: hash,
		CompanyReference: e.of.company,
		Source:           e.of.source, DocumentReference: e.of.document, Version: e.of.version, RecordStatus: e.status,
	}
}

// between returns the events of a feed after one sequence, up to another.
func between(list []*event, after, to int64) []*event {
	from := sort.Search(len(list), func(i int) bool { return list[i].Sequence > after })
	end := sort.Search(len(list), func(i int) bool { return list[i].Sequence > to })
	return list[from:max(from, end)]
}

// floor returns, for each event of a list and for the end, the earliest moment by which it, or an event after it, had
// surely happened. The result is cached by the list's name.
func (c *checker) floor(name string, list []*event) []int64 {
	if c.floors == nil {
		c.floors = map[string][]int64{}
	}
	f, known := c.floors[name]
	if !known {
		f = make([]int64, len(list)+1)
		f[len(list)] = never
		for i := len(list) - 1; i >= 0; i-- {
			f[i] = min(f[i+1], list[i].before)
		}
		c.floors[name] = f
	}
	return f
}

// missed returns the first event after a sequence that had surely happened before a moment, or nil.
func (c *checker) missed(name string, list []*event, sequence, moment int64) *event {
	rest := between(list, sequence, never)
	if c.floor(name, list)[len(list)-len(rest)] >= moment {
		return nil
	}
	return rest[slices.IndexFunc(rest, func(e *event) bool { return e.before < moment })]
}

// page checks a feed page. A reader that continues from nextCursor skips every event before it, so the page must
// contain all of them. At the end of the feed the page must show all events acknowledged before it was requested, or up
// to the sequence that the request names.
func (c *checker) page(call *history.Call) {
	of, a, calls := call.Organization+"/"+call.Company, &call.Answer, []*history.Call{call}
	list := c.feeds[of]
	for i, f := range a.Events {
		if e := c.shows(FeedPage, of, f, call); e != nil && e.after > call.End {
			c.violate(FeedPage, of, []*history.Call{call, e.call}, "the page shows %s before it was asked for", e)
		}
		if f.Sequence <= call.Request.After || i > 0 && f.Sequence <= a.Events[i-1].Sequence {
			c.violate(FeedPage, of, calls, "sequence %d is not after the one before it", f.Sequence)
		}
	}
	last := call.Request.After
	if n := len(a.Events); n > 0 {
		last = a.Events[n-1].Sequence
	}
	if a.NextCursor != last {
		c.violate(FeedPage, of, calls, "nextCursor is %d, but must be that of the last event, %d", a.NextCursor, last)
	}
	shown := map[string]bool{}
	for _, f := range a.Events {
		shown[f.ID] = true
	}
	for _, e := range between(list, call.Request.After, a.NextCursor) {
		if !shown[e.ID] {
			c.violate(
				FeedPage, of, []*history.Call{call, e.call}, "the page from %d to %d passes %s: a reader never sees it",
				call.Request.After, a.NextCursor, e,
			)
		}
	}
	if a.HasMore && len(between(list, a.NextCursor, never)) == 0 {
		c.violate(FeedPage, of, calls, "the page says that more follows %d, but nothing does", a.NextCursor)
	}
	if a.HasMore {
		return
	}
	if after := call.Request.ReadAfter; after != nil {
		for _, e := range between(list, a.NextCursor, *after) {
			c.violate(
				ReadAfter, of, []*history.Call{call, e.call},
				"the feed ends at %d, but %s lies within the sequence %d that was asked for", a.NextCursor, e, *after,
			)
		}
	} else if e := c.missed("feed "+of, list, a.NextCursor, call.Start); e != nil {
		c.violate(
			FeedPage, of, []*history.Call{call, e.call},
			"the feed ends at %d, but %s was acknowledged before the page was asked for", a.NextCursor, e,
		)
	}
}

// copies compares a copy of all feeds with the log: each event once, in order within a company.
func (c *checker) copies(check Name, what string, list []history.FeedEvent, by func(history.FeedEvent) string) {
	seen := map[string]int{}
	last := map[string]int64{}
	for _, f := range list {
		seen[f.ID]++
		if seen[f.ID] > 1 {
			c.violate(check, what, nil, "event %s is there %d times", f.ID, seen[f.ID])
			continue
		}
		e := c.shows(check, what, f)
		if e == nil {
			continue
		}
		key := e.Organization + "/" + by(f)
		if f.Sequence < last[key] {
			c.violate(check, what, nil, "event %s (sequence %d) comes after sequence %d", f.ID, f.Sequence, last[key])
		}
		last[key] = max(last[key], f.Sequence)
	}
	for _, e := range c.events {
		if e.inFeed() && seen[e.ID] == 0 && c.organizations[e.Organization] != nil {
			c.violate(check, what, []*history.Call{e.call}, "%s is missing", e)
		}
	}
	c.add(string(check)+": events", int64(len(list)))
}

// stream checks that the broker has every event of the feeds once, and each organization's events in order across its
// companies.
func (c *checker) stream() {
	list := make([]history.FeedEvent, 0, len(c.End.Stream))
	slices.SortStableFunc(c.End.Stream, func(a, b history.Message) int { return cmp.Compare(a.Number, b.Number) })
	for _, m := range c.End.Stream {
		list = append(list, m.Event)
		if m.ID != m.Event.ID {
			c.violate(
				Stream, "the stream", nil, "message %d has the id %s, but its body is event %s", m.Number, m.ID, m.Event.ID,
			)
		}
		if e := c.byID[m.ID]; e != nil && m.Organization != "" && m.Organization != e.Organization {
			c.violate(
				Stream, "the stream", nil, "message %d is of %s, but event %s is of %s", m.Number, m.Organization, m.ID,
				e.Organization,
			)
		}
	}
	c.copies(Stream, "the stream", list, func(history.FeedEvent) string { return "" })
}

// search checks that a search by hash shows all records acknowledged before it, and none requested after it. The models
// decide whether each record was in the state shown.
func (c *checker) search() {
	byHash := map[string][]*event{} // registrations by organization and hash
	for _, e := range c.registrations {
		var p struct {
			SHA256 string `json:"sha256"`
		}
		if decodePayload(e, &p) == nil {
			byHash[e.Organization+"/"+p.SHA256] = append(byHash[e.Organization+"/"+p.SHA256], e)
		}
	}
	for i := range c.Calls {
		call := &c.Calls[i]
		if call.Operation != history.Search || call.Outcome != history.Answered {
			continue
		}
		of := call.Organization + " " + call.Request.Hash
		shown := map[string]bool{}
		for _, r := range call.Answer.Records {
			if shown[r.PublicID] {
				c.violate(Search, of, []*history.Call{call}, "record %s is shown twice", r.PublicID)
			}
			shown[r.PublicID] = true
			e := c.registrations[c.public[r.PublicID]]
			if e == nil || e.Organization != call.Organization || e.after > call.End ||
				!strings.EqualFold(r.Hash, call.Request.Hash) {
				c.violate(
					Search, of, []*history.Call{call},
					"record %s is shown, but the log has no such record before the end of the search", r.PublicID,
				)
			}
		}
		for _, e := range byHash[call.Organization+"/"+call.Request.Hash] {
			if shown[e.Subject] || !c.granted(call, e.of.company) {
				continue
			}
			switch after := call.Request.ReadAfter; {
			case after == nil && e.before < call.Start:
				c.violate(
					Search, of, []*history.Call{call, e.call}, "%s was acknowledged before the search, which does not show it", e,
				)
			case after != nil && e.Sequence <= *after:
				c.violate(
					ReadAfter, of, []*history.Call{call, e.call},
					"%s lies within the sequence %d that was asked for, but the search does not show it", e, *after,
				)
			}
		}
	}
}

// granted reports whether a call's key surely had a company for the whole duration of the call.
func (c *checker) granted(call *history.Call, company string) bool {
	on := false
	for _, e := range c.grants()[call.Key+"/"+call.Organization+"/"+company] {
		if e.before < call.Start {
			on = e.Enabled
		} else if e.after <= call.End {
			return false // it changed meanwhile
		}
	}
	return on
}

// grants returns the changes of each key's access to each company, in order.
func (c *checker) grants() map[string][]*event {
	if c.accesses == nil {
		c.accesses = map[string][]*event{}
		for _, id := range sortedKeys(c.sequences) {
			for _, e := range c.sequences[id] {
				if e.Type == accessChanged {
					k := e.KeyID + "/" + id + "/" + c.reference(e)
					c.accesses[k] = append(c.accesses[k], e)
				}
			}
		}
	}
	return c.accesses
}
