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
	"integrityledger/eventstore"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/history"
	"integrityledger/eventstore/postgres"
	"integrityledger/handlers/action"
	"integrityledger/handlers/console"
	"integrityledger/projections/query"
	"integrityledger/projections/queue"
	"integrityledger/projections/queue/webhooks"
	"integrityledger/projections/session"
)

// From the signal to the end, the delay of INTEGRITY_DRAIN_DELAY included: requests and groups that are under way have
// acceptedTimeout, and the database has what is left of shutdownTimeout.
const (
	acceptedTimeout = 25 * time.Second
	shutdownTimeout = 30 * time.Second
)

func (a *app) serveCommand() *cobra.Command {
	var asDemo bool
	c := manual().Command("serve")
	config.AddFlags(c)
	c.Flags().BoolVar(
		&asDemo, "demo", false, "on loopback, with an organization, a company, granted keys and example commands",
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

// service is what serve has set up. Stopping goes the other way round: nothing new is accepted, what was accepted is
// finished, and only then does the database go.
type service struct {
	*app
	cfg    config.Config
	asDemo bool
	log    *slog.Logger
	// requests is the same log, for the lines of requests: those that come together are written together.
	requests *slog.Logger

	listener  net.Listener
	database  *postgres.Server // nil where the database is someone else's
	keys      atomic.Pointer[action.Keys]
	shown     atomic.Pointer[tls.Certificate]
	ledger    *eventstore.Ledger
	clock     *eventstore.Clock
	guard     *eventstore.Guard // stops ledger and log where the database has lost commits
	primary   *cluster.Primary
	probe     *eventstore.Probe
	canary    *eventstore.Canary
	gate      *eventstore.Gate // closed once the ledger takes only newer programs
	heartbeat *eventstore.Heartbeat
	notifier  *eventstore.Notifier
	store     *query.Store
	sessions  *session.Store
	plans     domain.Plans
	secretKey *domain.SecretKey // nil: webhook secrets can be neither made nor used
	webhooks  *webhooks.Worker
	warner    *queue.Loop
	// send hands a mail to the mail server. Nil: mails wait until there is one, and nobody is mailed a link to sign in.
	send       func(context.Context, queue.Mail) error
	linkMailer *console.LinkMailer
	forwarder  *stream.Forwarder // nil: nothing is forwarded
	tree       tree              // the transparency log
	draining   atomic.Bool       // still serving, but no longer ready
	keyUses    query.KeyUses
	traffic    query.Traffic
	installed  eventstore.Installation
	patience   time.Time // until when a start waits for the database
	contents   *blobs.Store
	analyzer   *analyzer.Analyzer
	metrics    *ops.Metrics
	traces     *ops.Traces // nil: nothing is traced

	commit, read, public, queue, wake *pgxpool.Pool
	scans                             *pgxpool.Pool             // of questions that may read much
	stream                            *pgxpool.Pool             // nil: nothing is forwarded
	replica                           *pgxpool.Pool             // nil without a replica
	watch                             *pgxpool.Pool             // of those who look at the metrics
	holders                           *cluster.Holders          // nil: the database is not distributed
	nodes                             map[string]*cluster.Nodes // connections to them, by use
}

func (a *app) serve(ctx context.Context, cfg config.Config, asDemo bool) (err error) {
	lines := ops.NewLines(a.Errs)
	defer lines.Flush()
	s := &service{
		app: a, cfg: cfg, asDemo: asDemo, log: newLog(lines.Through(), cfg), requests: newLog(lines, cfg),
		metrics: ops.NewMetrics(), clock: ledger.Clock(a.App, cfg),
	}
	// Whatever reads the time from here on has a clock that does not follow a step.
	steady := *a.App
	s.app, steady.Now = &app{&steady}, s.clock.Now
	for _, name := range config.UnknownVariables(a.App) {
		s.log.Warn("this variable has no effect; integrity serve --help lists those that have", "variable", name)
	}
	if s.traces, err = ops.OpenTraces(ctx, s.log); err != nil {
		return err
	}
	defer s.closeTraces(ctx)
	// From the start: a SIGHUP before everything is ready waits until then, where it would otherwise end the process.
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	// Taken first: an address in use shows before anything is started.
	if s.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen); err != nil {
		return fmt.Errorf("%sLISTEN (--listen): %w", config.Prefix, err)
	}
	defer s.listener.Close()
	if err := s.nameAddress(asDemo); err != nil {
		return err
	}
	// Of the whole shutdown, from the first that asks.
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
	// Ends before the server is shut down, so that requests which wait for the feed answer at once.
	serving, stopWaiting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaiting()
	handler, err := assembly{s}.wire(ctx, serving.Done())
	defer s.closePools()
	if err != nil && ctx.Err() != nil {
		s.log.Info("told to stop before it was ready", "error", err)
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
	server, served := s.listen(handler)
	if asDemo {
		err = (&demo.Demo{
			App: s.App, Cfg: &s.cfg, Address: s.listener.Addr(), Ledger: s.ledger, Store: s.store, Sessions: s.sessions,
		}).Run(ctx)
	}
	if err == nil {
		err = s.wait(ctx, served, reload)
	}
	stopping, cancel := deadline(acceptedTimeout)
	defer cancel()
	if err == nil {
		s.drain(served)
	}
	s.log.Info("stopping: finishing what was accepted")
	stopWaiting()
	return errors.Join(err, s.finish(stopping, server))
}

// nameAddress reads the certificate and says what the service is called from outside.
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

// finish lets requests and groups that are under way end.
func (s *service) finish(ctx context.Context, server *http.Server) (err error) {
	if err = server.Shutdown(ctx); err != nil {
		err = errors.Join(fmt.Errorf("requests were still running after %s: %w", acceptedTimeout, err), server.Close())
	}
	return errors.Join(err, s.ledger.Close(ctx))
}

// openDatabase starts the embedded PostgreSQL where no other is configured, and makes its key files at the first start.
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
		s.log.Info("made a signing key and a trusted-keys file; keep a copy of both", "directory", s.cfg.DataDir)
	}
	return nil
}

