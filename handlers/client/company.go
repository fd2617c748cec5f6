package client

import (
	"context"
	"net/http"
	"net/url"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

const companiesPath = "/api/v1/integrity/companies"

// CompaniesQuery says which companies to list.
type CompaniesQuery struct {
	All    bool                 // including companies not granted to the key; needs integrity:admin
	Status domain.CompanyStatus // empty: any
}

// Companies reads a page of companies. after is the NextCursor of the previous page, or empty.
func (c *Client) Companies(ctx context.Context, of CompaniesQuery, after string) (wire.Companies, error) {
	query := page(after, "status", string(of.Status))
	if of.All {
		query.Set("all", "true")
	}
	return get[wire.Companies](ctx, c, companiesPath, query)
}

// page asks for the largest page after a cursor. of lists names and values; empty values are omitted.
func page(after string, of ...string) url.Values {
	query := url.Values{"limit": {"1000"}}
	of = append(of, "after", after)
	for i := 0; i < len(of); i += 2 {
		if of[i+1] != "" {
			query.Set(of[i], of[i+1])
		}
	}
	return query
}

// CreateCompany creates a company, or finds the company with this reference. The new company is granted to no key, not
// even to the key that creates it. It needs integrity:admin.
func (c *Client) CreateCompany(ctx context.Context, reference string) (wire.CreatedCompany, error) {
	return post[wire.CreatedCompany](ctx, c, companiesPath, wire.CompanyRequest{Reference: reference})
}

// SetCompanyStatus closes a company or reopens it. A closed company accepts no new reservation or registration;
// everything else continues, including replays. It needs integrity:admin.
func (c *Client) SetCompanyStatus(
	ctx context.Context, companyID string, status domain.CompanyStatus,
) (wire.Company, error) {
	a := askCompany(http.MethodPatch, companyID, "")
	a.document = wire.CompanyStatusRequest{Status: status}
	answer, err := read[wire.Company](ctx, c, a)
	return about(answer, err, answer.ID == companyID)
}

// CompanyAccess reads a page of the keys that may use a company, including keys whose grant was withdrawn. after is the
// NextCursor of the previous page, or empty. CompanyAccess and CompanyWebhooks need integrity:admin.
func (c *Client) CompanyAccess(ctx context.Context, companyID, after string) (wire.KeysAccess, error) {
	a := askCompany(http.MethodGet, companyID, "/access")
	a.query = page(after)
	return read[wire.KeysAccess](ctx, c, a)
}

// CompanyWebhooks is CompanyAccess for destinations.
func (c *Client) CompanyWebhooks(ctx context.Context, companyID, after string) (wire.WebhooksAccess, error) {
	a := askCompany(http.MethodGet, companyID, "/webhooks")
	a.query = page(after)
	return read[wire.WebhooksAccess](ctx, c, a)
}

// GrantKey grants a company to a key, or withdraws the grant. It needs integrity:admin.
func (c *Client) GrantKey(ctx context.Context, companyID, keyID string, enabled bool) (wire.KeyAccess, error) {
	a := askCompany(http.MethodPost, companyID, "/access")
	a.document = wire.KeyAccessRequest{KeyID: keyID, Enabled: enabled}
	return read[wire.KeyAccess](ctx, c, a)
}

// GrantWebhook authorizes a destination for a company, or withdraws the authorization. It needs integrity:admin.
func (c *Client) GrantWebhook(
	ctx context.Context, companyID, webhookID string, enabled bool,
) (wire.WebhookAccess, error) {
	a := askCompany(http.MethodPost, companyID, "/webhooks")
	a.document = wire.WebhookAccessRequest{WebhookID: webhookID, Enabled: enabled}
	return read[wire.WebhookAccess](ctx, c, a)
}

func askCompany(method, companyID, after string) ask {
	return ask{
		method: method, path: companiesPath + "/" + companyID + after,
		wrong: checkID("companyId", companyID, domain.ParseID[domain.CompanyID]),
	}
}

// checkID returns an error if a text is not an id. The error does not show the text, which may be a secret.
func checkID[I any](name, text string, parse func(string) (I, error)) error {
	if _, err := parse(text); err != nil {
		return say.Errorf("%s %w", name, err)
	}
	return nil
}

// Usage returns the organization's month with the contributions of the key's companies.
func (c *Client) Usage(ctx context.Context) (wire.Allowance, error) {
	return get[wire.Allowance](ctx, c, "/api/v1/integrity/usage", nil)
}

// UsageEntries reads a page of up to 1,000 entries that count against the allowance of a month such as 2026-11. after
// is the NextCursor of the previous page, or empty.
func (c *Client) UsageEntries(ctx context.Context, period domain.Period, after string) (wire.UsageEntries, error) {
	return get[wire.UsageEntries](ctx, c, "/api/v1/integrity/usage/entries", page(after, "period", period.String()))
}
