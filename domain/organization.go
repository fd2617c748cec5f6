package domain

import (
	"slices"
	"strings"
	"time"

	"integrityledger/domain/strictjson"
)

// Organization is the state of one organization.
type Organization struct {
	ID        OrganizationID
	Sequence  int64
	NameID    TextID
	Plan      string
	Internal  bool
	PerMinute *int32 // set by the operator instead of the plan's limit
	Companies int
	CreatedAt time.Time

	Unfinalized      int                      // versions reserved but not registered, expired or not
	UnfinalizedLimit *int32                   // set by the operator; nil: MaxUnfinalized
	Warned           [allowanceCount]Warnings // by Allowance
}

// OrganizationCreatedBody is the first event of every organization.
type OrganizationCreatedBody struct {
	Name      TextRef `json:"name"`
	Plan      string  `json:"plan"`
	Internal  bool    `json:"internal"`
	PerMinute *int32  `json:"perMinute"`
}

func (b *OrganizationCreatedBody) apply(s *State, e *Event) error {
	o := s.organizations[e.Organization]
	o.NameID, o.Plan, o.Internal, o.PerMinute = b.Name.ID, b.Plan, b.Internal, b.PerMinute
	s.AddName(e.Organization, e.text(b.Name))
	return nil
}

// PlanChangedBody replaces plan, internal and the organization's own limit.
type PlanChangedBody struct {
	Plan      string `json:"plan"`
	Internal  bool   `json:"internal"`
	PerMinute *int32 `json:"perMinute"`
}

func (b *PlanChangedBody) apply(s *State, e *Event) error {
	o := s.organizations[e.Organization]
	o.Plan, o.Internal, o.PerMinute = b.Plan, b.Internal, b.PerMinute
	return nil
}

// LimitsChangedBody replaces the limits that an operator sets for one organization. null means the ledger's default.
type LimitsChangedBody struct {
	UnfinalizedLimit *int32 `json:"unfinalizedLimit"`
}

func (b *LimitsChangedBody) apply(s *State, e *Event) error {
	s.organizations[e.Organization].UnfinalizedLimit = b.UnfinalizedLimit
	return nil
}

// RetentionChangedBody sets the number of days for which the bytes of future registrations are kept; 0 means that they
// are not kept.
type RetentionChangedBody struct {
	Days int32 `json:"days"`
}

func (b *RetentionChangedBody) apply(s *State, e *Event) error {
	s.account(e.Organization).RetentionDays = b.Days
	return nil
}

// CreditsAddedBody is a file credit pack: registrations beyond the month's allowance.
type CreditsAddedBody struct {
	Credits int64 `json:"credits"`
}

func (b *CreditsAddedBody) apply(s *State, e *Event) error {
	s.account(e.Organization).Credits += b.Credits
	return nil
}

// ClockResetBody records that the date of the organization's shard goes back from the date of its head to the date of
// this event. This is the only case in which dates in a history decrease. Every organization with a later dated event
// has its own ClockReset event.
type ClockResetBody struct {
	From time.Time `json:"from"`
}

// apply changes nothing, because only the date of the event matters.
func (*ClockResetBody) apply(*State, *Event) error { return nil }

// MaxOrganizationName is the maximum number of characters in the name of an organization, and OrganizationNameRule
// describes valid names.
const (
	MaxOrganizationName  = 200
	OrganizationNameRule = "must be 1 to 200 characters on one line, neither begin nor end with a space, and have no " +
		"control character and none that changes the direction of writing"
)

// ValidOrganizationName reports whether a text can be the name of an organization.
func ValidOrganizationName(text string) bool {
	return ValidName(text, MaxOrganizationName) && strings.TrimSpace(text) == text
}

// CreateOrganization is the first command of an organization. It also adds the first owner, if given, so that neither
// exists without the other.
type CreateOrganization struct {
	Origin    // with a new organization (NewOrganizationID)
	Name      string
	Plan      string
	Internal  bool
	PerMinute *int32
	Owner     string // address of the first owner; may be empty

	name, email Text
	owner       MemberID

	Outcome Member // the owner
}

func (c *CreateOrganization) Need(*Needs) {}

func (c *CreateOrganization) Decide(s *State, now time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) != nil {
		return nil, nil // an earlier attempt of this command: the id is new
	}
	if !ValidOrganizationName(c.Name) {
		return nil, InvalidMember("/name", strictjson.CodeLength, OrganizationNameRule)
	}
	if err := s.checkPlan(c.Plan, c.PerMinute); err != nil {
		return nil, err
	}
	drafts := []Draft{{
		Subject: c.Organization.String(), Texts: []Text{c.name.draw(now, c.Name)},
		Body: &OrganizationCreatedBody{Name: c.name.Ref(), Plan: c.Plan, Internal: c.Internal, PerMinute: c.PerMinute},
	}}
	if c.Owner == "" {
		return drafts, nil
	}
	if !ValidEmail(c.Owner) {
		return nil, InvalidMember("/email", strictjson.CodeFormat, EmailRule)
	}
	c.Outcome = Member{
		ID: c.owner.draw(now), Organization: c.Organization, EmailID: c.email.draw(now, c.Owner).ID, Email: c.Owner,
		Role: Owner, Status: MemberActive, CreatedAt: now,
	}
	return append(drafts, Draft{
		Subject: c.owner.String(), Texts: []Text{c.email},
		Body: &MemberAddedBody{MemberID: c.owner, Email: c.email.Ref(), Role: Owner},
	}), nil
}

