package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"integrityledger/eventstore/wait"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := wait.For(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := wait.For(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for range 100 { // an ended context takes precedence over an elapsed wait
			if err := wait.For(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	})
}

func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, woken := make(chan struct{}), make(chan struct{}, 1)
		wake := func() { woken <- struct{}{} }
		for what, end := range map[string]func(){"woken": wake, "stopped": func() { close(stopped) }} {
			began := time.Now()
			time.AfterFunc(time.Minute, end)
			if !wait.Interrupted(time.Hour, stopped, woken) || time.Since(began) != time.Minute {
				t.Errorf("%s: %v", what, time.Since(began))
			}
			if what == "stopped" {
				stopped = make(chan struct{})
			}
		}
		if wait.Interrupted(time.Hour, stopped, nil) {
			t.Error("a wait without an end was interrupted")
		}
	})
}
