//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"integrityledger/cmd/analyzer"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/internal/blobs"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/internal/stream"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ops"
	"integrityledger/cmd/integrity/process"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers"
	"integrityledger/handlers/action"
	"integrityledger/handlers/console"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
	"integrityledger/projections/queue/publishers"
	"integrityledger/projections/queue/webhooks"
	"integrityledger/projections/session"
)

// Shutdown timeouts, counted from the signal and including INTEGRITY_DRAIN_DELAY. Accepted requests and groups have
// acceptedTimeout to finish; the database has the rest of shutdownTimeout.
const (
	acceptedTimeout = 25 * time.Second
	shutdownTimeout = 30 * time.Second
)

func (a *app) serveCommand() *cobra.Command {
	var asDemo bool
	c := manual().Command("serve")
	config.AddFlags(c)
	c.Flags().BoolVar(
		&asDemo, "demo", false, "run a demo on loopback, with an organization, a company, API keys and example commands",
	)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		// A second signal ends the process at once; the next start recovers.
		context.AfterFunc(ctx, stop)
		return a.serve(ctx, cfg, asDemo)
	}
	return c
}

// service holds the parts that serve sets up. They are stopped in reverse order: first it accepts nothing new, then it
// finishes the accepted work, then it stops the database.
type service struct {
	*app
	cfg    config.Config
	asDemo bool
	log    *slog.Logger
	// requests writes request lines to the same log, in batches.
	requests *slog.Logger

	listener   net.Listener
	handler    atomic.Pointer[http.Handler]
	starting   atomic.Pointer[domain.Error] // why the service does not serve yet
	database   *postgres.Server             // nil with an external database
	keys       atomic.Pointer[action.Keys]
	signing    signing
	secretKeys atomic.Pointer[domain.SecretKeys] // loadedSecretKeys reads them
	shown      atomic.Pointer[tls.Certificate]
	ledger     *eventstore.Ledger
	clock      *eventstore.Clock
	guard      *eventstore.Guard // stops the ledger and the transparency log if the database has lost commits
	primary    *cluster.Primary
	probe      *eventstore.Probe
	canary     *eventstore.Canary
	gate       *eventstore.Gate // closes when the ledger requires a newer program
	heartbeat  *eventstore.Heartbeat
	notifier   *eventstore.Notifier
	store      *query.Store
	sessions   *session.Store
	plans      domain.Plans
	webhooks   *webhooks.Worker
	publishers *publishers.Checker
	warner     *queue.Loop
	// send hands a mail to the mail server. If it is nil, mails wait in the queue and no sign-in links are mailed.
	send       func(context.Context, queue.Mail) error
	linkMailer *console.LinkMailer
	forwarder  *stream.Forwarder // nil: nothing is forwarded
	tree       tree              // the transparency log
	draining   atomic.Bool       // still serving, but /readyz fails
	keyUses    query.KeyUses
	traffic    query.Traffic
	installed  eventstore.Installation
	demo       atomic.Pointer[demo.Demo] // nil until the demo's data is ready
	patience   time.Time                 // when startup stops waiting for the database
	contents   *blobs.Store
	analyzer   *analyzer.Analyzer
	metrics    *ops.Metrics
	traces     *ops.Traces // nil: nothing is traced

	commit, read, public, queue, wake *pgxpool.Pool
	scans                             *pgxpool.Pool             // for queries that may read a lot
	stream                            *pgxpool.Pool             // nil: nothing is forwarded
	replica                           *pgxpool.Pool             // nil without a replica
	watch                             *pgxpool.Pool             // for metrics
	holders                           *cluster.Holders          // nil unless the database is distributed
	nodes                             map[string]*cluster.Nodes // connections to the holders, by use

	independence
}

