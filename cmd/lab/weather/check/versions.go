package check

import (
	"fmt"
	"strings"

	"integrityledger/cmd/lab/weather/history"
)

// declaration holds the fields by which two declarations of a version are the same.
type declaration struct {
	hash, mimeType, generatedAt string
	sizeBytes                   int64
	previous                    int32 // 0: no previous version
}

// declaration returns the declaration of a registration.
func (e *event) declaration() (d declaration) {
	var p struct {
		SHA256      string `json:"sha256"`
		MimeType    string `json:"mimeType"`
		GeneratedAt string `json:"generatedAt"`
		SizeBytes   int64  `json:"sizeBytes"`
	}
	if decodePayload(e, &p) == nil {
		d = declaration{hash: p.SHA256, mimeType: p.MimeType, generatedAt: p.GeneratedAt, sizeBytes: p.SizeBytes}
	}
	if e.PreviousVersion != nil {
		d.previous = *e.PreviousVersion
	}
	return d
}

func declared(c *history.Call) declaration {
	r := c.Request
	d := declaration{hash: r.Hash, mimeType: r.MimeType, generatedAt: r.GeneratedAt, sizeBytes: r.SizeBytes}
	if r.PreviousVersion != nil {
		d.previous = *r.PreviousVersion
	}
	return d
}

// version is the state of one version.
type version struct {
	publicID            string // of its reservation or its record
	reserved            bool   // and neither released nor registered since
	registered, revoked bool
	former              string // its aliases, with commas around each
	declaration
}

// is reports whether a public id leads to the version.
func (v version) is(id string) bool {
	return id == v.publicID || strings.Contains(v.former, ","+id+",")
}

// document is the state of a document. revoked holds the numbers of revoked versions, with commas around each.
type document struct {
	highest int32
	revoked string
}

func (d document) isRevoked(number int32) bool {
	return strings.Contains(d.revoked, fmt.Sprintf(",%d,", number))
}

// status returns an accepted version's status.
func (d document) status(number int32) string {
	switch {
	case d.isRevoked(number):
		return "revoked"
	case number == d.highest:
		return "current"
	}
	return "superseded"
}

func (m *models) version(of versionKey) *line[version] {
	return at(m.versions, Version, of.String())
}

func (m *models) document(of versionKey) *line[document] {
	return at(m.documents, Document, of.ofDocument().String())
}

func (m *models) versionEvent(e *event) {
	if e.Type != superseded { // a superseded event follows from the registration before it
		m.version(e.of).happen(e, func(v version) (version, string) { return v.after(e) })
	}
	switch e.Type {
	case registered:
		m.document(e.of).happen(e, func(d document) (document, string) {
			d.highest = max(d.highest, e.Version)
			if is := d.status(e.Version); is != e.Status {
				return d, fmt.Sprintf("its status is %s, but must be %s", e.Status, is)
			}
			if c := e.call; c != nil && c.Outcome == history.Answered &&
				!sameVersion(c.Answer.SupersededBy, d.supersededBy(e.Version)) {
				return d, fmt.Sprintf(
					"the answer says that it is superseded by %s, but the highest version is %d", text(c.Answer.SupersededBy),
					d.highest,
				)
			}
			return d, ""
		})
	case revoked:
		m.document(e.of).happen(e, func(d document) (document, string) {
			if d.isRevoked(e.Version) {
				return d, "the version was revoked before"
			}
			d.revoked += fmt.Sprintf(",%d,", e.Version)
			return d, ""
		})
	}
}

func (d document) supersededBy(number int32) *int32 {
	if number == d.highest {
		return nil
	}
	return &d.highest
}

func sameVersion(a, b *int32) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func text(version *int32) string {
	if version == nil {
		return "none"
	}
	return fmt.Sprint(*version)
}

// after returns the version after an event, and why the event is impossible.
func (v version) after(e *event) (version, string) {
	why := ""
	if e.Type == aliased {
		if !v.registered || v.publicID != e.AliasOf {
			why = fmt.Sprintf("the version has the public id %s, not %s", v.publicID, e.AliasOf)
		}
		v.former += "," + e.Subject + ","
		return v, why
	}
	if v.publicID != "" && v.publicID != e.Subject {
		why = fmt.Sprintf("the version has the public id %s, not %s", v.publicID, e.Subject)
	}
	v.publicID = e.Subject
	switch e.Type {
	case registered:
		if v.registered {
			why = "the version has a record"
		}
		v.reserved, v.registered, v.declaration = false, true, e.declaration()
	case revoked:
		if !v.registered || v.revoked {
			why = "the version is not registered, or was revoked before"
		}
		v.revoked = true
	default: // a reservation and its release
		switch {
		case v.registered:
			why = "the version is registered"
		case e.Type == released && !v.reserved:
			why = "no reservation is pending"
		}
		v.reserved = e.Type == reserved
	}
	return v, why
}

