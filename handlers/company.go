package handlers

import (
	"context"
	"net/http"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/wire"
)

func viewCompany(c domain.Company) wire.Company {
	return wire.Company{ID: c.ID.String(), Reference: c.Reference, Status: "active", CreatedAt: evidence.FormatTime(c.CreatedAt)}
}

func readCompany(o *strictjson.Object) string { return domain.ReadReference(o, "reference") }

// createCompany answers 201, or 200 where the reference exists.
func (s *server) createCompany(ctx context.Context, c *call, reference string) (any, error) {
	command := &domain.CreateCompany{Origin: c.origin(), Reference: reference}
	return s.done(ctx, command, func() any {
		created := wire.CreatedCompany{Company: viewCompany(command.Outcome), Replayed: command.Replayed}
		return response{status: createdStatus(created.Replayed), data: created}
	})
}

func createdStatus(replayed bool) int {
	if replayed {
		return http.StatusOK
	}
	return http.StatusCreated
}

// listCompanies shows the companies granted to the key, or all of them to an administrator.
func (s *server) listCompanies(r *http.Request) (any, error) {
	q := newQuery(r)
	all := q.boolean("all")
	limit, after := q.limit(), q.cursor("after", domain.ValidReference)
	if err := q.refusal(); err != nil {
		return nil, err
	}
	access := callOf(r).access
	if all {
		if err := access.Authorize(domain.IntegrityAdmin); err != nil {
			return nil, err
		}
	}
	companies, more, err := s.Store.Companies(r.Context(), access, all, after, limit)
	next := nextCursor(q, companies, func(c domain.Company) string { return c.Reference })
	return wire.Companies{Companies: each(companies, viewCompany), NextCursor: next, HasMore: more}, err
}

// readAccess reads whose access to the company of the path is granted or taken back: the member name holds an id that
// parse knows.
func readAccess[ID any](r *http.Request, name string, parse func(string) (ID, error)) (company domain.CompanyID, id ID, enabled bool, err error) {
	err = decode(r, func(o *strictjson.Object) {
		id, enabled = readID(o, name, parse), o.Bool("enabled", strictjson.Required)
	})
	return pathID(r, "companyId", domain.ParseID[domain.CompanyID]), id, enabled, err
}

func (s *server) setAccess(r *http.Request) (any, error) {
	company, key, enabled, err := readAccess(r, "keyId", domain.ParseID[domain.KeyID])
	if err != nil {
		return nil, err
	}
	command := &domain.SetAccess{Origin: origin(r), Company: company, Key: key, Enabled: enabled}
	return s.done(r.Context(), command, func() any {
		return wire.KeyAccess{CompanyID: company.String(), KeyID: key.String(), Enabled: enabled, UpdatedAt: evidence.FormatTime(command.UpdatedAt)}
	})
}

func (s *server) setWebhookAccess(r *http.Request) (any, error) {
	company, webhook, enabled, err := readAccess(r, "webhookId", domain.ParseID[domain.WebhookID])
	if err != nil {
		return nil, err
	}
	command := &domain.SetWebhookAccess{Origin: origin(r), Company: company, Webhook: webhook, Enabled: enabled}
	return s.done(r.Context(), command, func() any {
		return wire.WebhookAccess{CompanyID: company.String(), WebhookID: webhook.String(), Enabled: enabled, UpdatedAt: evidence.FormatTime(command.UpdatedAt)}
	})
}