func (a *app) serve(ctx context.Context, cfg config.Config, asDemo bool) (err error) {
	lines := ops.NewLines(a.Errs)
	defer lines.Flush()
	s := &service{
		app: a, cfg: cfg, asDemo: asDemo, log: newLog(lines.Through(), cfg), requests: newLog(lines, cfg),
		metrics: ops.NewMetrics(), clock: ledger.Clock(a.App, cfg),
	}
	// Everything from here on uses a clock that ignores steps of the system clock.
	steady := *a.App
	s.app, steady.Now = &app{&steady}, s.clock.Now
	for _, name := range config.UnknownVariables(a.App) {
		s.log.Warn("unknown variable ignored; integrity serve --help lists the valid ones", "variable", name)
	}
	if s.traces, err = ops.OpenTraces(ctx, s.log); err != nil {
		return err
	}
	defer s.closeTraces(ctx)
	// Registered this early because a SIGHUP during startup would otherwise kill the process. It is handled once the
	// service is ready.
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	// Listen first, so that an address in use is reported before anything is started.
	if s.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen); err != nil {
		return say.Errorf("%sLISTEN (--listen): %w", config.Prefix, err)
	}
	defer s.listener.Close()
	if err := s.nameAddress(asDemo); err != nil {
		return err
	}
	if asDemo {
		closeLog, err := s.logToFile()
		if err != nil {
			return err
		}
		defer closeLog()
	}
	server, served := s.listen()
	defer server.Close() // after an error of the start
	// The first call to deadline starts the clock of the whole shutdown.
	signalled := sync.OnceValue(time.Now)
	deadline := func(within time.Duration) (context.Context, context.CancelFunc) {
		return context.WithDeadline(context.WithoutCancel(ctx), signalled().Add(within))
	}
	if err := s.openDatabase(ctx); err != nil {
		return err
	}
	if s.database != nil {
		defer func() {
			stopping, cancel := deadline(shutdownTimeout)
			defer cancel()
			err = errors.Join(err, s.database.Stop(stopping))
			s.log.Info("stopped")
		}()
	}
	// Cancelled before the server shuts down, so that requests waiting for the feed answer at once.
	serving, stopWaiting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaiting()
	handler, err := assembly{s}.wire(ctx, serving.Done())
	defer s.closePools()
	if err != nil && ctx.Err() != nil {
		s.log.Info("shutdown requested during startup", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	stopWorkers, err := s.startWorkers(ctx)
	if err != nil {
		return err
	}
	defer stopWorkers()
	stopMetrics, err := s.serveMetrics(ctx)
	if err != nil {
		return err
	}
	defer stopMetrics()
	s.warnOfFiles()
	s.warnOfIndependence()
	s.handler.Store(&handler)
	s.log.Info("ready", "listen", s.listener.Addr().String(), "base_url", s.cfg.BaseURL, "issuer", s.installed.Issuer,
		"shards", s.installed.Shards, "embedded_postgresql", s.database != nil)
	if asDemo {
		shown := &demo.Demo{
			App: s.App, Cfg: &s.cfg, Address: s.listener.Addr(), Ledger: s.ledger, Store: s.store, Sessions: s.sessions,
		}
		if err = shown.Run(ctx); err == nil {
			s.demo.Store(shown)
		}
	}
	if err == nil {
		err = s.wait(ctx, served, reload)
	}
	stopping, cancel := deadline(acceptedTimeout)
	defer cancel()
	if err == nil {
		s.drain(served)
	}
	s.log.Info("stopping: finishing accepted requests")
	stopWaiting()
	return errors.Join(err, s.finish(stopping, server))
}

// nameAddress loads the certificate, derives the default base URL from the listener's address, and checks that a demo
// may listen there.
func (s *service) nameAddress(asDemo bool) error {
	if err := s.loadCertificate(); err != nil {
		return err
	}
	if err := s.cfg.DefaultBaseURL(s.listener.Addr()); err != nil {
		return err
	}
	if asDemo {
		return demo.Allowed(s.cfg, s.listener.Addr())
	}
	return nil
}

// logToFile moves the log into the data directory, so that the terminal keeps the demo's card in sight: it receives
// warnings only, as well as the file. The returned function writes the remaining lines and closes the file.
func (s *service) logToFile() (func(), error) {
	if err := keyfiles.MakeDataDir(s.cfg.DataDir); err != nil {
		return nil, err
	}
	path := s.cfg.InDataDir(demo.LogFile)
	// It appends: a second start on the same directory, which fails, must not cut the log of the first.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, say.Errorf("demo: %w", err)
	}
	_, _ = fmt.Fprintln(s.Errs, s.Sayf("Starting the demo in %s. Its log is %s.", s.cfg.DataDir, path))
	terminal := s.cfg
	terminal.LogLevel = max(terminal.LogLevel, slog.LevelWarn)
	lines := ops.NewLines(file)
	s.requests = newLog(lines, s.cfg)
	s.log = slog.New(slog.NewMultiHandler(newLog(lines.Through(), s.cfg).Handler(), newLog(s.Errs, terminal).Handler()))
	return func() {
		lines.Flush()
		_ = file.Close() // after everything that logs
	}, nil
}

// finish waits for running requests and groups.
func (s *service) finish(ctx context.Context, server *http.Server) (err error) {
	if err = server.Shutdown(ctx); err != nil {
		err = errors.Join(say.Errorf("requests were still running after %s: %w", acceptedTimeout, err), server.Close())
	}
	return errors.Join(err, s.ledger.Close(ctx))
}

