package domain

import (
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Code is the stable machine-readable code of a refusal (contract, section 2).
type Code string

// All codes, in the order of the contract's table.
const (
	MalformedJSON              Code = "MALFORMED_JSON"
	MalformedPath              Code = "MALFORMED_PATH"
	InvalidKey                 Code = "INVALID_KEY"
	MissingScope               Code = "MISSING_SCOPE"
	RoleRequired               Code = "ROLE_REQUIRED"
	PlanRequired               Code = "PLAN_REQUIRED"
	CompanyNotAuthorized       Code = "COMPANY_NOT_AUTHORIZED"
	IdentityNotLinked          Code = "IDENTITY_NOT_LINKED"
	CompanyClosed              Code = "COMPANY_CLOSED"
	NotFound                   Code = "NOT_FOUND"
	RecordNotFound             Code = "RECORD_NOT_FOUND"
	CertificateNotFound        Code = "CERTIFICATE_NOT_FOUND"
	MethodNotAllowed           Code = "METHOD_NOT_ALLOWED"
	NotAcceptable              Code = "NOT_ACCEPTABLE"
	RequestTimeout             Code = "REQUEST_TIMEOUT"
	UnsupportedMediaType       Code = "UNSUPPORTED_MEDIA_TYPE"
	VersionConflict            Code = "VERSION_CONFLICT"
	ReservationMismatch        Code = "RESERVATION_MISMATCH"
	InvalidState               Code = "INVALID_STATE"
	RequestInProgress          Code = "REQUEST_IN_PROGRESS"
	InclusionPending           Code = "INCLUSION_PENDING"
	LengthRequired             Code = "LENGTH_REQUIRED"
	PayloadTooLarge            Code = "PAYLOAD_TOO_LARGE"
	InvalidData                Code = "INVALID_DATA"
	FileDoesNotMatchVersion    Code = "FILE_DOES_NOT_MATCH_VERSION"
	IdempotencyKeyReused       Code = "IDEMPOTENCY_KEY_REUSED"
	WebhookURLBlocked          Code = "WEBHOOK_URL_BLOCKED"
	CursorAhead                Code = "CURSOR_AHEAD"
	RateLimited                Code = "RATE_LIMITED"
	RegistrationQuotaExhausted Code = "REGISTRATION_QUOTA_EXHAUSTED"
	ArtifactQuotaExhausted     Code = "ARTIFACT_QUOTA_EXHAUSTED"
	RequestQuotaExhausted      Code = "REQUEST_QUOTA_EXHAUSTED"
	PendingReservationLimit    Code = "PENDING_RESERVATION_LIMIT"
	UnfinalizedIdentityLimit   Code = "UNFINALIZED_IDENTITY_LIMIT"
	CompanyLimit               Code = "COMPANY_LIMIT"
	WebhookLimit               Code = "WEBHOOK_LIMIT"
	Internal                   Code = "INTERNAL"
	TemporarilyUnavailable     Code = "TEMPORARILY_UNAVAILABLE"
)

// FieldError is one offending member of a request body.
type FieldError = strictjson.Problem

// Error is a refusal that is shown to the caller. All other errors are internal and never shown.
type Error struct {
	Code    Code
	Message string // one sentence that a person can act on, in English
	said    say.Sentence
	Fields  []FieldError // every offending member, if members are at fault
	// RetryAfter is the time until the same request can succeed, zero if the code has no such time.
	RetryAfter time.Duration
	// Limit is the exceeded limit, if the console has a text for it, otherwise nil.
	Limit *Limit
	// Existing is the existing record of a VERSION_CONFLICT.
	Existing *Existing
}

// Limit is a limit that a refusal names.
type Limit struct {
	Name string // MinuteLimit, DayLimit, WebhookActions, or the field of a form that changes too much at once
	Most int64
}

// Limits of an organization.
const (
	MinuteLimit    = "minute"  // of requests
	DayLimit       = "day"     // of administrative events
	WebhookActions = "webhook" // tests of destinations, or redeliveries, in a minute
)

// Existing identifies the record behind a conflict, never its values.
type Existing struct {
	PublicID   PublicID
	ReceivedAt time.Time
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Refuse returns an Error with a code and a sentence (say.Sentence).
func Refuse(code Code, format string, args ...any) *Error {
	said := say.Sentence{Format: format, Args: args}
	return &Error{Code: code, Message: said.String(), said: said}
}

// Said returns the message for all languages.
func (e *Error) Said() say.Sentence {
	if e.said.Format == "" {
		return say.Sentence{Format: e.Message}
	}
	return e.said
}

// Say implements say.Phrase.
func (e *Error) Say(c say.Catalogue) (string, bool) {
	text, ok := e.Said().Say(c)
	return string(e.Code) + ": " + text, ok
}

// After sets the time until the same request can succeed.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// Of sets the exceeded limit.
func (e *Error) Of(limit string, most int64) *Error {
	e.Limit = &Limit{Name: limit, Most: most}
	return e
}

// Invalid returns an INVALID_DATA error for the offending members.
func Invalid(fields []FieldError) *Error {
	e := Refuse(InvalidData, "Correct the members listed in errors and send the request again.")
	e.Fields = strictjson.Listed(fields, strictjson.MaxProblems)
	return e
}

// InvalidMember returns an INVALID_DATA error for one offending member.
func InvalidMember(pointer, code, format string, args ...any) *Error {
	return Invalid([]FieldError{strictjson.NewProblem(pointer, code, format, args...)})
}

// OneOf lists names in a sentence: a, b or c.
func OneOf[T ~string](names []T) say.Choice {
	list := make(say.Choice, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return list
}

// OrganizationMinute names the organization's limit for MinuteUsed.
const OrganizationMinute = "The organization may send %d requests a minute, which all its keys, tokens and console " +
	"sessions share"

// MinuteUsed returns a RATE_LIMITED error for a limit of requests per minute, with the time until the next minute.
// limit is a format with a verb for the number.
func MinuteUsed(limit string, most int, reset time.Duration) *Error {
	return Refuse(
		RateLimited, "%s; wait until the next minute.", say.Sentence{Format: limit, Args: []any{most}},
	).After(reset).Of(MinuteLimit, int64(most))
}

// Unavailable returns a TEMPORARILY_UNAVAILABLE error with a sentence (say.Sentence).
func Unavailable(format string, args ...any) *Error {
	return Refuse(TemporarilyUnavailable, format, args...).After(time.Second)
}

// Refusals used in several places. Objects that an organization or a key must not know about count as nonexistent.
var (
	errUnknownOrganization    = Refuse(NotFound, "There is no organization with that id.")
	errUnknownActiveMember    = Refuse(NotFound, "This organization has no such active member.")
	errUnknownKey             = Refuse(NotFound, "This organization has no API key with that id.")
	errEndedKey               = Refuse(InvalidState, "This key has ended already; create a new one instead.")
	errUnknownMember          = Refuse(NotFound, "This organization has no such member.")
	errUnknownInvitation      = Refuse(NotFound, "There is no such invitation; ask for another.")
	ErrUnknownCompany         = Refuse(NotFound, "This organization has no company with that id.")
	errUnknownLink            = Refuse(NotFound, "There is no such link; ask for another.")
	ErrUnknownWebhook         = Refuse(NotFound, "This organization has no webhook destination with that id.")
	ErrUnknownRecord          = Refuse(RecordNotFound, "No such record is visible to this key.")
	ErrUnknownReservation     = Refuse(NotFound, "No such reservation is visible to this key.")
	ErrUnknownArtifact        = Refuse(NotFound, "This organization has no artifact with that id.")
	ErrUnknownArtifactVersion = Refuse(NotFound, "This organization has no version of an artifact with that id.")
	ErrUnknownCertificate     = Refuse(CertificateNotFound, "There is no certificate with this id that you may see.")
	ErrErasedTitle            = Refuse(InvalidState, "The title of this version was erased and cannot be published.")
	ErrErasedName             = Refuse(InvalidState, "The name of this organization was erased and cannot be published.")
	ErrUnauthorizedCompany    = Refuse(
		CompanyNotAuthorized,
		"This key may not use that company: an owner or admin of the organization, or the operator, creates the company "+
			"where it is missing and grants it to the key.",
	)
	errCompanyClosed = Refuse(
		CompanyClosed,
		"This company is closed and takes no new versions; what was declared of it before stays as it is. An owner or "+
			"admin of the organization, or the operator, may open it again.",
	)
	ErrKeyRefused  = Refuse(InvalidKey, "Send a valid API key as Authorization: Bearer <API_KEY>.")
	ErrLinkRefused = Refuse(
		IdentityNotLinked,
		"This OAuth subject is linked to no active member, or the consent was withdrawn; the member makes a link with an "+
			"API key, or the operator of the service does.",
	)
	ErrSessionEnded    = Refuse(InvalidState, "This membership is no longer active.")
	errUnknownPasskey  = Refuse(NotFound, "This member has no such passkey.")
	ErrRequestUnderWay = Refuse(
		RequestInProgress, "A request with this Idempotency-Key is still running; send the same request again in a moment.",
	)
)
