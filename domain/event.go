package domain

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/gowebpki/jcs"

	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Event is an entry of the log. It never changes: Data holds the exact canonical bytes (RFC 8785) in version V of its
// type, and Hash is the RFC 6962 leaf hash of contract section 4.3, which does not cover Shard and Position.
type Event struct {
	Shard        Shard
	Position     int64 // gapless within the shard, in commit order, from 1
	Organization OrganizationID
	Sequence     int64 // gapless within the organization, from 1
	ID           EventID
	V            int16
	Type         EventType
	Company      CompanyID // zero if the event belongs to no company
	Subject      string    // the id of the changed object
	OccurredAt   time.Time // UTC, microseconds, never decreasing within a shard except at a ClockReset
	Actor        Actor
	RequestID    string
	Data         []byte
	Nonce        [16]byte
	Hash         [32]byte

	Body  Body   // Data, decoded
	Texts []Text // erasable texts stored beside a new event; not part of it
	// Answer is stored beside a new event for a repetition of its request. It is not part of the event.
	Answer *StoredAnswer
	// Sealed is the sealed code of an invitation, for the mail queue. It is not part of the event.
	Sealed []byte
}

// Leaf returns the canonical text whose RFC 6962 leaf hash is the event's Hash (contract, section 4.3). It is computed
// only from the stored members.
func (e *Event) Leaf() []byte {
	if _, ok := e.Body.(*KeysPublishedBody); ok {
		return e.LeafOf(e.Data)
	}
	if r := Registration(e.Body); r != nil {
		return e.LeafOf(r.Payload)
	}
	return e.LeafOf(nil)
}

// LeafOf is Leaf for an event whose Body is not decoded: payload is the signed payload of a registration, new or
// healed, the data of a key set, and nil for all other types.
func (e *Event) LeafOf(payload []byte) []byte {
	commitment := eventCommitment{
		Actor: e.Actor, Data: e.Data, Organization: e.Organization, RequestID: e.RequestID, Sequence: e.Sequence,
		Subject: e.Subject, V: e.V,
	}
	if !e.Company.IsZero() {
		commitment.Company = &e.Company
	}
	leaf := evidence.Leaf{
		BodySHA256: sha256.Sum256(commitmentForm.Append(make([]byte, 0, 256+len(e.Data)), &commitment)),
		ID:         e.ID.String(), Type: string(e.Type), Nonce: e.Nonce,
		OccurredAt: e.OccurredAt.UTC().Truncate(time.Microsecond),
	}
	if payload != nil {
		leaf.PayloadSHA256 = new(evidence.Hash(sha256.Sum256(payload)))
	}
	return leaf.AppendCanonical(make([]byte, 0, 420))
}

// eventCommitment is the data that a leaf's bodySha256 commits to.
type eventCommitment struct {
	Actor        Actor           `json:"actor"`
	Company      *CompanyID      `json:"company"`
	Data         json.RawMessage `json:"data"`
	Organization OrganizationID  `json:"organization"`
	RequestID    string          `json:"requestId"`
	Sequence     int64           `json:"sequence"`
	Subject      string          `json:"subject"`
	V            int16           `json:"v"`
}

var commitmentForm = strictjson.FormOf[eventCommitment]()

// Canonical returns the RFC 8785 form of Body. Data must equal it byte for byte.
func (e *Event) Canonical() ([]byte, error) {
	return appendCanonical(make([]byte, 0, len(e.Data)), e.Body)
}

// LeafHash returns SHA-256(0x00 || leaf) (RFC 6962, section 2.1).
func LeafHash(leaf []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(leaf)
	return [32]byte(h.Sum(nil))
}

// EventType is the type of an event. The set only grows.
type EventType string

// eventTable has a row for every event type, in the order of their declaration.
var eventTable []*eventRow

var (
	rowByType = map[EventType]*eventRow{}
	rowByBody = map[reflect.Type]*eventRow{}
)