// openDatabase starts the embedded PostgreSQL unless another database is configured. The first start makes the key
// files.
func (s *service) openDatabase(ctx context.Context) (err error) {
	if s.cfg.DatabaseURL != "" {
		return nil
	}
	if s.database, err = postgres.Start(ctx, postgres.Config{
		DataDir: s.cfg.DataDir, Log: s.log, Purpose: "integrity serve", Serving: true, Wait: ledger.Patience,
	}); err != nil {
		return err
	}
	made := false
	if s.cfg.SigningKey == "" && s.cfg.TrustedKeys == "" {
		made, err = keyfiles.Ensure(s.cfg.DataDir, s.Now())
	}
	if err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return errors.Join(err, s.database.Stop(stopping))
	}
	if made {
		s.log.Info("created a signing key and a trusted-keys file; keep a copy of both", "directory", s.cfg.DataDir)
	}
	return nil
}

// drain keeps serving for DrainDelay while /readyz fails, so that a load balancer sends new requests elsewhere before
// the listener closes.
func (s *service) drain(served <-chan error) {
	s.draining.Store(true)
	if s.cfg.DrainDelay == 0 {
		return
	}
	s.log.Info("draining: /readyz answers 503, all other requests are served", "for", s.cfg.DrainDelay)
	select {
	case <-time.After(s.cfg.DrainDelay): //nolint:forbidigo // the only early end is an error
	case err := <-served:
		s.log.Error("listener failed while draining", "error", err)
	}
}

// checkHeads reports a damaged database only if a head contradicts its log. A head that is merely behind is legitimate:
// restoring a backup loses the events after it.
func checkHeads(ctx context.Context, pool *pgxpool.Pool) error {
	err := history.CheckHeads(ctx, pool)
	if _, contradicts := errors.AsType[history.HeadError](err); contradicts {
		return say.Errorf("the database is damaged: restore it from a backup: %w", err)
	}
	return err
}

// openReplica lets a configured standby answer reads. If the standby is unreachable, the service starts without it; if
// it belongs to another ledger, openReplica returns an error.
func (s *service) openReplica(ctx context.Context) (err error) {
	if s.cfg.ReplicaURL == "" {
		return nil
	}
	replica := s.cfg.Replica(ledger.Unread(s.log))
	if _, err := cluster.Inspect(ctx, replica()); errors.Is(err, cluster.ErrSharedSessions) {
		return say.Errorf("%sREPLICA_URL: %w", config.Prefix, err)
	}
	if s.replica, err = s.primary.ReplicaPool(ctx, replica, ledger.ReadConns); err != nil {
		return say.Errorf("%sREPLICA_URL: %w", config.Prefix, err)
	}
	s.store.Replica = &query.Replica{Pool: s.replica, Now: s.Now, Log: s.log}
	err = s.store.Replica.Check(ctx, s.installed)
	if errors.Is(err, query.ErrAnotherLedger) {
		return say.Errorf(
			"%sREPLICA_URL: %w: name a standby of the database that %sDATABASE_URL names", config.Prefix, err, config.Prefix,
		)
	}
	if err != nil {
		s.log.Warn("the replica cannot be used yet; the primary answers", "error", err)
	}
	return nil
}

// listen serves in the background, from the first moment: until the service has started, /healthz answers and
// everything else is refused with the reason. The channel receives the error that ends it.
func (s *service) listen() (*http.Server, <-chan error) {
	s.starting.Store(domain.Unavailable("This process is starting: its database is being opened."))
	starting := handlers.NewStarting(s.surroundings(), func() error { return s.starting.Load() })
	s.handler.Store(&starting)
	server := process.NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*s.handler.Load()).ServeHTTP(w, r)
	}))
	server.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	return server, serveOn(server, s.listener, s.cfg.Encrypted(), &s.shown)
}

// surroundings configures what surrounds every request, without the database.
func (s *service) surroundings() handlers.Edge {
	return handlers.Edge{
		BaseURL: s.cfg.BaseURL, Now: s.Now, Log: s.log, Requests: s.requests, TrustedProxies: s.cfg.TrustedProxies,
		PublicPerMinute: s.cfg.PublicPerMinute, PublicPagesPerMinute: s.cfg.PagesPerMinute, Observe: s.answered,
		Tracer: s.traces.Tracer(),
	}
}

