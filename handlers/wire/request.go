package wire

type CompanyRequest struct {
	Reference string `json:"reference"`
}

type KeyAccessRequest struct {
	KeyID   string `json:"keyId"`
	Enabled bool   `json:"enabled"`
}

type WebhookAccessRequest struct {
	WebhookID string `json:"webhookId"`
	Enabled   bool   `json:"enabled"`
}

type BatchRequest struct {
	Declarations []Declaration `json:"declarations"`
}

type RevokeRequest struct {
	Reason string `json:"reason,omitempty"`
}
