package domain

import (
	"io"
	"strings"
	"time"
)

// CreateOrganization is the first command of an organization.
type CreateOrganization struct {
	Origin
	Plan      string
	Internal  bool
	PerMinute *int32

	name  Text
	drawn []Drawn
}

// NewCreateOrganization prepares an organization whose fresh id (NewOrganizationID)
// stands in cause.
func NewCreateOrganization(origin Origin, name, plan string, internal bool, perMinute *int32, now time.Time, random io.Reader) (*CreateOrganization, error) {
	text, err := NewText(now, random, name)
	if err != nil {
		return nil, err
	}
	drawn, err := Draw(now, random, 1)
	if err != nil {
		return nil, err
	}
	return &CreateOrganization{Origin: origin, Plan: plan, Internal: internal, PerMinute: perMinute, name: text, drawn: drawn}, nil
}

// Need implements Command.
func (c *CreateOrganization) Need(*Needs) {}

// Decide implements Command.
func (c *CreateOrganization) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) != nil {
		return nil, nil // an earlier attempt of this very command: the id is fresh
	}
	if err := s.checkPlan(c.Plan, c.PerMinute); err != nil {
		return nil, err
	}
	return []Draft{{
		Drawn: c.drawn[0], Subject: c.Organization.String(), Texts: []Text{c.name},
		Body: &OrganizationCreatedBody{Name: c.name.Ref(), Plan: c.Plan, Internal: c.Internal, PerMinute: c.PerMinute},
	}}, nil
}

// ChangePlan gives an organization another plan. Consumed versions stay consumed.
type ChangePlan struct {
	Origin
	Plan      string // empty: as it is
	Internal  bool
	PerMinute *int32
	// KeepInternal and KeepPerMinute leave what the organization has. The plan internal
	// makes an organization internal, and whoever leaves it is not internal by it.
	KeepInternal, KeepPerMinute bool

	drawn []Drawn
}

// NewChangePlan prepares a change of plan.
func NewChangePlan(origin Origin, plan string, internal bool, perMinute *int32, now time.Time, random io.Reader) (*ChangePlan, error) {
	drawn, err := Draw(now, random, 1+allowanceCount*warningCount)
	if err != nil {
		return nil, err
	}
	return &ChangePlan{Origin: origin, Plan: plan, Internal: internal, PerMinute: perMinute, drawn: drawn}, nil
}

// Need implements Command.
func (c *ChangePlan) Need(n *Needs) {
	n.Totals = true
	n.Requests = append(n.Requests, c.Organization)
	n.Certification.Accounts = append(n.Certification.Accounts, c.Organization)
}

// Decide implements Command. What the month has used of the new plan's allowances
// may at once be worth a warning; those given under the old plan stay given.
func (c *ChangePlan) Decide(s *State, now time.Time) ([]Draft, error) {
	o := s.Organization(c.Organization)
	if o == nil {
		return nil, organizationNotFound()
	}
	after := PlanChangedBody{Plan: c.Plan, Internal: c.Internal, PerMinute: c.PerMinute}
	if c.Plan == "" {
		after.Plan = o.Plan
	}
	if c.KeepInternal {
		after.Internal = after.Plan == InternalPlan || o.Internal && o.Plan != InternalPlan
	}
	if c.KeepPerMinute {
		after.PerMinute = o.PerMinute
	}
	if err := s.checkPlan(after.Plan, after.PerMinute); err != nil {
		return nil, err
	}
	drafts := []Draft{{Drawn: c.drawn[0], Subject: c.Organization.String(), Body: &after}}
	period := PeriodOf(now)
	used := s.Used(UsageKey{c.Organization, period, CompanyID{}})
	drawn := c.drawn[1:]
	drafts = append(drafts, o.warn(VersionsAllowance, period, used, s.plans.Versions(after.Plan, after.Internal), drawn)...)
	registered := s.certification.used[registrationKey{c.Organization, period}]
	drafts = append(drafts, o.warn(RegistrationsAllowance, period, registered, s.plans.Registrations(after.Plan, after.Internal), drawn[warningCount:])...)
	return append(drafts, s.warnOfRequests(o, period, s.plans.Requests(after.Plan, after.Internal), now, drawn[2*warningCount:])...), nil
}

