package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

const companiesPath = "/api/v1/integrity/companies"

// CompaniesQuery says which companies are listed.
type CompaniesQuery struct {
	All    bool                 // those of the organization, which needs integrity:admin; else those granted to the key
	Status domain.CompanyStatus // empty: any
}

// Companies reads a page of companies. after is the NextCursor of the page before, or empty.
func (c *Client) Companies(ctx context.Context, of CompaniesQuery, after string) (wire.Companies, error) {
	query := page(after, "status", string(of.Status))
	if of.All {
		query.Set("all", "true")
	}
	return get[wire.Companies](ctx, c, companiesPath, query)
}

// page asks for as many entries as there may be, after those of a page before. What follows are names and values, which
// do not limit where they are empty.
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

// CreateCompany makes a company, or finds the one of that reference. It is granted to no key, not even the creating
// one. Needs integrity:admin.
func (c *Client) CreateCompany(ctx context.Context, reference string) (wire.CreatedCompany, error) {
	return post[wire.CreatedCompany](ctx, c, companiesPath, wire.CompanyRequest{Reference: reference})
}

// SetCompanyStatus closes a company, or opens it again. A closed one takes no new reservation or registration;
// everything else of it goes on, replays too. Needs integrity:admin.
func (c *Client) SetCompanyStatus(
	ctx context.Context, companyID string, status domain.CompanyStatus,
) (wire.Company, error) {
	a := askCompany(http.MethodPatch, companyID, "")
	a.document = wire.CompanyStatusRequest{Status: status}
	answer, err := read[wire.Company](ctx, c, a)
	return about(answer, err, answer.ID == companyID)
}

// CompanyAccess reads a page of the keys that may use a company, and of those that no longer may. after is the
// NextCursor of the page before, or empty. Needs integrity:admin, as CompanyWebhooks does.
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

// GrantKey lets a key use a company, or takes that back. Needs integrity:admin.
func (c *Client) GrantKey(ctx context.Context, companyID, keyID string, enabled bool) (wire.KeyAccess, error) {
	a := askCompany(http.MethodPost, companyID, "/access")
	a.document = wire.KeyAccessRequest{KeyID: keyID, Enabled: enabled}
	return read[wire.KeyAccess](ctx, c, a)
}

// GrantWebhook authorizes a destination for a company, or takes that back. Needs integrity:admin.
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

// checkID says why a text is no id that a path may name. The text is never shown: it may be a secret.
func checkID[I any](name, text string, parse func(string) (I, error)) error {
	if _, err := parse(text); err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	return nil
}

// Usage is the organization's month, with what the key's companies contributed.
func (c *Client) Usage(ctx context.Context) (wire.Allowance, error) {
	return get[wire.Allowance](ctx, c, "/api/v1/integrity/usage", nil)
}

// UsageEntries reads a page of what a month, such as 2026-11, was charged with: up to 1,000 entries. after is the
// NextCursor of the page before, or empty.
func (c *Client) UsageEntries(ctx context.Context, period domain.Period, after string) (wire.UsageEntries, error) {
	return get[wire.UsageEntries](ctx, c, "/api/v1/integrity/usage/entries", page(after, "period", period.String()))
}