// ChangePlan gives an organization another plan. Consumed versions stay consumed.
type ChangePlan struct {
	Origin
	Plan      string // empty: unchanged
	Internal  bool
	PerMinute *int32
	// KeepInternal and KeepPerMinute keep the organization's values. The plan internal makes an organization internal, and
	// leaving that plan ends it.
	KeepInternal, KeepPerMinute bool
}

func (c *ChangePlan) Need(n *Needs) {
	n.Totals = true
	n.Metered = append(n.Metered, c.Organization)
	n.Certification.Accounts = append(n.Certification.Accounts, c.Organization)
}

// Decide implements Command. Before the change, the meters' notes about the former plan's limits become warnings. The
// month's use of the new plan's allowances may cause warnings at once.
func (c *ChangePlan) Decide(s *State, now time.Time) ([]Draft, error) {
	o := s.Organization(c.Organization)
	if o == nil {
		return nil, errUnknownOrganization
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
	plan, period := s.plans.Of(after.Plan, after.Internal), PeriodOf(now)
	var noted, metered []Draft
	for _, a := range MeteredAllowances() {
		given := o.Warned[a]
		noted = append(noted, s.warnOfPlan(o, a, &given, now)...)
		metered = append(metered, s.warnOfMeter(o, a, &given, period, plan.limitOf(a), now)...)
	}
	return slices.Concat(
		noted,
		[]Draft{{Subject: c.Organization.String(), Body: &after}},
		s.warn(o, VersionsAllowance, period, s.Used(UsageKey{c.Organization, period, CompanyID{}}), plan.VersionsPerMonth),
		s.warn(
			o, RegistrationsAllowance, period, s.registrations[monthKey{c.Organization, period}], plan.RegistrationsPerMonth,
		),
		metered,
	), nil
}

func (s *State) checkPlan(plan string, perMinute *int32) error {
	var fields []FieldError
	if _, ok := s.plans[plan]; !ok {
		fields = append(
			fields,
			strictjson.NewProblem("/plan", "UNKNOWN", "must be one of %s", strings.Join(s.plans.Names(), ", ")),
		)
	}
	if perMinute != nil && *perMinute < 1 {
		fields = append(fields, FieldError{Pointer: "/perMinute", Code: "RANGE", Message: "must be at least 1"})
	}
	if fields != nil {
		return Invalid(fields)
	}
	return nil
}

// ChangeLimits lets the operator set individual limits of an organization.
type ChangeLimits struct {
	Origin
	Unfinalized *int32 // nil: MaxUnfinalized again
}

func (c *ChangeLimits) Need(n *Needs) { n.Warnings = true }

func (c *ChangeLimits) Decide(s *State, now time.Time) ([]Draft, error) {
	o := s.Organization(c.Organization)
	if o == nil {
		return nil, errUnknownOrganization
	}
	if c.Unfinalized != nil && *c.Unfinalized < 1 {
		return nil, InvalidMember("/unfinalized", "RANGE", "must be at least 1")
	}
	after := *o
	after.UnfinalizedLimit = c.Unfinalized
	return append([]Draft{{Subject: c.Organization.String(), Body: &LimitsChangedBody{UnfinalizedLimit: c.Unfinalized}}},
		s.warn(o, UnfinalizedAllowance, PeriodOf(now), int64(o.Unfinalized), new(int64(after.UnfinalizedMost())))...), nil
}

// MaxRetentionDays is the longest retention of bytes.
const MaxRetentionDays = 3650

// ChangeRetention sets the retention of the bytes of future registrations. Content that is already kept is still erased
// at its deadline.
type ChangeRetention struct {
	Origin
	Days int32
}

func (c *ChangeRetention) Need(*Needs) {}

func (c *ChangeRetention) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	if c.Days < 0 || c.Days > MaxRetentionDays {
		return nil, InvalidMember("/retention", "RANGE", "must be none, or days:N with N from 1 to 3650")
	}
	return []Draft{{Subject: c.Organization.String(), Body: &RetentionChangedBody{Days: c.Days}}}, nil
}

// AddCredits adds a file credit pack: registrations of artifacts beyond the
// month's allowance, until they are used. They do not count for new versions of documents.
type AddCredits struct {
	Origin
	Credits int64

	Balance int64 // the outcome
}

func (c *AddCredits) Need(n *Needs) {
	n.Certification.Accounts = append(n.Certification.Accounts, c.Organization)
}

// maxCredits bounds the balance to prevent overflow.
const maxCredits = 1_000_000_000

func (c *AddCredits) Decide(s *State, _ time.Time) ([]Draft, error) {
	if s.Organization(c.Organization) == nil {
		return nil, errUnknownOrganization
	}
	balance := s.account(c.Organization).Credits
	if c.Credits < 1 || c.Credits > maxCredits-balance {
		return nil, InvalidMember("/credits", "RANGE", "must be at least 1 and leave a balance of at most 1000000000")
	}
	c.Balance = balance + c.Credits
	return []Draft{{Subject: c.Organization.String(), Body: &CreditsAddedBody{Credits: c.Credits}}}, nil
}

// ResetClock sets the date of an organization's history back from the future.
type ResetClock struct {
	Origin
	From time.Time // of the shard's head
}

func (*ResetClock) Need(*Needs) {}

func (c *ResetClock) Decide(_ *State, now time.Time) ([]Draft, error) {
	if !now.Before(c.From) {
		return nil, Refuse(InvalidState, "The history is not dated in the future.")
	}
	return []Draft{{Subject: c.Organization.String(), Body: &ClockResetBody{From: c.From.UTC()}}}, nil
}
