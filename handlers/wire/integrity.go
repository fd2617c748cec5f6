package wire

import (
	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// VersionReference names a version, in the body of a reservation and in look-ups. Within an organization it identifies
// the version and never changes.
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
	SizeBytes         int64  `json:"sizeBytes"` // as declared by the origin
	MimeType          string `json:"mimeType"`  // type/subtype, without parameters
	GeneratedAt       string `json:"generatedAt"`
	ReservationID     string `json:"reservationId,omitempty"` // publicId of the version's reservation
}

// VersionReference names the version that d declares.
func (d Declaration) VersionReference() VersionReference {
	return VersionReference{d.CompanyReference, d.Source, d.DocumentReference, d.Version}
}

// Record has the members of contract section 3. All of them are always present.
type Record struct {
	ID       string `json:"id"`
	PublicID string `json:"publicId"`
	SHA256   string `json:"sha256"`
	VersionReference
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

// Consumption is the number of the month's registrations that the request consumed.
type Consumption struct {
	Applied int `json:"applied"`
}

// Usage is the organization's month of new versions.
type Usage struct {
	Period domain.Period `json:"period"`
	Quota
	ResetsAt string `json:"resetsAt"`
}

// Registration is a record with the cost of its registration.
type Registration struct {
	Record
	Replayed            bool         `json:"replayed"`
	Consumption         Consumption  `json:"consumption"`
	Usage               Usage        `json:"usage"`
	CompanyContribution CompanyUsage `json:"companyContribution"`
}

// Existed reports whether the version was registered before.
func (r Registration) Existed() bool { return r.Replayed }

// Revocation is the answer to the revocation of a record. Replayed is true if the record was revoked before.
type Revocation struct {
	Record
	Replayed bool `json:"replayed"`
}

// Reservation is the link of a version whose bytes are not final. It is not evidence.
type Reservation struct {
	PublicID        string                   `json:"publicId"`
	VerificationURL string                   `json:"verificationUrl"`
	ExpiresAt       string                   `json:"expiresAt"`
	Status          domain.ReservationStatus `json:"status"`
	Replayed        bool                     `json:"replayed"`
	Consumption     Consumption              `json:"consumption"`
}

// Existed reports whether the version already had its public id.
func (r Reservation) Existed() bool { return r.Replayed }

// ReservedVersion is a version that was reserved and is not registered. ExpiresAt of a released reservation is the time
// of its release.
type ReservedVersion struct {
	PublicID        string `json:"publicId"`
	VerificationURL string `json:"verificationUrl"`
	VersionReference
	Status    domain.ReservationStatus `json:"status"`
	ExpiresAt string                   `json:"expiresAt"`
}

// ReleasedReservation is the answer to a release. Replayed is true if the reservation was released before or had
// expired.
type ReleasedReservation struct {
	ReservedVersion
	Replayed bool `json:"replayed"`
}

// Reservations is a page of reservations.
type Reservations struct {
	Reservations []ReservedVersion `json:"reservations"`
	Next
}

// Result is the answer to one item of a request, as if it had been sent alone. Exactly one of Data and Error is set.
type Result[Data Appender] struct {
	Status int      `json:"status"`
	Data   *Data    `json:"data"`
	Error  *Failure `json:"error"`
}

// Results has the answers to the items of a request in their order.
type Results[Data Appender] struct {
	Results []Result[Data] `json:"results"`
}

// Records is a page of records.
type Records struct {
	Records []Record `json:"records"`
	Next
}

// FeedEvent is a change of a version. Version is the document's version and SHA256 its declared hash; RecordStatus is
// the state right after the event. An older service sends no SHA256.
type FeedEvent struct {
	ID         string           `json:"id"`
	Sequence   int64            `json:"sequence"`
	Type       domain.EventType `json:"type"`
	OccurredAt string           `json:"occurredAt"`
	PublicID   string           `json:"publicId"`
	SHA256     string           `json:"sha256"`
	VersionReference
	RecordStatus domain.Status `json:"recordStatus"`
}

// Feed is a page of a company's changes in order, or of all companies of a key. Its events are FeedEvents or their raw
// JSON. Only a page over all companies has a Head, which is the organization's last sequence when the page was read,
// and names the companies that the key was granted by events of the page.
type Feed[E any] struct {
	Events     []E              `json:"events"`
	NextCursor int64            `json:"nextCursor"`
	HasMore    bool             `json:"hasMore"`
	Head       *int64           `json:"head,omitzero"`
	Granted    []GrantedCompany `json:"grantedCompanies,omitzero"`
}

// GrantedCompany is a company that a key may use, with the sequence of the event that granted it.
type GrantedCompany struct {
	CompanyReference string `json:"companyReference"`
	Sequence         int64  `json:"sequence"`
}

// UsageEntries is a page of the entries that count against a month's allowance. All pages show figures and entries as
// of the organization's sequence ThroughSequence.
type UsageEntries struct {
	Period          domain.Period `json:"period"`
	ThroughSequence int64         `json:"throughSequence"`
	Organization    EntriesUsed   `json:"organization"`
	Entries         []UsageEntry  `json:"entries"`
	Next
}

// EntriesUsed is the use of a month. Visible counts the entries of companies granted to the key, which are the listed
// ones. Used is the sum of Visible and NotVisible.
type EntriesUsed struct {
	Used       int64 `json:"used"`
	Visible    int64 `json:"visible"`
	NotVisible int64 `json:"notVisible"`
}

// UsageEntry is a new version with the event of its registration.
type UsageEntry struct {
	EventID    string `json:"eventId"`
	Sequence   int64  `json:"sequence"`
	OccurredAt string `json:"occurredAt"`
	PublicID   string `json:"publicId"`
	VersionReference
}

type CompanyRequest struct {
	Reference string `json:"reference"`
}

type CompanyStatusRequest struct {
	Status domain.CompanyStatus `json:"status"`
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

// EvidenceRequest asks for the evidence of 1 to 100 records.
type EvidenceRequest struct {
	PublicIDs  []string `json:"publicIds"`
	Timestamps bool     `json:"timestamps,omitempty"`
	Wait       int      `json:"wait,omitempty"` // seconds, at most 25
}

type RevokeRequest struct {
	Reason string `json:"reason,omitempty"`
}

// WebhookRequest creates a destination. Without types it receives all types.
type WebhookRequest struct {
	URL         string             `json:"url"`
	Description string             `json:"description,omitempty"`
	Types       []domain.EventType `json:"types,omitempty"`
}

// WebhookChange changes a destination. Nil members do not change. Enabled says whether it receives deliveries.
type WebhookChange struct {
	URL         *string            `json:"url,omitempty"`
	Description *string            `json:"description,omitempty"`
	Types       []domain.EventType `json:"types,omitempty"`
	Enabled     *bool              `json:"enabled,omitempty"`
}

// RotateRequest rotates the secret of a destination. A nil OverlapSeconds means a day.
type RotateRequest struct {
	OverlapSeconds *int64 `json:"overlapSeconds,omitempty"`
}

// ReplayRequest names the range of events to send again, both ends included. A zero ToSequence means the newest event.
type ReplayRequest struct {
	FromSequence     int64  `json:"fromSequence"`
	ToSequence       int64  `json:"toSequence,omitempty"`
	CompanyReference string `json:"companyReference,omitempty"`
	DryRun           bool   `json:"dryRun"`
}

// ComparisonResult is one of the specification's public comparison results, which must not be reduced to pass or fail.
type ComparisonResult string

// The results of a comparison. RecordNotFound is answered as an error with this code and status 404.
const (
	MatchCurrent        ComparisonResult = "MATCH_CURRENT"
	MatchHistorical     ComparisonResult = "MATCH_HISTORICAL"
	HashMismatch        ComparisonResult = "HASH_MISMATCH"
	RecordRevoked       ComparisonResult = "RECORD_REVOKED"
	FileNotCompared     ComparisonResult = "FILE_NOT_COMPARED"
	SignatureInvalid    ComparisonResult = "SIGNATURE_INVALID"
	RegistrationPending ComparisonResult = "REGISTRATION_PENDING"
	RecordNotFound      ComparisonResult = "RECORD_NOT_FOUND"
)

// ComparisonChecks are the three checks that a comparison reports separately. Nil means not established, which is not
// the same as false.
type ComparisonChecks struct {
	FileMatch    *bool             `json:"fileMatch"`
	Signature    *evidence.Finding `json:"signature"`
	VersionState *domain.Status    `json:"versionState"`
}

// Comparison is the answer to the public comparison (contract section 4.2).
type Comparison struct {
	PublicID   string           `json:"publicId"`
	Result     ComparisonResult `json:"result"`
	Verified   bool             `json:"verified"`
	Checks     ComparisonChecks `json:"checks"`
	ReceivedAt *string          `json:"receivedAt"`
	CheckedAt  string           `json:"checkedAt"`
	KeyID      *string          `json:"keyId"`
	ReceiptURL *string          `json:"receiptUrl"`
	LimitsURL  string           `json:"limitsUrl"`
	// Alias is set if PublicID is a former public id.
	Alias *Alias `json:"alias,omitempty"`
	// Publisher is set if the organization of a validated record has proven that it controls a domain.
	Publisher *Publisher `json:"publisher,omitempty"`
	// Released is for the page of a link: its reservation was released.
	Released bool `json:"-"`
}

// Publisher is what the organization of a record says about itself today. It says nothing about the time of the
// registration. Name is in the organization's own words; nobody has verified it.
type Publisher struct {
	Domains  []PublisherDomain `json:"domains"`
	Name     *string           `json:"name"`
	StatedAt *string           `json:"statedAt"` // when the organization stated the name
}

// PublisherDomain is a domain with its last proof.
type PublisherDomain struct {
	Domain    string             `json:"domain"` // ASCII, lower case
	Method    domain.ProofMethod `json:"method"`
	CheckedAt string             `json:"checkedAt"`
}

// Alias says that the record of a public id was lost and registered again, and which record is kept.
type Alias struct {
	PublicID  string          `json:"publicId"`  // of the record that is kept
	Statement evidence.Signed `json:"statement"` // contract integrity-alias-v1
}

// Evidence is the answer of receipts and exports, without an Envelope.
type Evidence struct{ evidence.Envelope }

// LogTimestamps is a page of tokens over checkpoints of the transparency log, sorted by tree size and authority.
type LogTimestamps struct {
	Timestamps []LogTimestamp `json:"timestamps"`
	HasMore    bool           `json:"hasMore"` // after the last TreeSize of this page
}

// LogTimestamp is a token of a timestamp authority (RFC 3161) over the SHA-256 of a checkpoint.
type LogTimestamp struct {
	TreeSize   int64  `json:"treeSize"` // of the checkpoint
	Authority  string `json:"authority"`
	GenTime    string `json:"genTime"`
	Checkpoint string `json:"checkpoint"` // the signed note, with only the log's own signature
	Token      []byte `json:"token"`      // DER, in standard base64
}

// Company is a partition of an organization for its integrations, not a verified entity.
type Company struct {
	ID        string               `json:"id"`
	Reference string               `json:"reference"`
	Status    domain.CompanyStatus `json:"status"`
	CreatedAt string               `json:"createdAt"`
	ClosedAt  *string              `json:"closedAt"` // nil if the company is active
}

// CreatedCompany is the answer to a creation. Replayed is true if the reference existed.
type CreatedCompany struct {
	Company
	Replayed bool `json:"replayed"`
}

// Existed reports whether the company existed before.
func (c CreatedCompany) Existed() bool { return c.Replayed }

// Companies is a page of companies.
type Companies struct {
	Companies []Company `json:"companies"`
	Next
}

type KeyAccess struct {
	CompanyID string `json:"companyId"`
	KeyID     string `json:"keyId"`
	Enabled   bool   `json:"enabled"`
	UpdatedAt string `json:"updatedAt"`
}

// KeysAccess is a page of the keys that may use a company, including keys whose grant was withdrawn.
type KeysAccess struct {
	Access []NamedKeyAccess `json:"access"`
	Next
}

// NamedKeyAccess is an entry of KeysAccess. Name is nil if the key has no name or its name was erased.
type NamedKeyAccess struct {
	KeyAccess
	Name *string `json:"name"`
}

type WebhookAccess struct {
	CompanyID string `json:"companyId"`
	WebhookID string `json:"webhookId"`
	Enabled   bool   `json:"enabled"`
	UpdatedAt string `json:"updatedAt"`
}

// WebhooksAccess is a page of the destinations that receive the events of a company, including former ones.
type WebhooksAccess struct {
	Webhooks []WebhookAccess `json:"webhooks"`
	Next
}

// CompanyUsage is the contribution of a company to the organization's month.
type CompanyUsage struct {
	CompanyReference string `json:"companyReference"`
	Used             int64  `json:"used"`
}

// Warning says that a percentage of an allowance was reached, with limit and use at that time.
type Warning struct {
	Allowance string `json:"allowance"` // the name of a domain.Allowance
	Percent   int    `json:"percent"`
	Limit     int64  `json:"limit"`
	Used      int64  `json:"used"`
	ReachedAt string `json:"reachedAt"`
}

// Allowance is the organization's month with the contributions of the companies granted to the key. Versions that are
// charged to the backfill allowance are not in the month. An older service sends no Backfill.
type Allowance struct {
	Plan         string         `json:"plan"`
	Period       domain.Period  `json:"period"`
	Organization MonthlyUsage   `json:"organization"`
	Backfill     Quota          `json:"backfill"`
	Companies    []CompanyUsage `json:"companies"`
	Warnings     []Warning      `json:"warnings"`
}

// MonthlyUsage is the organization's month, with its members in the contract's order. Limit and Remaining are nil if
// Unlimited.
type MonthlyUsage struct {
	Limit     *int64 `json:"limit"`
	Unlimited bool   `json:"unlimited"`
	Used      int64  `json:"used"`
	Remaining *int64 `json:"remaining"`
	ResetsAt  string `json:"resetsAt"`
}

// Webhook is a destination of deliveries. URL is null once erased.
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

// WebhookWithSecret is the only answer that contains a secret.
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

// Delivery is the delivery of one event to one destination. Sequence and CompanyID are null for a test delivery.
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

// Deliveries is a page of deliveries.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	Next
}

// Replay is the answer to a replay. NextSequence is where the next replay must begin, or null if the range is done.
type Replay struct {
	DryRun       bool   `json:"dryRun"`
	Count        int    `json:"count"`
	NextSequence *int64 `json:"nextSequence"`
}
