package domain

import (
	"slices"
	"time"
)

// Scope is one permission of an API key.
type Scope string

// Scopes (specification, Authentication 4).
const (
	VerifyRead        Scope = "verify:read"
	ArtifactsRead     Scope = "artifacts:read"
	ArtifactsWrite    Scope = "artifacts:write"
	AnalysesRead      Scope = "analyses:read"
	ReviewsWrite      Scope = "reviews:write"
	ApprovalsWrite    Scope = "approvals:write"
	CertificatesRead  Scope = "certificates:read"
	CertificatesWrite Scope = "certificates:write"
	AuditRead         Scope = "audit:read"
	MetricsRead       Scope = "metrics:read"
	IntegrityRead     Scope = "integrity:read"
	IntegrityWrite    Scope = "integrity:write"
	IntegrityRevoke   Scope = "integrity:revoke"
	IntegrityAdmin    Scope = "integrity:admin"
)

// Scopes lists all scopes.
func Scopes() []Scope {
	return []Scope{
		VerifyRead, ArtifactsRead, ArtifactsWrite, AnalysesRead, ReviewsWrite, ApprovalsWrite, CertificatesRead,
		CertificatesWrite, AuditRead, MetricsRead, IntegrityRead, IntegrityWrite, IntegrityRevoke, IntegrityAdmin,
	}
}

// RolesFor lists the roles that may use a scope: a scope never raises a role.
func RolesFor(scope Scope) []Role {
	switch scope {
	case IntegrityWrite, ArtifactsWrite:
		return []Role{Owner, Admin, Analyst}
	case ReviewsWrite:
		return []Role{Owner, Admin, Reviewer}
	case IntegrityRevoke, IntegrityAdmin, ApprovalsWrite, CertificatesWrite:
		return []Role{Owner, Admin}
	default:
		return Roles()
	}
}

// Access is what authentication has read about the caller, for one request alone.
type Access struct {
	Organization OrganizationID
	Key          KeyID  // zero for a caller with an OAuth token
	Link         LinkID // zero for a caller with an API key
	Member       MemberID
	Role         Role
	Scopes       []Scope
	Limits       KeyLimits
	ExpiresAt    time.Time
	Plan         string
	Internal     bool // no monthly limits
	PerMinute    int  // the organization's limit
	UsedMinute   int  // requests of this UTC minute, this one included

	Sequence  int64  // the organization's, when the key was looked up
	ReadAfter *int64 // the least sequence that the caller wants to be answered from; nil: Sequence
}

// Credential is what the caller is counted by, beside the organization.
func (a Access) Credential() [16]byte {
	if a.Key.IsZero() {
		return a.Link
	}
	return a.Key
}

// Actor names the caller in events.
func (a Access) Actor() string {
	if a.Key.IsZero() {
		return a.Member.String()
	}
	return a.Key.String()
}

// Authorize refuses a key without the scope, then a role that may not use it.
func (a Access) Authorize(scope Scope) error {
	if !slices.Contains(a.Scopes, scope) {
		return Refuse(MissingScope, "This %s lacks the scope %s.", a.kind(), scope)
	}
	if !a.Role.Allows(scope) {
		return Refuse(RoleRequired, "The scope %s needs one of the roles %v; the %s's member is %s.", scope, RolesFor(scope), a.kind(), a.Role)
	}
	return nil
}

func (a Access) kind() string {
	if a.Key.IsZero() {
		return "token"
	}
	return "key"
}
