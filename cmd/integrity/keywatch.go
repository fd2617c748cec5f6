package main

import (
	"context"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
)

// How often it is written down which keys were used, and warned of keys that end soon.
const (
	keyUseEvery     = time.Minute
	keyWarningEvery = 24 * time.Hour
)

// every does something now, and again and again after the interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	again := time.NewTicker(interval)
	defer again.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func (s *service) flushKeyUses(ctx context.Context) {
	if err := s.keyUses.Flush(ctx, s.store); err != nil && ctx.Err() == nil {
		s.log.Warn("when keys were used is not written down; the next minute tries again", "error", err)
	}
}

func (s *service) warnOfKeys(ctx context.Context) {
	now := s.Now()
	keys, err := s.store.ExpiringKeys(ctx, now, now.Add(operator.KeyWarning))
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.log.Warn("cannot look for API keys that end soon", "error", err)
	case len(keys) > 0:
		s.log.Warn("API keys end within 30 days; integrity key list shows them, integrity key rotate makes successors",
			"keys", len(keys), "first", keys[0].ID.String(), "organization", keys[0].Organization.String(), "ends", cli.TimeText(keys[0].ExpiresAt))
	}
}
