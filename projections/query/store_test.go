package query

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

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
	if _, err := take(ended, a); !errors.As(err, &refused) || refused.Code != domain.TemporarilyUnavailable ||
		refused.RetryAfter == 0 {
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
	if len(all.of) != 0 {
		t.Errorf("%d organizations are remembered", len(all.of))
	}
}

// TestQuestionsOfAnOrganizationKeepTheirOrder: the question that waits longest is answered next.
func TestQuestionsOfAnOrganizationKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		o := domain.OrganizationID{1}
		give, err := all.take(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		const questions = 20
		order := make(chan int, questions)
		for i := range questions {
			go func() {
				give, err := all.take(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				order <- i
				give()
			}()
			synctest.Wait() // until it waits
		}
		give()
		for want := range questions {
			if got := <-order; got != want {
				t.Fatalf("question %d was answered in the place of %d", got, want)
			}
		}
	})
}
