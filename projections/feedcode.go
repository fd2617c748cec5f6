package projections

import (
	"slices"

	"integrityledger/domain"
)

// The feed stores types and statuses as small numbers, their places in these lists from 1: a list only grows at its
// end.

func feedTypes() []domain.EventType {
	return []domain.EventType{domain.RecordRegistered, domain.RecordSuperseded, domain.RecordRevoked}
}

func feedStatuses() []domain.Status {
	return []domain.Status{domain.StatusCurrent, domain.StatusSuperseded, domain.StatusRevoked}
}

// FeedTypeCode is the number of a type; 0 for an event that the feed does not show.
func FeedTypeCode(t domain.EventType) int16 { return int16(slices.Index(feedTypes(), t) + 1) }

// FeedType is the type that a number of the tables stands for.
func FeedType(code int16) domain.EventType { return feedTypes()[code-1] }

// FeedStatus is the status that a number of the tables stands for.
func FeedStatus(code int16) domain.Status { return feedStatuses()[code-1] }

func feedStatusCode(s domain.Status) int16 { return int16(slices.Index(feedStatuses(), s) + 1) }
