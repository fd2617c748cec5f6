package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/ops"
	"integrityledger/cmd/integrity/process"
)

// serveMetrics serves what operators look at, on a listener of its own, until stop is called. Profiles tell how the
// service works inside, and taking one costs it time: the address is not for the public. Where the default address is
// taken, by another process of ours on this machine perhaps, the service goes on without.
func (s *service) serveMetrics(ctx context.Context) (stop func(), err error) {
	return serveMetrics(ctx, s.cfg, s.log, func() http.Handler {
		s.metrics.Watch(s.watched())
		return s.metrics.Handler(s.log)
	})
}

func serveMetrics(
	ctx context.Context, cfg config.Config, log *slog.Logger, handler func() http.Handler,
) (stop func(), err error) {
	if cfg.MetricsListen == config.MetricsOff {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.MetricsListen)
	if errors.Is(err, syscall.EADDRINUSE) && !cfg.MetricsGiven {
		log.Warn(
			"metrics are not served: their default address is in use; "+config.Prefix+"METRICS_LISTEN names another", "listen",
			cfg.MetricsListen,
		)
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%sMETRICS_LISTEN (--metrics-listen): %w", config.Prefix, err)
	}
	server := process.NewHTTPServer(handler())
	server.WriteTimeout = 0 // a profile takes as long as it was asked to
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the metrics listener is gone", "error", err)
		}
	}()
	log.Info("metrics are served", "url", "http://"+listener.Addr().String()+"/")
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// watched is what is asked whenever somebody looks at the metrics.
func (s *service) watched() ops.Service {
	w := ops.Service{
		Ledger: s.ledger, Canary: s.canary, Shards: s.installed.Shards, Waiting: s.notifier.Waiting, Trusted: s.trusted,
		Expires: s.certificateEnd, Lost: s.guard.Lost, Database: s.watch,
		Pools: map[string]*pgxpool.Pool{
			"commit": s.commit, "read": s.read, "public": s.public, "scans": s.scans, "queue": s.queue, "wake": s.wake,
			"watch": s.watch,
		},
		Nodes:    s.nodes,
		Failures: map[string]func() int64{}, Replica: s.store.Replica, Now: s.Now, Log: s.log,
	}
	if s.replica != nil {
		w.Pools["replica"] = s.replica
	}
	if s.forwarder != nil {
		w.Consumers = []string{stream.Consumer}
		w.Failures[stream.Consumer] = s.forwarder.Failures
		w.Pools["stream"] = s.stream
	}
	if w.TransparencyLog = s.tree.keeper != nil; w.TransparencyLog {
		w.Failures["transparency"] = s.tree.keeper.Failures
		w.Authorities, w.StampInterval = s.tree.authorities, s.cfg.TimestampInterval
		w.LogTrusted = func() bool { return s.tree.signer.Load() != nil }
	}
	if s.database != nil {
		w.DataDir = s.cfg.DataDir
	}
	return w
}

// trusted is whether anything can be signed.
func (s *service) trusted() bool {
	keys := s.keys.Load()
	return keys.Signer != nil && keys.Trusted.Trusts(keys.Signer.Key())
}
