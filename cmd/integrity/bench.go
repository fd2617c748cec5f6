package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gorilla/mux"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/bench"
	"integrityledger/cmd/integrity/cli"
	settings "integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/postgres"
)

func (a *app) benchCommand() *cobra.Command {
	var asJSON bool
	var seconds float64
	var chart string
	config := bench.Config{Progress: func(line string) { _, _ = fmt.Fprintln(a.Errs, line) }}
	c := manual().Command("bench")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if config.Quick && !c.Flags().Changed("seconds") {
			seconds = 0.7
		}
		if config.Quick && !c.Flags().Changed("rounds") {
			config.Rounds = 1
		}
		switch {
		case seconds < 0.1 || seconds > 3600:
			return errors.New("--seconds must be a number from 0.1 to 3600")
		case config.Rounds < 1 || config.Rounds > 100:
			return errors.New("--rounds must be a number from 1 to 100")
		case config.Concurrency < 1 || config.Concurrency > 10_000:
			return errors.New("--c must be a number from 1 to 10000")
		case config.Soak != 0 && config.Soak < time.Second:
			return errors.New("--duration must be at least 1s")
		case c.Flags().Changed("growth") && (config.Growth < 100_000 || config.Quick || config.Soak != 0):
			return errors.New("--growth must be at least 100000 records (--growth=N), with neither --quick nor --duration")
		case c.Flags().Changed("rebuild") && (config.Rebuild < 1000 || config.Quick || config.Soak != 0 || config.Growth != 0):
			return errors.New("--rebuild must be at least 1000 records (--rebuild=N), with none of --quick, --growth and --duration")
		case (config.Flood || config.Outbox) && (config.Flood && config.Outbox || config.Quick || config.Soak != 0 || config.Growth != 0 || config.Rebuild != 0):
			return errors.New("--flood and --outbox: each must be without the other, --quick, --growth, --duration and --rebuild")
		case config.Soak == 0 && c.Flags().Changed("c"):
			return errors.New("--c belongs to --duration: name that too")
		}
		cfg, err := settings.Load(a.App, c)
		if err != nil {
			return err
		}
		if config.URL, config.Shards = cfg.DatabaseURL, cfg.Shards; config.URL != "" && config.Growth != 0 {
			return errors.New("--growth needs a PostgreSQL of the benchmark's own: INTEGRITY_DATABASE_URL is set")
		}
		config.Duration = time.Duration(seconds * float64(time.Second))
		if config.Profile != "" {
			config.Profile = keyfiles.Absolute(config.Profile)
		}
		result, err := a.bench(ctx, config)
		if err != nil {
			return err
		}
		if chart != "" {
			if err := os.WriteFile(chart, []byte(result.Chart()), 0o644); err != nil { //nolint:gosec // a chart is no secret
				return fmt.Errorf("--svg: %w", err)
			}
		}
		return a.Print(asJSON, result, result.Table())
	}
	settings.AddFlags(c, "DATABASE_URL", "SHARDS")
	f := c.Flags()
	f.BoolVar(&config.Quick, "quick", false, "one short round, and no checkpoint cycle: about two minutes")
	f.Float64Var(&seconds, "seconds", 4, "length of each measurement")
	f.IntVar(&config.Rounds, "rounds", 3, "rounds, in each of which all have their turn")
	f.Int64Var(&config.Growth, "growth", 0, "also compare the cost of a registration at 50,000 records with that at so many (5,000,000 without a number: about 25 GB of disk and half an hour)")
	f.Lookup("growth").NoOptDefVal = "5000000"
	f.DurationVar(&config.Soak, "duration", 0, "instead of all that: registrations over HTTP for so long, such as 5m, the last minute beside the first")
	f.IntVar(&config.Concurrency, "c", 256, "callers at once, with --duration")
	f.Int64Var(&config.Rebuild, "rebuild", 0, "instead of all that: rebuild the projections of so many records (1,000,000 without a number) while 200 registrations a second go on")
	f.Lookup("rebuild").NoOptDefVal = "1000000"
	f.BoolVar(&config.Flood, "flood", false, "instead of all that: a tenant that registers 5 a second, alone and beside another that floods its shard with batches and single registrations")
	f.BoolVar(&config.Outbox, "outbox", false, "instead of all that: an origin system's outbox of 20,000 declarations in SQLite, sent in batches, and then their evidence")
	f.StringVar(&config.Profile, "profile", "", "directory for CPU profiles of the first round of every contender, for go tool pprof")
	f.StringVar(&chart, "svg", "", "file for a chart of the ratios beside their targets, and of the figures")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(a.benchEmptyCommand())
	return c
}

func (a *app) bench(ctx context.Context, config bench.Config) (result bench.Result, err error) {
	if config.Dir, err = os.MkdirTemp("", "integrity-bench-"); err != nil {
		return result, fmt.Errorf("a directory for the benchmark: %w", err)
	}
	defer func() { _ = os.RemoveAll(config.Dir) }()
	// As root, PostgreSQL's own user must get through.
	if err := os.Chmod(config.Dir, 0o711); err != nil {
		return result, fmt.Errorf("a directory for the benchmark: %w", err)
	}
	if config.Program, err = os.Executable(); err != nil {
		return result, fmt.Errorf("the path of this program: %w", err)
	}
	if config.URL != "" {
		return bench.Run(ctx, config)
	}
	config.Server, err = postgres.Start(ctx, postgres.Config{DataDir: filepath.Join(config.Dir, "data"), Purpose: "integrity bench"})
	if err != nil {
		return result, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		err = errors.Join(err, config.Server.Stop(stopping))
	}()
	return bench.Run(ctx, config)
}

// benchEmptyCommand is what the benchmark starts to measure HTTP itself: the router and the settings of the service's
// server, and behind them nothing but the reading of a body.
func (a *app) benchEmptyCommand() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: bench.EmptyCommand, Short: "Answer {} to every request", Hidden: true, Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			answer := func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte("{}")) // a caller who is gone needs no answer
			}
			router := mux.NewRouter().SkipClean(true)
			router.HandleFunc("/empty", answer)
			router.HandleFunc("/readyz", answer)
			server := newHTTPServer(router)
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			select {
			case err := <-served:
				return err
			case <-ctx.Done():
				return server.Close()
			}
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on")
	return c
}
