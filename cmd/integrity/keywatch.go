package main

import (
	"context"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/operator"
)

const (
	keyUseEvery     = time.Minute
	keyWarningEvery = 24 * time.Hour
)

// watchKeys writes down once a minute which keys were used, and warns of keys that end soon, now and once a day. The
// function that it returns stops the watch and writes down what is left; the pools must still be open then.
func (s *service) watchKeys(ctx context.Context) (stop func()) {
	watching, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		uses, warning := time.NewTicker(keyUseEvery), time.NewTicker(keyWarningEvery)
		defer uses.Stop()
		defer warning.Stop()
		s.warnOfKeys(watching)
		for {
			select {
			case <-watching.Done():
				return
			case <-uses.C:
				s.flushKeyUses(watching)
			case <-warning.C:
				s.warnOfKeys(watching)
			}
		}
	}()
	return func() {
		cancel()
		<-done
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		s.flushKeyUses(stopping)
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
