package projections

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"integrityledger/domain"
)

// TestEveryEventTypeHasAProjection: an event type without a projection would stop every group that contains one.
func TestEveryEventTypeHasAProjection(t *testing.T) {
	for _, kind := range domain.EventTypes() {
		body, err := domain.Body(&domain.RecordRegisteredBody{}), error(nil) // which cannot be read without a payload
		if kind == domain.RecordHealed {
			body = &domain.RecordHealedBody{}
		} else if kind != domain.RecordRegistered {
			body, err = domain.DecodeBody(kind, 1, []byte("{}"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := Apply(&pgx.Batch{}, 0, []domain.Event{{Type: kind, Body: body}}); errors.Is(err, errNoProjection) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := Apply(&pgx.Batch{}, 0, []domain.Event{{}}); !errors.Is(err, errNoProjection) {
		t.Errorf("an event without a type: %v", err)
	}
}
