package ledger

import (
	"time"

	"golang.org/x/sys/unix"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/eventstore"
)

// clock is what a ledger dates by.
func Clock(a *cli.App, cfg config.Config) *eventstore.Clock {
	return eventstore.NewClock(eventstore.ClockConfig{Now: a.Now, Monotonic: sinceBoot(), Tolerance: cfg.ClockTolerance})
}

// sinceBoot is the time since the machine was started, which no one can set and which goes on while the machine is
// suspended. Nil where the kernel does not tell it.
func sinceBoot() func() time.Duration {
	read := func() (time.Duration, error) {
		var at unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at)
		return time.Duration(at.Nano()), err
	}
	if _, err := read(); err != nil {
		return nil
	}
	return func() time.Duration {
		at, _ := read() // it has answered before
		return at
	}
}
