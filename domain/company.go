package domain

import (
	"time"

	"integrityledger/domain/strictjson"
)

// MaxCompanies is the maximum number of companies of an organization (specification, Limits).
const MaxCompanies = 10_000

// TestCompany is the company reference in a webhook test. It has a valid form, so that receivers can read it, but no
// company can be created with it, so that they can distinguish a test from a record.
const TestCompany = "service:webhook-test"

// CreateCompany adds a company. It grants nothing, not even to the creating key.
type CreateCompany struct {
	Origin
	Reference string

	id CompanyID

	Outcome  Company
	Replayed bool // the reference existed
}

func (c *CreateCompany) Need(n *Needs) {
	n.Companies = append(n.Companies, CompanyNeed{c.Organization, c.Reference})
}

func (c *CreateCompany) Decide(s *State, now time.Time) ([]Draft, error) {
	o := s.Organization(c.Organization)
	if o == nil {
		return nil, errUnknownOrganization
	}
	if !ValidReference(c.Reference) {
		return nil, InvalidMember("/reference", strictjson.CodeFormat, ReferenceRule)
	}
	if known := s.CompanyByReference(c.Organization, c.Reference); known != nil {
		c.Outcome, c.Replayed = *known, known.ID != c.id
		return nil, nil
	}
	if c.Reference == TestCompany {
		return nil, InvalidMember(
			"/reference", "RESERVED", "must not be "+TestCompany+", which stands for the test deliveries of webhooks",
		)
	}
	if o.Companies >= MaxCompanies {
		return nil, Refuse(CompanyLimit, "The organization has 10,000 companies and may have no more; use one of them.")
	}
	c.Outcome = Company{ID: c.id.draw(now), Organization: c.Organization, Reference: c.Reference, CreatedAt: now}
	c.Replayed = false
	return []Draft{{Company: c.id, Subject: c.id.String(), Body: &CompanyCreatedBody{Reference: c.Reference}}}, nil
}

// CompanyStatus is the status of a company.
type CompanyStatus string

// A closed company accepts no reservations and registers only reserved versions. Everything else continues to work.
const (
	CompanyActive       CompanyStatus = "active"
	CompanyClosedStatus CompanyStatus = "closed"
)

// CompanyStatuses lists all statuses.
func CompanyStatuses() []CompanyStatus { return []CompanyStatus{CompanyActive, CompanyClosedStatus} }

// SetCompanyStatus closes a company or opens it again.
type SetCompanyStatus struct {
	Origin
	Company CompanyID
	Status  CompanyStatus

	Outcome Company
}

func (c *SetCompanyStatus) Need(n *Needs) { n.CompanyIDs = append(n.CompanyIDs, c.Company) }

// Decide implements Command. A command that changes nothing causes no event.
func (c *SetCompanyStatus) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.companies[c.Company]
	if known == nil || known.Organization != c.Organization {
		return nil, ErrUnknownCompany
	}
	c.Outcome = *known
	if known.Status() == c.Status {
		return nil, nil
	}
	body := &CompanyStatusChangedBody{Status: c.Status}
	c.Outcome.ClosedAt = body.ClosedAt(now)
	return []Draft{{Company: c.Company, Subject: c.Company.String(), Body: body}}, nil
}

// SetAccess grants a company to a key or revokes the grant, effective from the key's next request.
type SetAccess struct {
	Origin
	Company CompanyID
	Key     KeyID
	Enabled bool

	idle bool // revokes a grant that the key does not have

	UpdatedAt time.Time // the outcome
}

func (c *SetAccess) Need(n *Needs) {
	n.CompanyIDs = append(n.CompanyIDs, c.Company)
	n.Keys = append(n.Keys, c.Key)
	n.Grants = append(n.Grants, GrantNeed{c.Key, c.Company})
}

// Decide implements Command. Ids of another organization count as unknown. Every call causes an event, so that
// updatedAt and the history agree.
func (c *SetAccess) Decide(s *State, now time.Time) ([]Draft, error) {
	company, key := s.companies[c.Company], s.keys[c.Key]
	if company == nil || company.Organization != c.Organization {
		return nil, ErrUnknownCompany
	}
	if key == nil || key.Organization != c.Organization {
		return nil, errUnknownKey
	}
	c.UpdatedAt, c.idle = now, !c.Enabled && !s.Granted(c.Key, c.Company)
	return []Draft{
		{Company: c.Company, Subject: c.Key.String(), Body: &AccessChangedBody{KeyID: c.Key, Enabled: c.Enabled}},
	}, nil
}

// Company is an internal partition of an organization.
type Company struct {
	ID           CompanyID      `json:"id"`
	Organization OrganizationID `json:"-"`
	Reference    string         `json:"reference"`
	CreatedAt    time.Time      `json:"createdAt"`
	// HasWebhooks is set if a destination is authorized for the company. Otherwise none of its events is queued.
	HasWebhooks bool       `json:"-"`
	ClosedAt    *time.Time `json:"closedAt"` // nil if active
}

// Status returns whether the company is active or closed.
func (c *Company) Status() CompanyStatus {
	if c.ClosedAt != nil {
		return CompanyClosedStatus
	}
	return CompanyActive
}

// takesVersions refuses new versions in a closed company.
func (c *Company) takesVersions() error {
	if c.ClosedAt != nil {
		return errCompanyClosed
	}
	return nil
}

// CompanyCreatedBody adds a company.
type CompanyCreatedBody struct {
	Reference string `json:"reference"`
}

func (b *CompanyCreatedBody) apply(s *State, e *Event) error {
	s.organizations[e.Organization].Companies++
	s.AddCompany(Company{ID: e.Company, Organization: e.Organization, Reference: b.Reference, CreatedAt: e.OccurredAt})
	return nil
}

// CompanyStatusChangedBody closes a company or opens it again.
type CompanyStatusChangedBody struct {
	Status CompanyStatus `json:"status"`
}

// ClosedAt returns at if the event closes the company, nil if it opens it.
func (b *CompanyStatusChangedBody) ClosedAt(at time.Time) *time.Time {
	if b.Status == CompanyActive {
		return nil
	}
	return &at
}

func (b *CompanyStatusChangedBody) apply(s *State, e *Event) error {
	if c := s.companies[e.Company]; c != nil {
		c.ClosedAt = b.ClosedAt(e.OccurredAt)
	}
	return nil
}

// AccessChangedBody grants the company to a key or revokes the grant.
type AccessChangedBody struct {
	KeyID   KeyID `json:"keyId"`
	Enabled bool  `json:"enabled"`
}

func (b *AccessChangedBody) apply(s *State, e *Event) error {
	s.AddGrant(b.KeyID, e.Company, b.Enabled)
	return nil
}
