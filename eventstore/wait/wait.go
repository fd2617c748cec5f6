// Package wait is how the service and its clients let time pass.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns early, with the error of ctx, when ctx ends.
func For(ctx context.Context, d time.Duration) error {
	if Interrupted(d, ctx.Done(), nil) {
		return ctx.Err()
	}
	return nil
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
