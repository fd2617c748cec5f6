package domain

import (
	"time"
)

// Command is a request to change the ledger. Decide is a pure function of state and time: the ledger may call it again,
// on a new state, if a group is retried. Results beyond the events are in the command's Outcome, which Decide sets each
// time and which may be read once Execute has returned nil for the command.
type Command interface {
	// CommandOrigin returns the organization and the actor.
	CommandOrigin() Origin
	// Need adds all data that Decide will read.
	Need(*Needs)
	// Decide returns the resulting events, or an *Error that refuses the command.
	Decide(s *State, now time.Time) ([]Draft, error)
}

// Dated is a command with a time that was read before it was queued, and that it signs. It is refused if that time
// cannot have been correct.
type Dated interface {
	Command
	DatedAt() time.Time
}

// DatedAt returns the time of a Dated command, even under an Idempotency-Key. ok is false for any other command.
func DatedAt(c Command) (at time.Time, ok bool) {
	dated, ok := plain(c).(Dated)
	if ok {
		at = dated.DatedAt()
	}
	return at, ok
}

// plain returns a command without its Idempotency-Key.
func plain(c Command) Command {
	if idempotent, under := c.(*Idempotent); under {
		return idempotent.Command
	}
	return c
}

// CommandOrigin implements the first method of Command for everything that embeds an Origin.
func (c Origin) CommandOrigin() Origin { return c }

// Needs collects the data that a group of commands must load. The organization itself is always loaded, and for
// declarations also its usage of this and the adjacent months.
type Needs struct {
	MemberIDs    []MemberNeed
	Addresses    []AddressNeed
	Invited      []OrganizationID // the number of their memberships, and their last invited members
	Owners       []OrganizationID // active owners: enough to know whether one is left after the group's changes
	Invitations  []InvitationNeed
	Keys         []KeyID
	KeyGrants    []KeyGrantsNeed
	Grants       []GrantNeed
	KeyNames     []KeyID          // the names of these keys
	ActiveKeys   []OrganizationID // the number of their active keys
	CompanyIDs   []CompanyID
	Companies    []CompanyNeed
	Declarations []DeclarationNeed
	Records      []RecordNeed
	Aliases      []PublicID       // former public ids
	Pending      []OrganizationID // their unregistered reservations that may still be active
	Totals       bool             // the organizations' usage, if no declaration needs it
	Administered []OrganizationID // their administrative events of the day
	Metered      []OrganizationID // their meters of this and the adjacent months, and the warnings
	Warnings     bool             // the organizations' warnings, if nothing else needs them

	Webhooks        []OrganizationID // their destinations, with their texts
	CompanyWebhooks []CompanyID      // the destinations authorized for these companies
	Links           []LinkID
	Passkeys        []MemberID       // all passkeys of these members, except removed ones
	Publishers      []OrganizationID // their statements about themselves, with their texts
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

// AddressNeed names an address by its EmailSHA256. Its membership that has not ended is loaded, and of the others the
// one invited last.
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

// KeyGrantsNeed names the companies that a key may use, of which at most Most are loaded.
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

// CertificationNeeds is the data that certification commands must load.
type CertificationNeeds struct {
	Accounts     []OrganizationID // with their registrations of this and the adjacent months, and the warnings about them
	Artifacts    []ArtifactID
	Versions     []ArtifactVersionID // with their artifacts
	Former       []ArtifactVersionID // of these versions' artifacts: the certificate of the highest certified version
	Certificates []PublicID          // with their artifacts
	Contents     []ContentNeed
	Claims       []Claim
	Words        []ArtifactVersionID // these versions' titles, and the names of their organizations
}

// ContentNeed requests the number of an organization's versions with the same bytes.
type ContentNeed struct {
	Organization OrganizationID
	SHA256       [32]byte
}

// Origin is the actor of a command and the request that carried it.
type Origin struct {
	Organization OrganizationID
	Actor        Actor
	RequestID    string
	// Link is the link that an OAuth token acts through; zero for an API key.
	Link LinkID
	// Console is set if the actor is a member who has signed in to the console. Only the member's status and role are
	// checked, and the role's scopes all apply.
	Console bool
	// Scope is the scope that the actor needs when the command is decided; empty if every active key may execute the
	// command.
	Scope Scope
	// Minute is the UTC minute of a request that was not counted before it was queued: its group counts it and checks the
	// organization's limit of the minute. 0 means that it is already counted. Only a request with a single command may
	// leave the counting to the group.
	Minute int64
	// Spent is the refusal of a request that arrived after the limit of its minute was reached, otherwise nil. A command
	// that takes something away is still decided.
	Spent *Error
}

// Draft is an event as returned by Decide, without position and time.
type Draft struct {
	Company CompanyID
	Subject string
	Body    Body
	Texts   []Text
	Answer  *StoredAnswer
	Sealed  []byte
}

// Claim is one request's hold on an Idempotency-Key (contract, section 7). Its token distinguishes it from another
// request that took over the key after the lease.
type Claim struct {
	Organization OrganizationID
	Route        string // method and template
	Caller       Actor  // callers who choose the same key do not share an answer
	Key          string
	Token        [16]byte
}

// Scope returns the column route of the claim's row, in which a key is unique within its organization.
func (c Claim) Scope() string { return c.Route + " " + c.Caller.String() }

// StoredAnswer is the answer to a repetition of a claimed request.
type StoredAnswer struct {
	Claim
	Status int
	Body   []byte // data of the envelope, or its error, in JSON
}

// Idempotent executes a command under a claim. The answer is stored in the transaction of the events, so neither exists
// without the other. A request that has lost its claim changes nothing.
type Idempotent struct {
	Command
	Claim Claim
	// Render creates the answer from the outcome. Decide calls it.
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
