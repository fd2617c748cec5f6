package web

import (
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// Members is the page of the organization's members.
type Members struct {
	Console       Console
	All           []Member
	Roles         []domain.Role // that the person may assign
	Prove         string        // the page for an owner's proof of identity; empty if the last one is recent
	Invites       bool          // invitations can be accepted
	Unverified    bool          // invitations are not mailed, so accepting one does not prove access to the address
	First, Next   string        // addresses of other pages; may be empty
	Typed         string        // a refused address
	Chosen        domain.Role   // with it
	Refused       string        // the reason, as the texts name it
	Problem       Problem       // only that a proof is needed
	Until         time.Time     // the end of the wait, if the reason is a limit
	Invited, Link string        // the address just invited, and its link if no mail is sent
}

// Member is a member of the organization.
type Member struct {
	ID, Email    string // the address is empty once erased
	Role         domain.Role
	Status       domain.MemberStatus
	Since        time.Time
	InvitedUntil *time.Time // nil if the member has joined
	Expired      bool       // the invitation has
	Withdrawn    bool       // the membership ended before the invitation was accepted
	Own          bool       // the membership of the signed-in person
}

// Members renders the page of the members.
func (s ConsolePages) Members(m Members) ([]byte, error) {
	return s.renderConsole("members.html", struct {
		consoleFrame
		Members
	}{s.consoleFrame(m.Console), m})
}

// MemberPage is the page of a member.
type MemberPage struct {
	Console Console
	Member  Member
	Roles   []domain.Role // that the person may assign; empty if the person may not change this member
	Chosen  domain.Role
	Prove   string // the page for an owner's proof of identity; empty if the last one is recent
	Invites bool
	// Unverified is as in Members.
	Unverified bool
	LastOwner  bool // the member cannot be changed
	ByOwners   bool // only owners may change the member, and the person is not one
	Refused    string
	Problem    Problem // only that a proof is needed
	Until      time.Time
	Left       LeftBehind // of a member who is not active
}

// LeftBehind is what a member made that stays when the membership ends.
type LeftBehind struct {
	Invitations []Member // still valid
	Webhooks    []wire.Webhook
}

// MemberPage renders the page of a member.
func (s ConsolePages) MemberPage(m MemberPage) ([]byte, error) {
	return s.renderConsole("member.html", struct {
		consoleFrame
		MemberPage
	}{s.consoleFrame(m.Console), m})
}

// MemberStep is the page that explains the effect of a change of a member's status before it is made.
type MemberStep struct {
	Console  Console
	Step     string // as in the address
	Member   Member
	Keys     []string // names, or ids of keys without a name
	More     bool     // keys
	Sessions int
	Left     LeftBehind
}

// MemberStep renders the page before a change of a member's status.
func (s ConsolePages) MemberStep(m MemberStep) ([]byte, error) {
	return s.renderConsole("member-step.html", struct {
		consoleFrame
		MemberStep
	}{s.consoleFrame(m.Console), m})
}
