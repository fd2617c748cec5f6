package wire

import "integrityledger/domain"

// Company is an integration partition of an organization, no verified entity.
type Company struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Status    string `json:"status"`
	CreatedAt string `json:"createdAt"`
}

// CreatedCompany answers a creation; Replayed: the reference existed.
type CreatedCompany struct {
	Company
	Replayed bool `json:"replayed"`
}

// Companies is a page of companies. NextCursor is opaque.
type Companies struct {
	Companies  []Company `json:"companies"`
	NextCursor *string   `json:"nextCursor"`
	HasMore    bool      `json:"hasMore"`
}

type KeyAccess struct {
	CompanyID string `json:"companyId"`
	KeyID     string `json:"keyId"`
	Enabled   bool   `json:"enabled"`
	UpdatedAt string `json:"updatedAt"`
}

type WebhookAccess struct {
	CompanyID string `json:"companyId"`
	WebhookID string `json:"webhookId"`
	Enabled   bool   `json:"enabled"`
	UpdatedAt string `json:"updatedAt"`
}

// CompanyUsage is what a company contributed to the organization's month.
type CompanyUsage struct {
	CompanyReference string `json:"companyReference"`
	Used             int64  `json:"used"`
}

// Warning is a share of one of the month's allowances that was reached.
type Warning struct {
	Allowance string `json:"allowance"` // versions, requests or registrations
	Percent   int    `json:"percent"`
	ReachedAt string `json:"reachedAt"`
}

// Allowance is the organization's month with the contributions of the companies granted to the key.
type Allowance struct {
	Plan         string         `json:"plan"`
	Period       domain.Period  `json:"period"`
	Organization MonthlyUsage   `json:"organization"`
	Companies    []CompanyUsage `json:"companies"`
	Warnings     []Warning      `json:"warnings"`
}

// MonthlyUsage has nil for Limit and Remaining where Unlimited.
type MonthlyUsage struct {
	Limit     *int64 `json:"limit"`
	Unlimited bool   `json:"unlimited"`
	Used      int64  `json:"used"`
	Remaining *int64 `json:"remaining"`
	ResetsAt  string `json:"resetsAt"`
}
