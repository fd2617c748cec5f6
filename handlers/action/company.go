package action

import (
	"context"
	"errors"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewCompany(c domain.Company) wire.Company {
	return wire.Company{
		ID: c.ID.String(), Reference: c.Reference, Status: c.Status(), CreatedAt: evidence.FormatTime(c.CreatedAt),
		ClosedAt: wire.TimeOrNull(c.ClosedAt),
	}
}

// ReadCompany reads the reference of a company to create.
func ReadCompany(o *strictjson.Object) string { return domain.ReadReference(o, "reference") }

// CreateCompany creates a company, or returns the existing one with this reference.
func (s *Companies) CreateCompany(ctx context.Context, c *edge.Call, reference string) (wire.CreatedCompany, error) {
	command := &domain.CreateCompany{Origin: c.Origin(), Reference: reference}
	return done(ctx, s.Service, command, func() wire.CreatedCompany {
		return wire.CreatedCompany{Company: viewCompany(command.Outcome), Replayed: command.Replayed}
	})
}

// ReadCompanyStatus reads the company in the path and its new status.
func ReadCompanyStatus(o *strictjson.Object) domain.SetCompanyStatus {
	return domain.SetCompanyStatus{
		Company: readCompanyID(o),
		Status:  domain.CompanyStatus(o.Match("status", strictjson.Required, isCompanyStatus, companyStatusRule)),
	}
}

// SetCompanyStatus closes a company or reopens it.
func (s *Companies) SetCompanyStatus(
	ctx context.Context, c *edge.Call, command domain.SetCompanyStatus,
) (wire.Company, error) {
	command.Origin = c.Origin()
	return done(ctx, s.Service, &command, func() wire.Company { return viewCompany(command.Outcome) })
}

const companyStatusRule = "must be active or closed"

func isCompanyStatus(text string) bool {
	return slices.Contains(domain.CompanyStatuses(), domain.CompanyStatus(text))
}

func readCompanyID(o *strictjson.Object) domain.CompanyID {
	return edge.ReadID(o, "companyId", domain.ParseID[domain.CompanyID])
}

// CompaniesQuestion asks for the companies of an organization.
type CompaniesQuestion struct {
	edge.Paging[string]
	all    bool // including companies that are not granted to the key
	status domain.CompanyStatus
}

// ReadCompanies reads the paging parameters, and whether to list all companies or only one status.
func ReadCompanies(o *strictjson.Object) CompaniesQuestion {
	return CompaniesQuestion{
		all: o.Bool("all", strictjson.Optional), Paging: edge.ReadPaging(o, parseReference),
		status: domain.CompanyStatus(o.Match("status", strictjson.Optional, isCompanyStatus, companyStatusRule)),
	}
}

// ListCompanies lists the companies granted to the key, or all companies for an administrator.
func (s *Companies) ListCompanies(
	ctx context.Context, c *edge.Call, asked CompaniesQuestion,
) (wire.Companies, error) {
	if asked.all {
		if err := c.Access.Authorize(domain.IntegrityAdmin); err != nil {
			return wire.Companies{}, err
		}
	}
	companies, more, err := s.Store.Companies(ctx, c.Access, asked.all, asked.status, asked.After, asked.Limit)
	next := edge.NextPage(asked.Paging, companies, more, func(c domain.Company) string { return c.Reference })
	return wire.Companies{Companies: wire.Each(companies, viewCompany), Next: next}, err
}

func parseReference(text string) (string, error) {
	if !domain.ValidReference(text) {
		return "", errors.New(domain.ReferenceRule)
	}
	return text, nil
}

// GrantsQuestion asks for the keys or webhooks that a company is granted to.
type GrantsQuestion[ID any] struct {
	edge.Paging[ID]
	company domain.CompanyID
}

func readGrants[ID any](o *strictjson.Object, parse func(string) (ID, error)) GrantsQuestion[ID] {
	return GrantsQuestion[ID]{edge.ReadPaging(o, parse), readCompanyID(o)}
}

// ReadKeysOfCompany reads a page of all keys that have ever been granted the company in the path.
func ReadKeysOfCompany(o *strictjson.Object) GrantsQuestion[domain.KeyID] {
	return readGrants(o, domain.ParseID[domain.KeyID])
}

// ReadWebhooksOfCompany reads a page of all destinations that have ever been authorized for the company in the path.
func ReadWebhooksOfCompany(o *strictjson.Object) GrantsQuestion[domain.WebhookID] {
	return readGrants(o, domain.ParseID[domain.WebhookID])
}

// ListAccess lists the keys that may use a company, and those whose grant was withdrawn.
func (s *Companies) ListAccess(
	ctx context.Context, c *edge.Call, asked GrantsQuestion[domain.KeyID],
) (wire.KeysAccess, error) {
	list, more, err := s.Store.KeysOfCompany(ctx, c.Access.Organization, asked.company, asked.After, asked.Limit)
	next := edge.NextPage(asked.Paging, list, more, func(g query.Grant[domain.KeyID]) string { return g.To.String() })
	named := func(g query.Grant[domain.KeyID]) wire.NamedKeyAccess {
		return wire.NamedKeyAccess{KeyAccess: viewKeyAccess(g), Name: g.Name}
	}
	return wire.KeysAccess{Access: wire.Each(list, named), Next: next}, err
}

func viewKeyAccess(g query.Grant[domain.KeyID]) wire.KeyAccess {
	return wire.KeyAccess{
		CompanyID: g.Company.String(), KeyID: g.To.String(), Enabled: g.Enabled, UpdatedAt: evidence.FormatTime(g.UpdatedAt),
	}
}

// ListWebhookAccess lists the destinations that receive the events of a company, and former ones.
func (s *Companies) ListWebhookAccess(
	ctx context.Context, c *edge.Call, asked GrantsQuestion[domain.WebhookID],
) (wire.WebhooksAccess, error) {
	list, more, err := s.Store.WebhooksOfCompany(ctx, c.Access.Organization, asked.company, asked.After, asked.Limit)
	next := edge.NextPage(asked.Paging, list, more, func(g query.Grant[domain.WebhookID]) string { return g.To.String() })
	return wire.WebhooksAccess{Webhooks: wire.Each(list, viewWebhookAccess), Next: next}, err
}

func viewWebhookAccess(g query.Grant[domain.WebhookID]) wire.WebhookAccess {
	return wire.WebhookAccess{
		CompanyID: g.Company.String(), WebhookID: g.To.String(), Enabled: g.Enabled,
		UpdatedAt: evidence.FormatTime(g.UpdatedAt),
	}
}

// ReadAccess reads a grant of the company in the path. enabled is required, so that no omission grants or withdraws
// access.
func ReadAccess(o *strictjson.Object) domain.SetAccess {
	return domain.SetAccess{
		Company: readCompanyID(o), Key: edge.ReadID(o, "keyId", domain.ParseID[domain.KeyID]),
		Enabled: o.Bool("enabled", strictjson.Required),
	}
}

// SetAccess grants a company to a key or withdraws the grant. Repeating a grant changes its date and adds an event.
func (s *Companies) SetAccess(ctx context.Context, c *edge.Call, command domain.SetAccess) (wire.KeyAccess, error) {
	command.Origin = c.Origin()
	return done(ctx, s.Service, &command, func() wire.KeyAccess {
		return viewKeyAccess(query.Grant[domain.KeyID]{
			Company: command.Company, To: command.Key, Enabled: command.Enabled, UpdatedAt: command.UpdatedAt,
		})
	})
}

// ChangeAccess makes several changes to the grants of companies to keys.
func (s *Companies) ChangeAccess(ctx context.Context, c *edge.Call, changes []domain.SetAccess) error {
	return s.execute(ctx, wire.Each(changes, func(change domain.SetAccess) domain.Command {
		change.Origin = c.Origin()
		return &change
	})...)
}

// ChangeWebhookAccess makes several changes to the authorizations of webhooks for companies.
func (s *Companies) ChangeWebhookAccess(ctx context.Context, c *edge.Call, changes []domain.SetWebhookAccess) error {
	return s.execute(ctx, wire.Each(changes, func(change domain.SetWebhookAccess) domain.Command {
		change.Origin = c.Origin()
		return &change
	})...)
}

// ReadWebhookAccess reads an authorization for the company in the path. enabled is required, as in ReadAccess.
func ReadWebhookAccess(o *strictjson.Object) domain.SetWebhookAccess {
	return domain.SetWebhookAccess{
		Company: readCompanyID(o), Webhook: ReadWebhookID(o), Enabled: o.Bool("enabled", strictjson.Required),
	}
}

// SetWebhookAccess authorizes a destination for the events of a company or withdraws the authorization. Repeating an
// authorization changes its date and adds an event.
func (s *Companies) SetWebhookAccess(
	ctx context.Context, c *edge.Call, command domain.SetWebhookAccess,
) (wire.WebhookAccess, error) {
	command.Origin = c.Origin()
	return done(ctx, s.Service, &command, func() wire.WebhookAccess {
		return viewWebhookAccess(query.Grant[domain.WebhookID]{
			Company: command.Company, To: command.Webhook, Enabled: command.Enabled, UpdatedAt: command.UpdatedAt,
		})
	})
}