// drain serves on for a while, no longer ready, so that a proxy which looks at /readyz sends the next requests
// elsewhere before the listener closes.
func (s *service) drain(served <-chan error) {
	s.draining.Store(true)
	if s.cfg.DrainDelay == 0 {
		return
	}
	s.log.Info("draining: /readyz answers 503, everything else as before", "for", s.cfg.DrainDelay)
	select {
	case <-time.After(s.cfg.DrainDelay): //nolint:forbidigo // the other end has an error
	case err := <-served:
		s.log.Error("the listener is gone before the drain is over", "error", err)
	}
}

// checkHeads calls only a head that contradicts its log damage: restoring a backup loses what came after it.
func checkHeads(ctx context.Context, pool *pgxpool.Pool) error {
	err := history.CheckHeads(ctx, pool)
	if _, contradicts := errors.AsType[history.HeadError](err); contradicts {
		return fmt.Errorf("the database is damaged: restore it from a backup: %w", err)
	}
	return err
}

// openReplica lets a standby answer readers, where one is configured. One that cannot be reached yet is no reason not
// to start; one of another ledger is.
func (s *service) openReplica(ctx context.Context) (err error) {
	if s.cfg.ReplicaURL == "" {
		return nil
	}
	replica := s.cfg.Replica(ledger.Unread(s.log))
	if _, err := cluster.Inspect(ctx, replica()); errors.Is(err, cluster.ErrSharedSessions) {
		return fmt.Errorf("%sREPLICA_URL: %w", config.Prefix, err)
	}
	if s.replica, err = s.primary.ReplicaPool(ctx, replica, ledger.ReadConns); err != nil {
		return fmt.Errorf("%sREPLICA_URL: %w", config.Prefix, err)
	}
	s.store.Replica = &query.Replica{Pool: s.replica, Now: s.Now, Log: s.log}
	err = s.store.Replica.Check(ctx, s.installed)
	if errors.Is(err, query.ErrAnotherLedger) {
		return fmt.Errorf(
			"%sREPLICA_URL: %w: name a standby of the database that %sDATABASE_URL names", config.Prefix, err, config.Prefix,
		)
	}
	if err != nil {
		s.log.Warn("the replica cannot be used yet; the primary answers", "error", err)
	}
	return nil
}

