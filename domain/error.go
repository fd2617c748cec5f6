package domain

import (
	"fmt"
	"time"

	"integrityledger/domain/strictjson"
)

// Code is the stable machine code of a refusal (contract section 2).
type Code string

// Every code the service answers with.
const (
	MalformedJSON              Code = "MALFORMED_JSON"
	InvalidKey                 Code = "INVALID_KEY"
	MissingScope               Code = "MISSING_SCOPE"
	RoleRequired               Code = "ROLE_REQUIRED"
	PlanRequired               Code = "PLAN_REQUIRED"
	CompanyNotAuthorized       Code = "COMPANY_NOT_AUTHORIZED"
	IdentityNotLinked          Code = "IDENTITY_NOT_LINKED"
	NotFound                   Code = "NOT_FOUND"
	RecordNotFound             Code = "RECORD_NOT_FOUND"
	CertificateNotFound        Code = "CERTIFICATE_NOT_FOUND"
	MethodNotAllowed           Code = "METHOD_NOT_ALLOWED"
	NotAcceptable              Code = "NOT_ACCEPTABLE"
	UnsupportedMediaType       Code = "UNSUPPORTED_MEDIA_TYPE"
	VersionConflict            Code = "VERSION_CONFLICT"
	ReservationMismatch        Code = "RESERVATION_MISMATCH"
	InvalidState               Code = "INVALID_STATE"
	RequestTimeout             Code = "REQUEST_TIMEOUT"
	RequestInProgress          Code = "REQUEST_IN_PROGRESS"
	LengthRequired             Code = "LENGTH_REQUIRED"
	PayloadTooLarge            Code = "PAYLOAD_TOO_LARGE"
	InvalidData                Code = "INVALID_DATA"
	FileDoesNotMatchVersion    Code = "FILE_DOES_NOT_MATCH_VERSION"
	IdempotencyKeyReused       Code = "IDEMPOTENCY_KEY_REUSED"
	CursorAhead                Code = "CURSOR_AHEAD"
	WebhookURLBlocked          Code = "WEBHOOK_URL_BLOCKED"
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

// Error is a refusal that the caller sees. Every other error is internal and never shown.
type Error struct {
	Code    Code
	Message string       // one sentence that a person can act on
	Fields  []FieldError // every offending member, where members are at fault
	// RetryAfter is how long until the same request can succeed; zero where the code names no such time.
	RetryAfter time.Duration
	// Existing is the record that a VERSION_CONFLICT ran into.
	Existing *Existing
}

// Existing identifies the record behind a conflict, never its values.
type Existing struct {
	PublicID   PublicID
	ReceivedAt time.Time
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Refuse makes an Error of a code and a sentence.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes an INVALID_DATA error of the offending members.
func Invalid(fields []FieldError) *Error {
	return &Error{Code: InvalidData, Message: "Correct the members listed in errors and send the request again.", Fields: strictjson.Listed(fields, strictjson.MaxProblems)}
}

// InvalidMember makes an INVALID_DATA error of one offending member.
func InvalidMember(pointer, code, message string) *Error {
	return Invalid([]FieldError{{Pointer: pointer, Code: code, Message: message}})
}

// Unavailable makes a TEMPORARILY_UNAVAILABLE error.
func Unavailable(message string) *Error {
	return &Error{Code: TemporarilyUnavailable, Message: message, RetryAfter: time.Second}
}

// Codes lists all codes, in the order of the contract's table.
func Codes() []Code {
	return []Code{
		MalformedJSON, InvalidKey, MissingScope, RoleRequired, PlanRequired, CompanyNotAuthorized, IdentityNotLinked, NotFound, RecordNotFound, CertificateNotFound,
		MethodNotAllowed, NotAcceptable, RequestTimeout, UnsupportedMediaType, VersionConflict, ReservationMismatch, InvalidState, RequestInProgress, LengthRequired, PayloadTooLarge,
		InvalidData, FileDoesNotMatchVersion, IdempotencyKeyReused, WebhookURLBlocked, CursorAhead, RateLimited, RegistrationQuotaExhausted, ArtifactQuotaExhausted, RequestQuotaExhausted,
		PendingReservationLimit, UnfinalizedIdentityLimit, CompanyLimit, WebhookLimit, Internal, TemporarilyUnavailable,
	}
}