// Every event type is declared here, once: its name, the version of its data, its body and the texts that a body names.
// The body's method apply changes the state. If the data of a type changes, it gets the next version, and its body must
// still read all earlier versions: it may only gain optional members, so that it writes the earlier bytes unchanged.
// Registered, superseded and revoked events are also in the change feed, and healed ones as registered. A reservation
// is neither evidence nor a change of a version, so it is not; nor is an alias.
var (
	OrganizationCreated = declare("organization.created", 1, func(b *OrganizationCreatedBody) []*TextRef {
		return refs(&b.Name)
	})
	OrganizationPlanChanged = declare[PlanChangedBody]("organization.plan_changed", 1, nil)
	OrganizationLimits      = declare[LimitsChangedBody]("organization.limits_changed", 1, nil)
	RetentionChanged        = declare[RetentionChangedBody]("organization.retention_changed", 1, nil)
	CreditsAdded            = declare[CreditsAddedBody]("organization.credits_added", 1, nil)
	BackfillChanged         = declare[BackfillChangedBody]("organization.backfill_changed", 1, nil)
	ClockReset              = declare[ClockResetBody]("clock.reset", 1, nil)
	QuotaWarningReached     = declare[QuotaWarningReachedBody]("quota.warning_reached", 2, nil)
	MemberAdded             = declare("member.added", 1, func(b *MemberAddedBody) []*TextRef { return refs(&b.Email) })
	MemberChanged           = declare[MemberChangedBody]("member.changed", 1, nil)
	InvitationMade          = declare("member.invited", 1, func(b *MemberInvitedBody) []*TextRef {
		return refs(&b.Email)
	})
	MemberJoined          = declare[MemberJoinedBody]("member.joined", 1, nil)
	SignInLinkMade        = declare[SignInLinkMadeBody]("member.sign_in_link_made", 1, nil)
	KeyCreated            = declare("key.created", 2, func(b *KeyCreatedBody) []*TextRef { return refs(b.Name) })
	KeyRenamed            = declare("key.renamed", 1, func(b *KeyRenamedBody) []*TextRef { return refs(&b.Name) })
	KeyExpiryChanged      = declare[KeyExpiryChangedBody]("key.expiry_changed", 1, nil)
	KeyRevoked            = declare[KeyRevokedBody]("key.revoked", 1, nil)
	OAuthLinkStarted      = declare[LinkStartedBody]("oauth.link_started", 1, nil)
	OAuthLinked           = declare[LinkedBody]("oauth.linked", 1, nil)
	OAuthConsentWithdrawn = declare[ConsentWithdrawnBody]("oauth.consent_withdrawn", 1, nil)
	PasskeyAdded          = declare("passkey.added", 1, func(b *PasskeyAddedBody) []*TextRef { return refs(&b.Name) })
	PasskeyRemoved        = declare[PasskeyRemovedBody]("passkey.removed", 1, nil)
	DomainAdded           = declare("publisher.domain_added", 1, func(b *DomainAddedBody) []*TextRef {
		return refs(&b.Domain)
	})
	DomainChecked         = declare[DomainCheckedBody]("publisher.domain_checked", 1, nil)
	DomainFailed          = declare[DomainFailedBody]("publisher.domain_failed", 1, nil)
	DomainHasLapsed       = declare[DomainLapsedBody]("publisher.domain_lapsed", 1, nil)
	DomainRemoved         = declare[DomainRemovedBody]("publisher.domain_removed", 1, nil)
	PublisherNameDeclared = declare("publisher.name_declared", 1, func(b *PublisherNameDeclaredBody) []*TextRef {
		return refs(&b.Name)
	})
	PublisherNameWithdrawn = declare[PublisherNameWithdrawnBody]("publisher.name_withdrawn", 1, nil)
	CompanyCreated         = declare[CompanyCreatedBody]("company.created", 1, nil)
	CompanyStatusChanged   = declare[CompanyStatusChangedBody]("company.status_changed", 1, nil)
	CompanyAccessChanged   = declare[AccessChangedBody]("company.access_changed", 1, nil)
	VersionReserved        = declare[VersionReservedBody]("integrity.reserved", 1, nil)
	VersionReleased        = declare[VersionReleasedBody]("integrity.released", 1, nil)
	RecordRegistered       = declare[RecordRegisteredBody]("integrity.registered", 2, nil)
	RecordSuperseded       = declare[RecordSupersededBody]("integrity.superseded", 1, nil)
	RecordRevoked          = declare("integrity.revoked", 1, func(b *RecordRevokedBody) []*TextRef {
		return refs(b.Reason)
	})
	RecordHealed   = declare[RecordHealedBody]("integrity.healed", 2, nil)
	RecordAliased  = declare[RecordAliasedBody]("integrity.aliased", 1, nil)
	WebhookCreated = declare("webhook.created", 1, func(b *WebhookCreatedBody) []*TextRef {
		return refs(&b.URL, b.Description)
	})
	WebhookUpdated = declare("webhook.updated", 1, func(b *WebhookUpdatedBody) []*TextRef {
		return refs(&b.URL, b.Description)
	})
	WebhookSecretRotated      = declare[WebhookSecretRotatedBody]("webhook.secret_rotated", 1, nil)
	WebhookSecretReencrypted  = declare[WebhookSecretReencryptedBody]("webhook.secret_reencrypted", 1, nil)
	WebhookAutoDisabled       = declare[WebhookDisabledBody]("webhook.disabled", 1, nil)
	WebhookDeleted            = declare[WebhookDeletedBody]("webhook.deleted", 1, nil)
	CompanyWebhookChanged     = declare[WebhookAccessBody]("company.webhook_changed", 1, nil)
	ArtifactVersionRegistered = declare("artifact.version_registered", 1,
		func(b *ArtifactVersionRegisteredBody) []*TextRef {
			return refs(&b.Title, b.FileName)
		})
	AnalysisCompleted = declare[AnalysisCompletedBody]("analysis.completed", 1, nil)
	ReviewDeclared    = declare("review.declared", 1, func(b *ReviewDeclaredBody) []*TextRef {
		return refs(&b.Statement)
	})
	ArtifactVersionApproved = declare("version.approved", 1, func(b *ArtifactVersionApprovedBody) []*TextRef {
		return refs(&b.Statement)
	})
	CertificateIssued = declare("certificate.issued", 1, func(b *CertificateIssuedBody) []*TextRef {
		return refs(&b.Payload)
	})
	CertificateReplaced = declare[CertificateReplacedBody]("certificate.replaced", 1, nil)
	CertificateRevoked  = declare("certificate.revoked", 1, func(b *CertificateRevokedBody) []*TextRef {
		return refs(&b.Reason)
	})
	ContentErased = declare[ContentErasedBody]("content.erased", 1, nil)
	TextsErased   = declare[TextsErasedBody]("texts.erased", 1, nil)
	KeysPublished = declare[KeysPublishedBody]("keys.published", 1, nil) // only in the history of InstallationID
)

