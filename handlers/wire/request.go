package wire

// CompanyRequest creates a company.
type CompanyRequest struct {
	Reference string `json:"reference"`
}

// KeyAccessRequest grants a key a company, or takes the grant back.
type KeyAccessRequest struct {
	KeyID   string `json:"keyId"`
	Enabled bool   `json:"enabled"`
}

// WebhookAccessRequest authorizes a destination for a company, or takes the authorization back.
type WebhookAccessRequest struct {
	WebhookID string `json:"webhookId"`
	Enabled   bool   `json:"enabled"`
}

// BatchRequest is the body of a batch.
type BatchRequest struct {
	Declarations []Declaration `json:"declarations"`
}

// RevokeRequest revokes a record.
type RevokeRequest struct {
	Reason string `json:"reason,omitempty"`
}
