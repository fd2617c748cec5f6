//go:build linux

package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
)

// Intervals of the background jobs.
const (
	forgetSessionsEvery = 10 * time.Minute
	trafficEvery        = 10 * time.Second
	keyUseEvery         = time.Minute
	keyWarningEvery     = 24 * time.Hour
)

// startWorkers starts the background jobs. The heartbeat and the guard keep running while requests and groups finish;
// stop ends those too, and waits until all jobs have released the database.
func (s *service) startWorkers(ctx context.Context) (stop func(), err error) {
	mailer := queue.NewMailer(queue.Mailer{
		Pool: s.store.Pool, Shards: s.installed.Shards, Now: s.Now, Log: s.log, Send: s.send, SecretKeys: s.loadedSecretKeys,
		Observe: s.metrics.Mail,
		InvitationURL: func(language evidence.Language, code string) string {
			return action.InvitationURL(s.cfg.BaseURL, language, code)
		},
	})
	working, cancel := context.WithCancel(ctx)
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	var workers, watchers sync.WaitGroup
	watchers.Go(func() {
		s.heartbeat.Run(watching, func(err error) {
			s.log.Warn("heartbeat failed; other processes may consider this one ended", "error", cluster.Loggable(err))
		})
	})
	// Workers also write, so they stop when the gate closes.
	watchers.Go(func() { s.guard.Run(watching, s.store.Pool, s.installed.Shards) })
	watchers.Go(func() {
		select {
		case <-s.gate.Closed():
			cancel()
		case <-working.Done():
		}
	})
	s.canary.First(ctx)
	workers.Go(func() { s.canary.Run(working) })
	workers.Go(func() { mailer.Run(working) })
	workers.Go(func() { s.webhooks.Run(working) })
	workers.Go(func() { s.publishers.Run(working) })
	workers.Go(func() { s.warner.Run(working) })
	workers.Go(func() { s.eraser().Run(working) })
	workers.Go(func() { every(working, time.Hour, s.forgetAnswers) })
	workers.Go(func() { every(working, forgetSessionsEvery, s.forgetSessions) })
	if s.linkMailer != nil {
		workers.Go(func() { s.linkMailer.Run(working) })
	}
	workers.Go(func() { every(working, keyUseEvery, s.flushKeyUses) })
	workers.Go(func() { every(working, trafficEvery, s.flushTraffic) })
	workers.Go(func() { every(working, keyWarningEvery, s.warnOfKeys) })
	if s.forwarder != nil {
		workers.Go(func() { s.forwarder.Run(working) })
	}
	if s.tree.keeper != nil {
		workers.Go(func() { s.tree.keeper.Run(working) })
	}
	return func() {
		cancel()
		workers.Wait()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		s.flushKeyUses(stopping) // uses of the last minute
		s.flushTraffic(stopping)
		end()
		watchers.Wait()
	}, nil
}

// every calls do now and then at each interval, until ctx ends.
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
		s.log.Warn("last-used times of keys not saved; retrying in a minute", "error", err)
	}
}

func (s *service) flushTraffic(ctx context.Context) {
	if err := s.traffic.Flush(ctx, s.store, s.Now()); err != nil && ctx.Err() == nil {
		s.log.Warn("organizations' load not saved; retrying in the next round", "error", err)
	}
}

func (s *service) warnOfKeys(ctx context.Context) {
	now := s.Now()
	keys, err := s.store.ExpiringKeys(ctx, now, now.Add(domain.KeyWarning))
	if err != nil && ctx.Err() == nil {
		s.log.Warn("search for expiring API keys incomplete", "error", err)
	}
	if len(keys) > 0 {
		s.log.Warn("API keys expire within 30 days; integrity apikey list shows them, integrity apikey rotate replaces them",
			"keys", len(keys), "first", keys[0].ID.String(), "organization", keys[0].Organization.String(), "ends",
			cli.TimeText(keys[0].ExpiresAt))
	}
}

// forgetAnswers deletes expired answers to idempotent requests.
func (s *service) forgetAnswers(ctx context.Context) {
	now, err := s.ledger.Agreed(ctx) // a clock that is ahead would delete answers that clients may still ask for
	if err == nil {
		err = s.store.ForgetAnswers(ctx, now)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("expired answers to idempotent requests not deleted", "error", err)
	}
}

// forgetSessions deletes expired console sessions, links and passkey challenges.
func (s *service) forgetSessions(ctx context.Context) {
	// A clock that is ahead would sign out every user and delete links that are still valid.
	now, err := s.ledger.Agreed(ctx)
	if err == nil {
		err = s.sessions.Forget(ctx, now)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("expired sessions not deleted", "error", err)
	}
}

func (s *service) eraser() *queue.Loop {
	return queue.NewEraser(queue.Eraser{
		Pool: s.store.Pool, Ledger: s.ledger, Shards: s.installed.Shards, Log: s.log, Delete: s.contents.Remove,
	})
}

// committed wakes the workers that a commit concerns.
func (s *service) committed(c eventstore.Commit) {
	s.notifier.Committed(c)
	if c.Queued {
		s.webhooks.Wake(c.Shard)
	}
	if s.forwarder != nil {
		s.forwarder.Wake(int(c.Shard))
	}
	if s.tree.keeper != nil {
		s.tree.keeper.Wake()
	}
}

// grouped records a committed group in the metrics, the probe, the canary and the traffic.
func (s *service) grouped(r eventstore.GroupReport) {
	s.metrics.Group(r)
	s.probe.Group(r)
	s.canary.Group(r)
	for _, e := range r.Events {
		if e.Type == domain.RecordRegistered {
			s.traffic.Note(e.Organization, e.OccurredAt, query.Load{Registrations: 1})
		}
	}
}

// answered records a request in the metrics and in the organization's traffic. Health probes are left out of the
// traffic: with them an idle service would keep writing.
func (s *service) answered(o edge.Observation) {
	s.metrics.Request(o)
	if o.Route == "/healthz" || o.Route == "/readyz" {
		return
	}
	load := query.Load{Requests: 1, Received: o.Received, Sent: o.Sent}
	if o.Status >= http.StatusBadRequest {
		load.Refusals = 1
	}
	for _, n := range o.FailedItems {
		load.Refusals += int64(n)
	}
	s.traffic.Note(o.Organization, o.Start.Add(o.Duration), load)
}
