package domain

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Document contains all versions of one document reference.
type Document struct {
	ID              DocumentID
	Organization    OrganizationID
	Company         CompanyID
	Source          string
	Reference       string
	Highest         int32 // highest accepted version; 0 while there are only reservations
	HighestRevoked  bool
	HighestPublicID PublicID
}

// Version is a version of a document: reserved, then registered, or registered at once. Reservation and registration
// are one object, so they cannot disagree.
type Version struct {
	Document  *Document `compact:"-"` // saved with its versions
	Version   int32
	PublicID  PublicID
	ExpiresAt time.Time // of the reservation, while it is not registered
	Released  bool      // at ExpiresAt

	// The members below are zero while the version is only reserved.

	RecordID        RecordID
	PreviousVersion *int32
	SHA256          [sha256.Size]byte
	SizeBytes       int64
	MimeType        string
	GeneratedAt     evidence.DeclaredTime
	ReceivedAt      time.Time
	RevokedAt       *time.Time
}

// Registered reports whether the version is a record, not only reserved.
func (v *Version) Registered() bool { return !v.RecordID.IsZero() }

// Status of an accepted version.
func (v *Version) Status() Status {
	switch {
	case v.RevokedAt != nil:
		return StatusRevoked
	case v.Version == v.Document.Highest:
		return StatusCurrent
	default:
		return StatusSuperseded
	}
}

// Status of a record (contract section 3).
type Status = evidence.Status

// A record is current, superseded by a higher version, or revoked.
const (
	StatusCurrent    = evidence.Current
	StatusSuperseded = evidence.Superseded
	StatusRevoked    = evidence.Revoked
)

// Record is an accepted version, for its organization.
type Record struct {
	ID       RecordID
	PublicID PublicID
	SHA256   evidence.Hash
	VersionReference
	PreviousVersion *int32
	SizeBytes       int64
	MimeType        string
	GeneratedAt     evidence.DeclaredTime
	ReceivedAt      time.Time
	Status          Status
	// SupersededByVersion is the document's highest accepted version; nil on that one.
	SupersededByVersion *int32
	RevokedAt           *time.Time
}

// Record returns an accepted version as a Record. Its document must be set.
func (v *Version) Record(companyReference string) Record {
	r := Record{
		ID: v.RecordID, PublicID: v.PublicID, SHA256: v.SHA256,
		VersionReference: VersionReference{companyReference, v.Document.Source, v.Document.Reference, v.Version},
		PreviousVersion:  v.PreviousVersion, SizeBytes: v.SizeBytes, MimeType: v.MimeType, GeneratedAt: v.GeneratedAt,
		ReceivedAt: v.ReceivedAt, Status: v.Status(), RevokedAt: v.RevokedAt,
	}
	if highest := v.Document.Highest; highest != v.Version {
		r.SupersededByVersion = &highest
	}
	return r
}

// RecordRegisteredBody is the declaration of one version with its signed payload.
type RecordRegisteredBody struct {
	RecordID   RecordID   `json:"recordId"`
	DocumentID DocumentID `json:"documentId"` // see OpensDocument
	VersionReference
	PreviousVersion *int32 `json:"previousVersion"`
	// Reserved is set if this finalizes a reservation of the version.
	Reserved bool   `json:"reserved,omitzero"`
	Salt     string `json:"salt"`
	Period   Period `json:"period"`
	// FromBackfill is the sequence of the event that gave the backfill allowance which is charged; 0: the month is.
	FromBackfill int64  `json:"fromBackfill,omitzero"` // since version 2
	Status       Status `json:"status"`                // current, or superseded for a late lower version
	KeyID        string `json:"keyId"`
	Signature    string `json:"signature"`
	// Payload is exactly the signed text. In the event it is a nested object, which is its own canonical form.
	Payload  json.RawMessage        `json:"payload"`
	Record   evidence.RecordPayload `json:"-"` // the parsed Payload
	PublicID PublicID               `json:"-"` // of Record
}

// OpensDocument reports whether this is known to be the first event of the document: the document's id then has the
// bits of its first record's id. False means nothing, because before this rule a new document had an independent id.
func (b *RecordRegisteredBody) OpensDocument() bool { return DocumentID(b.RecordID) == b.DocumentID }

// Charged returns the month in which the record counts, 0 for none.
func (b *RecordRegisteredBody) Charged() Period {
	if b.FromBackfill != 0 {
		return 0
	}
	return b.Period
}

// dataVersion returns 2 only if a backfill allowance is charged: until an organization has one, earlier programs must
// read the events of this program.
func (b *RecordRegisteredBody) dataVersion() int16 {
	if b.FromBackfill != 0 {
		return 2
	}
	return 1
}

// RecordSupersededBody records that a higher version has replaced this one.
type RecordSupersededBody struct {
	DocumentID DocumentID `json:"documentId"`
	Version    int32      `json:"version"`
	ByVersion  int32      `json:"byVersion"`
}

// apply changes nothing, because the current version follows from the document's highest.
func (*RecordSupersededBody) apply(*State, *Event) error { return nil }

// RecordRevokedBody revokes one version.
type RecordRevokedBody struct {
	DocumentID DocumentID `json:"documentId"`
	Version    int32      `json:"version"`
	Reason     *TextRef   `json:"reason"`
}

func (b *RecordRevokedBody) apply(s *State, e *Event) error {
	v := s.versions[versionKey{b.DocumentID, b.Version}]
	if v == nil || !v.Registered() {
		return say.Errorf("event %s revokes a version that was never registered", e.ID)
	}
	v.RevokedAt = new(e.OccurredAt)
	if v.Document.Highest == v.Version {
		v.Document.HighestRevoked = true
	}
	return nil
}