// Body is the data of one event type in its newest version: a pointer to the struct that its row names.
type Body interface {
	// apply advances the state by the event. It makes no decision, because an event is a fact. It fails only if the event
	// cannot follow the state.
	apply(s *State, e *Event) error
}

// eventRow describes one event type.
type eventRow struct {
	eventType EventType
	version   int16
	empty     func() Body
	texts     func(Body) []*TextRef // every text that a body names; nil if the type names no texts
}

func declare[B any, P interface {
	*B
	Body
}](t EventType, version int16, texts func(*B) []*TextRef) EventType {
	row := &eventRow{eventType: t, version: version, empty: func() Body { return P(new(B)) }}
	if texts != nil {
		row.texts = func(b Body) []*TextRef { return texts(b.(P)) }
	}
	eventTable, rowByType[t], rowByBody[reflect.TypeFor[P]()] = append(eventTable, row), row, row
	return t
}

// refs removes the texts that a body does not name.
func refs(list ...*TextRef) []*TextRef {
	return slices.DeleteFunc(list, func(ref *TextRef) bool { return ref == nil })
}

// EventTypes lists every type.
func EventTypes() []EventType {
	types := make([]EventType, len(eventTable))
	for i, k := range eventTable {
		types[i] = k.eventType
	}
	return types
}

// Known reports whether the type exists.
func (t EventType) Known() bool { return rowByType[t] != nil }

// NamesTexts reports whether events of the type may name texts.
func (t EventType) NamesTexts() bool { return t.Known() && rowByType[t].texts != nil }

// DecodeBody parses stored event data. A registration's Payload may share memory with data.
func DecodeBody(t EventType, v int16, data []byte) (Body, error) {
	k := rowByType[t]
	switch {
	case k == nil:
		return nil, say.Errorf("event type %q is not known to this program", t)
	case v < 1 || v > k.version:
		return nil, say.Errorf("event %s has version %d, which this program does not know", t, v)
	}
	body, err := readBody(k, data)
	if err != nil {
		return nil, say.Errorf("event %s: %w", t, &BodyError{err})
	}
	return body, nil
}

// BodyError means that the data of an event is not what its type and version require.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }

func (e *BodyError) Unwrap() error { return e.Err }

// Say implements say.Phrase.
func (e *BodyError) Say(c say.Catalogue) (string, bool) { return c.Error(e.Err) }

func readBody(k *eventRow, data []byte) (Body, error) {
	body := k.empty()
	r, registered := body.(*RecordRegisteredBody)
	if !registered || !registeredForm.Scan(data, r) {
		body = k.empty() // without the scanned values
		if err := json.Unmarshal(data, body); err != nil {
			return nil, err
		}
	}
	if r := Registration(body); r != nil {
		if err := r.readPayload(); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// appendCanonical appends the RFC 8785 form of a body. Registrations, the most frequent events, have a Form.
func appendCanonical(dst []byte, body Body) ([]byte, error) {
	if hot, ok := body.(interface{ appendCanonical(dst []byte) []byte }); ok {
		return hot.appendCanonical(dst), nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, say.Errorf("encode event: %w", err)
	}
	canonical, err := jcs.Transform(text)
	if err != nil {
		return nil, say.Errorf("canonical form of event: %w", err)
	}
	return append(dst, canonical...), nil
}
