package domain

import (
	"slices"
	"strings"
	"time"
)

// Member is a person's membership of one organization.
type Member struct {
	ID           MemberID
	Organization OrganizationID
	EmailID      TextID
	Email        string // empty once erased
	Role         Role
	Status       MemberStatus
	CreatedAt    time.Time
}

// Role is a member's standing in an organization.
type Role string

// Roles (specification, Authentication 5).
const (
	Owner    Role = "owner"
	Admin    Role = "admin"
	Reviewer Role = "reviewer"
	Analyst  Role = "analyst"
	Viewer   Role = "viewer"
)

// Roles lists all roles, highest first.
func Roles() []Role { return []Role{Owner, Admin, Reviewer, Analyst, Viewer} }

// Allows reports whether the role may use the scope.
func (r Role) Allows(scope Scope) bool { return slices.Contains(RolesFor(scope), r) }

// ManagesLinks reports whether the role may see and end the OAuth links of every member.
func (r Role) ManagesLinks() bool { return r == Owner || r == Admin }

// MemberStatus tells whether a member's keys work.
type MemberStatus string

// Only keys of an active member work.
const (
	MemberActive   MemberStatus = "active"
	MemberDisabled MemberStatus = "disabled"
	MemberEnded    MemberStatus = "ended"
)

// MemberAddedBody adds an active member.
type MemberAddedBody struct {
	MemberID MemberID `json:"memberId"`
	Email    TextRef  `json:"email"`
	Role     Role     `json:"role"`
}

func (b *MemberAddedBody) apply(s *State, e *Event) error {
	s.AddMember(Member{
		ID: b.MemberID, Organization: e.Organization, EmailID: b.Email.ID, Email: e.text(b.Email).Body, Role: b.Role,
		Status: MemberActive, CreatedAt: e.OccurredAt,
	})
	return nil
}

// MemberChangedBody sets a member's role and status.
type MemberChangedBody struct {
	MemberID MemberID     `json:"memberId"`
	Role     Role         `json:"role"`
	Status   MemberStatus `json:"status"`
}

func (b *MemberChangedBody) apply(s *State, _ *Event) error {
	if m := s.members[b.MemberID]; m != nil {
		m.Role, m.Status = b.Role, b.Status
	}
	return nil
}

// AddMember gives a person a role in an organization.
type AddMember struct {
	Origin
	Email string
	Role  Role

	id   MemberID
	text Text

	Outcome  Member
	Replayed bool
}

func (c *AddMember) Need(n *Needs) { n.Members = append(n.Members, c.Organization) }

// Decide implements Command. An address has one membership that has not ended.
func (c *AddMember) Decide(s *State, now time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	if known := s.MemberByEmail(c.Organization, c.Email); known != nil {
		if known.Role != c.Role || known.Status != MemberActive {
			return nil, Refuse(InvalidState, "This address is already a member, as %s, %s; change that membership instead.", known.Role, known.Status)
		}
		c.Outcome, c.Replayed = *known, known.ID != c.id
		return nil, nil
	}
	c.Replayed, c.Outcome = false, Member{
		ID: c.id.draw(now), Organization: c.Organization, EmailID: c.text.draw(now, c.Email).ID, Email: c.Email, Role: c.Role, Status: MemberActive, CreatedAt: now,
	}
	return []Draft{{
		Subject: c.id.String(), Texts: []Text{c.text},
		Body: &MemberAddedBody{MemberID: c.id, Email: c.text.Ref(), Role: c.Role},
	}}, nil
}

// MemberByEmail finds the membership of an address that has not ended, or nil. Addresses are compared without case.
func (s *State) MemberByEmail(o OrganizationID, email string) *Member {
	for _, m := range s.members {
		if m.Organization == o && m.Status != MemberEnded && m.Email != "" && strings.EqualFold(m.Email, email) {
			return m
		}
	}
	return nil
}

// memberNamed finds a member by id, or by the address of a membership that has not
// ended, or nil. An id also finds a member whose address was erased.
func (s *State) memberNamed(o OrganizationID, id MemberID, email string) *Member {
	if id.IsZero() {
		return s.MemberByEmail(o, email)
	}
	if m := s.members[id]; m != nil && m.Organization == o {
		return m
	}
	return nil
}

// ChangeMember sets a member's role and status; disabling or ending cuts every key of the member at once.
type ChangeMember struct {
	Origin
	Member MemberID
	Email  string        // where Member is zero
	Role   *Role         // nil: as it is
	Status *MemberStatus // nil: as it is

	Outcome  Member
	Replayed bool
}

func (c *ChangeMember) Need(n *Needs) { n.Members = append(n.Members, c.Organization) }

// Decide implements Command. An end is for good.
func (c *ChangeMember) Decide(s *State, _ time.Time) ([]Draft, error) {
	known := s.memberNamed(c.Organization, c.Member, c.Email)
	if known == nil {
		return nil, Refuse(NotFound, "This organization has no such member.")
	}
	if known.Status == MemberEnded && (c.Role != nil || c.Status == nil || *c.Status != MemberEnded) {
		return nil, Refuse(InvalidState, "This membership has ended for good; add the address again.")
	}
	after := *known
	if c.Role != nil {
		after.Role = *c.Role
	}
	if c.Status != nil {
		after.Status = *c.Status
	}
	c.Outcome, c.Replayed = after, after == *known
	if c.Replayed {
		return nil, nil
	}
	return []Draft{{Subject: known.ID.String(), Body: &MemberChangedBody{MemberID: known.ID, Role: after.Role, Status: after.Status}}}, nil
}
