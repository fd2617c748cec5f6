package client

import (
	"context"
	"errors"
	"net/url"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// Companies reads a page of the companies granted to the key; with all, those of the organization, which needs
// integrity:admin. after is the NextCursor of the page before, or empty.
func (c *Client) Companies(ctx context.Context, all bool, after string) (wire.Companies, error) {
	query := url.Values{"limit": {"1000"}}
	if all {
		query.Set("all", "true")
	}
	if after != "" {
		query.Set("after", after)
	}
	var answer wire.Companies
	err := c.get(ctx, "/api/v1/integrity/companies", query, &answer)
	return answer, err
}

// CreateCompany makes a company, or finds the one of that reference. It is granted to no key, not even the creating
// one. Needs integrity:admin.
func (c *Client) CreateCompany(ctx context.Context, reference string) (wire.CreatedCompany, error) {
	var answer wire.CreatedCompany
	err := c.post(ctx, "/api/v1/integrity/companies", wire.CompanyRequest{Reference: reference}, &answer)
	return answer, err
}

// GrantKey lets a key use a company, or takes that back. Needs integrity:admin.
func (c *Client) GrantKey(ctx context.Context, companyID, keyID string, enabled bool) (wire.KeyAccess, error) {
	var answer wire.KeyAccess
	path, err := companyPath(companyID, "/access")
	if err == nil {
		err = c.post(ctx, path, wire.KeyAccessRequest{KeyID: keyID, Enabled: enabled}, &answer)
	}
	return answer, err
}

// GrantWebhook authorizes a destination for a company, or takes that back. Needs integrity:admin.
func (c *Client) GrantWebhook(ctx context.Context, companyID, webhookID string, enabled bool) (wire.WebhookAccess, error) {
	var answer wire.WebhookAccess
	path, err := companyPath(companyID, "/webhooks")
	if err == nil {
		err = c.post(ctx, path, wire.WebhookAccessRequest{WebhookID: webhookID, Enabled: enabled}, &answer)
	}
	return answer, err
}

func companyPath(companyID, after string) (string, error) {
	if _, err := domain.ParseID[domain.CompanyID](companyID); err != nil {
		return "", errors.New("companyId must be com_ and 26 characters")
	}
	return "/api/v1/integrity/companies/" + companyID + after, nil
}

// Usage is the organization's month, with what the key's companies contributed.
func (c *Client) Usage(ctx context.Context) (wire.Allowance, error) {
	var answer wire.Allowance
	err := c.get(ctx, "/api/v1/integrity/usage", nil, &answer)
	return answer, err
}

// UsageEntries reads a page of what a month, such as 2026-11, was charged with: up to 1,000 entries. after is the
// NextCursor of the page before, or empty.
func (c *Client) UsageEntries(ctx context.Context, period domain.Period, after string) (wire.UsageEntries, error) {
	query := url.Values{"period": {period.String()}, "limit": {"1000"}}
	if after != "" {
		query.Set("after", after)
	}
	var answer wire.UsageEntries
	err := c.get(ctx, "/api/v1/integrity/usage/entries", query, &answer)
	return answer, err
}
