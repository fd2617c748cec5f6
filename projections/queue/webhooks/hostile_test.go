package webhooks_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound/peertest"
	"integrityledger/projections"
	"integrityledger/projections/queue/webhooks"
)

// TestHostileDestinations: whatever a destination answers, its attempt ends and is recorded as a failure, and a good
// destination gets everything.
func TestHostileDestinations(t *testing.T) {
	h := build(t, nil, domain.InternalPlan)
	h.stop() // nothing becomes due again
	hostile := map[string]domain.WebhookID{}
	for name, shape := range peertest.Shapes() {
		late := strings.Contains(name, "body") || strings.Contains(name, "chunk") || strings.Contains(name, "trailers")
		if late && !strings.HasPrefix(name, "101") {
			continue // the status is known before the body comes
		}
		w, _ := h.destination(peertest.Serve(t, shape))
		hostile[name] = w.ID
	}
	body, _ := h.destination(peertest.Serve(t, peertest.Shapes()["a body that drips"]))
	good := receive(t, nil)
	g, _ := h.destination(good.URL)
	h.worker(func(c *webhooks.Config) { c.Timeout = 2 * time.Second })
	h.register(3)
	h.inStatus(g.ID, 3, projections.DeliveryDelivered)
	h.inStatus(body.ID, 3, projections.DeliveryDelivered)
	for name, id := range hostile {
		h.eventually(name, func() bool {
			failed := 0
			for _, d := range h.deliveries(id) {
				if d.Attempts == 1 && d.Reason != "" && d.Status == projections.DeliveryPending {
					failed++
				}
			}
			return failed == 3
		})
	}
}

// TestHangingDestinationsLeaveRoom: however many destinations hang, no organization holds more than its share of a
// process's deliveries, so another organization of the shard gets its own.
func TestHangingDestinationsLeaveRoom(t *testing.T) {
	// Together they exceed the rows that a process holds, and each exceeds its share.
	const organizations, companies, destinations, events = 7, 2, 20, 16
	h := build(t, nil, domain.InternalPlan)
	h.stop()
	neighbour := h.org
	h.worker(func(c *webhooks.Config) { c.Timeout = 10 * time.Minute })
	silent := peertest.Serve(t, func(io.Writer) {}) // ends before the worker, and ends the attempts
	for range organizations {
		h.org = h.Organization(t, neighbour.ID.Shard(), domain.InternalPlan)
		for company := range companies {
			h.org.Company = h.Company(t, h.org, fmt.Sprintf("hanging-%d", company))
			h.Grant(t, h.org, h.org.Key.ID, h.org.Company.ID, true)
			for i := range destinations {
				h.destination(fmt.Sprintf("%s/%d", silent, i))
			}
			h.register(events)
		}
	}
	h.eventually("each holds its share", func() bool {
		return h.count("webhook_deliveries WHERE leased_until IS NOT NULL") >= organizations*512
	})

	h.org = neighbour
	good := receive(t, nil)
	g, _ := h.destination(good.URL)
	h.register(3)
	h.inStatus(g.ID, 3, projections.DeliveryDelivered)
}
