package domain

import (
	"time"
)

// Command is something an organization asks for. Decide is a pure function of
// state and time: the ledger may call it again, on a fresh state, after a group
// had to be repeated. What a command answers beyond its events stands in its
// Outcome, which Decide sets anew each time and which may be read once Execute
// has returned nil for the command.
type Command interface {
	// CommandOrigin tells the organization and on whose behalf.
	CommandOrigin() Origin
	// Need names everything that Decide will look at.
	Need(*Needs)
	// Decide returns what happens, or an *Error that refuses.
	Decide(s *State, now time.Time) ([]Draft, error)
}

// Dated is a command that carries a time which was read before the queue and stands in
// what it signs. It is refused where that time cannot have been right.
type Dated interface {
	Command
	DatedAt() time.Time
}

// DatedAt is the time that a Dated command carries, also under an Idempotency-Key;
// ok is false for any other.
func DatedAt(c Command) (at time.Time, ok bool) {
	if idempotent, under := c.(*Idempotent); under {
		c = idempotent.Command
	}
	dated, ok := c.(Dated)
	if ok {
		at = dated.DatedAt()
	}
	return at, ok
}

// CommandOrigin implements the first method of Command for everything that embeds a Origin.
func (c Origin) CommandOrigin() Origin { return c }

// Needs collects what a group of commands must have loaded. An organization
// itself is always loaded, and with declarations its usage of this and the
// neighbouring months.
type Needs struct {
	Members      []OrganizationID // all members, with their addresses
	Keys         []KeyID
	KeyGrants    []KeyID // every grant of these keys
	CompanyIDs   []CompanyID
	Companies    []CompanyNeed
	Declarations []DeclarationNeed
	Records      []RecordNeed
	Pending      []OrganizationID // their reservations that have not been registered and may still be active
	Totals       bool             // the organizations' usage, where no declaration asks for it
	Requests     []OrganizationID // what the meter of requests counted in this and the neighbouring months, and the warnings of it

	Webhooks        []OrganizationID // their destinations, with their texts
	CompanyWebhooks []CompanyID      // which destinations these companies are authorized for
	Links           []LinkID         // to OAuth identities
	Certification   CertificationNeeds
}

// CompanyNeed names a company by reference.
type CompanyNeed struct {
	Organization OrganizationID
	Reference    string
}

// DeclarationNeed names a version with its document, company, the
// company's usage and the key's grant.
type DeclarationNeed struct {
	Organization      OrganizationID
	Key               KeyID
	CompanyReference  string
	Source            string
	DocumentReference string
	Version           int32
}

// RecordNeed names a version by its public id, with its document, company and the key's grant.
type RecordNeed struct {
	Key      KeyID
	PublicID PublicID
}
