package domain

// Codes lists all codes, in the order of the contract's table.
func Codes() []Code {
	return []Code{
		MalformedJSON, InvalidKey, MissingScope, RoleRequired, PlanRequired, CompanyNotAuthorized, IdentityNotLinked, NotFound, RecordNotFound, CertificateNotFound,
		MethodNotAllowed, NotAcceptable, RequestTimeout, UnsupportedMediaType, VersionConflict, ReservationMismatch, InvalidState, RequestInProgress, LengthRequired, PayloadTooLarge,
		InvalidData, FileDoesNotMatchVersion, IdempotencyKeyReused, WebhookURLBlocked, CursorAhead, RateLimited, RegistrationQuotaExhausted, ArtifactQuotaExhausted, RequestQuotaExhausted,
		PendingReservationLimit, UnfinalizedIdentityLimit, CompanyLimit, WebhookLimit, Internal, TemporarilyUnavailable,
	}
}
