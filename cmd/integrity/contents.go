package main

import (
	"context"
	"io"
	"time"

	"integrityledger/domain"
	"integrityledger/projections/queue"
)

// keepContent announces bytes before it stores them, so that they are erased if their registration never comes.
func (s *service) keepContent(ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, content io.ReaderAt, size int64) error {
	if err := s.store.AnnounceContent(ctx, o, a, v, s.Now()); err != nil {
		return err
	}
	return s.contents.Keep(ctx, o, v, content, size)
}

// forgetAnswers deletes the answers of idempotent requests once they are too old, until ctx ends.
func (s *service) forgetAnswers(ctx context.Context) {
	look := time.NewTicker(time.Hour)
	defer look.Stop()
	for {
		now, err := s.ledger.Agreed(ctx) // a clock ahead would forget answers that are still asked for
		if err == nil {
			err = s.store.ForgetAnswers(ctx, now)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("old answers of idempotent requests stay", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

func (s *service) eraser() *queue.Eraser {
	return &queue.Eraser{EraserConfig: queue.EraserConfig{
		Pool: s.read, Ledger: s.ledger, Shards: s.installed.Shards, Log: s.log, Delete: s.contents.Remove,
	}}
}
