package projections

import (
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
func (s DeliveryStatus) Code() int16 {
	for i, known := range DeliveryStatuses() {
		if known == s {
			return int16(i)
		}
	}
	return -1
}

// WebhookTest is the type of a test delivery, which is not an event of the log.
const WebhookTest domain.EventType = "webhook.test"
