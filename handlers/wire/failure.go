package wire

import "integrityledger/domain"

// Meta is the member meta of every envelope. Epoch is of the feed alone.
type Meta struct {
	RequestID string `json:"requestId"`
	Epoch     *int64 `json:"epoch,omitempty"`
}

// Failure has the members of RFC 9457 and a stable code (contract section 2).
type Failure struct {
	Type      string              `json:"type"`
	Title     string              `json:"title"`
	Status    int                 `json:"status"`
	Detail    string              `json:"detail"`
	Code      domain.Code         `json:"code"`
	Retryable bool                `json:"retryable"`
	Errors    []domain.FieldError `json:"errors"`
	Existing  *Existing           `json:"existing,omitempty"`
	// RetryAfter is of an item of a batch, which has no header of that name.
	RetryAfter int64 `json:"retryAfter,omitempty"`
}

// Existing is the accepted version that a conflicting declaration met.
type Existing struct {
	PublicID   string `json:"publicId"`
	ReceivedAt string `json:"receivedAt"`
}

// Envelope surrounds every JSON answer: exactly one of Data and Error is not null.
type Envelope[D any] struct {
	Data  D        `json:"data"`
	Error *Failure `json:"error"`
	Meta  Meta     `json:"meta"`
}

// Refused is a failure of a tool, which has no envelope.
type Refused struct {
	Error *Failure `json:"error"`
}
