package eventstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/domain"
)

// questions is a database that counts the questions it receives.
type questions struct {
	mu     sync.Mutex
	asked  int
	proofs int
	answer error
}

func (q *questions) inquire(_ context.Context, prove bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	if prove {
		q.proofs++
	}
	return q.answer
}

func (q *questions) are(t *testing.T, asked, proofs int) {
	t.Helper()
	if q.asked != asked || q.proofs != proofs {
		t.Errorf("%d questions, %d of them with a proof; must be %d and %d", q.asked, q.proofs, asked, proofs)
	}
}

// TestProbeRemembers: repeated calls cost the database nothing, and a group replaces a question.
func TestProbeRemembers(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var q questions
	p := newProbe(func() time.Time { return now })
	p.inquire = q.inquire
	ready := func(want bool) {
		t.Helper()
		err := p.Ready(t.Context())
		var refused *domain.Error
		if (err == nil) != want || err != nil && !errors.As(err, &refused) {
			t.Errorf("ready is %v", err)
		}
	}
	for range 400 {
		ready(true)
	}
	q.are(t, 1, 1) // a process without traffic proves that it can commit
	now = now.Add(rememberAnswer)
	ready(true)
	q.are(t, 2, 1)
	now = now.Add(proofAge)
	ready(true)
	q.are(t, 3, 2)

	committed := GroupReport{Outcome: GroupCommitted, Events: make([]domain.Event, 1)}
	for range 10 {
		now = now.Add(proofAge)
		p.Group(committed)
		ready(true)
	}
	q.are(t, 3, 2)
	p.Group(GroupReport{Outcome: GroupFailed})
	ready(true)
	q.are(t, 4, 3)
	p.Group(GroupReport{Outcome: GroupUnknown})
	q.answer = errors.New("full")
	ready(false)
	ready(false)
	q.are(t, 5, 4)
	p.Group(GroupReport{Outcome: GroupCommitted}) // a group without events
	ready(false)
	q.are(t, 5, 4)
	now = now.Add(rememberAnswer)
	q.answer = nil
	ready(true)
	q.are(t, 6, 5)
	now = now.Add(-time.Hour) // a clock that was set back
	ready(true)
	q.are(t, 7, 6)
}

// TestProbeAsksTheClocks: it is not ready while clocks disagree, and believes a group that reports so at once.
func TestProbeAsksTheClocks(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var q questions
	p := newProbe(func() time.Time { return now })
	p.inquire = q.inquire
	var clocks error
	p.Clocks = func(context.Context) error { return clocks }
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	clocks = &ClockError{Cause: ClockApart, By: time.Hour}
	p.Group(GroupReport{Outcome: GroupClocks})
	var refused *domain.Error
	if err := p.Ready(t.Context()); !errors.As(err, &refused) || !strings.Contains(refused.Message, "clocks") {
		t.Errorf("with clocks apart: %v", err)
	}
	clocks = nil
	now = now.Add(rememberAnswer)
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("once they agree: %v", err)
	}
	q.are(t, 3, 2) // a commit is proven again after each failure
}

// TestProbeAsksOneQuestion: callers that arrive during a question wait for its answer, and a caller that gives up does
// not end it.
func TestProbeAsksOneQuestion(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	begun, answer := make(chan struct{}, 200), make(chan error)
	p := newProbe(func() time.Time { return now })
	p.inquire = func(ctx context.Context, _ bool) error {
		begun <- struct{}{}
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	hasty, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		if err := p.Ready(hasty); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away gets %v", err)
		}
	})
	<-begun
	cancel()
	callers.Wait()
	for range 100 {
		callers.Go(func() {
			if err := p.Ready(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	answer <- nil // a second question would never be answered
	callers.Wait()
}

// TestProbeEnds: Close ends a question that is never answered.
func TestProbeEnds(t *testing.T) {
	p := newProbe(time.Now)
	begun := make(chan struct{})
	p.inquire = func(ctx context.Context, _ bool) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}
	told := make(chan error)
	go func() { told <- p.Ready(context.Background()) }()
	<-begun
	p.stop()
	p.work.Wait()
	if err := <-told; err == nil {
		t.Error("it is said to be ready")
	}
}
