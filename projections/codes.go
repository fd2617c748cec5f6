package projections

import (
	"slices"

	"integrityledger/domain"
)

// DeliveryID is the id of the delivery of an event to a destination: its time and the event's, then a hash of both, so
// that a delivery always has the same id and is never queued twice. n is the event, w the destination.
const DeliveryID = `(left(n.event_id::text, 19) || '8' || substr(md5(n.event_id::text || w.webhook_id::text), 1, 3)
		|| '-' || substr(md5(n.event_id::text || w.webhook_id::text), 4, 12))::uuid`

// DeliveryStatus is how far a delivery has come.
type DeliveryStatus string

// All but DeliveryPending are final.
const (
	DeliveryPending    DeliveryStatus = "pending"
	DeliveryDelivered  DeliveryStatus = "delivered"
	DeliveryExhausted  DeliveryStatus = "exhausted"  // every attempt of the schedule failed
	DeliverySuppressed DeliveryStatus = "suppressed" // the month's allowance of attempts was used up
	DeliveryCancelled  DeliveryStatus = "cancelled"  // the destination may no longer receive it
)

// DeliveryStatuses lists the statuses by their number in webhook_log.status: the list only grows at its end.
func DeliveryStatuses() []DeliveryStatus {
	return []DeliveryStatus{DeliveryPending, DeliveryDelivered, DeliveryExhausted, DeliverySuppressed, DeliveryCancelled}
}

// Code is the number of a status in the tables.
func (s DeliveryStatus) Code() int16 { return int16(slices.Index(DeliveryStatuses(), s)) }

// WebhookTest is the type of a test delivery, which is not an event of the log.
const WebhookTest domain.EventType = "webhook.test"

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
