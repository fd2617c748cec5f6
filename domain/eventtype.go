package domain

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/gowebpki/jcs"
)

// EventType names what happened. The set only grows.
type EventType string

// Event types. Registered, superseded and revoked are also the change feed's; a reservation is no evidence and no change
// of a version, so the feed never shows it.
const (
	OrganizationCreated       EventType = "organization.created"
	OrganizationPlanChanged   EventType = "organization.plan_changed"
	OrganizationLimits        EventType = "organization.limits_changed"
	RetentionChanged          EventType = "organization.retention_changed"
	CreditsAdded              EventType = "organization.credits_added"
	ClockReset                EventType = "clock.reset"
	QuotaWarningReached       EventType = "quota.warning_reached"
	MemberAdded               EventType = "member.added"
	MemberChanged             EventType = "member.changed"
	KeyCreated                EventType = "key.created"
	KeyExpiryChanged          EventType = "key.expiry_changed"
	KeyRevoked                EventType = "key.revoked"
	OAuthLinkStarted          EventType = "oauth.link_started"
	OAuthLinked               EventType = "oauth.linked"
	OAuthConsentWithdrawn     EventType = "oauth.consent_withdrawn"
	CompanyCreated            EventType = "company.created"
	CompanyAccessChanged      EventType = "company.access_changed"
	VersionReserved           EventType = "integrity.reserved"
	RecordRegistered          EventType = "integrity.registered"
	RecordSuperseded          EventType = "integrity.superseded"
	RecordRevoked             EventType = "integrity.revoked"
	WebhookCreated            EventType = "webhook.created"
	WebhookUpdated            EventType = "webhook.updated"
	WebhookSecretRotated      EventType = "webhook.secret_rotated"
	WebhookAutoDisabled       EventType = "webhook.disabled"
	WebhookDeleted            EventType = "webhook.deleted"
	CompanyWebhookChanged     EventType = "company.webhook_changed"
	ArtifactVersionRegistered EventType = "artifact.version_registered"
	AnalysisCompleted         EventType = "analysis.completed"
	ReviewDeclared            EventType = "review.declared"
	ArtifactVersionApproved   EventType = "version.approved"
	CertificateIssued         EventType = "certificate.issued"
	CertificateReplaced       EventType = "certificate.replaced"
	CertificateRevoked        EventType = "certificate.revoked"
	ContentErased             EventType = "content.erased"
	TextsErased               EventType = "texts.erased"
)

// eventTable declares every event type once: the type, the version of its data, its body and the texts that a body names.
// How the state changes is the body's method apply. A type whose data changes gets the next version, and its body keeps
// reading the one before.
var eventTable = []eventRow{
	declare[OrganizationCreatedBody](OrganizationCreated, 1, func(b *OrganizationCreatedBody) []*TextRef { return refs(&b.Name) }),
	declare[PlanChangedBody](OrganizationPlanChanged, 1, nil),
	declare[LimitsChangedBody](OrganizationLimits, 1, nil),
	declare[RetentionChangedBody](RetentionChanged, 1, nil),
	declare[CreditsAddedBody](CreditsAdded, 1, nil),
	declare[ClockResetBody](ClockReset, 1, nil),
	declare[QuotaWarningReachedBody](QuotaWarningReached, 1, nil),
	declare[MemberAddedBody](MemberAdded, 1, func(b *MemberAddedBody) []*TextRef { return refs(&b.Email) }),
	declare[MemberChangedBody](MemberChanged, 1, nil),
	declare[KeyCreatedBody](KeyCreated, 1, nil),
	declare[KeyExpiryChangedBody](KeyExpiryChanged, 1, nil),
	declare[KeyRevokedBody](KeyRevoked, 1, nil),
	declare[LinkStartedBody](OAuthLinkStarted, 1, nil),
	declare[LinkedBody](OAuthLinked, 1, nil),
	declare[ConsentWithdrawnBody](OAuthConsentWithdrawn, 1, nil),
	declare[CompanyCreatedBody](CompanyCreated, 1, nil),
	declare[AccessChangedBody](CompanyAccessChanged, 1, nil),
	declare[VersionReservedBody](VersionReserved, 1, nil),
	declare[RecordRegisteredBody](RecordRegistered, 1, nil),
	declare[RecordSupersededBody](RecordSuperseded, 1, nil),
	declare[RecordRevokedBody](RecordRevoked, 1, func(b *RecordRevokedBody) []*TextRef { return refs(b.Reason) }),
	declare[WebhookCreatedBody](WebhookCreated, 1, func(b *WebhookCreatedBody) []*TextRef { return refs(&b.URL, b.Description) }),
	declare[WebhookUpdatedBody](WebhookUpdated, 1, func(b *WebhookUpdatedBody) []*TextRef { return refs(&b.URL, b.Description) }),
	declare[WebhookSecretRotatedBody](WebhookSecretRotated, 1, nil),
	declare[WebhookDisabledBody](WebhookAutoDisabled, 1, nil),
	declare[WebhookDeletedBody](WebhookDeleted, 1, nil),
	declare[WebhookAccessBody](CompanyWebhookChanged, 1, nil),
	declare[ArtifactVersionRegisteredBody](ArtifactVersionRegistered, 1, func(b *ArtifactVersionRegisteredBody) []*TextRef { return refs(&b.Title, b.FileName) }),
	declare[AnalysisCompletedBody](AnalysisCompleted, 1, nil),
	declare[ReviewDeclaredBody](ReviewDeclared, 1, func(b *ReviewDeclaredBody) []*TextRef { return refs(&b.Statement) }),
	declare[ArtifactVersionApprovedBody](ArtifactVersionApproved, 1, func(b *ArtifactVersionApprovedBody) []*TextRef { return refs(&b.Statement) }),
	declare[CertificateIssuedBody](CertificateIssued, 1, func(b *CertificateIssuedBody) []*TextRef { return refs(&b.Payload) }),
	declare[CertificateReplacedBody](CertificateReplaced, 1, nil),
	declare[CertificateRevokedBody](CertificateRevoked, 1, func(b *CertificateRevokedBody) []*TextRef { return refs(&b.Reason) }),
	declare[ContentErasedBody](ContentErased, 1, nil),
	declare[TextsErasedBody](TextsErased, 1, nil),
}

