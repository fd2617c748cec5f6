package projections

import "integrityledger/domain"

// The feed stores types and statuses as small numbers, which are for ever.
const (
	FeedRegistered int16 = 1
	feedSuperseded int16 = 2
	feedRevoked    int16 = 3

	feedStatusCurrent    int16 = 1
	feedStatusSuperseded int16 = 2
	feedStatusRevoked    int16 = 3
)

// feedTypeCode is 0 for an event that the feed does not show.
func feedTypeCode(t domain.EventType) int16 {
	switch t {
	case domain.RecordRegistered:
		return FeedRegistered
	case domain.RecordSuperseded:
		return feedSuperseded
	case domain.RecordRevoked:
		return feedRevoked
	default:
		return 0
	}
}

// FeedType is the type that a number of the tables stands for.
func FeedType(code int16) domain.EventType {
	switch code {
	case FeedRegistered:
		return domain.RecordRegistered
	case feedSuperseded:
		return domain.RecordSuperseded
	default:
		return domain.RecordRevoked
	}
}

// FeedStatus is the status that a number of the tables stands for.
func FeedStatus(code int16) domain.Status {
	switch code {
	case feedStatusCurrent:
		return domain.StatusCurrent
	case feedStatusSuperseded:
		return domain.StatusSuperseded
	default:
		return domain.StatusRevoked
	}
}

func feedStatusCode(s domain.Status) int16 {
	switch s {
	case domain.StatusCurrent:
		return feedStatusCurrent
	case domain.StatusSuperseded:
		return feedStatusSuperseded
	default:
		return feedStatusRevoked
	}
}
