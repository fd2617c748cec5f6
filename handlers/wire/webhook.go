package wire

import "integrityledger/domain"

// Webhook is a destination of deliveries; URL is null once erased.
type Webhook struct {
	ID             string             `json:"id"`
	URL            *string            `json:"url"`
	Description    *string            `json:"description"`
	Types          []domain.EventType `json:"types"`
	Status         string             `json:"status"`
	DisabledReason *string            `json:"disabledReason"`
	FailingSince   *string            `json:"failingSince"`
	Companies      int                `json:"authorizedCompanies"`
	PreviousUntil  *string            `json:"previousSecretUntil"`
	CreatedAt      string             `json:"createdAt"`
	UpdatedAt      string             `json:"updatedAt"`
}

// WebhookWithSecret is the only answer that ever holds a secret.
type WebhookWithSecret struct {
	Webhook
	Secret string `json:"secret"`
}

type Webhooks struct {
	Webhooks []Webhook `json:"webhooks"`
}

type DeletedWebhook struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// Delivery is one event for one destination. Sequence and CompanyID are null of a test.
type Delivery struct {
	ID             string           `json:"id"`
	WebhookID      string           `json:"webhookId"`
	EventID        string           `json:"eventId"`
	Type           domain.EventType `json:"type"`
	Sequence       *int64           `json:"sequence"`
	CompanyID      *string          `json:"companyId"`
	Status         string           `json:"status"`
	Attempts       int              `json:"attempts"`
	CreatedAt      string           `json:"createdAt"`
	LastAttemptAt  *string          `json:"lastAttemptAt"`
	NextAttemptAt  *string          `json:"nextAttemptAt"`
	FinishedAt     *string          `json:"finishedAt"`
	ResponseStatus *int             `json:"responseStatus"`
	Reason         *string          `json:"reason"`
}

// Deliveries is a page of deliveries. NextCursor is opaque.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor *string    `json:"nextCursor"`
	HasMore    bool       `json:"hasMore"`
}

// Replay answers a replay; NextSequence is where the next one begins, null when nothing is left.
type Replay struct {
	DryRun       bool   `json:"dryRun"`
	Count        int    `json:"count"`
	NextSequence *int64 `json:"nextSequence"`
}
