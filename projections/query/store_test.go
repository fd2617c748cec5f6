package query

import (
	"context"
	"errors"
	"testing"

	"integrityledger/domain"
	"integrityledger/eventstore"
)

// TestOneQuestionOfAnOrganizationAtATime: an organization with many expensive queries waits for its own, and other
// organizations do not wait for it.
func TestOneQuestionOfAnOrganizationAtATime(t *testing.T) {
	store := New(Config{})
	a, b := domain.OrganizationID{1}, domain.OrganizationID{2}
	ask := func(ctx context.Context, o domain.OrganizationID, question func()) error {
		_, err := scan(ctx, store.reader, o, func(eventstore.Database) (struct{}, error) {
			question()
			return struct{}{}, nil
		})
		return err
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	check(ask(t.Context(), a, func() {
		check(ask(t.Context(), b, func() {}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		var refused *domain.Error
		if err := ask(ended, a, func() { t.Error("two questions of an organization at once") }); !errors.As(err, &refused) ||
			refused.Code != domain.TemporarilyUnavailable || refused.RetryAfter == 0 {
			t.Errorf("a second question of an organization: %v", err)
		}
	}))
	check(ask(t.Context(), a, func() {}))
}
