package web

import (
	"time"

	"integrityledger/domain"
)

// Members is the page of the organization's members.
type Members struct {
	Console       Console
	All           []Member
	Roles         []domain.Role // that the person may give
	Prove         string        // where an owner proves first who it is; empty: needless
	Invites       bool          // invitations can be accepted
	Unverified    bool          // no invitation is mailed, which would show that its reader reads the address
	First, Next   string        // addresses of other pages; empty without one
	Typed         string        // an address that was refused
	Chosen        domain.Role   // with it
	Refused       string        // why: the name of the words
	Until         time.Time     // the end of the wait, if that is the reason
	Invited, Link string        // the address that was invited just now, and its link where no mail is sent
}

// Member is one of them.
type Member struct {
	ID, Email    string // the address is empty once erased
	Role         domain.Role
	Status       domain.MemberStatus
	Since        time.Time
	InvitedUntil *time.Time // nil: has joined
	Expired      bool       // the invitation
	Own          bool       // the person's own
}

// Members renders it.
func (s ConsolePages) Members(m Members) ([]byte, error) {
	return render(s.console, "members.html", struct {
		consoleFrame
		Members
	}{s.consoleFrame(m.Console), m})
}

// MemberPage is the page of one of the organization's members.
type MemberPage struct {
	Console Console
	Member  Member
	Roles   []domain.Role // that the person may give; none where the person may not change this member
	Chosen  domain.Role
	Prove   string // where an owner proves first who it is; empty: needless
	Invites bool
	// Unverified is that of Members.
	Unverified bool
	LastOwner  bool // nothing of the member can change
	ByOwners   bool // only owners change the member, and the person is not one
	Refused    string
	Until      time.Time
}

// MemberPage renders it.
func (s ConsolePages) MemberPage(m MemberPage) ([]byte, error) {
	return render(s.console, "member.html", struct {
		consoleFrame
		MemberPage
	}{s.consoleFrame(m.Console), m})
}

// MemberStep is what a change of a member's status stops, before it is done.
type MemberStep struct {
	Console  Console
	Step     string // of the address
	Member   Member
	Keys     []string // names, or ids of those that have none
	More     bool     // keys
	Sessions int
}

// MemberStep renders it.
func (s ConsolePages) MemberStep(m MemberStep) ([]byte, error) {
	return render(s.console, "member-step.html", struct {
		consoleFrame
		MemberStep
	}{s.consoleFrame(m.Console), m})
}
