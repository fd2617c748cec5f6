package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
)

// serveMetrics serves what operators look at, on a listener of its own, until stop is called. Profiles tell how the
// service works inside, and taking one costs it time: the address is not for the public.
func (s *service) serveMetrics(ctx context.Context) (stop func(), err error) {
	if s.cfg.MetricsListen == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.MetricsListen)
	if err != nil {
		return nil, fmt.Errorf("%sMETRICS_LISTEN (--metrics-listen): %w", variablePrefix, err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /debug/pprof/", pprof.Index)
	routes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	routes.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	routes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	server := &http.Server{
		Handler: routes, ReadHeaderTimeout: readHeaderTimeout, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the metrics listener is gone", "error", err)
		}
	}()
	s.log.Info("profiles are served", "listen", listener.Addr().String())
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
