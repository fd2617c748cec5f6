// Package wire defines the JSON of the API's requests and answers, as described in the published OpenAPI documents. The
// handlers write these types and handlers/client reads them, so the two cannot disagree. It knows neither the server
// nor how data is stored.
//
// Timestamps are RFC 3339 text in UTC. All members are always present unless a tag says omitempty. A value that is not
// established is null.
package wire

import (
	"encoding/json"

	"integrityledger/domain"
)

// Meta is the member meta of every envelope. Only the feed sets Epoch.
type Meta struct {
	RequestID string `json:"requestId"`
	Epoch     *int64 `json:"epoch,omitempty"`
}

// Failure has the members of RFC 9457 and a stable code (contract section 2).
type Failure struct {
	Type      string              `json:"type"`
	Title     string              `json:"title"`
	Status    int                 `json:"status"`
	Detail    string              `json:"detail"`
	Code      domain.Code         `json:"code"`
	Retryable bool                `json:"retryable"`
	Errors    []domain.FieldError `json:"errors"`
	Existing  *Existing           `json:"existing,omitempty"`
	// RetryAfter is set only for an item of a batch, which has no Retry-After header.
	RetryAfter int64 `json:"retryAfter,omitempty"`
}

// Existing is the accepted version that a declaration conflicts with.
type Existing struct {
	PublicID   string `json:"publicId"`
	ReceivedAt string `json:"receivedAt"`
}

// Next leads from a page of a list to the following one. NextCursor is opaque.
type Next struct {
	NextCursor *string `json:"nextCursor"`
	HasMore    bool    `json:"hasMore"`
}

// Envelope surrounds every JSON answer: exactly one of Data and Error is not null.
type Envelope[D any] struct {
	Data  D        `json:"data"`
	Error *Failure `json:"error"`
	Meta  Meta     `json:"meta"`
}

// Refused is a failure of an MCP tool, which has no envelope.
type Refused struct {
	Error *Failure `json:"error"`
}

// Quota is an allowance of the month. Limit and Remaining are null if there is no limit.
type Quota struct {
	Limit     *int64 `json:"limit"`
	Used      int64  `json:"used"`
	Remaining *int64 `json:"remaining"`
}

type Period struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

type Credits struct {
	Balance int64 `json:"balance"`
}

// Month shows the allowances of the month at the certification API.
type Month struct {
	Period        Period    `json:"period"`
	Requests      Quota     `json:"requests"`
	Registrations Quota     `json:"registrations"`
	Credits       Credits   `json:"credits"`
	ResetsAt      string    `json:"resetsAt"`
	Warnings      []Warning `json:"warnings"`
}

type AccountUsage struct {
	Plan string `json:"plan"`
	Month
	PerMinuteLimit int `json:"perMinuteLimit"`
}

// Me shows the organization, member and key of the caller, and the rest of the month.
type Me struct {
	Organization   Organization `json:"organization"`
	Key            Key          `json:"key"`
	Member         Member       `json:"member"`
	PerMinuteLimit int          `json:"perMinuteLimit"`
	Quota          FullMonth    `json:"quota"`
	Versions       Versions     `json:"versions"`
}

// Versions has the versions in the Integrity-Version headers of a request and of its answer.
type Versions struct {
	Service string  `json:"service"`
	Client  *string `json:"client"` // null if the request names no client
}

// FullMonth adds the new versions of the integrity API to the month.
type FullMonth struct {
	Versions Quota `json:"versions"`
	Month
}

type Organization struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Plan string `json:"plan"`
}

// Key is an API key without its secret.
type Key struct {
	ID        string         `json:"id"`
	Scopes    []domain.Scope `json:"scopes"`
	ExpiresAt string         `json:"expiresAt"`
}

type Member struct {
	ID   string      `json:"id"`
	Role domain.Role `json:"role"`
}

// OAuthLink is a link between a member and an OAuth subject, which is not shown. ConsentedScopes is null until the link
// is redeemed. ExpiresAt is the expiry of the code.
type OAuthLink struct {
	ID              string         `json:"id"`
	MemberID        string         `json:"memberId"`
	Status          string         `json:"status"`
	Scopes          []domain.Scope `json:"scopes"`
	ConsentedScopes []domain.Scope `json:"consentedScopes"`
	CreatedAt       string         `json:"createdAt"`
	ExpiresAt       string         `json:"expiresAt"`
	LinkedAt        *string        `json:"linkedAt"`
	WithdrawnAt     *string        `json:"withdrawnAt"`
}

// StartedLink is the answer to the start of a link. URL is null if this service is not registered with the provider.
type StartedLink struct {
	OAuthLink
	Code string  `json:"code"`
	URL  *string `json:"url"`
}

type OAuthLinks struct {
	Links  []OAuthLink `json:"links"`
	Limit  int         `json:"limit"`
	Offset int         `json:"offset"`
	Total  int64       `json:"total"`
}

// ChangedLink is the answer to a change of a link. Replayed is true if the request changed nothing.
type ChangedLink struct {
	OAuthLink
	Replayed bool `json:"replayed"`
}

// ProtectedResource tells clients where to get tokens (RFC 9728).
type ProtectedResource struct {
	Resource             string         `json:"resource"`
	AuthorizationServers []string       `json:"authorization_servers"`
	ScopesSupported      []domain.Scope `json:"scopes_supported"`
	BearerMethods        []string       `json:"bearer_methods_supported"`
	ResourceName         string         `json:"resource_name"`
}

type Health struct {
	Status string `json:"status"`
}

// AuditActor caused an event. ID is null for the operator and the system.
type AuditActor struct {
	Type string  `json:"type"`
	ID   *string `json:"id"`
}

type AuditTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// AuditEvent is an event of the organization's history. CompanyID is set for events of a company. Enabled is set for
// changes of access: true if access was granted, false if it was withdrawn. Details has the members that the contract
// lists for the action.
type AuditEvent struct {
	ID         string           `json:"id"`
	Sequence   int64            `json:"sequence"`
	OccurredAt string           `json:"occurredAt"`
	Actor      AuditActor       `json:"actor"`
	Action     domain.EventType `json:"action"`
	Target     AuditTarget      `json:"target"`
	RequestID  string           `json:"requestId"`
	Reason     *string          `json:"reason"`
	CompanyID  *string          `json:"companyId"`
	Enabled    *bool            `json:"enabled"`
	Details    json.RawMessage  `json:"details"`
}

type AuditEvents struct {
	Events     []AuditEvent `json:"events"`
	Limit      int          `json:"limit"`
	Offset     int          `json:"offset"`
	Total      int64        `json:"total"`
	NextCursor int64        `json:"nextCursor"`
	HasMore    bool         `json:"hasMore"`
}

// DetectorMetric summarizes the runs of a detector.
type DetectorMetric struct {
	ID       string           `json:"id"`
	Version  int32            `json:"version"`
	Runs     int64            `json:"runs"`
	Outcomes map[string]int64 `json:"outcomes"`
	MedianMs float64          `json:"medianMs"`
	P95Ms    float64          `json:"p95Ms"`
}

type DetectorMetrics struct {
	Detectors []DetectorMetric `json:"detectors"`
}
