package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// Companies reads a page of the companies granted to the key; with all, those of the organization, which needs
// integrity:admin. after is the NextCursor of the page before, or empty.
func (c *Client) Companies(ctx context.Context, all bool, after string) (wire.Companies, error) {
	query := page(after)
	if all {
		query.Set("all", "true")
	}
	return get[wire.Companies](ctx, c, "/api/v1/integrity/companies", query)
}

// page asks for as many entries as there may be, after those of a page before.
func page(after string) url.Values {
	query := url.Values{"limit": {"1000"}}
	if after != "" {
		query.Set("after", after)
	}
	return query
}

// CreateCompany makes a company, or finds the one of that reference. It is granted to no key, not even the creating
// one. Needs integrity:admin.
func (c *Client) CreateCompany(ctx context.Context, reference string) (wire.CreatedCompany, error) {
	return post[wire.CreatedCompany](ctx, c, "/api/v1/integrity/companies", wire.CompanyRequest{Reference: reference})
}

// GrantKey lets a key use a company, or takes that back. Needs integrity:admin.
func (c *Client) GrantKey(ctx context.Context, companyID, keyID string, enabled bool) (wire.KeyAccess, error) {
	return read[wire.KeyAccess](ctx, c, grant(companyID, "/access", wire.KeyAccessRequest{KeyID: keyID, Enabled: enabled}))
}

// GrantWebhook authorizes a destination for a company, or takes that back. Needs integrity:admin.
func (c *Client) GrantWebhook(ctx context.Context, companyID, webhookID string, enabled bool) (wire.WebhookAccess, error) {
	return read[wire.WebhookAccess](ctx, c, grant(companyID, "/webhooks", wire.WebhookAccessRequest{WebhookID: webhookID, Enabled: enabled}))
}

func grant(companyID, to string, document any) ask {
	return ask{
		method: http.MethodPost, path: "/api/v1/integrity/companies/" + companyID + to, document: document,
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
	query := page(after)
	query.Set("period", period.String())
	return get[wire.UsageEntries](ctx, c, "/api/v1/integrity/usage/entries", query)
}
