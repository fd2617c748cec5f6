package check

import (
	"encoding/json"
	"fmt"
	"slices"

	"integrityledger/cmd/lab/weather/history"
)

// decodePayload decodes the signed payload of a registration.
func decodePayload(e *event, into any) error {
	if e.Type != registered || len(e.Payload) == 0 {
		return fmt.Errorf("%s has no payload", e)
	}
	return json.Unmarshal(e.Payload, into)
}

// grace is how long before a repeated attempt a fault may have been, in nanoseconds. A killed or frozen process holds
// leases that end later.
const grace = int64(60e9)

// webhooks checks that each destination got each event of its company, always with the same body and a valid signature.
// An accepted event may come again only if a fault could have lost the acceptance.
func (c *checker) webhooks() {
	type one struct{ webhook, event string }
	accepted := map[one]*history.Receipt{}
	bodies := map[string]*history.Receipt{}
	slices.SortStableFunc(c.End.Receipts, func(a, b history.Receipt) int { return int(a.At - b.At) })
	for i := range c.End.Receipts {
		r := &c.End.Receipts[i]
		key, of := one{r.Webhook, r.EventID}, r.Webhook+" "+r.EventID
		e := c.byID[r.EventID]
		switch {
		case e == nil || !e.inFeed():
			c.violate(Webhook, of, nil, "a receiver got an event that is not in the log")
			continue
		case r.PublicID != e.Subject || r.Version != e.of.version || r.RecordStatus != e.status:
			c.violate(
				Webhook, of, nil, "a receiver got %s with publicId %s, version %d and status %s, but it is of %s, %d, %s", e,
				r.PublicID, r.Version, r.RecordStatus, e.Subject, e.of.version, e.status,
			)
		}
		if e.after > r.At {
			c.violate(Webhook, of, []*history.Call{e.call}, "a receiver got %s before it was asked for", e)
		}
		if !r.Signed {
			c.violate(Webhook, of, nil, "a receiver got %s with a signature that does not hold", e)
		}
		if first := bodies[r.EventID]; first == nil {
			bodies[r.EventID] = r
		} else if first.BodySHA256 != r.BodySHA256 {
			c.violate(Webhook, of, nil, "one event id came with two bodies")
		}
		if r.Status < 200 || r.Status > 299 {
			continue
		}
		if first := accepted[key]; first == nil {
			accepted[key] = r
		} else {
			c.add("webhook: accepted again", 1)
			if !c.weather(first.At-grace, r.At) {
				c.violate(Webhook, of, nil, "%s was delivered again after it was accepted, and no fault was near", e)
			}
		}
	}
	c.add("webhook: attempts", int64(len(c.End.Receipts)))
	if len(c.End.Webhooks) == 0 {
		c.violate(Webhook, "the run", nil, "the end state must name the destinations of webhooks")
	}
	for _, w := range c.End.Webhooks {
		for _, e := range between(c.feeds[w.Organization+"/"+w.Company], w.From, never) {
			if accepted[one{w.ID, e.ID}] == nil {
				c.violate(Webhook, w.ID+" "+e.ID, []*history.Call{e.call}, "the destination never got %s", e)
			}
		}
	}
	c.deliveries()
}

// weather reports whether a fault overlapped the given time.
func (c *checker) weather(from, to int64) bool {
	return slices.ContainsFunc(c.Faults, func(f history.Fault) bool { return f.Start <= to && f.End >= from })
}

// deliveries checks that the service has one delivery per event and destination.
func (c *checker) deliveries() {
	seen, ids := map[string]string{}, map[string]bool{}
	for _, d := range c.End.Deliveries {
		key := d.Webhook + " " + d.EventID
		if ids[d.ID] {
			c.violate(Webhook, key, nil, "delivery %s is listed twice", d.ID)
			continue
		}
		ids[d.ID] = true
		if other, twice := seen[key]; twice {
			c.violate(Webhook, key, nil, "one event has two deliveries to one destination, %s and %s", other, d.ID)
		}
		seen[key] = d.ID
		if e := c.byID[d.EventID]; e == nil || !e.inFeed() {
			c.violate(Webhook, key, nil, "delivery %s is of an event that is not in the log", d.ID)
		}
	}
}

// usage checks that the usage reported by the service equals the number of units that it lists, and the number of
// registrations in the log.
func (c *checker) usage() {
	type month struct{ organization, period string }
	events := map[month]map[string]*event{}
	for _, e := range c.events {
		if e.Type == registered && e.charged() {
			m := month{e.Organization, e.Period}
			if events[m] == nil {
				events[m] = map[string]*event{}
			}
			events[m][e.ID] = e
		}
	}
	told := map[month]bool{}
	for _, u := range c.End.Usage {
		m := month{u.Organization, u.Period}
		told[m] = true
		of := u.Organization + " " + u.Period
		list := events[m]
		if u.Used != int64(len(list)) {
			c.violate(Usage, of, nil, "%d versions are charged, but the log has %d registrations", u.Used, len(list))
		}
		companies := map[string]int64{}
		for _, e := range list {
			companies[e.of.company]++
		}
		for name, n := range u.Companies {
			if companies[name] != n {
				c.violate(
					Usage, of, nil, "company %s is charged %d versions, but the log has %d registrations", name, n, companies[name],
				)
			}
			delete(companies, name)
		}
		for _, name := range sortedKeys(companies) {
			c.violate(Usage, of, nil, "company %s has %d registrations, but is charged none", name, companies[name])
		}
		units := map[string]bool{}
		for _, id := range u.Entries {
			switch {
			case units[id]:
				c.violate(Usage, of, nil, "event %s is a unit twice", id)
			case list[id] == nil:
				c.violate(Usage, of, nil, "event %s is a unit, but no registration of the month", id)
			}
			units[id] = true
		}
		for id, e := range list {
			if !units[id] {
				c.violate(Usage, of, []*history.Call{e.call}, "%s is no unit", e)
			}
		}
	}
	for m, list := range events {
		if !told[m] && c.organizations[m.organization] != nil {
			c.violate(
				Usage, m.organization+" "+m.period, nil, "the log has %d registrations, but the end state no usage", len(list),
			)
		}
	}
}

// verdicts checks the results of the service's own commands, monitors and witnesses.
func (c *checker) verdicts() {
	had := map[string]bool{}
	for _, v := range c.End.Verdicts {
		had[v.Name] = true
		if v.Organization != "" {
			had[v.Name+" "+v.Organization] = true
		}
		if v.Exit != 0 || !v.Clean {
			c.violate(Verdict, v.Name+" "+v.Organization, nil, "exit code %d, clean %t: %s", v.Exit, v.Clean, v.Output)
		}
	}
	must := []string{history.AuditVerdict, history.RebuildVerdict}
	for _, o := range c.Header.Organizations {
		must = append(must, history.BundleVerdict+" "+o.ID)
	}
	for _, name := range must {
		if !had[name] {
			c.violate(Verdict, name, nil, "it was not run")
		}
	}
	for _, m := range c.End.Monitors {
		if m.Alarm != "" {
			c.violate(Verdict, m.Name, nil, "it raises an alarm: %s", m.Alarm)
		}
	}
}