// listen serves in the background and answers how it ends.
func (s *service) listen(handler http.Handler) (*http.Server, <-chan error) {
	server := process.NewHTTPServer(handler)
	server.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	served := serveOn(server, s.listener, s.cfg.Encrypted(), &s.shown)
	s.log.Info("ready", "listen", s.listener.Addr().String(), "base_url", s.cfg.BaseURL, "issuer", s.installed.Issuer,
		"shards", s.installed.Shards, "embedded_postgresql", s.database != nil)
	return server, served
}

// serveOn serves in the background, with the certificate that is shown where it ends TLS.
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

// wait reads the files again at every reload, and returns when ctx ends or with the error that makes serving
// impossible.
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
			return fmt.Errorf("serve: %w", err)
		case <-lost:
			return fmt.Errorf("PostgreSQL is gone: %w", s.database.Err())
		case <-look.C:
			if s.outdated(ctx) {
				return errors.New("the ledger was distributed over Citus while this process ran: start it again")
			}
		case <-reload:
			err := s.loadKeys()
			s.loadLogKey()
			if err != nil {
				s.log.Error("the key files were not replaced; those before stay in use", "error", err)
			} else {
				s.log.Info("read the key files again")
			}
			if err := s.loadCertificate(); err != nil {
				s.log.Error("the certificate was not replaced; the one before stays in use", "error", err)
			}
		}
	}
}

// lookAtTables is how often a service of one server asks whether the tables are distributed by now.
const lookAtTables = 10 * time.Second

// outdated reports whether the tables were distributed since this process has started, which knows them as those of one
// server.
func (s *service) outdated(ctx context.Context) bool {
	if s.holders != nil || s.database != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	distributed, err := cluster.Distributed(ctx, s.watch)
	return err == nil && distributed
}

// condition is one thing that must hold for a commit. Its error is a *domain.Error that says to the proxy what does
// not.
type condition struct {
	name string
	ask  func(context.Context) error
}

// conditions are in the order in which they are asked, the cheapest first. The handlers themselves look at the signing
// key.
func (s *service) conditions() []condition {
	return []condition{
		{"process", s.staying},
		{"version", s.admitted},
		{"history", s.complete},
		{"database", s.probe.Ready},
		{"shards", s.canary.Ready},
	}
}

// ready says whether registrations can be taken, and if not, names the condition that fails.
func (s *service) ready(ctx context.Context) error {
	for _, c := range s.conditions() {
		if err := c.ask(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// staying is never remembered: a drain must show at once.
func (s *service) staying(context.Context) error {
	if s.draining.Load() {
		return domain.Unavailable("This process is stopping.")
	}
	return nil
}

// admitted says whether the ledger takes this version of the program.
func (s *service) admitted(context.Context) error {
	if err := s.gate.Err(); err != nil {
		return fmt.Errorf("%w: %w", domain.Unavailable("Nothing can be committed: "+err.Error()+"."), err)
	}
	return nil
}

// complete is not remembered either.
func (s *service) complete(context.Context) error {
	if lost, ok := errors.AsType[*eventstore.LostError](s.guard.Err()); ok {
		return lost.Refusal()
	}
	return nil
}

// closeTraces sends the last of them, for a moment: a collector that is away delays no shutdown.
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

// inSeconds logs durations as numbers of seconds; slog's JSON would have nanoseconds and its text a mixture of units.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}
