//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ops"
	"integrityledger/cmd/integrity/process"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
)

func (a *app) witnessCommand() *cobra.Command {
	c := manual().Command("witness")
	config.AddFlags(c, "WITNESS_LISTEN", "WITNESS_NAME", "WITNESS_KEY", "WITNESS_LOGS", "WITNESS_PER_MINUTE",
		"DATABASE_URL", "DATA_DIR", "ISSUER",
		"TLS_CERT", "TLS_KEY", "TRUSTED_PROXIES", "METRICS_LISTEN", "LOG_FORMAT", "LOG_LEVEL", "SIGNING_KEY",
		"TRANSPARENCY_KEY")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		w := &witnessing{app: a, cfg: cfg, log: newLog(a.Errs, cfg), metrics: ops.NewWitness()}
		return w.run(ctx)
	}
	return c
}

// witnessConns is how many submissions are processed at once. Submissions for the same log wait for each other.
const witnessConns = 4

// witnessing is a running integrity witness.
type witnessing struct {
	*app
	cfg     config.Config
	log     *slog.Logger
	metrics *ops.Witness
	logs    atomic.Pointer[witness.Logs]
	shown   atomic.Pointer[tls.Certificate]
}

func (w *witnessing) run(ctx context.Context) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", w.cfg.WitnessListen)
	if err != nil {
		return say.Errorf("%sWITNESS_LISTEN (--witness-listen): %w", config.Prefix, err)
	}
	defer listener.Close()
	signer, err := witnessSigner(&w.cfg)
	if err != nil {
		return err
	}
	if err := w.load(); err != nil {
		return err
	}
	// The database stays open after the signal, until pending requests are answered.
	return ledger.WithDatabase(context.WithoutCancel(ctx), w.App, w.cfg, w.log, "integrity witness", false,
		func(source connect.Source) error {
			if _, err := ledger.Ensure(ctx, w.App, source(), w.cfg); err != nil {
				return err
			}
			primary, err := cluster.Find(ctx, source)
			if err != nil {
				return err
			}
			pool, err := primary.WitnessPool(ctx, witnessConns)
			if err != nil {
				return err
			}
			defer pool.Close()
			stopMetrics, err := serveMetrics(ctx, w.cfg, w.log, func() http.Handler { return w.metrics.Handler(w.log) })
			if err != nil {
				return err
			}
			defer stopMetrics()
			server := process.NewHTTPServer(handlers.NewWitness(handlers.WitnessConfig{
				Witness: &witness.Witness{Pool: pool, Signer: signer, Now: w.Now, Log: w.log},
				Logs:    func() witness.Logs { return *w.logs.Load() }, Now: w.Now, Log: w.log,
				TrustedProxies: w.cfg.TrustedProxies, PerMinute: w.cfg.WitnessPerMinute, Observe: w.metrics.Submission,
			}))
			server.ErrorLog = slog.NewLogLogger(w.log.Handler(), slog.LevelWarn)
			served := serveOn(server, listener, w.cfg.Encrypted(), &w.shown)
			w.log.Info(
				"ready to cosign", "listen", listener.Addr().String(), "verifier_key", signer.VerifierKey, "logs",
				len(*w.logs.Load()),
			)
			err = w.wait(ctx, served, reload)
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptedTimeout)
			defer cancel()
			w.log.Info("stopping: finishing accepted requests")
			return errors.Join(err, server.Shutdown(stopping))
		})
}

// witnessSigner reads the cosigning key. It returns an error if the key is also used for anything else.
func witnessSigner(cfg *config.Config) (*witness.Signer, error) {
	if cfg.WitnessName == "" {
		return nil, say.Errorf(
			"set %sWITNESS_NAME (--witness-name): it names this witness in each cosignature and in its verifier key",
			config.Prefix,
		)
	}
	source := cfg.WitnessSource()
	signer, err := source.WitnessSigner(cfg.WitnessName)
	if err != nil {
		return nil, err
	}
	own, err := source.Current()
	if err != nil {
		return nil, err
	}
	for _, other := range []keyfiles.Source{cfg.SigningSource(), cfg.LogSource()} {
		if key, err := other.Current(); err == nil && key != nil && keyfiles.Named(own, key.Key().KeyID) {
			return nil, say.Errorf("the witness key must not be used for anything else, and %s has the same key", other.Variable)
		}
	}
	return signer, nil
}

// load reads the list of logs and the certificate. On error the previous ones stay in use.
func (w *witnessing) load() error {
	logs, err := w.cfg.LogList()
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return say.Errorf(
			"there are no logs to cosign: %s must name their verifier keys, which integrity witness pair writes there, or "+
				"%sWITNESS_LOGS (--witness-logs) must",
			cmp.Or(w.cfg.WitnessLogs, w.cfg.InDataDir(config.WitnessLogsFile)), config.Prefix,
		)
	}
	if w.cfg.Encrypted() {
		pair, err := w.cfg.LoadCertificate()
		if err != nil {
			return err
		}
		w.shown.Store(pair)
	}
	w.metrics.Know(logs)
	w.logs.Store(&logs)
	return nil
}

func (w *witnessing) wait(ctx context.Context, served <-chan error, reload <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return say.Errorf("serve: %w", err)
		case <-reload:
			if err := w.load(); err != nil {
				w.log.Error("logs and certificate not reloaded; the previous ones stay in use", "error", err)
			} else {
				w.log.Info("logs and certificate reloaded", "logs", len(*w.logs.Load()))
			}
		}
	}
}