// seenVersion adds a call's observations of versions.
func (m *models) seenVersion(c *history.Call) {
	if c.Operation == history.Search {
		for _, r := range c.Answer.Records {
			if of, known := m.public[r.PublicID]; known {
				m.seenRecord(c, of, r)
			}
		}
		return
	}
	of, known := m.ofCall(c)
	if !known {
		m.seenStranger(c)
		return
	}
	l := m.version(of)
	if c.Outcome == history.Refused {
		m.refused(c, of)
		return
	}
	a := c.Answer
	switch c.Operation {
	case history.Register:
		if m.effect(c) != nil {
			return
		}
		l.observe(c, fmt.Sprintf("the declaration %+v was answered as a repetition of %s", declared(c), a.PublicID),
			func(v version) bool {
				return v.registered && v.declaration == declared(c) && (a.PublicID == "" || a.PublicID == v.publicID)
			})
		m.seenRecord(c, of, a.RecordAnswer)
	case history.Reserve:
		if m.effect(c) == nil {
			final := a.ReservationStatus == "finalized"
			l.observe(c, fmt.Sprintf("a reservation is %s as %s", a.ReservationStatus, a.PublicID), func(v version) bool {
				return v.registered == final && v.publicID == a.PublicID
			})
		}
	case history.Revoke:
		if m.effect(c) == nil {
			l.observe(c, "it was revoked before", func(v version) bool { return v.revoked })
		}
	case history.Lookup, history.Record:
		m.seenRecord(c, of, a.RecordAnswer)
	case history.ReservationRead:
		l.observe(c,
			fmt.Sprintf("it is listed as %q among the reservations, with the public id %q", a.ReservationStatus, a.PublicID),
			func(v version) bool {
				return v.reserved == (a.ReservationStatus == "pending") && (!v.reserved || v.publicID == a.PublicID)
			})
	case history.EvidenceRead:
		l.observe(c, "it has evidence", func(v version) bool { return v.registered })
	case history.Compare:
		m.compared(c, of)
	}
}

// seenStranger requires that an answer about a version is about one that the log knows.
func (m *models) seenStranger(c *history.Call) {
	switch c.Operation {
	case history.Record, history.EvidenceRead, history.Compare, history.Revoke, history.Release:
		if c.Outcome == history.Answered {
			m.violate(
				Version, c.Request.PublicID, []*history.Call{c}, "%s was answered, but the log has no version of this public id",
				c.Operation,
			)
		}
	}
}

// seenRecord adds that a call was shown a record.
func (m *models) seenRecord(c *history.Call, of versionKey, r history.RecordAnswer) {
	if r.Status == "" {
		return
	}
	m.version(of).observe(c, fmt.Sprintf("record %s has the hash %s and is %s", r.PublicID, r.Hash, r.Status),
		func(v version) bool {
			return v.registered && (r.PublicID == "" || r.PublicID == v.publicID) && (r.Hash == "" ||
				r.Hash == v.hash) && v.revoked == (r.Status == "revoked")
		})
	m.document(of).observe(c,
		fmt.Sprintf("version %d is %s, superseded by %s", of.version, r.Status, text(r.SupersededBy)), func(d document) bool {
			return d.status(of.version) == r.Status && sameVersion(r.SupersededBy, d.supersededBy(of.version))
		})
}

// refused adds what a refusal shows about a version.
func (m *models) refused(c *history.Call, of versionKey) {
	l := m.version(of)
	unregistered := func() { l.observe(c, "it is not registered", func(v version) bool { return !v.registered }) }
	switch c.Operation {
	case history.Register:
		switch c.Code {
		case "VERSION_CONFLICT":
			l.observe(c, fmt.Sprintf("the declaration %+v is a conflict", declared(c)), func(v version) bool {
				return v.registered && v.declaration != declared(c) && (c.Answer.Existing == "" || c.Answer.Existing == v.publicID)
			})
		case "REGISTRATION_QUOTA_EXHAUSTED", "RESERVATION_MISMATCH":
			unregistered()
		}
	case history.Lookup:
		if c.Code == "RECORD_NOT_FOUND" {
			unregistered()
		}
	case history.Compare:
		if c.Code == "RECORD_NOT_FOUND" {
			l.observe(c, "no public id "+c.Request.PublicID, func(v version) bool { return !v.is(c.Request.PublicID) })
		}
	case history.Record, history.EvidenceRead, history.Revoke:
		if c.Code == "RECORD_NOT_FOUND" && m.granted(c, of.company) {
			l.observe(c, "no record of "+c.Request.PublicID, func(v version) bool {
				return !v.registered || !v.is(c.Request.PublicID)
			})
		}
	}
}

// compared adds the result of a public comparison.
func (m *models) compared(c *history.Call, of versionKey) {
	hash, result := c.Request.Hash, c.Answer.Result
	id := c.Request.PublicID
	m.version(of).observe(c, fmt.Sprintf("%s %s compares as %s", id, hash, result), func(v version) bool {
		if !v.is(id) {
			return false
		}
		same := v.registered && v.hash == hash
		switch result {
		case "MATCH_CURRENT", "MATCH_HISTORICAL":
			return same && !v.revoked
		case "RECORD_REVOKED":
			return same && v.revoked
		case "HASH_MISMATCH":
			return v.registered && !same
		case "FILE_NOT_COMPARED":
			return v.registered
		case "REGISTRATION_PENDING":
			return !v.registered
		}
		return false // an invalid signature
	})
	if status := map[string]string{
		"MATCH_CURRENT": "current", "MATCH_HISTORICAL": "superseded", "RECORD_REVOKED": "revoked",
	}[result]; status != "" {
		m.document(of).observe(c, fmt.Sprintf("version %d compares as %s", of.version, status), func(d document) bool {
			return d.status(of.version) == status
		})
	}
}
