package action

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func viewCompany(c domain.Company) wire.Company {
	return wire.Company{ID: c.ID.String(), Reference: c.Reference, Status: c.Status(), CreatedAt: evidence.FormatTime(c.CreatedAt), ClosedAt: wire.TimeOrNull(c.ClosedAt)}
}

func ReadCompany(o *strictjson.Object) string { return domain.ReadReference(o, "reference") }

// CreateCompany answers 201, or 200 where the reference exists.
func (s *Companies) CreateCompany(ctx context.Context, c *edge.Call, reference string) (any, error) {
	command := &domain.CreateCompany{Origin: c.Origin(), Reference: reference}
	return s.Done(ctx, command, func() any {
		created := wire.CreatedCompany{Company: viewCompany(command.Outcome), Replayed: command.Replayed}
		return edge.Response{Status: edge.CreatedStatus(created.Replayed), Data: created}
	})
}

// SetCompanyStatus closes a company or opens it again.
func (s *Companies) SetCompanyStatus(r *http.Request) (any, error) {
	command := &domain.SetCompanyStatus{Origin: edge.Origin(r), Company: companyID(r)}
	if err := edge.Decode(r, func(o *strictjson.Object) {
		command.Status = domain.CompanyStatus(o.Match("status", strictjson.Required, isCompanyStatus, companyStatusRule))
	}); err != nil {
		return nil, err
	}
	return s.Done(r.Context(), command, func() any { return viewCompany(command.Outcome) })
}

const companyStatusRule = "must be active or closed"

func isCompanyStatus(text string) bool {
	return slices.Contains(domain.CompanyStatuses(), domain.CompanyStatus(text))
}

func companyID(r *http.Request) domain.CompanyID {
	return edge.PathID(r, "companyId", domain.ParseID[domain.CompanyID])
}

// ListCompanies shows the companies granted to the key, or all of them to an administrator.
func (s *Companies) ListCompanies(r *http.Request) (any, error) {
	q := edge.NewQuery(r)
	all := q.Bool("all", strictjson.Optional)
	asked := edge.ReadPaging(q, parseReference)
	status := q.Match("status", strictjson.Optional, isCompanyStatus, companyStatusRule)
	if err := edge.Invalid(q.Problems()); err != nil {
		return nil, err
	}
	access := edge.CallOf(r).Access
	if all {
		if err := access.Authorize(domain.IntegrityAdmin); err != nil {
			return nil, err
		}
	}
	companies, more, err := s.Store.Companies(r.Context(), access, all, domain.CompanyStatus(status), asked.After, asked.Limit)
	next := edge.NextPage(asked, companies, more, func(c domain.Company) string { return c.Reference })
	return wire.Companies{Companies: wire.Each(companies, viewCompany), Next: next}, err
}

func parseReference(text string) (string, error) {
	if !domain.ValidReference(text) {
		return "", errors.New(domain.ReferenceRule)
	}
	return text, nil
}

// readAccess reads whose access to the company of the path is granted or taken back: the member name holds an id that
// parse knows.
func readAccess[ID any](r *http.Request, name string, parse func(string) (ID, error)) (company domain.CompanyID, id ID, enabled bool, err error) {
	err = edge.Decode(r, func(o *strictjson.Object) {
		id, enabled = edge.ReadID(o, name, parse), o.Bool("enabled", strictjson.Required)
	})
	return companyID(r), id, enabled, err
}

// ListAccess shows which keys may use the company of the path, and which no longer may.
func (s *Companies) ListAccess(r *http.Request) (any, error) {
	q := edge.NewQuery(r)
	asked := edge.ReadPaging(q, domain.ParseID[domain.KeyID])
	if err := edge.Invalid(q.Problems()); err != nil {
		return nil, err
	}
	list, more, err := s.Store.KeysOfCompany(r.Context(), edge.CallOf(r).Access.Organization, companyID(r), asked.After, asked.Limit)
	next := edge.NextPage(asked, list, more, func(g query.Grant[domain.KeyID]) string { return g.To.String() })
	named := func(g query.Grant[domain.KeyID]) wire.NamedKeyAccess {
		return wire.NamedKeyAccess{KeyAccess: viewKeyAccess(g), Name: g.Name}
	}
	return wire.KeysAccess{Access: wire.Each(list, named), Next: next}, err
}

func viewKeyAccess(g query.Grant[domain.KeyID]) wire.KeyAccess {
	return wire.KeyAccess{CompanyID: g.Company.String(), KeyID: g.To.String(), Enabled: g.Enabled, UpdatedAt: evidence.FormatTime(g.UpdatedAt)}
}

// ListWebhookAccess shows which destinations hear of the company of the path, and which no longer do.
func (s *Companies) ListWebhookAccess(r *http.Request) (any, error) {
	q := edge.NewQuery(r)
	asked := edge.ReadPaging(q, domain.ParseID[domain.WebhookID])
	if err := edge.Invalid(q.Problems()); err != nil {
		return nil, err
	}
	list, more, err := s.Store.WebhooksOfCompany(r.Context(), edge.CallOf(r).Access.Organization, companyID(r), asked.After, asked.Limit)
	next := edge.NextPage(asked, list, more, func(g query.Grant[domain.WebhookID]) string { return g.To.String() })
	return wire.WebhooksAccess{Webhooks: wire.Each(list, viewWebhookAccess), Next: next}, err
}

func viewWebhookAccess(g query.Grant[domain.WebhookID]) wire.WebhookAccess {
	return wire.WebhookAccess{CompanyID: g.Company.String(), WebhookID: g.To.String(), Enabled: g.Enabled, UpdatedAt: evidence.FormatTime(g.UpdatedAt)}
}

func (s *Companies) SetAccess(r *http.Request) (any, error) {
	company, key, enabled, err := readAccess(r, "keyId", domain.ParseID[domain.KeyID])
	if err != nil {
		return nil, err
	}
	command := &domain.SetAccess{Origin: edge.Origin(r), Company: company, Key: key, Enabled: enabled}
	return s.Done(r.Context(), command, func() any {
		return viewKeyAccess(query.Grant[domain.KeyID]{Company: company, To: key, Enabled: enabled, UpdatedAt: command.UpdatedAt})
	})
}

func (s *Companies) SetWebhookAccess(r *http.Request) (any, error) {
	company, webhook, enabled, err := readAccess(r, "webhookId", domain.ParseID[domain.WebhookID])
	if err != nil {
		return nil, err
	}
	command := &domain.SetWebhookAccess{Origin: edge.Origin(r), Company: company, Webhook: webhook, Enabled: enabled}
	return s.Done(r.Context(), command, func() any {
		return viewWebhookAccess(query.Grant[domain.WebhookID]{Company: company, To: webhook, Enabled: enabled, UpdatedAt: command.UpdatedAt})
	})
}