func (s *State) checkPlan(plan string, perMinute *int32) error {
	var fields []FieldError
	if _, ok := s.plans[plan]; !ok {
		fields = append(fields, FieldError{Pointer: "/plan", Code: "UNKNOWN", Message: "must be one of " + strings.Join(s.plans.Names(), ", ")})
	}
	if perMinute != nil && *perMinute < 1 {
		fields = append(fields, FieldError{Pointer: "/perMinute", Code: "RANGE", Message: "must be at least 1"})
	}
	if fields != nil {
		return Invalid(fields)
	}
	return nil
}

// AddMember gives a person a role in an organization.
type AddMember struct {
	Origin
	Email string
	Role  Role

	id    MemberID
	text  Text
	drawn []Drawn

	Outcome MemberChange
}

// MemberChange answers AddMember and ChangeMember.
type MemberChange struct {
	Member   Member
	Replayed bool
}

// NewAddMember prepares a membership.
func NewAddMember(origin Origin, email string, role Role, now time.Time, random io.Reader) (*AddMember, error) {
	id, err := NewID[MemberID](now, random)
	if err != nil {
		return nil, err
	}
	text, err := NewText(now, random, email)
	if err != nil {
		return nil, err
	}
	drawn, err := Draw(now, random, 1)
	if err != nil {
		return nil, err
	}
	return &AddMember{Origin: origin, Email: email, Role: role, id: id, text: text, drawn: drawn}, nil
}

// Need implements Command.
func (c *AddMember) Need(n *Needs) { n.Members = append(n.Members, c.Organization) }

// Decide implements Command. An address has one membership that has not ended.
func (c *AddMember) Decide(s *State, now time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, organizationNotFound()
	}
	if known := s.MemberByEmail(c.Organization, c.Email); known != nil {
		if known.Role != c.Role || known.Status != MemberActive {
			return nil, Refuse(InvalidState, "This address is already a member, as %s, %s; change that membership instead.", known.Role, known.Status)
		}
		c.Outcome = MemberChange{Member: *known, Replayed: known.ID != c.id}
		return nil, nil
	}
	c.Outcome = MemberChange{Member: Member{
		ID: c.id, Organization: c.Organization, EmailID: c.text.ID, Email: c.Email, Role: c.Role, Status: MemberActive, CreatedAt: now,
	}}
	return []Draft{{
		Drawn: c.drawn[0], Subject: c.id.String(), Texts: []Text{c.text},
		Body: &MemberAddedBody{MemberID: c.id, Email: c.text.Ref(), Role: c.Role},
	}}, nil
}

// MemberByEmail finds the membership of an address that has not ended, or nil.
// Addresses are compared without case.
func (s *State) MemberByEmail(o OrganizationID, email string) *Member {
	for _, m := range s.members {
		if m.Organization == o && m.Status != MemberEnded && m.Email != "" && strings.EqualFold(m.Email, email) {
			return m
		}
	}
	return nil
}

// memberNamed finds a member by id, or by the address of a membership that has not
// ended; nil for none. An id finds also a member whose address was erased.
func (s *State) memberNamed(o OrganizationID, id MemberID, email string) *Member {
	if id.IsZero() {
		return s.MemberByEmail(o, email)
	}
	if m := s.members[id]; m != nil && m.Organization == o {
		return m
	}
	return nil
}

// ChangeMember sets a member's role and status; disabling or ending cuts every
// key of the member at once.
type ChangeMember struct {
	Origin
	Member MemberID
	Email  string        // where Member is zero
	Role   *Role         // nil: as it is
	Status *MemberStatus // nil: as it is

	drawn []Drawn

	Outcome MemberChange
}

// NewChangeMember prepares a change of a membership.
func NewChangeMember(origin Origin, email string, role *Role, status *MemberStatus, now time.Time, random io.Reader) (*ChangeMember, error) {
	drawn, err := Draw(now, random, 1)
	if err != nil {
		return nil, err
	}
	return &ChangeMember{Origin: origin, Email: email, Role: role, Status: status, drawn: drawn}, nil
}

