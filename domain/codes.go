package domain

// Codes lists all codes, in the order of the contract's table.
func Codes() []Code {
	return []Code{
		MalformedJSON, InvalidKey, MissingScope, RoleRequired, PlanRequired, CompanyNotAuthorized, NotFound, RecordNotFound,
		MethodNotAllowed, NotAcceptable, UnsupportedMediaType, VersionConflict, ReservationMismatch, InvalidState, LengthRequired, PayloadTooLarge,
		InvalidData, CursorAhead, RateLimited, RegistrationQuotaExhausted, RequestQuotaExhausted,
		PendingReservationLimit, UnfinalizedIdentityLimit, CompanyLimit, Internal, TemporarilyUnavailable,
	}
}
