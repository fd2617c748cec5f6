package query

import (
	"context"
	"errors"
	"testing"

	"integrityledger/domain"
)

// TestOneQuestionOfAnOrganizationAtATime: an organization that asks much waits for itself, not others for it.
func TestOneQuestionOfAnOrganizationAtATime(t *testing.T) {
	var all turns
	a, b := domain.OrganizationID{1}, domain.OrganizationID{2}
	take := func(ctx context.Context, o domain.OrganizationID) (func(), error) {
		t.Helper()
		return all.take(ctx, o)
	}
	first, err := take(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := take(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var refused *domain.Error
	if _, err := take(ended, a); !errors.As(err, &refused) || refused.Code != domain.TemporarilyUnavailable || refused.RetryAfter == 0 {
		t.Errorf("a second question of an organization: %v", err)
	}
	second := make(chan func())
	go func() {
		give, err := all.take(context.Background(), a)
		if err != nil {
			t.Error(err)
		}
		second <- give
	}()
	first()
	(<-second)()
	other()
	all.of.Range(func(o, _ any) bool { t.Errorf("organization %s is remembered", o); return true })
}
