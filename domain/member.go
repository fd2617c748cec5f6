package domain

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/mail"
	"slices"
	"strings"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
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

	InvitationSHA256 *[32]byte  // of the last invitation's secret; nil if never invited
	InvitedUntil     *time.Time // expiry of that invitation
}

// Role is a member's role in an organization.
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

// MemberStatus is the status of a membership.
type MemberStatus string

// Only an active member may act, and only an active member's keys work.
const (
	MemberInvited  MemberStatus = "invited" // not joined yet
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
	s.newMember(Member{
		ID: b.MemberID, Organization: e.Organization, EmailID: b.Email.ID, Email: e.text(b.Email).Body, Role: b.Role,
		Status: MemberActive, CreatedAt: e.OccurredAt,
	})
	return nil
}

// newMember adds a membership unless it exists, and returns its only object.
func (s *State) newMember(m Member) *Member {
	if s.members[m.ID] == nil {
		s.memberships.put(m.Organization, s.memberships[m.Organization]+1)
	}
	return addOnce(&s.members, m.ID, m)
}

// MemberInvitedBody invites an address to join, or invites an invited member again, with another secret. The secret
// itself is never stored.
type MemberInvitedBody struct {
	MemberID     MemberID  `json:"memberId"`
	Email        TextRef   `json:"email"`
	Role         Role      `json:"role"`
	SecretSHA256 []byte    `json:"secretSha256"`
	ExpiresAt    time.Time `json:"expiresAt"`
}

func (b *MemberInvitedBody) apply(s *State, e *Event) error {
	m := s.newMember(Member{ID: b.MemberID, Organization: e.Organization, CreatedAt: e.OccurredAt})
	m.EmailID, m.Email, m.Role, m.Status = b.Email.ID, e.text(b.Email).Body, b.Role, MemberInvited
	m.InvitationSHA256, m.InvitedUntil = new([32]byte), &b.ExpiresAt
	copy(m.InvitationSHA256[:], b.SecretSHA256)
	return nil
}

// MemberJoinedBody makes an invited member active.
type MemberJoinedBody struct {
	MemberID MemberID `json:"memberId"`
}

func (b *MemberJoinedBody) apply(s *State, e *Event) error {
	m := s.members[b.MemberID]
	if m == nil || m.Status != MemberInvited || m.InvitedUntil == nil || !e.OccurredAt.Before(*m.InvitedUntil) {
		return say.Errorf("event %s accepts an invitation that cannot be accepted", e.ID)
	}
	m.Status = MemberActive
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

// SignInLinkMadeBody records that the operator has created a link that signs in as the member. It contains nothing of
// the link.
type SignInLinkMadeBody struct {
	MemberID MemberID `json:"memberId"`
}

func (*SignInLinkMadeBody) apply(*State, *Event) error { return nil }

// EmailSHA256 returns the hash by which an address is looked up: the SHA-256 of the address in lower case, like
// SameEmail.
func EmailSHA256(address string) [32]byte { return sha256.Sum256([]byte(lowerEmail(address))) }

// SameEmail reports whether two texts are the same address. Only the letters A to Z are compared without case, like in
// the database, which stores hashes.
func SameEmail(a, b string) bool { return lowerEmail(a) == lowerEmail(b) }

func lowerEmail(address string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, address)
}

// AddMember adds a member with a role to an organization.
type AddMember struct {
	Origin
	Email string
	Role  Role

	id   MemberID
	text Text

	Outcome  Member
	Replayed bool
}

func (c *AddMember) Need(n *Needs) { n.addAddress(c.Organization, c.Email) }

