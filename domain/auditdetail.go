package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"integrityledger/domain/say"
)

// auditDetails lists, for every event type, the members of an event's data that the organization's history shows, in
// order: ids and values, never a secret, and of a person's text only the id. A word is the member's name. name=member
// or name=object.member takes it from another place in the data, and name|value shows a value if the data lacks the
// member. Members with a star are references of the origin: only a key that may use the event's company sees them.
// companyId is the event's.
var auditDetails = map[EventType]string{ //nolint:gosec // names, no credentials
	OrganizationCreated:     "plan internal perMinute nameTextId=name.id",
	OrganizationPlanChanged: "plan internal perMinute",
	OrganizationLimits:      "unfinalizedLimit",
	RetentionChanged:        "days",
	CreditsAdded:            "credits",
	BackfillChanged:         "versions",
	ClockReset:              "from",
	QuotaWarningReached:     `allowance|"versions" percent period used limit`,
	MemberAdded:             "memberId role emailTextId=email.id",
	MemberChanged:           "memberId role status",
	InvitationMade:          "memberId role expiresAt emailTextId=email.id",
	MemberJoined:            "memberId",
	SignInLinkMade:          "memberId",
	KeyCreated:              "keyId memberId scopes expiresAt source network networks maxVersionStep nameTextId=name.id",
	KeyRenamed:              "keyId nameTextId=name.id",
	KeyExpiryChanged:        "keyId expiresAt",
	KeyRevoked:              "keyId",
	OAuthLinkStarted:        "linkId memberId scopes expiresAt",
	OAuthLinked:             "linkId scopes",
	OAuthConsentWithdrawn:   "linkId",
	PasskeyAdded:            "passkeyId memberId nameTextId=name.id",
	PasskeyRemoved:          "passkeyId",
	DomainAdded:             "statementId domainTextId=domain.id",
	DomainChecked:           "statementId method",
	DomainFailed:            "statementId failedDays",
	DomainHasLapsed:         "statementId",
	DomainRemoved:           "statementId",
	PublisherNameDeclared:   "statementId memberId noPrivatePerson nameTextId=name.id",
	PublisherNameWithdrawn:  "statementId",
	CompanyCreated:          "companyId *reference",
	CompanyStatusChanged:    "companyId status",
	CompanyAccessChanged:    "companyId keyId enabled",
	VersionReserved: "companyId documentId *companyReference *source *documentReference version expiresAt " +
		"renewed",
	VersionReleased:          "companyId documentId version",
	RecordRegistered:         registeredDetails,
	RecordHealed:             registeredDetails + " proof",
	RecordAliased:            "companyId documentId *companyReference *source *documentReference version aliasOf proof",
	RecordSuperseded:         "companyId documentId version byVersion",
	RecordRevoked:            "companyId documentId version reasonTextId=reason.id",
	WebhookCreated:           "webhookId types urlTextId=url.id descriptionTextId=description.id",
	WebhookUpdated:           "webhookId types status urlTextId=url.id descriptionTextId=description.id",
	WebhookSecretRotated:     "webhookId previousUntil",
	WebhookSecretReencrypted: "webhookId",
	WebhookAutoDisabled:      "webhookId disabledReason=reason",
	WebhookDeleted:           "webhookId",
	CompanyWebhookChanged:    "companyId webhookId enabled",
	ArtifactVersionRegistered: "artifactId versionId version kind sha256 sizeBytes titleTextId=title.id " +
		"fileNameTextId=fileName.id period credit retainUntil",
	AnalysisCompleted:       "artifactId versionId analysisId status durationMs",
	ReviewDeclared:          "artifactId versionId reviewId memberId outcome statementTextId=statement.id",
	ArtifactVersionApproved: "artifactId versionId approvalId memberId statementTextId=statement.id",
	CertificateIssued: "artifactId versionId version memberId issuedAt publicFields payloadTextId=payload.id " +
		"signingKeyId=keyId",
	CertificateReplaced: "artifactId byPublicId",
	CertificateRevoked:  "artifactId reasonTextId=reason.id",
	ContentErased:       "artifactId versionId",
	TextsErased:         "subject textIds=texts",
	KeysPublished:       "",
}

const registeredDetails = "companyId documentId *companyReference *source *documentReference version " +
	"previousVersion recordId sha256=payload.sha256 sizeBytes=payload.sizeBytes mimeType=payload.mimeType " +
	"generatedAt=payload.generatedAt receivedAt=payload.receivedAt status reserved|false period fromBackfill " +
	"signingKeyId=keyId"

// auditDetail is a word of auditDetails.
type auditDetail struct {
	name           string
	object, member string // in the data; without object, in the data itself
	absent         string // JSON
	reference      bool
}

var auditRows = func() map[EventType][]auditDetail {
	rows := make(map[EventType][]auditDetail, len(auditDetails))
	for t, words := range auditDetails {
		for _, word := range strings.Fields(words) {
			d := auditDetail{absent: "null"}
			word, d.reference = strings.CutPrefix(word, "*")
			if before, absent, given := strings.Cut(word, "|"); given {
				word, d.absent = before, absent
			}
			d.name, d.member = word, word
			if name, path, elsewhere := strings.Cut(word, "="); elsewhere {
				d.name, d.member = name, path
			}
			if object, member, inside := strings.Cut(d.member, "."); inside {
				d.object, d.member = object, member
			}
			rows[t] = append(rows[t], d)
		}
	}
	return rows
}()

// AuditDetailNames returns the members that AuditDetails shows for a type.
func AuditDetailNames(t EventType) (names []string) {
	for _, d := range auditRows[t] {
		names = append(names, d.name)
	}
	return names
}

// AuditDetails returns the details of an event in the organization's history, as a JSON object with all members of the
// type. A member is null if the event lacks it, or if it is a reference that the reader may not see.
func AuditDetails(t EventType, company CompanyID, data []byte, references bool) (json.RawMessage, error) {
	members, err := jsonMembers(data)
	objects := map[string]map[string]json.RawMessage{"": members}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, d := range auditRows[t] {
		value := json.RawMessage(d.absent)
		switch {
		case d.reference && !references:
		case d.name == "companyId":
			value = json.RawMessage(`"` + company.String() + `"`)
		default:
			if objects[d.object] == nil && err == nil {
				objects[d.object], err = jsonMembers(members[d.object])
			}
			if found := objects[d.object][d.member]; found != nil {
				value = found
			}
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", d.name, value)
	}
	b.WriteByte('}')
	if err != nil {
		return nil, say.Errorf("details of a stored event %s: %w", t, err)
	}
	return b.Bytes(), nil
}

// jsonMembers returns the members of an object. null and empty input have none.
func jsonMembers(object json.RawMessage) (members map[string]json.RawMessage, err error) {
	if len(object) > 0 {
		err = json.Unmarshal(object, &members)
	}
	return members, err
}
