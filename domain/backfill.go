package domain

import (
	"time"

	"integrityledger/domain/strictjson"
)

// BackfillAllowances is the rule that lets organizations have a backfill allowance: a program that does not know it
// would charge the month.
const BackfillAllowances Rule = "backfill-allowances"

// MaxBackfill is the largest backfill allowance.
const MaxBackfill = 1_000_000_000

// Backfill is an organization's allowance for the versions that it already has when it starts. While any of it is left,
// every new version is charged to it and not to the month's allowance. It does not end with a month or a plan.
type Backfill struct {
	Sequence int64 // of the event that gave it; 0: none was ever given
	Versions int64
	Used     int64
}

// Left returns the number of versions that are left.
func (b Backfill) Left() int64 { return b.Versions - b.Used }

// Usage returns the allowance as a Usage without a month.
func (b Backfill) Usage() Usage { return Usage{Limit: &b.Versions, Used: b.Used} }

// Charged returns the Sequence if the next version is charged to the allowance, otherwise 0.
func (b Backfill) Charged() int64 {
	if b.Left() <= 0 {
		return 0
	}
	return b.Sequence
}

// AddBackfill loads the newest backfill allowance of an organization.
func (s *Loaded) AddBackfill(id OrganizationID, b Backfill) { s.backfills.put(id, b) }

// Backfill returns an organization's backfill allowance.
func (s *Loaded) Backfill(id OrganizationID) Backfill { return s.backfills[id] }

// ChargeBackfill charges a version to an organization's backfill allowance.
func (s *Loaded) ChargeBackfill(id OrganizationID) {
	b := s.backfills[id]
	b.Used++
	s.backfills.put(id, b)
}

// BackfillChangedBody replaces the backfill allowance. The rest of an earlier one ends.
type BackfillChangedBody struct {
	Versions int64 `json:"versions"`
}

func (b *BackfillChangedBody) apply(s *State, e *Event) error {
	s.AddBackfill(e.Organization, Backfill{Sequence: e.Sequence, Versions: b.Versions})
	return nil
}

// ChangeBackfill sets the number of versions that an organization has left in its backfill allowance.
type ChangeBackfill struct {
	Origin
	Versions int64 // 0 takes the rest away
}

func (c *ChangeBackfill) Need(*Needs) {}

func (c *ChangeBackfill) Decide(s *State, _ time.Time) ([]Draft, error) {
	switch {
	case !s.Follows(BackfillAllowances):
		return nil, Refuse(InvalidState,
			"A backfill allowance is given only once every process knows it: run integrity upgrade finish first.")
	case s.Organization(c.Organization) == nil:
		return nil, errUnknownOrganization
	case c.Versions < 0 || c.Versions > MaxBackfill:
		return nil, InvalidMember("/versions", strictjson.CodeRange, "must be from 0 to 1000000000")
	}
	return []Draft{{Subject: c.Organization.String(), Body: &BackfillChangedBody{Versions: c.Versions}}}, nil
}
