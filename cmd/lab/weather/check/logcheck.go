package check

import (
	"cmp"
	"fmt"

	"integrityledger/cmd/lab/weather/history"
)

// log replays the log alone: each event must follow from the events before it, whatever the answers were.
func (c *checker) log() {
	position := map[int]int64{}
	ids := map[string]bool{}
	for _, e := range c.events {
		if position[e.Shard]++; e.Position != position[e.Shard] {
			c.violate(
				Log, fmt.Sprintf("shard %d", e.Shard), nil,
				"position %d is followed by %d: positions must have no hole and no repetition", position[e.Shard]-1, e.Position,
			)
			position[e.Shard] = e.Position
		}
		if ids[e.ID] {
			c.violate(Log, e.ID, nil, "the event stands in the log twice")
		}
		ids[e.ID] = true
	}
	for _, id := range sortedKeys(c.sequences) {
		sequence := int64(0)
		for _, e := range c.sequences[id] {
			if sequence++; e.Sequence != sequence {
				c.violate(
					Log, id, nil, "sequence %d is followed by %d: sequences must have no hole and no repetition", sequence-1,
					e.Sequence,
				)
				sequence = e.Sequence
			}
		}
		c.replay(id)
	}
	for _, e := range c.events {
		switch e.Type {
		case registered, reserved, revoked:
			if e.call == nil && !e.prefix && !c.healing(e) && c.organizations[e.Organization] != nil {
				c.violate(Log, e.of.String(), nil, "no call has asked for %s (request %q)", e, e.RequestID)
			}
		}
	}
}

// life is the replay's state of a document.
type life struct {
	highest  int32
	versions map[int32]*versionLife
}

type versionLife struct {
	publicID            string
	registered, revoked bool
	superseded          bool // an event recorded it
}

// replay applies an organization's events.
func (c *checker) replay(organization string) {
	documents := map[versionKey]*life{}
	used := map[string]int64{}
	public := map[string]versionKey{}
	for i, e := range c.sequences[organization] {
		if e.of.document == "" {
			continue
		}
		d := documents[e.of.ofDocument()]
		if d == nil {
			d = &life{versions: map[int32]*versionLife{}}
			documents[e.of.ofDocument()] = d
		}
		v := d.versions[e.Version]
		if v == nil {
			v = &versionLife{publicID: cmp.Or(e.AliasOf, e.Subject)}
			d.versions[e.Version] = v
		}
		if other, known := public[e.Subject]; known && other != e.of {
			c.violate(Log, e.of.String(), nil, "public id %s is also that of %s", e.Subject, other)
		}
		public[e.Subject] = e.of
		calls := []*history.Call{e.call}
		if e.Type == aliased {
			if !v.registered || v.publicID != e.AliasOf {
				c.violate(Log, e.of.String(), nil, "%s leads to %s, but the version has %s", e, e.AliasOf, v.publicID)
			}
			continue
		}
		if v.publicID != e.Subject {
			c.violate(Log, e.of.String(), calls, "%s names %s, but the version has the public id %s", e, e.Subject, v.publicID)
		}
		switch e.Type {
		case reserved:
			if v.registered {
				c.violate(Log, e.of.String(), calls, "%s reserves a version that is registered", e)
			}
		case registered:
			c.registersOnce(e, d, v, calls)
			used[e.Period]++
			if o := c.organizations[organization]; o != nil && o.VersionsPerMonth != nil && !e.healed &&
				used[e.Period] > *o.VersionsPerMonth {
				c.violate(
					Quota, organization+" "+e.Period, calls, "%s is the version %d of the month, but the plan allows %d", e,
					used[e.Period], *o.VersionsPerMonth,
				)
			}
			c.supersedes(i, e, d)
			d.highest = max(d.highest, e.Version)
			v.registered = true
		case superseded:
			if !v.registered || v.revoked || v.superseded || e.ByVersion <= e.Version {
				c.violate(Log, e.of.String(), calls, "%s supersedes a version that was not current", e)
			}
			v.superseded = true
		case revoked:
			if !v.registered || v.revoked {
				c.violate(Log, e.of.String(), calls, "%s revokes a version that is not registered, or was revoked before", e)
			}
			v.revoked = true
		}
	}
}

func (c *checker) registersOnce(e *event, d *life, v *versionLife, calls []*history.Call) {
	if v.registered {
		c.violate(
			Log, e.of.String(), append(calls, c.registrations[e.of].call),
			"%s registers a version that has a record: there must be one record of a version", e,
		)
	}
	status := "current"
	if d.highest > e.Version {
		status = "superseded"
	}
	if e.Status != status {
		c.violate(
			Log, e.of.String(), calls, "%s has status %q from birth, but it must be %q with version %d before it", e, e.Status,
			status, d.highest,
		)
	}
}

// supersedes checks that the event after a registration names the version that it supersedes.
func (c *checker) supersedes(i int, e *event, d *life) {
	former := d.versions[d.highest]
	must := former != nil && d.highest < e.Version && !former.revoked
	var next *event
	if list := c.sequences[e.Organization]; i+1 < len(list) {
		next = list[i+1]
	}
	follows := next != nil && next.Type == superseded && next.of.ofDocument() == e.of.ofDocument() &&
		next.Version == d.highest && next.ByVersion == e.Version
	if must && !follows {
		c.violate(
			Log, e.of.String(), []*history.Call{e.call}, "%s takes the place of version %d, but no event says so", e, d.highest,
		)
	}
}

// order compares the log with the clients' clock: if a call was answered before another began, its event must come
// first in the log.
func (c *checker) order() {
	var shard int
	var latest *event
	for _, e := range c.events {
		if latest != nil && e.Shard != shard {
			latest = nil
		}
		shard = e.Shard
		if latest != nil && e.before < latest.after {
			c.violate(
				Order, e.Organization, []*history.Call{e.call, latest.call},
				"%s was answered before %s was asked for, but stands after it in the log", e, latest,
			)
		}
		if e.call != nil && (latest == nil || e.after > latest.after) {
			latest = e
		}
	}
}