// Need implements Command.
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
	c.Outcome = MemberChange{Member: after, Replayed: after == *known}
	if c.Outcome.Replayed {
		return nil, nil
	}
	return []Draft{{
		Drawn: c.drawn[0], Subject: known.ID.String(),
		Body: &MemberChangedBody{MemberID: known.ID, Role: after.Role, Status: after.Status},
	}}, nil
}

// CreateKey adds an API key of a member.
type CreateKey struct {
	Origin
	Member         MemberID
	Email          string // where Member is zero
	Scopes         []Scope
	Lifetime       time.Duration
	Source         *string
	Network        *string
	MaxVersionStep *int32

	id           KeyID
	secretSHA256 [32]byte
	drawn        []Drawn

	Outcome APIKey
}

// NewCreateKey prepares a key and returns the text that is shown once.
func NewCreateKey(c CreateKey, now time.Time, random io.Reader) (command *CreateKey, text string, err error) {
	if c.id, err = NewKeyID(now, random, c.Organization.Shard()); err != nil {
		return nil, "", err
	}
	if c.drawn, err = Draw(now, random, 1); err != nil {
		return nil, "", err
	}
	if text, c.secretSHA256, err = NewAPIKey(random, c.id); err != nil {
		return nil, "", err
	}
	return &c, text, nil
}

// Need implements Command.
func (c *CreateKey) Need(n *Needs) {
	n.Members = append(n.Members, c.Organization)
	n.Keys = append(n.Keys, c.id)
}

// Decide implements Command. A scope that the member's role may not use is refused.
func (c *CreateKey) Decide(s *State, now time.Time) ([]Draft, error) {
	if known := s.keys[c.id]; known != nil {
		c.Outcome = *known
		return nil, nil // an earlier attempt of this very command: the id is fresh
	}
	member := s.memberNamed(c.Organization, c.Member, c.Email)
	if member == nil || member.Status != MemberActive {
		return nil, Refuse(NotFound, "This organization has no such active member.")
	}
	if err := checkScopes(member.Role, c.Scopes); err != nil {
		return nil, err
	}
	if err := checkLifetime(c.Lifetime); err != nil {
		return nil, err
	}
	if err := checkKeyLimits(c.Source, c.Network, c.MaxVersionStep); err != nil {
		return nil, err
	}
	c.Outcome = APIKey{
		ID: c.id, Organization: c.Organization, Member: member.ID, Scopes: c.Scopes, Source: c.Source, Network: c.Network,
		MaxVersionStep: c.MaxVersionStep, CreatedAt: now, ExpiresAt: now.Add(c.Lifetime),
	}
	return []Draft{{
		Drawn: c.drawn[0], Subject: c.id.String(),
		Body: &KeyCreatedBody{
			KeyID: c.id, MemberID: member.ID, SecretSHA256: c.secretSHA256[:], Scopes: c.Scopes, ExpiresAt: c.Outcome.ExpiresAt,
			Source: c.Source, Network: c.Network, MaxVersionStep: c.MaxVersionStep,
		},
	}}, nil
}

// RevokeKey ends an API key for good.
type RevokeKey struct {
	Origin
	Key KeyID

	drawn []Drawn

	Outcome APIKey
}

// NewRevokeKey prepares the end of a key.
func NewRevokeKey(origin Origin, key KeyID, now time.Time, random io.Reader) (*RevokeKey, error) {
	drawn, err := Draw(now, random, 1)
	if err != nil {
		return nil, err
	}
	return &RevokeKey{Origin: origin, Key: key, drawn: drawn}, nil
}

// Need implements Command.
func (c *RevokeKey) Need(n *Needs) { n.Keys = append(n.Keys, c.Key) }

// Decide implements Command. A key that was revoked before stays as it is.
func (c *RevokeKey) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.keys[c.Key]
	if known == nil || known.Organization != c.Organization {
		return nil, Refuse(NotFound, "This organization has no API key with that id.")
	}
	c.Outcome = *known
	if known.RevokedAt != nil {
		return nil, nil
	}
	c.Outcome.RevokedAt = &now
	return []Draft{{Drawn: c.drawn[0], Subject: c.Key.String(), Body: &KeyRevokedBody{KeyID: c.Key}}}, nil
}

func organizationNotFound() *Error {
	return Refuse(NotFound, "There is no organization with that id.")
}
