package domain

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/evidence"
)

// EventType names what happened. The set only grows.
type EventType string

// Event types. Registered, superseded and revoked are also the change feed's; a
// reservation is no evidence and no change of a version, so the feed never shows it.
const (
	OrganizationCreated     EventType = "organization.created"
	OrganizationPlanChanged EventType = "organization.plan_changed"
	OrganizationLimits      EventType = "organization.limits_changed"
	MemberAdded             EventType = "member.added"
	MemberChanged           EventType = "member.changed"
	KeyCreated              EventType = "key.created"
	KeyExpiryChanged        EventType = "key.expiry_changed"
	KeyRevoked              EventType = "key.revoked"
	CompanyCreated          EventType = "company.created"
	CompanyAccessChanged    EventType = "company.access_changed"
	VersionReserved         EventType = "integrity.reserved"
	QuotaWarningReached     EventType = "quota.warning_reached"
	WebhookCreated          EventType = "webhook.created"
	WebhookUpdated          EventType = "webhook.updated"
	WebhookSecretRotated    EventType = "webhook.secret_rotated"
	WebhookAutoDisabled     EventType = "webhook.disabled"
	WebhookDeleted          EventType = "webhook.deleted"
	CompanyWebhookChanged   EventType = "company.webhook_changed"
	OAuthLinkStarted        EventType = "oauth.link_started"
	OAuthLinked             EventType = "oauth.linked"
	OAuthConsentWithdrawn   EventType = "oauth.consent_withdrawn"
	RecordRegistered        EventType = "integrity.registered"
	RecordSuperseded        EventType = "integrity.superseded"
	RecordRevoked           EventType = "integrity.revoked"
)

// Event is one entry of the log. It is for ever: Data holds the exact canonical
// bytes (RFC 8785) in version V of its type, and Hash is the RFC 6962 leaf hash
// of contract section 4.3, in which Shard and Position have no part.
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

// LeafOf is Leaf of an event whose Body is not decoded: payload is that of a
// registration, nil for all other types.
func (e *Event) LeafOf(payload []byte) []byte {
	b := make([]byte, 0, 256+len(e.Data))
	b = append(b, `{"actor":`...)
	b = evidence.AppendString(b, e.Actor)
	b = append(b, `,"company":`...)
	if e.Company.IsZero() {
		b = append(b, "null"...)
	} else {
		b = evidence.AppendString(b, e.Company.String())
	}
	b = append(b, `,"data":`...)
	b = append(b, e.Data...)
	b = append(b, `,"organization":`...)
	b = evidence.AppendString(b, e.Organization.String())
	b = append(b, `,"requestId":`...)
	b = evidence.AppendString(b, e.RequestID)
	b = append(b, `,"sequence":`...)
	b = evidence.AppendInt(b, e.Sequence)
	b = append(b, `,"subject":`...)
	b = evidence.AppendString(b, e.Subject)
	b = append(b, `,"v":`...)
	b = evidence.AppendInt(b, int64(e.V))
	b = append(b, '}')
	body := sha256.Sum256(b)

	leaf := make([]byte, 0, 420)
	leaf = append(leaf, `{"bodySha256":"`...)
	leaf = hex.AppendEncode(leaf, body[:])
	leaf = append(leaf, `","contract":"integrity-leaf-v1","id":`...)
	leaf = evidence.AppendString(leaf, e.ID.String())
	leaf = append(leaf, `,"nonce":"`...)
	leaf = base64.RawURLEncoding.AppendEncode(leaf, e.Nonce[:])
	leaf = append(leaf, `","occurredAt":`...)
	leaf = evidence.AppendString(leaf, evidence.FormatTime(e.OccurredAt))
	leaf = append(leaf, `,"payloadSha256":`...)
	if payload != nil {
		sum := sha256.Sum256(payload)
		leaf = append(leaf, '"')
		leaf = hex.AppendEncode(leaf, sum[:])
		leaf = append(leaf, '"')
	} else {
		leaf = append(leaf, "null"...)
	}
	leaf = append(leaf, `,"type":`...)
	leaf = evidence.AppendString(leaf, string(e.Type))
	return append(leaf, '}')
}

// Canonical is the RFC 8785 form of Body, which Data must be byte for byte.
func (e *Event) Canonical() ([]byte, error) {
	return e.Body.appendCanonical(make([]byte, 0, len(e.Data)))
}

// LeafHash is SHA-256(0x00 || leaf), RFC 6962 section 2.1.
func LeafHash(leaf []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(leaf)
	return [32]byte(h.Sum(nil))
}

// Body is the data of one event type in its newest version.
type Body interface {
	eventType() EventType
	// appendCanonical appends the RFC 8785 form.
	appendCanonical(dst []byte) ([]byte, error)
}

// DecodeBody reads stored event data.
func DecodeBody(t EventType, v int16, data []byte) (Body, error) {
	if v != eventVersion {
		return nil, fmt.Errorf("event %s has version %d, which this program does not know", t, v)
	}
	if t == RecordRegistered {
		return decodeRecordRegistered(data)
	}
	body := newBody(t)
	if body == nil {
		return nil, fmt.Errorf("event type %q is not known to this program", t)
	}
	if err := json.Unmarshal(data, body); err != nil {
		return nil, fmt.Errorf("event %s: %w", t, err)
	}
	return body, nil
}

// Known reports whether there are events of this type.
func (t EventType) Known() bool { return t == RecordRegistered || newBody(t) != nil }

// newBody makes an empty body for all types but RecordRegistered; nil for an unknown one.
func newBody(t EventType) Body {
	switch t {
	case OrganizationCreated:
		return new(OrganizationCreatedBody)
	case OrganizationPlanChanged:
		return new(PlanChangedBody)
	case OrganizationLimits:
		return new(LimitsChangedBody)
	case MemberAdded:
		return new(MemberAddedBody)
	case MemberChanged:
		return new(MemberChangedBody)
	case KeyCreated:
		return new(KeyCreatedBody)
	case KeyExpiryChanged:
		return new(KeyExpiryChangedBody)
	case KeyRevoked:
		return new(KeyRevokedBody)
	case CompanyCreated:
		return new(CompanyCreatedBody)
	case CompanyAccessChanged:
		return new(AccessChangedBody)
	case VersionReserved:
		return new(VersionReservedBody)
	case QuotaWarningReached:
		return new(QuotaWarningReachedBody)
	case WebhookCreated:
		return new(WebhookCreatedBody)
	case WebhookUpdated:
		return new(WebhookUpdatedBody)
	case WebhookSecretRotated:
		return new(WebhookSecretRotatedBody)
	case WebhookAutoDisabled:
		return new(WebhookDisabledBody)
	case WebhookDeleted:
		return new(WebhookDeletedBody)
	case CompanyWebhookChanged:
		return new(WebhookAccessBody)
	case OAuthLinkStarted:
		return new(LinkStartedBody)
	case OAuthLinked:
		return new(LinkedBody)
	case OAuthConsentWithdrawn:
		return new(ConsentWithdrawnBody)
	case ClockReset:
		return new(ClockResetBody)
	case RecordSuperseded:
		return new(RecordSupersededBody)
	case RecordRevoked:
		return new(RecordRevokedBody)
	}
	return newCertificationBody(t)
}

func appendJCS(dst []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	canonical, err := jcs.Transform(text)
	if err != nil {
		return nil, fmt.Errorf("canonical form of event: %w", err)
	}
	return append(dst, canonical...), nil
}

// eventVersion is the version of every type's data today. A type that changes
// gets a number of its own, and DecodeBody keeps reading the old one.
const eventVersion = 1
