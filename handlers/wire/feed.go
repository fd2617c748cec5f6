package wire

import "integrityledger/domain"

// FeedEvent is one change of a version. Version is the document's, RecordStatus the state right after the event.
type FeedEvent struct {
	ID                string           `json:"id"`
	Sequence          int64            `json:"sequence"`
	Type              domain.EventType `json:"type"`
	OccurredAt        string           `json:"occurredAt"`
	PublicID          string           `json:"publicId"`
	CompanyReference  string           `json:"companyReference"`
	Source            string           `json:"source"`
	DocumentReference string           `json:"documentReference"`
	Version           int32            `json:"version"`
	RecordStatus      domain.Status    `json:"recordStatus"`
}

// Feed is a page of a company's changes, in order: of FeedEvent, or of their raw JSON.
type Feed[E any] struct {
	Events     []E   `json:"events"`
	NextCursor int64 `json:"nextCursor"`
	HasMore    bool  `json:"hasMore"`
}
