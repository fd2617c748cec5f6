package wire

import "integrityledger/domain"

// FullOrganization is an organization as its keys see it, with its remaining monthly limits.
type FullOrganization struct {
	Organization
	Limits    OrganizationLimits `json:"limits"`
	CreatedAt string             `json:"createdAt"`
}

// OrganizationLimits are the allowances of the month, and the daily allowance of administrative events.
type OrganizationLimits struct {
	Versions        MonthlyLimit `json:"versions"`
	Requests        MonthlyLimit `json:"requests"`
	Registrations   MonthlyLimit `json:"registrations"`
	WebhookAttempts MonthlyLimit `json:"webhookAttempts"`

	AdministrativeEvents MonthlyLimit `json:"administrativeEvents"`
}

type MonthlyLimit struct {
	Quota
	ResetsAt string `json:"resetsAt"`
}

// APIKey is an API key as the administration of an organization shows it, without its secret. Name is null if the key
// has no name or its name was erased. LastUsedAt is exact to the minute, or null if the key was never used.
type APIKey struct {
	ID             string         `json:"id"`
	Name           *string        `json:"name"`
	MemberID       string         `json:"memberId"`
	Scopes         []domain.Scope `json:"scopes"`
	Source         *string        `json:"source"`
	Networks       []string       `json:"networks"`
	MaxVersionStep *int32         `json:"maxVersionStep"`
	Grants         KeyGrants      `json:"grants"`
	CreatedBy      *string        `json:"createdBy"`
	CreatedAt      string         `json:"createdAt"`
	ExpiresAt      string         `json:"expiresAt"`
	LastUsedAt     *string        `json:"lastUsedAt"`
	RevokedAt      *string        `json:"revokedAt"`
}

// KeyGrants are references of companies that a key may use: the companies created first.
type KeyGrants struct {
	Companies []string `json:"companies"`
	HasMore   bool     `json:"hasMore"`
}

type APIKeys struct {
	Keys []APIKey `json:"keys"`
	Next
}

// CreatedAPIKey is a key with its text, which no other answer contains.
type CreatedAPIKey struct {
	APIKey
	Key string `json:"key"`
}

// RotatedAPIKey is the successor of a key, with the former key after the rotation.
type RotatedAPIKey struct {
	CreatedAPIKey
	FormerKey APIKey `json:"formerKey"`
}

// FullMember is a membership. Email is null once erased. InvitationExpiresAt is null unless the member is invited.
type FullMember struct {
	ID                  string              `json:"id"`
	Email               *string             `json:"email"`
	Role                domain.Role         `json:"role"`
	Status              domain.MemberStatus `json:"status"`
	CreatedAt           string              `json:"createdAt"`
	InvitationExpiresAt *string             `json:"invitationExpiresAt"`
}

type Members struct {
	Members []FullMember `json:"members"`
	Next
}

// InvitedMember is an invited member. InvitationURLs is null if the service mails the invitation.
type InvitedMember struct {
	FullMember
	Renewed        bool            `json:"renewed"` // the address was invited before; the earlier link no longer works
	Mailed         bool            `json:"mailed"`
	InvitationURLs *InvitationURLs `json:"invitationUrls"`
}

// Existed reports whether the address was invited before.
func (m InvitedMember) Existed() bool { return m.Renewed }

// InvitationURLs are the addresses of the page of an invitation in each language.
type InvitationURLs struct {
	ES string `json:"es"`
	EN string `json:"en"`
}

// APIKeyRequest creates a key. Without ExpiresAt it lives for a year, but no longer than the key that creates it.
type APIKeyRequest struct {
	Name           string         `json:"name"`
	Scopes         []domain.Scope `json:"scopes"`
	ExpiresAt      string         `json:"expiresAt,omitempty"`
	Source         *string        `json:"source,omitempty"`
	Networks       []string       `json:"networks,omitempty"`
	MaxVersionStep *int32         `json:"maxVersionStep,omitempty"`
	Companies      []string       `json:"companies,omitempty"` // references
}

// APIKeyChange renames a key or makes it end earlier. Empty members do not change.
type APIKeyChange struct {
	Name      string `json:"name,omitempty"`
	ExpiresAt string `json:"expiresAt,omitempty"`
}

// APIKeyRotation creates the successor of a key. A nil OverlapSeconds means a day.
type APIKeyRotation struct {
	OverlapSeconds *int64 `json:"overlapSeconds,omitempty"`
	CopyGrants     bool   `json:"copyGrants,omitempty"`
	ExpiresAt      string `json:"expiresAt,omitempty"`
}

type Invitation struct {
	Email string      `json:"email"`
	Role  domain.Role `json:"role"`
}

// MemberChange changes a membership. Empty members do not change.
type MemberChange struct {
	Role   domain.Role         `json:"role,omitempty"`
	Status domain.MemberStatus `json:"status,omitempty"`
}
