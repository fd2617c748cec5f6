package domain

import (
	"time"
)

// Command is something that an organization asks for. Decide is a pure function of state and time: the ledger may call
// it again, on a fresh state, after a group had to be repeated. What a command answers beyond its events stands in its
// Outcome, which Decide sets anew each time and which may be read once Execute has returned nil for the command.
type Command interface {
	// CommandOrigin says for which organization and on whose behalf.
	CommandOrigin() Origin
	// Need names everything that Decide will look at.
	Need(*Needs)
	// Decide returns what happens, or an *Error that refuses.
	Decide(s *State, now time.Time) ([]Draft, error)
}

// Dated is a command that carries a time which was read before the queue and stands in
// what it signs. It is refused if that time cannot have been right.
type Dated interface {
	Command
	DatedAt() time.Time
}

// DatedAt is the time that a Dated command carries, also under an Idempotency-Key; ok is false for any other.
func DatedAt(c Command) (at time.Time, ok bool) {
	dated, ok := plain(c).(Dated)
	if ok {
		at = dated.DatedAt()
	}
	return at, ok
}

// plain is a command without the Idempotency-Key that it may be under.
func plain(c Command) Command {
	if idempotent, under := c.(*Idempotent); under {
		return idempotent.Command
	}
	return c
}

// CommandOrigin implements the first method of Command for everything that embeds an Origin.
func (c Origin) CommandOrigin() Origin { return c }

// Needs collects what a group of commands must have loaded. An organization itself is always loaded, and with
// declarations its usage of this and the neighbouring months.
type Needs struct {
	MemberIDs    []MemberNeed
	Addresses    []AddressNeed
	Invited      []OrganizationID // how many memberships they have had, and the members they have invited last
	Owners       []OrganizationID // active owners: enough to tell whether one is left after the group's changes of members
	Invitations  []InvitationNeed
	Keys         []KeyID
	KeyGrants    []KeyGrantsNeed
	Grants       []GrantNeed
	KeyNames     []KeyID          // the names of these keys
	ActiveKeys   []OrganizationID // how many of their keys work
	CompanyIDs   []CompanyID
	Companies    []CompanyNeed
	Declarations []DeclarationNeed
	Records      []RecordNeed
	Pending      []OrganizationID // their reservations that have not been registered and may still be active
	Totals       bool             // the organizations' usage, where no declaration asks for it
	Administered []OrganizationID // their administrative events of the day
	Metered      []OrganizationID // what the meters counted in this and the neighbouring months, and the warnings
	Warnings     bool             // the organizations' warnings, where nothing else asks for them

	Webhooks        []OrganizationID // their destinations, with their texts
	CompanyWebhooks []CompanyID      // which destinations these companies are authorized for
	Links           []LinkID
	Passkeys        []MemberID // all passkeys of these members that were not removed
	Certification   CertificationNeeds
}

// MemberNeed names a member, who is loaded with the address.
type MemberNeed struct {
	Organization OrganizationID
	Member       MemberID
}

// InvitationNeed names the member whom an invitation is for.
type InvitationNeed struct {
	Organization OrganizationID
	SecretSHA256 [32]byte
}

// AddressNeed names an address by its EmailSHA256. Its membership that has not ended is loaded, and the one that was
// invited last of its others.
type AddressNeed struct {
	Organization OrganizationID
	SHA256       [32]byte
}

// addAddress names a member by address.
func (n *Needs) addAddress(o OrganizationID, email string) {
	n.Addresses = append(n.Addresses, AddressNeed{o, EmailSHA256(email)})
}

// addMember names a member by id, or by address if the id is zero.
func (n *Needs) addMember(o OrganizationID, id MemberID, email string) {
	if id.IsZero() {
		n.addAddress(o, email)
	} else {
		n.MemberIDs = append(n.MemberIDs, MemberNeed{o, id})
	}
}

// CompanyNeed names a company by reference.
type CompanyNeed struct {
	Organization OrganizationID
	Reference    string
}

