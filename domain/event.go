package domain

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"

	"integrityledger/domain/evidence"
)

// Event is one entry of the log. It never changes: Data holds the exact canonical bytes (RFC 8785) in version V of its
// type, and Hash is the RFC 6962 leaf hash of contract section 4.3, in which Shard and Position have no part.
type Event struct {
	Shard        Shard
	Position     int64 // gapless within the shard, in commit order, from 1
	Organization OrganizationID
	Sequence     int64 // gapless within the organization, from 1
	ID           EventID
	V            int16
	Type         EventType
	Company      CompanyID // zero where the event belongs to no company
	Subject      string    // the id of what changed
	OccurredAt   time.Time // UTC, microseconds, never decreasing within a shard but at a ClockReset
	Actor        string    // a key's or member's id, "operator" or "system"
	RequestID    string
	Data         []byte
	Nonce        [16]byte
	Hash         [32]byte

	Body  Body   // Data, decoded
	Texts []Text // erasable texts that are stored beside a new event; never part of it
	// Answer is stored beside a new event for a repetition of its request; never part of it.
	Answer *StoredAnswer
}

// Leaf is the canonical text whose RFC 6962 leaf hash is the event's Hash
// (contract section 4.3). It is computed from the stored members alone.
func (e *Event) Leaf() []byte {
	if r, ok := e.Body.(*RecordRegisteredBody); ok {
		return e.LeafOf(r.Payload)
	}
	return e.LeafOf(nil)
}

// LeafOf is Leaf of an event whose Body is not decoded: payload is that of a registration, nil for all other types.
func (e *Event) LeafOf(payload []byte) []byte {
	b := make([]byte, 0, 256+len(e.Data))
	b = appendMember(b, `{"actor":`, e.Actor)
	b = append(b, `,"company":`...)
	if e.Company.IsZero() {
		b = append(b, "null"...)
	} else {
		b = evidence.AppendString(b, e.Company.String())
	}
	b = append(b, `,"data":`...)
	b = append(b, e.Data...)
	b = appendMember(b, `,"organization":`, e.Organization.String())
	b = appendMember(b, `,"requestId":`, e.RequestID)
	b = append(b, `,"sequence":`...)
	b = evidence.AppendInt(b, e.Sequence)
	b = appendMember(b, `,"subject":`, e.Subject)
	b = append(b, `,"v":`...)
	b = evidence.AppendInt(b, int64(e.V))
	b = append(b, '}')
	body := sha256.Sum256(b)

	leaf := make([]byte, 0, 420)
	leaf = append(leaf, `{"bodySha256":"`...)
	leaf = hex.AppendEncode(leaf, body[:])
	leaf = appendMember(leaf, `","contract":"integrity-leaf-v1","id":`, e.ID.String())
	leaf = append(leaf, `,"nonce":"`...)
	leaf = base64.RawURLEncoding.AppendEncode(leaf, e.Nonce[:])
	leaf = appendMember(leaf, `","occurredAt":`, evidence.FormatTime(e.OccurredAt))
	leaf = append(leaf, `,"payloadSha256":`...)
	if payload != nil {
		sum := sha256.Sum256(payload)
		leaf = append(leaf, '"')
		leaf = hex.AppendEncode(leaf, sum[:])
		leaf = append(leaf, '"')
	} else {
		leaf = append(leaf, "null"...)
	}
	leaf = appendMember(leaf, `,"type":`, string(e.Type))
	return append(leaf, '}')
}

// Canonical is the RFC 8785 form of Body. Data must equal it byte for byte.
func (e *Event) Canonical() ([]byte, error) {
	return appendCanonical(make([]byte, 0, len(e.Data)), e.Body)
}

// LeafHash is SHA-256(0x00 || leaf), RFC 6962 section 2.1.
func LeafHash(leaf []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(leaf)
	return [32]byte(h.Sum(nil))
}
