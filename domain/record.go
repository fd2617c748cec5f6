package domain

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"integrityledger/domain/evidence"
)

// Status of a record (contract section 3).
type Status = evidence.Status

// A version is current, superseded by a higher one, or withdrawn.
const (
	StatusCurrent    = evidence.Current
	StatusSuperseded = evidence.Superseded
	StatusRevoked    = evidence.Revoked
)

// Record is an accepted version as its organization sees it.
type Record struct {
	ID                RecordID
	PublicID          PublicID
	SHA256            string
	CompanyReference  string
	Source            string
	DocumentReference string
	Version           int32
	PreviousVersion   *int32
	SizeBytes         int64
	MimeType          string
	GeneratedAt       string
	ReceivedAt        time.Time
	Status            Status
	// SupersededByVersion is the document's highest accepted version; nil on that one.
	SupersededByVersion *int32
	RevokedAt           *time.Time
}

// Record shows an accepted version; its document must be set.
func (i *Version) Record(companyReference string) Record {
	r := Record{
		ID: i.RecordID, PublicID: i.PublicID, SHA256: hex.EncodeToString(i.SHA256[:]), CompanyReference: companyReference,
		Source: i.Document.Source, DocumentReference: i.Document.Reference, Version: i.Version,
		PreviousVersion: i.PreviousVersion, SizeBytes: i.SizeBytes, MimeType: i.MimeType, GeneratedAt: i.GeneratedAt,
		ReceivedAt: i.ReceivedAt, Status: i.Status(), RevokedAt: i.RevokedAt,
	}
	if highest := i.Document.Highest; highest != i.Version {
		r.SupersededByVersion = &highest
	}
	return r
}

// identity is the version that the event brought into being.
func (b *RecordRegisteredBody) identity(d *Document) (Version, error) {
	publicID, ok := ParsePublicID(b.Record.PublicID)
	if !ok {
		return Version{}, fmt.Errorf("payload names no public id")
	}
	received, err := time.Parse(time.RFC3339Nano, b.Record.ReceivedAt)
	if err != nil {
		return Version{}, fmt.Errorf("payload receivedAt: %w", err)
	}
	i := Version{
		Document: d, Version: b.Version, PublicID: publicID, RecordID: b.RecordID, PreviousVersion: b.PreviousVersion,
		SizeBytes: b.Record.SizeBytes, MimeType: b.Record.MimeType, GeneratedAt: b.Record.GeneratedAt, ReceivedAt: received,
	}
	if n, err := hex.Decode(i.SHA256[:], []byte(b.Record.SHA256)); err != nil || n != len(i.SHA256) {
		return Version{}, fmt.Errorf("payload sha256 is not 64 hexadecimal characters")
	}
	return i, nil
}

// Version is the version that the event brought into being, for projections.
func (b *RecordRegisteredBody) Identity() (Version, error) { return b.identity(nil) }

// SignedRecord is what the event of a registration holds about signature and
// binding, as stored: nothing of it is believed before evidence verifies it.
type SignedRecord struct {
	Payload    []byte
	KeyID      string
	Signature  string
	References evidence.References
}

// ReadSignedRecord takes the stored data of a registration apart without judging it.
func ReadSignedRecord(data []byte) (SignedRecord, error) {
	var wire struct {
		CompanyReference  string          `json:"companyReference"`
		DocumentReference string          `json:"documentReference"`
		KeyID             string          `json:"keyId"`
		Payload           json.RawMessage `json:"payload"`
		Salt              string          `json:"salt"`
		Signature         string          `json:"signature"`
		Source            string          `json:"source"`
		Version           int64           `json:"version"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return SignedRecord{}, fmt.Errorf("stored registration: %w", err)
	}
	return SignedRecord{
		Payload: wire.Payload, KeyID: wire.KeyID, Signature: wire.Signature,
		References: evidence.References{
			CompanyReference: wire.CompanyReference, Source: wire.Source, DocumentReference: wire.DocumentReference,
			Version: wire.Version, Salt: wire.Salt,
		},
	}, nil
}
