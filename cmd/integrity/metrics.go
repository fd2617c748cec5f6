//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/ops"
	"integrityledger/cmd/integrity/process"
	"integrityledger/domain/say"
)

// serveMetrics serves metrics and profiles on a separate listener until stop is called. Profiles reveal how the service
// works and slow it down while they run, so the address must not be public. If the default address is in use, perhaps
// by another integrity process on this machine, the service runs without metrics.
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
		return nil, say.Errorf("%sMETRICS_LISTEN (--metrics-listen): %w", config.Prefix, err)
	}
	server := process.NewHTTPServer(handler())
	server.WriteTimeout = 0 // profiles take as long as the request asks for
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics listener failed", "error", err)
		}
	}()
	log.Info("metrics are served", "url", "http://"+listener.Addr().String()+"/")
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// watched returns the parts of the service that the metrics handler reads on each request.
func (s *service) watched() ops.Service {
	w := ops.Service{
		Ledger: s.ledger, Canary: s.canary, Shards: s.installed.Shards, Waiting: s.notifier.Waiting, Trusted: s.trusted,
		Signs:   func() bool { return s.signs(context.Background()) == nil },
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

// trusted reports whether the current signing key is trusted.
func (s *service) trusted() bool {
	keys := s.keys.Load()
	return keys.Signer != nil && keys.Trusted.Trusts(keys.Signer.Key())
}
