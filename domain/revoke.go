package domain

import (
	"io"
	"time"
)

// Revoke withdraws one version. The evidence stays; no lower version becomes
// current again. The reason is an erasable text, seen in the audit history only.
type Revoke struct {
	Origin
	Key      KeyID
	PublicID PublicID

	drawn  []Drawn
	reason *Text

	Outcome Revocation
}

// Revocation answers a Revoke.
type Revocation struct {
	Record   Record
	Replayed bool // it was revoked before; the first reason is kept
}

// NewRevoke prepares a revocation; an empty reason means none.
func NewRevoke(origin Origin, key KeyID, publicID PublicID, reason string, now time.Time, random io.Reader) (*Revoke, error) {
	drawn, err := Draw(now, random, 1)
	if err != nil {
		return nil, err
	}
	c := &Revoke{Origin: origin, Key: key, PublicID: publicID, drawn: drawn}
	if reason != "" {
		text, err := NewText(now, random, reason)
		if err != nil {
			return nil, err
		}
		c.reason = &text
	}
	return c, nil
}

// Need implements Command.
func (c *Revoke) Need(n *Needs) {
	n.Records = append(n.Records, RecordNeed{Key: c.Key, PublicID: c.PublicID})
}

// Decide implements Command. A record of another organization or of a company
// without a grant answers as an unknown one, and so does a reservation.
func (c *Revoke) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.public[c.PublicID]
	if known == nil || !known.Registered() || known.Document.Organization != c.Organization || !s.Granted(c.Key, known.Document.Company) {
		return nil, UnknownRecord()
	}
	company := s.companies[known.Document.Company]
	if known.RevokedAt != nil {
		c.Outcome = Revocation{Record: known.Record(company.Reference), Replayed: true}
		return nil, nil
	}
	after := *known
	after.RevokedAt = &now
	c.Outcome = Revocation{Record: after.Record(company.Reference)}

	b := &RecordRevokedBody{DocumentID: known.Document.ID, Version: known.Version}
	draft := Draft{Drawn: c.drawn[0], Company: company.ID, Subject: c.PublicID.String(), Body: b}
	if c.reason != nil {
		ref := c.reason.Ref()
		b.Reason, draft.Texts = &ref, []Text{*c.reason}
	}
	return []Draft{draft}, nil
}

// UnknownRecord answers an unknown record and one that the key may not see alike.
func UnknownRecord() *Error {
	return Refuse(RecordNotFound, "No such record is visible to this key.")
}