// Body is the data of one event type in its newest version: a pointer to the struct that eventTable declares.
type Body interface {
	// apply brings the state past the event. It judges nothing: an event is a fact. It fails only on an event that
	// cannot follow the state.
	apply(s *State, e *Event) error
}

// eventRow is what this program knows of one event type.
type eventRow struct {
	eventType EventType
	version   int16
	body      reflect.Type
	empty     func() Body
	texts     func(Body) []*TextRef // every text that a body names; nil where the type names none
}

func declare[B any, P interface {
	*B
	Body
}](t EventType, version int16, texts func(*B) []*TextRef) eventRow {
	k := eventRow{eventType: t, version: version, body: reflect.TypeFor[P](), empty: func() Body { return P(new(B)) }}
	if texts != nil {
		k.texts = func(b Body) []*TextRef { return texts(b.(P)) }
	}
	return k
}

// refs leaves out the texts that a body does not name.
func refs(list ...*TextRef) []*TextRef {
	return slices.DeleteFunc(list, func(ref *TextRef) bool { return ref == nil })
}

var (
	rowByType = indexTable(func(k *eventRow) EventType { return k.eventType })
	rowByBody = indexTable(func(k *eventRow) reflect.Type { return k.body })
)

func indexTable[K comparable](key func(*eventRow) K) map[K]*eventRow {
	index := map[K]*eventRow{}
	for i := range eventTable {
		index[key(&eventTable[i])] = &eventTable[i]
	}
	return index
}

// EventTypes lists every type.
func EventTypes() []EventType {
	types := make([]EventType, len(eventTable))
	for i, k := range eventTable {
		types[i] = k.eventType
	}
	return types
}

// Known reports whether there are events of this type.
func (t EventType) Known() bool { return rowByType[t] != nil }

// NamesTexts reports whether events of the type may name texts.
func (t EventType) NamesTexts() bool { return t.Known() && rowByType[t].texts != nil }

// DecodeBody reads stored event data.
func DecodeBody(t EventType, v int16, data []byte) (Body, error) {
	k := rowByType[t]
	switch {
	case k == nil:
		return nil, fmt.Errorf("event type %q is not known to this program", t)
	case v != k.version:
		return nil, fmt.Errorf("event %s has version %d, which this program does not know", t, v)
	}
	body := k.empty()
	if err := json.Unmarshal(data, body); err != nil {
		return nil, fmt.Errorf("event %s: %w", t, err)
	}
	if derived, ok := body.(interface{ derive() error }); ok { // members that are no data of their own
		if err := derived.derive(); err != nil {
			return nil, fmt.Errorf("event %s: %w", t, err)
		}
	}
	return body, nil
}

// appendCanonical appends the RFC 8785 form of a body. The two bodies of the hot path write it by hand.
func appendCanonical(dst []byte, body Body) ([]byte, error) {
	if hot, ok := body.(interface{ appendCanonical(dst []byte) []byte }); ok {
		return hot.appendCanonical(dst), nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	canonical, err := jcs.Transform(text)
	if err != nil {
		return nil, fmt.Errorf("canonical form of event: %w", err)
	}
	return append(dst, canonical...), nil
}
