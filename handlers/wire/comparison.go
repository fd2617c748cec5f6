package wire

import (
	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// ComparisonResult is one of the specification's public comparison results. They are never collapsed into one pass or
// fail.
type ComparisonResult string

// The results of a comparison. RecordNotFound is answered as an error of that code with status 404.
const (
	MatchCurrent        ComparisonResult = "MATCH_CURRENT"
	MatchHistorical     ComparisonResult = "MATCH_HISTORICAL"
	HashMismatch        ComparisonResult = "HASH_MISMATCH"
	RecordRevoked       ComparisonResult = "RECORD_REVOKED"
	FileNotCompared     ComparisonResult = "FILE_NOT_COMPARED"
	SignatureInvalid    ComparisonResult = "SIGNATURE_INVALID"
	RegistrationPending ComparisonResult = "REGISTRATION_PENDING"
	RecordNotFound      ComparisonResult = "RECORD_NOT_FOUND"
)

// ComparisonChecks are the three things that a comparison reports apart; nil is not established, which is not false.
type ComparisonChecks struct {
	FileMatch    *bool             `json:"fileMatch"`
	Signature    *evidence.Finding `json:"signature"`
	VersionState *domain.Status    `json:"versionState"`
}

// Comparison answers the public comparison (contract section 4.2).
type Comparison struct {
	PublicID   string           `json:"publicId"`
	Result     ComparisonResult `json:"result"`
	Verified   bool             `json:"verified"`
	Checks     ComparisonChecks `json:"checks"`
	ReceivedAt *string          `json:"receivedAt"`
	CheckedAt  string           `json:"checkedAt"`
	KeyID      *string          `json:"keyId"`
	ReceiptURL *string          `json:"receiptUrl"`
	LimitsURL  string           `json:"limitsUrl"`
}