// Decide implements Command. An address has at most one membership that has not ended.
func (c *AddMember) Decide(s *State, now time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	if known := s.MemberByEmail(c.Organization, c.Email); known != nil {
		if known.Role != c.Role || known.Status != MemberActive {
			return nil, Refuse(
				InvalidState, "This address is already a member, as %s, %s; change that membership instead.", known.Role,
				known.Status,
			)
		}
		c.Outcome, c.Replayed = *known, known.ID != c.id
		return nil, nil
	}
	c.Replayed, c.Outcome = false, Member{
		ID: c.id.draw(now), Organization: c.Organization, EmailID: c.text.draw(now, c.Email).ID, Email: c.Email,
		Role: c.Role, Status: MemberActive, CreatedAt: now,
	}
	return []Draft{{
		Subject: c.id.String(), Texts: []Text{c.text},
		Body: &MemberAddedBody{MemberID: c.id, Email: c.text.Ref(), Role: c.Role},
	}}, nil
}

// MemberByEmail finds the membership of an address that has not ended, or nil.
func (s *State) MemberByEmail(o OrganizationID, email string) *Member {
	for _, m := range s.members {
		if m.Organization == o && m.Status != MemberEnded && m.Email != "" && SameEmail(m.Email, email) {
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

// ChangeMember sets a member's role and status. Disabling or ending a member stops all its keys at once.
type ChangeMember struct {
	Origin
	Member MemberID
	Email  string        // if Member is zero
	Role   *Role         // nil: unchanged
	Status *MemberStatus // nil: unchanged

	Outcome  Member
	Replayed bool
}

func (c *ChangeMember) Need(n *Needs) {
	n.addMember(c.Organization, c.Member, c.Email)
	n.Owners = append(n.Owners, c.Organization)
}

// Decide implements Command. Ending a member is permanent, and ending an invited member withdraws the invitation. An
// organization must keep an active owner.
func (c *ChangeMember) Decide(s *State, _ time.Time) ([]Draft, error) {
	known := s.memberNamed(c.Organization, c.Member, c.Email)
	if known == nil {
		return nil, errUnknownMember
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
	if err := s.mayChange(c.Origin, known.Role, after.Role); err != nil {
		return nil, err
	}
	c.Outcome, c.Replayed = after, after == *known
	switch {
	case c.Replayed:
		return nil, nil
	case known.Status == MemberInvited && after.Status != MemberInvited && after.Status != MemberEnded:
		return nil, Refuse(
			InvalidState,
			"This member is invited and has not joined; until then only the role can change, or the invitation be withdrawn "+
				"by ending the membership.",
		)
	case after.Status == MemberInvited && known.Status != MemberInvited:
		return nil, InvalidMember("/status", "UNKNOWN", "must be active, disabled or ended")
	case known.isActiveOwner() && !after.isActiveOwner() && !s.hasOwnerBeside(known):
		return nil, Refuse(
			InvalidState, "This is the last active owner of the organization; make another member an owner first.",
		)
	}
	return []Draft{
		{Subject: known.ID.String(), Body: &MemberChangedBody{MemberID: known.ID, Role: after.Role, Status: after.Status}},
	}, nil
}

func (m *Member) isActiveOwner() bool { return m.Role == Owner && m.Status == MemberActive }

// hasOwnerBeside reports whether another member is an active owner of the same organization.
func (s *State) hasOwnerBeside(m *Member) bool {
	for id, other := range s.members {
		if id != m.ID && other.Organization == m.Organization && other.isActiveOwner() {
			return true
		}
	}
	return false
}

// An invitation expires after InvitationLifetime and works once. To limit the mails that an organization can cause, an
// address can be invited again only after InvitationPause, and at most DailyInvitations addresses can be invited in a
// day, including repeated invitations.
const (
	InvitationLifetime = 7 * 24 * time.Hour
	InvitationPause    = 10 * time.Minute
	DailyInvitations   = 100
)

// MaxMembers is the maximum number of memberships of an organization, including ended ones.
const MaxMembers = 10_000

// EmailRule describes the texts that ValidEmail accepts.
const EmailRule = "must be an address such as name@example.org"

// ValidEmail reports whether a text is an email address without a display name. The host must be a name and not an IP
// address, so that strangers cannot cause mails to neighbouring machines.
func ValidEmail(text string) bool {
	if len(text) > 254 || strings.ContainsFunc(text, misleading) || strings.Contains(text, "[") {
		return false
	}
	address, err := mail.ParseAddress(text)
	return err == nil && address.Address == text
}

// ParseInvitationCode splits the code of an invitation into the organization that invites and the SHA-256 of its
// secret. A wrong form or checksum is refused here, before any query.
func ParseInvitationCode(text string) (id OrganizationID, secretSHA256 [32]byte, ok bool) {
	return parseSecretText[OrganizationID](text, invitationPrefix)
}

// InviteMember invites a person to join an organization in a role.
type InviteMember struct {
	Origin
	Email string
	Role  Role

	id           MemberID
	text         Text
	secretSHA256 [32]byte
	sealed       []byte

	Outcome Member
	Renewed bool // the address was already invited
}

// NewInviteMember generates the secret of the invitation and returns its code, which is shown once or mailed. If seal
// is not nil, it seals the code for the mail.
func NewInviteMember(c InviteMember, seal *SecretKey) (command *InviteMember, code string) {
	code, c.secretSHA256 = newSecretText(invitationPrefix, c.Organization)
	if seal != nil {
		c.sealed = seal.Seal(c.Organization, code)
	}
	return &c, code
}

func (c *InviteMember) Need(n *Needs) {
	n.addAddress(c.Organization, c.Email)
	n.Invited = append(n.Invited, c.Organization)
}

// Decide implements Command. An address that is already invited gets a new secret, and the former one stops working.
func (c *InviteMember) Decide(s *State, now time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	if !ValidEmail(c.Email) {
		return nil, InvalidMember("/email", strictjson.CodeFormat, EmailRule)
	}
	if !slices.Contains(Roles(), c.Role) {
		return nil, InvalidMember("/role", "UNKNOWN", "must be %s", OneOf(Roles()))
	}
	until := now.Add(InvitationLifetime)
	invited := Member{Organization: c.Organization, CreatedAt: now}
	known := s.MemberByEmail(c.Organization, c.Email)
	switch {
	case known == nil:
		invited.ID = c.id.draw(now)
	case known.InvitationSHA256 != nil && *known.InvitationSHA256 == c.secretSHA256:
		c.Outcome = *known
		return nil, nil // an earlier attempt of this command: the secret is new
	case known.Status != MemberInvited:
		return nil, Refuse(
			InvalidState, "This address is already a member, as %s, %s; change that membership instead.", known.Role,
			known.Status,
		)
	default:
		invited = *known
	}
	if err := s.mayInvite(c.Organization, c.Email, known, now); err != nil {
		return nil, err
	}
	if err := s.mayChange(c.Origin, invited.Role, c.Role); err != nil {
		return nil, err
	}
	invited.EmailID, invited.Email, invited.Role, invited.Status = c.text.draw(now, c.Email).ID, c.Email, c.Role,
		MemberInvited
	invited.InvitationSHA256, invited.InvitedUntil = &c.secretSHA256, &until
	c.Outcome, c.Renewed = invited, known != nil
	return []Draft{{
		Subject: invited.ID.String(), Texts: []Text{c.text}, Sealed: c.sealed,
		Body: &MemberInvitedBody{
			MemberID: invited.ID, Email: c.text.Ref(), Role: c.Role, SecretSHA256: c.secretSHA256[:], ExpiresAt: until,
		},
	}}, nil
}

// mayInvite refuses an invitation that follows the last one to its address too soon, or that exceeds the daily or the
// total limit. known is the member if the address is invited again. Accepted and withdrawn invitations count, too.
func (s *State) mayInvite(o OrganizationID, email string, known *Member, now time.Time) error {
	members, today, next, pause := s.memberships[o], 0, time.Duration(0), time.Duration(0)
	if known != nil {
		members--
	}
	for _, m := range s.members {
		if m.Organization != o {
			continue
		}
		if m.InvitedUntil != nil && SameEmail(m.Email, email) {
			pause = max(pause, m.InvitedUntil.Add(InvitationPause-InvitationLifetime).Sub(now))
		}
		if m == known || m.InvitedUntil == nil {
			continue
		}
		if free := m.InvitedUntil.Add(24*time.Hour - InvitationLifetime).Sub(now); free > 0 {
			if today++; next == 0 || free < next {
				next = free
			}
		}
	}
	switch {
	case pause > 0:
		return Refuse(
			RateLimited, "This address was invited less than %d minutes ago; wait before it is invited again.",
			int(InvitationPause.Minutes()),
		).After(pause)
	case members >= MaxMembers:
		return Refuse(InvalidState, "The organization has had %d members and may have no more.", MaxMembers)
	case today >= DailyInvitations:
		return Refuse(
			RateLimited, "An organization invites at most %d addresses a day; wait until the first of them is a day old.",
			DailyInvitations,
		).After(next)
	}
	return nil
}

// AcceptInvitation makes the invited member active. The person with the code cannot act as a member yet, so the service
// itself is the actor.
type AcceptInvitation struct {
	Origin
	SecretSHA256 [32]byte

	Outcome Member
}

func (c *AcceptInvitation) Need(n *Needs) {
	n.Invitations = append(n.Invitations, InvitationNeed{c.Organization, c.SecretSHA256})
}

// Decide implements Command. An invitation works once.
func (c *AcceptInvitation) Decide(s *State, now time.Time) ([]Draft, error) {
	var invited *Member
	for _, m := range s.members {
		if m.Organization == c.Organization && m.InvitationSHA256 != nil &&
			subtle.ConstantTimeCompare(m.InvitationSHA256[:], c.SecretSHA256[:]) == 1 {
			invited = m
		}
	}
	if err := invited.mayJoin(now); err != nil {
		return nil, err
	}
	c.Outcome = *invited
	c.Outcome.Status = MemberActive
	return []Draft{{Subject: invited.ID.String(), Body: &MemberJoinedBody{MemberID: invited.ID}}}, nil
}

// MakeSignInLink lets the operator create a link that signs in to the console as a member, in any browser. The event
// comes first: the link is stored from the Outcome, so that there is no link without its event.
type MakeSignInLink struct {
	Origin
	Member MemberID
	Email  string // if Member is zero

	link OperatorLink

	Outcome OperatorLink
}

// OperatorLink is a link created by MakeSignInLink. The zero value means no link.
type OperatorLink struct {
	ID           SignInID
	SecretSHA256 [32]byte
	Organization OrganizationID
	Member       MemberID
}

// NewMakeSignInLink generates the link and returns its code, which is shown once.
func NewMakeSignInLink(c MakeSignInLink, now time.Time) (command *MakeSignInLink, code string) {
	c.link.Organization = c.Organization
	c.link.ID, code, c.link.SecretSHA256 = NewSignInLink(now, c.Organization.Shard())
	return &c, code
}

func (c *MakeSignInLink) Need(n *Needs) { n.addMember(c.Organization, c.Member, c.Email) }

func (c *MakeSignInLink) Decide(s *State, _ time.Time) ([]Draft, error) {
	member := s.memberNamed(c.Organization, c.Member, c.Email)
	if c.Actor != OperatorActor || member == nil || member.Status != MemberActive {
		return nil, errUnknownActiveMember
	}
	c.Outcome = c.link
	c.Outcome.Member = member.ID
	return []Draft{{Subject: member.ID.String(), Body: &SignInLinkMadeBody{MemberID: member.ID}}}, nil
}

// mayJoin refuses a member whose invitation cannot be accepted.
func (m *Member) mayJoin(now time.Time) error {
	switch {
	case m == nil:
		return errUnknownInvitation
	case m.Status == MemberEnded:
		return Refuse(InvalidState, "This invitation was withdrawn; ask for another.")
	case m.Status != MemberInvited:
		return Refuse(InvalidState, "This invitation was accepted already, and it works once; sign in instead.")
	case !now.Before(*m.InvitedUntil):
		return Refuse(
			InvalidState, "This invitation has expired: it lives %d days; ask for another.", int(InvitationLifetime.Hours()/24),
		)
	}
	return nil
}