// serveOn serves in the background, over TLS if encrypted.
func serveOn(
	server *http.Server, listener net.Listener, encrypted bool, shown *atomic.Pointer[tls.Certificate],
) <-chan error {
	served := make(chan error, 1)
	if !encrypted {
		go func() { served <- server.Serve(listener) }()
		return served
	}
	server.TLSConfig = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil },
	}
	go func() { served <- server.ServeTLS(listener, "", "") }()
	return served
}

// wait reloads keys and the certificate on each reload signal. It returns nil when ctx ends, or the error that makes
// serving impossible.
func (s *service) wait(ctx context.Context, served <-chan error, reload <-chan os.Signal) error {
	var lost <-chan struct{}
	if s.database != nil {
		lost = s.database.Done()
	}
	look := time.NewTicker(lookAtTables)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return say.Errorf("serve: %w", err)
		case <-lost:
			return say.Errorf("PostgreSQL has stopped: %w", s.database.Err())
		case <-look.C:
			_ = s.signs(ctx) // logs a change
			if s.outdated(ctx) {
				return say.Errorf("the ledger was distributed over Citus while this process was running: restart it")
			}
		case <-reload:
			err := errors.Join(s.loadKeys(), s.loadSecretKeys())
			s.loadLogKey()
			s.loadCustody()
			if err != nil {
				s.log.Error("key files not reloaded; the previous keys stay in use", "error", err)
			} else {
				s.log.Info("key files reloaded")
			}
			if err := s.loadCertificate(); err != nil {
				s.log.Error("certificate not reloaded; the previous one stays in use", "error", err)
			}
			s.heartbeat.Soon()
		}
	}
}

// lookAtTables is how often a service on a single database server checks whether the tables have been distributed.
const lookAtTables = 10 * time.Second

// outdated reports whether the tables were distributed after this process started. Such a process must restart, because
// it still treats them as local tables.
func (s *service) outdated(ctx context.Context) bool {
	if s.holders != nil || s.database != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	distributed, err := cluster.Distributed(ctx, s.watch)
	return err == nil && distributed
}

// condition is one requirement for committing. If it does not hold, ask returns an error that wraps a *domain.Error.
type condition struct {
	name string
	ask  func(context.Context) error
}

// conditions are checked in order, cheapest first. The handlers check themselves that the signing key is trusted.
func (s *service) conditions() []condition {
	return []condition{
		{"process", s.staying},
		{"version", s.admitted},
		{"history", s.complete},
		{"signing key", s.signs},
		{"database", s.probe.Ready},
		{"shards", s.canary.Ready},
	}
}

// ready returns nil if registrations can be accepted, and otherwise an error that names the failed condition.
func (s *service) ready(ctx context.Context) error {
	for _, c := range s.conditions() {
		if err := c.ask(ctx); err != nil {
			return say.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// staying is not cached: a drain must show at once.
func (s *service) staying(context.Context) error {
	if s.draining.Load() {
		return domain.Unavailable("This process is stopping.")
	}
	return nil
}

// admitted returns an error if the ledger requires a newer version of this program.
func (s *service) admitted(context.Context) error {
	if err := s.gate.Err(); err != nil {
		return say.Errorf("%w: %w", domain.Unavailable("Nothing can be committed: "+err.Error()+"."), err)
	}
	return nil
}

// complete returns an error if the database has lost commits. It is not cached either.
func (s *service) complete(context.Context) error {
	if lost, ok := errors.AsType[*eventstore.LostError](s.guard.Err()); ok {
		return lost.Refusal()
	}
	return nil
}

// closeTraces sends the remaining traces, for three seconds at most, so that an unreachable collector does not delay
// the shutdown.
func (s *service) closeTraces(ctx context.Context) {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := s.traces.Close(stopping); err != nil {
		s.log.Warn("traces", "error", err)
	}
}

func (s *service) closePools() {
	if s.analyzer != nil {
		s.analyzer.Close()
	}
	if s.notifier != nil {
		s.notifier.Close()
	}
	if s.forwarder != nil {
		s.forwarder.Close()
	}
	if s.probe != nil {
		s.probe.Close()
	}
	s.holders.Close()
	for _, pool := range []*pgxpool.Pool{
		s.watch, s.tree.write, s.tree.read, s.replica, s.stream, s.queue, s.wake, s.scans, s.public, s.read, s.commit,
	} {
		if pool != nil {
			pool.Close()
		}
	}
}

func newLog(w io.Writer, cfg config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel, ReplaceAttr: inSeconds}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// inSeconds logs durations as seconds. By default slog's JSON has nanoseconds and its text mixes units.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}