func (b *RecordRegisteredBody) apply(s *State, e *Event) error { return b.register(s, e, b.Charged()) }

// register adds the version, and counts it in a month, unless this is 0, or in the backfill allowance.
func (b *RecordRegisteredBody) register(s *State, e *Event, charged Period) error {
	isNew := s.Document(e.Company, b.Source, b.DocumentReference) == nil
	d := s.AddDocument(Document{
		ID: b.DocumentID, Organization: e.Organization, Company: e.Company, Source: b.Source, Reference: b.DocumentReference,
	})
	version := b.Registered(d)
	known := s.versions[versionKey{d.ID, b.Version}]
	switch {
	case known != nil && known.Registered():
		return say.Errorf("event %s registers version %d a second time", e.ID, b.Version)
	case b.OpensDocument() && !isNew:
		return say.Errorf("event %s opens a document that exists", e.ID)
	case b.Reserved != (known != nil) || known != nil && known.PublicID != version.PublicID:
		return say.Errorf("event %s and the reservation of version %d disagree", e.ID, b.Version)
	case known != nil:
		*known = version
		delete(s.pending[e.Organization], version.PublicID)
		s.organizations[e.Organization].Unfinalized--
	default:
		s.AddVersion(version)
	}
	if b.Version > d.Highest {
		d.Highest, d.HighestRevoked, d.HighestPublicID = b.Version, false, version.PublicID
	}
	if b.FromBackfill != 0 {
		s.ChargeBackfill(e.Organization)
	}
	if charged == 0 {
		return nil
	}
	for _, company := range []CompanyID{{}, e.Company} {
		key := UsageKey{e.Organization, charged, company}
		s.usage.put(key, s.usage[key]+1)
	}
	return nil
}

var registeredForm = strictjson.FormOf[RecordRegisteredBody]()

func (b *RecordRegisteredBody) appendCanonical(dst []byte) []byte {
	return registeredForm.Append(dst, b)
}

// References returns the references that the payload's referencesSha256 commits to.
func (b *RecordRegisteredBody) References() evidence.References {
	return evidence.References{
		CompanyReference: b.CompanyReference, Source: b.Source, DocumentReference: b.DocumentReference,
		Version: int64(b.Version), Salt: b.Salt,
	}
}

// Registered returns the version that the event registers. Projections may pass a nil document.
func (b *RecordRegisteredBody) Registered(d *Document) Version {
	return Version{
		Document: d, Version: b.Version, PublicID: b.PublicID, RecordID: b.RecordID, PreviousVersion: b.PreviousVersion,
		SHA256: b.Record.SHA256, SizeBytes: b.Record.SizeBytes, MimeType: b.Record.MimeType,
		GeneratedAt: b.Record.GeneratedAt,
		ReceivedAt:  b.Record.ReceivedAt,
	}
}

// readPayload sets Record and PublicID from Payload.
func (b *RecordRegisteredBody) readPayload() (err error) {
	if b.Record, err = evidence.ParseRecordPayload(b.Payload); err != nil {
		return say.Errorf("payload: %w", err)
	}
	var ok bool
	if b.PublicID, ok = ParsePublicID(b.Record.PublicID); !ok {
		return say.New("payload names no public id")
	}
	return nil
}

// Revoke permanently revokes a version. The evidence stays, and no lower version becomes current again. The reason is
// an erasable text, shown only in the audit history.
type Revoke struct {
	Origin
	Key      KeyID
	PublicID PublicID
	Reason   string // may be empty

	reason Text

	Outcome  Record
	Replayed bool // it was already revoked; the first reason is kept
}

func (c *Revoke) Need(n *Needs) {
	n.Records = append(n.Records, RecordNeed{Key: c.Key, PublicID: c.PublicID})
}

// Decide implements Command. A record of another organization or of a company without a grant counts as unknown, and so
// does a reservation. A signed-in member needs no grant.
func (c *Revoke) Decide(s *State, now time.Time) ([]Draft, error) {
	known := s.public[c.PublicID]
	if known == nil || !known.Registered() || known.Document.Organization != c.Organization ||
		!s.mayUse(c.Origin, c.Key, known.Document.Company) {
		return nil, ErrUnknownRecord
	}
	company := s.companies[known.Document.Company]
	if known.RevokedAt != nil {
		c.Outcome, c.Replayed = known.Record(company.Reference), true
		return nil, nil
	}
	after := *known
	after.RevokedAt = &now
	c.Outcome, c.Replayed = after.Record(company.Reference), false

	b := &RecordRevokedBody{DocumentID: known.Document.ID, Version: known.Version}
	draft := Draft{Company: company.ID, Subject: c.PublicID.String(), Body: b}
	if c.Reason != "" {
		draft.Texts = []Text{c.reason.draw(now, c.Reason)}
		b.Reason = new(c.reason.Ref())
	}
	return []Draft{draft}, nil
}

// SignedRecord is the stored signature data of a registration's event. Do not trust any of it before evidence has
// verified it.
type SignedRecord struct {
	Payload   json.RawMessage `json:"payload"`
	KeyID     string          `json:"keyId"`
	Signature string          `json:"signature"`
	evidence.References
}

// ReadSignedRecord parses the stored data of a registration without checking it. The payload shares memory with data.
func ReadSignedRecord(data []byte) (r SignedRecord, err error) {
	var b RecordRegisteredBody
	if registeredForm.Scan(data, &b) {
		return SignedRecord{Payload: b.Payload, KeyID: b.KeyID, Signature: b.Signature, References: b.References()}, nil
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return SignedRecord{}, say.Errorf("stored registration: %w", err)
	}
	return r, nil
}
