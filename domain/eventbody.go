package domain

import (
	"encoding/json"
	"fmt"
	"time"

	"integrityledger/domain/evidence"
)

// OrganizationCreatedBody is the first event of every organization.
type OrganizationCreatedBody struct {
	Name      TextRef `json:"name"`
	Plan      string  `json:"plan"`
	Internal  bool    `json:"internal"`
	PerMinute *int32  `json:"perMinute"`
}

// PlanChangedBody replaces plan, internal and the organization's own limit.
type PlanChangedBody struct {
	Plan      string `json:"plan"`
	Internal  bool   `json:"internal"`
	PerMinute *int32 `json:"perMinute"`
}

// LimitsChangedBody replaces the limits that an operator sets for one
// organization; null means the ledger's own.
type LimitsChangedBody struct {
	UnfinalizedLimit *int32 `json:"unfinalizedLimit"`
}

// MemberAddedBody adds an active member.
type MemberAddedBody struct {
	MemberID MemberID `json:"memberId"`
	Email    TextRef  `json:"email"`
	Role     Role     `json:"role"`
}

// MemberChangedBody sets a member's role and status.
type MemberChangedBody struct {
	MemberID MemberID     `json:"memberId"`
	Role     Role         `json:"role"`
	Status   MemberStatus `json:"status"`
}

// KeyCreatedBody adds an API key. The secret itself is never stored.
type KeyCreatedBody struct {
	KeyID          KeyID     `json:"keyId"`
	MemberID       MemberID  `json:"memberId"`
	SecretSHA256   []byte    `json:"secretSha256"`
	Scopes         []Scope   `json:"scopes"`
	ExpiresAt      time.Time `json:"expiresAt"`
	Source         *string   `json:"source"`
	Network        *string   `json:"network"`
	MaxVersionStep *int32    `json:"maxVersionStep"`
}