// GrantNeed names a grant.
type GrantNeed struct {
	Key     KeyID
	Company CompanyID
}

// KeyGrantsNeed names the companies that a key may use, of which at most so many are loaded.
type KeyGrantsNeed struct {
	Key  KeyID
	Most int32
}

// DeclarationNeed names a version with its document, company, the company's usage and the key's grant.
type DeclarationNeed struct {
	Organization OrganizationID
	Key          KeyID
	VersionReference
}

// RecordNeed names a version by its public id, with its document, company and the key's grant.
type RecordNeed struct {
	Key      KeyID
	PublicID PublicID
}

// CertificationNeeds is what commands of certification must have loaded.
type CertificationNeeds struct {
	Accounts     []OrganizationID // with their registrations of this and the neighbouring months, and the warnings of them
	Artifacts    []ArtifactID
	Versions     []ArtifactVersionID // with their artifacts
	Former       []ArtifactVersionID // of these versions' artifacts: the certificate of the highest certified version
	Certificates []PublicID          // with their artifacts
	Contents     []ContentNeed
	Claims       []Claim
	Words        []ArtifactVersionID // these versions' titles, and the names of their organizations
}

// ContentNeed asks how many versions of an organization have the same bytes.
type ContentNeed struct {
	Organization OrganizationID
	SHA256       [32]byte
}

// Origin is on whose behalf a command acts.
type Origin struct {
	Organization OrganizationID
	Actor        Actor
	RequestID    string
	// Link is the link that an OAuth token acts through; zero for an API key.
	Link LinkID
	// Console says that the actor is a member who has signed in to the console: judged by being active and by the role
	// alone, which may use all that it allows.
	Console bool
	// Scope is what the actor must be allowed when the command is decided; empty for what every active key may do.
	Scope Scope
	// Minute is the UTC minute of a request that was not counted before the queue: its group counts it, and judges it by
	// the organization's limit of the minute. 0: it is counted. Only a request of one command may leave that to the group.
	Minute int64
	// Spent refuses a request that came after the limit of its minute was reached; nil before. A command that takes
	// something away is decided all the same.
	Spent *Error
}

// Draft is an event as Decide makes it: what happened, without place and time.
type Draft struct {
	Company CompanyID
	Subject string
	Body    Body
	Texts   []Text
	Answer  *StoredAnswer
	Sealed  []byte
}

// Claim is one request's hold on an Idempotency-Key (contract section 7). Its
// token tells it from another request that took the key over after the lease.
type Claim struct {
	Organization OrganizationID
	Route        string // method and template
	Caller       Actor  // callers who choose the same key do not share an answer
	Key          string
	Token        [16]byte
}

// Scope is the column route of the claim's row: what a key is unique in beside its organization.
func (c Claim) Scope() string { return c.Route + " " + c.Caller.String() }

// StoredAnswer is the answer to a repetition of a claimed request.
type StoredAnswer struct {
	Claim
	Status int
	Body   []byte // data of the envelope, or its error, in JSON
}

// Idempotent executes a command under a claim: the answer is stored in the transaction of its events, so there is never
// one without the other. A request that has lost its claim changes nothing.
type Idempotent struct {
	Command
	Claim Claim
	// Render makes the answer of the outcome. Decide calls it.
	Render func() (status int, body []byte, err error)
}

func (c *Idempotent) Need(n *Needs) {
	c.Command.Need(n)
	n.Certification.Claims = append(n.Certification.Claims, c.Claim)
}

func (c *Idempotent) Decide(s *State, now time.Time) ([]Draft, error) {
	if !s.claims[c.Claim] {
		return nil, ErrRequestUnderWay
	}
	drafts, err := c.Command.Decide(s, now)
	if err != nil || len(drafts) == 0 {
		return drafts, err
	}
	answer := StoredAnswer{Claim: c.Claim}
	if answer.Status, answer.Body, err = c.Render(); err != nil {
		return nil, err
	}
	drafts[len(drafts)-1].Answer = &answer
	return drafts, nil
}
