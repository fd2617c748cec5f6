// Package wait implements the delays of the service and its clients, which a context or a channel can end early.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns early when ctx ends, and always returns the error of ctx.
func For(ctx context.Context, d time.Duration) error {
	Interrupted(d, ctx.Done(), nil)
	return ctx.Err()
}

// Interrupted waits for d. It returns true early when one of the channels is closed or has a value, which it receives.
// A nil channel ends nothing.
func Interrupted(d time.Duration, stopped, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-woken:
	case <-timer.C:
		return false
	}
	return true
}
