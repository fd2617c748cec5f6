package wire

import (
	"integrityledger/domain"
)

// VersionReference names a version: the body of a reservation, and what a look-up asks for. With the organization of
// the key it is the version's identity for ever.
type VersionReference struct {
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
}

// Declaration is the body of a registration (specification, "Declaration").
type Declaration struct {
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
	PreviousVersion   *int32 `json:"previousVersion"`
	SHA256            string `json:"sha256"`    // 64 hexadecimal characters
	SizeBytes         int64  `json:"sizeBytes"` // as the origin declares it
	MimeType          string `json:"mimeType"`  // type/subtype, without parameters
	GeneratedAt       string `json:"generatedAt"`
	ReservationID     string `json:"reservationId,omitempty"` // publicId of the version's reservation
}

// VersionReference names the version that d declares.
func (d Declaration) VersionReference() VersionReference {
	return VersionReference{d.CompanyReference, d.Source, d.DocumentReference, d.Version}
}

// Record has the members of contract section 3, all always present.
type Record struct {
	ID                  string        `json:"id"`
	PublicID            string        `json:"publicId"`
	SHA256              string        `json:"sha256"`
	CompanyReference    string        `json:"companyReference"`
	Source              string        `json:"source"`
	DocumentReference   string        `json:"documentReference"`
	Version             int32         `json:"version"`
	PreviousVersion     *int32        `json:"previousVersion"`
	SizeBytes           int64         `json:"sizeBytes"`
	MimeType            string        `json:"mimeType"`
	GeneratedAt         string        `json:"generatedAt"`
	ReceivedAt          string        `json:"receivedAt"`
	Status              domain.Status `json:"status"`
	SupersededByVersion *int32        `json:"supersededByVersion"`
	RevokedAt           *string       `json:"revokedAt"`
	VerificationURL     string        `json:"verificationUrl"`
	EvidenceURL         string        `json:"evidenceUrl"`
}

// Consumption says how many registrations of the month the request took.
type Consumption struct {
	Applied int `json:"applied"`
}

// Usage is the organization's month; Limit and Remaining are nil without a limit.
type Usage struct {
	Period    domain.Period `json:"period"`
	Limit     *int64        `json:"limit"`
	Used      int64         `json:"used"`
	Remaining *int64        `json:"remaining"`
	ResetsAt  string        `json:"resetsAt"`
}

// Registration is a record with what its registration cost.
type Registration struct {
	Record
	Replayed            bool         `json:"replayed"`
	Consumption         Consumption  `json:"consumption"`
	Usage               Usage        `json:"usage"`
	CompanyContribution CompanyUsage `json:"companyContribution"`
}

// Revocation answers the revocation of a record; Replayed: it was revoked before.
type Revocation struct {
	Record
	Replayed bool `json:"replayed"`
}

// Reservation is the link of a version before its bytes are final. It is no evidence.
type Reservation struct {
	PublicID        string                   `json:"publicId"`
	VerificationURL string                   `json:"verificationUrl"`
	ExpiresAt       string                   `json:"expiresAt"`
	Status          domain.ReservationStatus `json:"status"`
	Replayed        bool                     `json:"replayed"`
	Consumption     Consumption              `json:"consumption"`
}

// BatchResult answers one declaration of a batch as if it had been sent alone: exactly one of Data and Error is set.
type BatchResult struct {
	Status int           `json:"status"`
	Data   *Registration `json:"data"`
	Error  *Failure      `json:"error"`
}

// Batch answers the declarations of a batch in their order.
type Batch struct {
	Results []BatchResult `json:"results"`
}

// Records is a page of records. NextCursor is opaque.
type Records struct {
	Records    []Record `json:"records"`
	NextCursor *string  `json:"nextCursor"`
	HasMore    bool     `json:"hasMore"`
}

// FeedEvent is one change of a version. Version is the document's, RecordStatus the state right after the event.
type FeedEvent struct {
	ID                string           `json:"id"`
	Sequence          int64            `json:"sequence"`
	Type              domain.EventType `json:"type"`
	OccurredAt        string           `json:"occurredAt"`
	PublicID          string           `json:"publicId"`
	CompanyReference  string           `json:"companyReference"`
	Source            string           `json:"source"`
	DocumentReference string           `json:"documentReference"`
	Version           int32            `json:"version"`
	RecordStatus      domain.Status    `json:"recordStatus"`
}

// Feed is a page of a company's changes, in order: of FeedEvent, or of their raw JSON.
type Feed[E any] struct {
	Events     []E   `json:"events"`
	NextCursor int64 `json:"nextCursor"`
	HasMore    bool  `json:"hasMore"`
}

// UsageEntries is a page of what a month's allowance was charged with. Figures and entries are those of the
// organization's sequence ThroughSequence, on every page alike. NextCursor is opaque.
type UsageEntries struct {
	Period          domain.Period `json:"period"`
	ThroughSequence int64         `json:"throughSequence"`
	Organization    EntriesUsed   `json:"organization"`
	Entries         []UsageEntry  `json:"entries"`
	NextCursor      *string       `json:"nextCursor"`
	HasMore         bool          `json:"hasMore"`
}

// EntriesUsed is the month's use: Visible entries are of companies granted to the key, and only those are listed; Used
// is their sum with NotVisible.
type EntriesUsed struct {
	Used       int64 `json:"used"`
	Visible    int64 `json:"visible"`
	NotVisible int64 `json:"notVisible"`
}

// UsageEntry is one new version, with the event of its registration.
type UsageEntry struct {
	EventID           string `json:"eventId"`
	Sequence          int64  `json:"sequence"`
	OccurredAt        string `json:"occurredAt"`
	PublicID          string `json:"publicId"`
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
}

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
