package clientcmd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/process"
	"integrityledger/domain/say"
	"integrityledger/eventstore/wait"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// variableOutbox is the address of the database, which may hold a password.
const variableOutbox = "INTEGRITY_OUTBOX_DATABASE"

func (a *app) outboxCommand() *cobra.Command {
	return cli.Group("outbox", "Register the declarations that your database holds",
		a.outboxInstallCommand(), a.outboxCheckCommand(), a.outboxRunCommand())
}

// databaseFlag adds the flag that names the database, and returns a function that opens its outbox.
func (a *app) databaseFlag(c *cobra.Command) func(context.Context) (*outbox.Outbox, error) {
	address := c.Flags().String(
		"database", "", "postgres://…, mysql://…, mariadb://… or sqlite:FILE ("+variableOutbox+")",
	)
	return func(ctx context.Context) (*outbox.Outbox, error) {
		text, name := *address, "--database"
		if text == "" {
			text, name = a.Variable(variableOutbox), variableOutbox
		}
		if text == "" {
			return nil, say.Errorf(
				"--database (or %s) must name the database: postgres://…, mysql://…, mariadb://… or sqlite:FILE",
				variableOutbox,
			)
		}
		o, err := outbox.Open(ctx, text)
		if err != nil {
			return nil, say.Errorf("%s: %w", name, err)
		}
		return o, nil
	}
}

func (a *app) outboxInstallCommand() *cobra.Command {
	c := manual().Command("outbox install")
	open := a.databaseFlag(c)
	apply := c.Flags().Bool("apply", false, "create the table instead of printing the statements")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		o, err := open(c.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Close()) }()
		if !*apply {
			_, err := io.WriteString(a.Out, o.Dialect().DDL)
			return err
		}
		if err := o.Install(c.Context()); err != nil {
			return err
		}
		if err := o.Check(c.Context()); err != nil {
			return err
		}
		_, err = io.WriteString(a.Out, a.Sayf("the table integrity_outbox is ready (%s)", o.Dialect().Name)+"\n")
		return err
	}
	return c
}

// shownDeclarations is the number of declarations that outbox check shows.
const shownDeclarations = 3

func (a *app) outboxCheckCommand() *cobra.Command {
	c := manual().Command("outbox check")
	open := a.databaseFlag(c)
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		o, err := open(c.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Close()) }()
		if err := o.Check(c.Context()); err != nil {
			return cli.Negative(err)
		}
		counts, err := o.Counts(c.Context())
		if err != nil {
			return err
		}
		first, err := o.First(c.Context(), shownDeclarations)
		if err != nil {
			return err
		}
		report := struct {
			Rows         outbox.Counts      `json:"rows"`
			Declarations []wire.Declaration `json:"declarations"`
			Problems     []string           `json:"problems"`
		}{counts, []wire.Declaration{}, []string{}}
		text := a.Sayf(
			"the table is correct; %d rows are pending, %d registered (%d with complete evidence), %d in conflict, "+
				"%d refused",
			counts.Pending, counts.Registered, counts.Evidence, counts.Conflict, counts.Refused,
		) + "\n"
		for _, i := range first {
			d := i.Declaration
			report.Declarations = append(report.Declarations, d)
			text += "\n" + a.Rows(
				cli.Rowf("company", "%s", d.CompanyReference), cli.Rowf("source", "%s", d.Source),
				cli.Rowf("document", "%s, version %d", d.DocumentReference, d.Version), cli.Rowf("sha256", "%s", d.SHA256),
				cli.Rowf("size", "%d bytes, %s, made at %s", d.SizeBytes, d.MimeType, d.GeneratedAt),
			)
			if err := outbox.Validate(d); err != nil {
				report.Problems = append(report.Problems, err.Error())
				text += a.Sayf("this would be refused: %v", err) + "\n"
			}
		}
		return a.answer(*asJSON, report, text, len(report.Problems) == 0)
	}
	return c
}

func (a *app) outboxRunCommand() *cobra.Command {
	w := outboxWork{app: a}
	c, service := Command("outbox run")
	open := a.databaseFlag(c)
	trusted := c.Flags().String("trusted-keys", "", "trusted-keys file that verifies evidence before it is stored")
	c.Flags().BoolVar(
		&w.config.Timestamps, "timestamps", false, "wait for the token of a timestamp authority in the evidence",
	)
	c.Flags().DurationVar(&w.config.Poll, "poll", time.Second, "how often to look for new rows, 100ms or more")
	lease := c.Flags().Duration(
		"lease", outbox.DefaultLease, "after which time other workers take the rows of a worker that died, 5s or more",
	)
	healthz := c.Flags().String("healthz", "", "address that serves /healthz and /metrics, such as 127.0.0.1:9090")
	once := c.Flags().Bool("once", false, "end when no row waits, instead of waiting for new ones")
	retry := c.Flags().Bool("retry", false, "first make refused rows pending again, after correcting their cause")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if w.config.Poll < 100*time.Millisecond {
			return say.Errorf("--poll must be 100ms or more")
		}
		if *lease < 5*time.Second {
			return say.Errorf("--lease must be 5s or more")
		}
		if w.config.Client, err = Connect(a.App, service); err != nil {
			return err
		}
		defer w.config.Client.Close()
		if *trusted != "" {
			if w.config.Trusted, err = keyfiles.ReadTrusted(*trusted); err != nil {
				return err
			}
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		o, err := open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Close()) }()
		o.Lease, w.config.Outbox = *lease, o
		if err := o.Check(ctx); err != nil {
			return err
		}
		if *retry {
			n, err := o.Retry(ctx)
			if err != nil {
				return err
			}
			_, _ = io.WriteString(a.Errs, a.Sayf("integrity: %d refused rows are pending again\n", n))
		}
		return w.run(ctx, *healthz, *once, service.JSON)
	}
	return c
}