// KeyExpiryChangedBody moves the end of an API key.
type KeyExpiryChangedBody struct {
	KeyID     KeyID     `json:"keyId"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// KeyRevokedBody ends an API key.
type KeyRevokedBody struct {
	KeyID KeyID `json:"keyId"`
}

// CompanyCreatedBody adds a company.
type CompanyCreatedBody struct {
	Reference string `json:"reference"`
}

// AccessChangedBody grants a key its company or takes the grant back.
type AccessChangedBody struct {
	KeyID   KeyID `json:"keyId"`
	Enabled bool  `json:"enabled"`
}

// VersionReservedBody gives a version its public id before it is registered, or
// renews that.
type VersionReservedBody struct {
	DocumentID        DocumentID `json:"documentId"`
	CompanyReference  string     `json:"companyReference"`
	Source            string     `json:"source"`
	DocumentReference string     `json:"documentReference"`
	Version           int32      `json:"version"`
	PublicID          PublicID   `json:"publicId"`
	ExpiresAt         time.Time  `json:"expiresAt"`
	Renewed           bool       `json:"renewed"` // the identity was reserved before
}

// RecordRegisteredBody is the declaration of one version with its signed payload.
type RecordRegisteredBody struct {
	RecordID          RecordID
	DocumentID        DocumentID
	CompanyReference  string
	Source            string
	DocumentReference string
	Version           int32
	PreviousVersion   *int32
	// Reserved says that this finalizes a reservation of the identity. False is not
	// written, so that the data of all other registrations has no such member.
	Reserved  bool
	Salt      string
	Period    Period
	Status    Status // current, or superseded for a late lower version
	KeyID     string
	Signature string
	// Payload is exactly the signed text; it stands in the event as a nested
	// object, whose canonical form is itself.
	Payload []byte
	Record  evidence.RecordPayload // Payload, parsed
}

// RecordSupersededBody says that a higher version took the place of this one.
type RecordSupersededBody struct {
	DocumentID DocumentID `json:"documentId"`
	Version    int32      `json:"version"`
	ByVersion  int32      `json:"byVersion"`
}

// RecordRevokedBody revokes one version.
type RecordRevokedBody struct {
	DocumentID DocumentID `json:"documentId"`
	Version    int32      `json:"version"`
	Reason     *TextRef   `json:"reason"`
}

func (*OrganizationCreatedBody) eventType() EventType { return OrganizationCreated }
func (*PlanChangedBody) eventType() EventType         { return OrganizationPlanChanged }
func (*LimitsChangedBody) eventType() EventType       { return OrganizationLimits }
func (*MemberAddedBody) eventType() EventType         { return MemberAdded }
func (*MemberChangedBody) eventType() EventType       { return MemberChanged }
func (*KeyCreatedBody) eventType() EventType          { return KeyCreated }
func (*KeyExpiryChangedBody) eventType() EventType    { return KeyExpiryChanged }
func (*KeyRevokedBody) eventType() EventType          { return KeyRevoked }
func (*CompanyCreatedBody) eventType() EventType      { return CompanyCreated }
func (*AccessChangedBody) eventType() EventType       { return CompanyAccessChanged }
func (*VersionReservedBody) eventType() EventType     { return VersionReserved }
func (*QuotaWarningReachedBody) eventType() EventType { return QuotaWarningReached }
func (*RecordRegisteredBody) eventType() EventType    { return RecordRegistered }
func (*RecordSupersededBody) eventType() EventType    { return RecordSuperseded }
func (*RecordRevokedBody) eventType() EventType       { return RecordRevoked }

func (b *OrganizationCreatedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *PlanChangedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
func (b *MemberAddedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
func (b *MemberChangedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *KeyCreatedBody) appendCanonical(dst []byte) ([]byte, error)    { return appendJCS(dst, b) }
func (b *KeyExpiryChangedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *KeyRevokedBody) appendCanonical(dst []byte) ([]byte, error)     { return appendJCS(dst, b) }
func (b *CompanyCreatedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *AccessChangedBody) appendCanonical(dst []byte) ([]byte, error)  { return appendJCS(dst, b) }
func (b *QuotaWarningReachedBody) appendCanonical(dst []byte) ([]byte, error) {
	return appendJCS(dst, b)
}
func (b *RecordRevokedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }
func (b *VersionReservedBody) appendCanonical(dst []byte) ([]byte, error) { return appendJCS(dst, b) }
func (b *LimitsChangedBody) appendCanonical(dst []byte) ([]byte, error)   { return appendJCS(dst, b) }

// Written by hand, like Registered: these two are on the hot path.
func (b *RecordSupersededBody) appendCanonical(dst []byte) ([]byte, error) {
	dst = append(dst, `{"byVersion":`...)
	dst = evidence.AppendInt(dst, int64(b.ByVersion))
	dst = append(dst, `,"documentId":`...)
	dst = evidence.AppendString(dst, b.DocumentID.String())
	dst = append(dst, `,"version":`...)
	dst = evidence.AppendInt(dst, int64(b.Version))
	return append(dst, '}'), nil
}

func (b *RecordRegisteredBody) appendCanonical(dst []byte) ([]byte, error) {
	dst = append(dst, `{"companyReference":`...)
	dst = evidence.AppendString(dst, b.CompanyReference)
	dst = append(dst, `,"documentId":`...)
	dst = evidence.AppendString(dst, b.DocumentID.String())
	dst = append(dst, `,"documentReference":`...)
	dst = evidence.AppendString(dst, b.DocumentReference)
	dst = append(dst, `,"keyId":`...)
	dst = evidence.AppendString(dst, b.KeyID)
	dst = append(dst, `,"payload":`...)
	dst = append(dst, b.Payload...)
	dst = append(dst, `,"period":`...)
	dst = evidence.AppendString(dst, b.Period.String())
	dst = append(dst, `,"previousVersion":`...)
	if b.PreviousVersion == nil {
		dst = append(dst, "null"...)
	} else {
		dst = evidence.AppendInt(dst, int64(*b.PreviousVersion))
	}
	dst = append(dst, `,"recordId":`...)
	dst = evidence.AppendString(dst, b.RecordID.String())
	if b.Reserved {
		dst = append(dst, `,"reserved":true`...)
	}
	dst = append(dst, `,"salt":`...)
	dst = evidence.AppendString(dst, b.Salt)
	dst = append(dst, `,"signature":`...)
	dst = evidence.AppendString(dst, b.Signature)
	dst = append(dst, `,"source":`...)
	dst = evidence.AppendString(dst, b.Source)
	dst = append(dst, `,"status":`...)
	dst = evidence.AppendString(dst, string(b.Status))
	dst = append(dst, `,"version":`...)
	dst = evidence.AppendInt(dst, int64(b.Version))
	return append(dst, '}'), nil
}

func decodeRecordRegistered(data []byte) (*RecordRegisteredBody, error) {
	var wire struct {
		CompanyReference  string          `json:"companyReference"`
		DocumentID        DocumentID      `json:"documentId"`
		DocumentReference string          `json:"documentReference"`
		KeyID             string          `json:"keyId"`
		Payload           json.RawMessage `json:"payload"`
		Period            Period          `json:"period"`
		PreviousVersion   *int32          `json:"previousVersion"`
		RecordID          RecordID        `json:"recordId"`
		Reserved          bool            `json:"reserved"`
		Salt              string          `json:"salt"`
		Signature         string          `json:"signature"`
		Source            string          `json:"source"`
		Status            Status          `json:"status"`
		Version           int32           `json:"version"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("event %s: %w", RecordRegistered, err)
	}
	record, err := evidence.ParseRecordPayload(wire.Payload)
	if err != nil {
		return nil, fmt.Errorf("event %s: payload: %w", RecordRegistered, err)
	}
	return &RecordRegisteredBody{
		RecordID: wire.RecordID, DocumentID: wire.DocumentID, CompanyReference: wire.CompanyReference,
		Source: wire.Source, DocumentReference: wire.DocumentReference, Version: wire.Version,
		PreviousVersion: wire.PreviousVersion, Reserved: wire.Reserved, Salt: wire.Salt, Period: wire.Period, Status: wire.Status,
		KeyID: wire.KeyID, Signature: wire.Signature, Payload: wire.Payload, Record: record,
	}, nil
}

// References are what the payload's referencesSha256 commits to.
func (b *RecordRegisteredBody) References() evidence.References {
	return evidence.References{
		CompanyReference: b.CompanyReference, Source: b.Source, DocumentReference: b.DocumentReference,
		Version: int64(b.Version), Salt: b.Salt,
	}
}
