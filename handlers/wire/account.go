package wire

import "integrityledger/domain"

// Quota is one allowance of the month; Limit and Remaining are null without a limit.
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

// Month is what is left of the month at the certification API.
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

// Me is who stands behind a key, and what is left of the month.
type Me struct {
	Organization   Organization `json:"organization"`
	Key            Key          `json:"key"`
	Member         Member       `json:"member"`
	PerMinuteLimit int          `json:"perMinuteLimit"`
	Quota          FullMonth    `json:"quota"`
}

// FullMonth is the month with the new versions of the integrity API.
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
// is redeemed; ExpiresAt is of the code.
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

// StartedLink answers the start of a link. URL is null where this service is not registered at the provider.
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

// ChangedLink answers a change of a link; Replayed: nothing changed any more.
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