// outboxWork is a running integrity outbox run.
type outboxWork struct {
	*app
	config  outbox.Config
	log     *slog.Logger
	bar     *cli.Bar
	quiet   bool  // log problems only
	left    int64 // pending rows: the last count, minus the rows decided since
	total   int64 // rows of the bar
	counted time.Time
	working atomic.Bool // the last batch, or look at the database, succeeded

	rows    *prometheus.CounterVec
	batches *prometheus.CounterVec
	pending prometheus.Gauge
}

func (w *outboxWork) run(ctx context.Context, healthz string, once, asJSON bool) error {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if w.quiet {
		options.Level = slog.LevelWarn
	}
	if w.log = slog.New(slog.NewTextHandler(w.Errs, options)); asJSON {
		w.log = slog.New(slog.NewJSONHandler(w.Errs, options))
	}
	if err := w.serveHealth(ctx, healthz); err != nil {
		return err
	}
	w.config.Batch = func(b outbox.Batch) { w.batch(ctx, b) }
	worker := outbox.NewWorker(w.config)
	if once {
		worker.Finish()
	}
	listening, cancel := context.WithCancel(ctx)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		for {
			// Without a connection that listens, the worker still looks at every interval.
			if err := w.config.Outbox.Listen(listening, worker.Wake); err == nil || wait.For(listening, time.Second) != nil {
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-listened
		w.hideBar()
	}()
	w.log.Info("ready to register", "service", w.config.Client.BaseURL(), "database", w.config.Outbox.Dialect().Name)
	var backoff client.Backoff
	for {
		w.working.Store(true)
		began := time.Now()
		err := worker.Run(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			w.log.Info("stopped")
			return nil
		case client.Refused(err):
			return Refusal(err)
		}
		w.working.Store(false)
		if time.Since(began) > time.Minute {
			backoff = client.Backoff{}
		}
		again := backoff.Next(nil)
		w.hideBar()
		w.log.Warn("database failed", "error", err, "again_in", again.Round(time.Second))
		if wait.For(ctx, again) != nil {
			return nil
		}
	}
}

// batch logs and counts a batch, and shows the progress of a backlog.
func (w *outboxWork) batch(ctx context.Context, b outbox.Batch) {
	w.working.Store(b.Postponed < b.Rows || b.Evidence)
	kind := "declarations"
	if b.Evidence {
		kind = "evidence"
	}
	attributes := []any{
		"kind", kind, "rows", b.Rows, "done", b.Done, "conflict", b.Conflict, "refused", b.Refused, "postponed", b.Postponed,
		"lost", b.Lost, "took", b.Took.Round(time.Millisecond),
	}
	if b.Pause > 0 {
		attributes = append(attributes, "pause", b.Pause.Round(time.Second))
	}
	if b.Err != nil {
		attributes = append(attributes, "error", b.Err)
	}
	w.hideBar()
	w.log.Info("batch", attributes...)
	for outcome, n := range map[string]int{
		"done": b.Done, "conflict": b.Conflict, "refused": b.Refused, "postponed": b.Postponed, "lost": b.Lost,
	} {
		w.rows.WithLabelValues(kind, outcome).Add(float64(n))
	}
	w.batches.WithLabelValues(kind).Inc()
	if !b.Evidence {
		w.left -= int64(b.Done + b.Conflict + b.Refused)
	}
	// Counting a large backlog after each batch would cost more than the batch.
	if w.left <= backlog || time.Since(w.counted) >= countEvery {
		if n, err := w.config.Outbox.Pending(ctx); err == nil {
			w.left, w.counted = n, time.Now()
		}
	}
	w.pending.Set(float64(max(w.left, 0)))
	w.showBar()
}

const (
	// backlog is the number of pending rows from which a terminal shows a progress bar.
	backlog = 1000
	// countEvery is how often the rows of a backlog are counted.
	countEvery = 5 * time.Second
)

func (w *outboxWork) showBar() {
	if w.bar == nil && w.left >= backlog {
		w.bar, w.total = w.NewBar("outbox", "rows", 1, w.left), w.left
	}
	if w.bar != nil {
		w.total = max(w.total, w.left)
		if w.bar.Set(w.total-w.left, w.total); w.left == 0 {
			w.hideBar()
			w.bar = nil
		}
	}
}

// hideBar removes the bar from the terminal, until the next batch.
func (w *outboxWork) hideBar() {
	if w.bar != nil {
		w.bar.Close()
	}
}

// serveHealth serves /healthz and /metrics until ctx ends, if there is an address.
func (w *outboxWork) serveHealth(ctx context.Context, address string) error {
	registry := prometheus.NewRegistry()
	about := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "integrity", Subsystem: "outbox_worker", Name: name, Help: help}
	}
	w.rows = prometheus.NewCounterVec(
		prometheus.CounterOpts(about("rows_total", "Rows by kind of request and outcome.")), []string{"kind", "outcome"},
	)
	w.batches = prometheus.NewCounterVec(
		prometheus.CounterOpts(about("batches_total", "Batches by kind of request.")), []string{"kind"},
	)
	w.pending = prometheus.NewGauge(prometheus.GaugeOpts(about("pending", "Pending rows after the last batch.")))
	registry.MustRegister(w.rows, w.batches, w.pending)
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return say.Errorf("--healthz: %w", err)
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	routes.HandleFunc("GET /healthz", func(answer http.ResponseWriter, r *http.Request) {
		if _, err := w.config.Outbox.First(r.Context(), 1); err != nil || !w.working.Load() {
			http.Error(answer, "the database or the service is away", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(answer, "ok\n")
	})
	server := process.NewHTTPServer(routes)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("health listener failed", "error", err)
		}
	}()
	return nil
}
