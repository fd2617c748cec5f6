package projections

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// TestEveryEventTypeIsProjected fails when a type of the domain's event table has no place in the projections.
func TestEveryEventTypeIsProjected(t *testing.T) {
	for _, eventType := range domain.EventTypes() {
		event := domain.Event{Type: eventType, Body: domain.EmptyBody(eventType)}
		err := Apply(&pgx.Batch{}, 0, []domain.Event{event})
		if eventType == domain.RecordRegistered { // an empty one has no payload
			if err == nil || !strings.Contains(err.Error(), "payload") {
				t.Errorf("%s: %v", eventType, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", eventType, err)
		}
	}
}
