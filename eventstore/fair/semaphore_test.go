package fair

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/eventstore/pgtest"
)

// key is the key of a semaphore.
type key [16]byte

// inLine starts a request for n units and returns once it waits. granted receives the organization once it has them.
func inLine(t *testing.T, s *Semaphore[key], o byte, n int, granted chan<- byte) {
	t.Helper()
	before := s.Waiting()
	go func() {
		if _, err := s.Acquire(context.Background(), key{o}, n); err == nil {
			granted <- o
		}
	}()
	pgtest.Eventually(t, "the request waits", func() (bool, error) { return s.Waiting() == before+1, nil })
}

func TestSemaphoreServesOrganizationsInTurn(t *testing.T) {
	s := NewSemaphore[key](Limits{Most: 1, Each: 1, Line: 100})
	release, err := s.Acquire(context.Background(), key{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan byte)
	for range 5 {
		inLine(t, s, 1, 1, granted)
	}
	for _, o := range []byte{2, 3, 2} {
		inLine(t, s, o, 1, granted)
	}
	var order []byte
	for range 8 {
		release()
		o := <-granted
		order = append(order, o)
		release = func() { s.release(key{o}, 1) }
	}
	if want := []byte{1, 2, 3, 1, 2, 1, 1, 1}; !slices.Equal(order, want) {
		t.Errorf("served %v, want %v", order, want)
	}
	release()
	if s.held != 0 || len(s.of) != 0 || s.queue.Len() != 0 {
		t.Errorf("something is left: %+v", s)
	}
}

func TestSemaphoreHasAShareForEach(t *testing.T) {
	s := NewSemaphore[key](Limits{Most: 10, Each: 4, Line: 2})
	ctx := context.Background()
	one, other := key{1}, key{2}
	release, err := s.Acquire(ctx, one, 99) // as many as one may hold
	if err != nil || s.held != 4 {
		t.Fatal(err, s.held)
	}
	granted := make(chan byte, 10)
	inLine(t, s, 1, 1, granted)
	inLine(t, s, 1, 1, granted)
	if _, err := s.Acquire(ctx, one, 1); err == nil {
		t.Error("a third request of the organization waits, and two may")
	}
	// The first organization has its share, so it does not delay another.
	if _, err := s.Acquire(ctx, other, 3); err != nil {
		t.Fatal(err)
	}
	// No organization overtakes the one whose turn it is.
	inLine(t, s, 3, 4, granted)
	inLine(t, s, 4, 1, granted)
	gone, leave := context.WithCancel(ctx)
	leave()
	if _, err := s.Acquire(gone, other, 4); err == nil {
		t.Error("a caller who is gone was served")
	}
	if len(granted) != 0 {
		t.Errorf("organization %d was served out of its turn", <-granted)
	}
	release()
	served := []byte{<-granted, <-granted, <-granted, <-granted}
	slices.Sort(served)
	if !slices.Equal(served, []byte{1, 1, 3, 4}) {
		t.Errorf("served %v", served)
	}
	if s.held != 10 || s.Waiting() != 0 {
		t.Errorf("%d units are held and %d requests wait", s.held, s.Waiting())
	}
}

// TestCallerWhoLeavesGivesItsUnitsBack: a request whose context ends at the moment of its turn keeps no units.
func TestCallerWhoLeavesGivesItsUnitsBack(t *testing.T) {
	s := NewSemaphore[key](Limits{Most: 1, Each: 1, Line: math.MaxInt})
	o := key{1}
	for range 50 { // which of the two the caller sees first is random
		if _, err := s.Acquire(context.Background(), o, 1); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(context.Background())
		var caller sync.WaitGroup
		caller.Go(func() {
			if release, err := s.Acquire(ctx, o, 1); err == nil {
				release()
			}
		})
		pgtest.Eventually(t, "the request waits", func() (bool, error) { return s.Waiting() == 1, nil })
		s.mu.Lock()
		leave()
		s.held = 0
		delete(s.of, o)
		s.dispatch()
		s.mu.Unlock()
		caller.Wait()
		if s.held != 0 || len(s.of) != 0 || s.queue.Len() != 0 {
			t.Fatalf("something is left: %+v", s)
		}
	}
}

// TestClosingEndsWaits: a waiting request does not delay the shutdown of the service.
func TestClosingEndsWaits(t *testing.T) {
	closing := make(chan struct{})
	refused := make(chan error)
	semaphores := []*Semaphore[key]{
		NewSemaphore[key](Limits{Most: 9, Each: 1, Line: 9, Closing: closing, Patience: time.Hour}),
		NewSemaphore[key](Limits{Most: 9, Each: 1, Alone: 1, Line: 9, Closing: closing}),
	}
	for _, s := range semaphores {
		if _, err := s.Acquire(t.Context(), key{1}, 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := s.Acquire(t.Context(), key{1}, 1)
			refused <- err
		}()
		pgtest.Eventually(t, "the request waits", func() (bool, error) { return s.Waiting() == 1, nil })
	}
	close(closing)
	for range semaphores {
		if err := <-refused; err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request ended with %v", err)
		}
	}
}

func TestKeyHasMoreWhileAlone(t *testing.T) {
	s := NewSemaphore[key](Limits{Most: math.MaxInt, Each: 64, Alone: 1024, Line: 2048})
	ctx := context.Background()
	one, other := key{1}, key{2}
	take := func(o key) {
		t.Helper()
		if _, err := s.Acquire(ctx, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		take(one)
	}
	take(other)
	granted := make(chan byte, 1)
	inLine(t, s, 1, 1, granted)
	for held := 100; held >= 64; held-- {
		if len(granted) != 0 {
			t.Fatalf("a request was served while %d were under way", held)
		}
		s.release(one, 1)
	}
	if <-granted; s.Waiting() != 0 {
		t.Error("a request waits")
	}
	s.release(one, 1)
	for range sharedRequests {
		take(one)
		s.release(one, 1)
	}
	for range 100 {
		take(one)
	}
	if len(s.of) != 2 || s.of[one] != 64-1+100 {
		t.Errorf("%+v", s.of)
	}
}

// TestCrowded: an organization crowds out others only if another is waiting although it holds less than its share.
func TestCrowded(t *testing.T) { synctest.Test(t, testCrowded) }

func testCrowded(t *testing.T) {
	s := NewSemaphore[key](Limits{Most: 2, Each: 1, Line: 1})
	a, b, c := key{1}, key{2}, key{3}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for _, o := range []key{a, b} {
		if _, err := s.Acquire(ctx, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(o key) {
		go func() { _, _ = s.Acquire(ctx, o, 1) }()
		synctest.Wait()
	}
	for _, step := range []struct {
		comes key
		want  bool
	}{{key{}, false}, {b, false}, {a, false}, {c, true}} {
		if step.comes != (key{}) {
			wait(step.comes)
		}
		if got := s.Crowded(a); got != step.want {
			t.Errorf("after %v: %t", step.comes, got)
		}
	}
}
