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
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/gorilla/mux"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	settings "integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/process"
	"integrityledger/eventstore/postgres"
)

func main() {
	process.CollectLess() // as the service does, because contenders in process are compared with it
	a := &cli.App{Out: os.Stdout, Errs: os.Stderr, Environ: os.Environ(), Now: time.Now}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := a.Run(ctx, command(a), os.Args[1:])
	stop()
	os.Exit(code)
}

const help = `Starts a PostgreSQL with durable settings in a temporary directory and the service on it. Measures
registrations, comparisons, evidence and feed in turns with an empty HTTP server, pgbench and a
transaction for each registration. Verifies what was written, and prints figures, ratios and their
targets. Targets judge processor time. Compare ratios of one run only: absolute figures depend on the
machine and on what else runs there. INTEGRITY_LOG_LEVEL is passed on to the service.

INTEGRITY_DATABASE_URL names an empty database to use instead, such as that of a Citus coordinator, over whose nodes
the ledger is then distributed. The benchmark refuses a database that is not empty. It leaves its rows there: drop the
database afterwards.

With --peers it measures immudb and Tessera beside the service, in the same rounds and nothing else. Their ratios have
targets by the clock.

Exit codes: 0 measured and verified, even if a target was missed; 2 the run failed, or what was written is wrong.`

func command(a *cli.App) *cobra.Command {
	var asJSON bool
	var seconds float64
	var only string
	config := Config{Progress: func(line string) { _, _ = fmt.Fprintln(a.Errs, line) }}
	c := &cobra.Command{
		Use: "bench", Short: "Measure the ledger beside what it is compared with", Long: help, Args: cli.Arguments(0, 0),
		SilenceErrors: true, SilenceUsage: true,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if config.Quick && !c.Flags().Changed("seconds") {
			seconds = 0.7
		}
		if config.Quick && !c.Flags().Changed("rounds") {
			config.Rounds = 1
		}
		alone := !config.Quick && config.Soak == 0
		chosen := only != "" || config.Peers != ""
		switch {
		case seconds < 0.1 || seconds > 3600:
			return errors.New("--seconds must be a number from 0.1 to 3600")
		case config.Rounds < 1 || config.Rounds > 100:
			return errors.New("--rounds must be a number from 1 to 100")
		case config.Concurrency < 1 || config.Concurrency > 10_000:
			return errors.New("--c must be a number from 1 to 10000")
		case config.Soak != 0 && config.Soak < time.Second:
			return errors.New("--duration must be at least 1s")
		case c.Flags().Changed("growth") && (config.Growth < 100_000 || !alone):
			return errors.New("--growth must be at least 100000 records (--growth=N), without --quick and --duration")
		case c.Flags().Changed("rebuild") && (config.Rebuild < 1000 || !alone || config.Growth != 0):
			return errors.New("--rebuild must be at least 1000 records (--rebuild=N), without --quick, --growth and " +
				"--duration")
		case c.Flags().Changed("import") && config.Import < 1000:
			return errors.New("--import must be at least 1000 declarations (--import=N)")
		case len(config.Origins) > 0 && !config.Outbox:
			return errors.New("--origin must be used with --outbox")
		case chosen && config.Soak != 0, several(chosen, config.Flood, config.Outbox, config.Import != 0,
			!alone && !chosen || config.Growth != 0 || config.Rebuild != 0):
			return errors.New("--flood, --outbox, --import, --only and --peers must be used alone (--only and --peers also " +
				"with each other and with --quick)")
		case config.Peers != "" && seconds > longestPeers:
			return fmt.Errorf("--seconds must be at most %d with --peers", longestPeers)
		case config.Soak == 0 && c.Flags().Changed("c"):
			return errors.New("--c must be used with --duration")
		}
		if config.Peers != "" {
			config.Peers, config.Only = keyfiles.Absolute(config.Peers), besidePeers
			if err := checkPeers(config.Peers); err != nil {
				return err
			}
		}
		if only != "" {
			pattern, err := regexp.Compile(only)
			if err != nil {
				return fmt.Errorf("--only must be a regular expression: %w", err)
			}
			config.Only = pattern
		}
		cfg, err := settings.Load(a, c)
		if err != nil {
			return err
		}
		if config.URL, config.Shards = cfg.DatabaseURL, cfg.Shards; config.URL != "" && config.Growth != 0 {
			return errors.New("--growth must have a PostgreSQL of the benchmark's own: unset INTEGRITY_DATABASE_URL")
		}
		config.Duration = time.Duration(seconds * float64(time.Second))
		if config.Profile != "" {
			config.Profile = keyfiles.Absolute(config.Profile)
		}
		result, err := start(c.Context(), config)
		if err != nil {
			return err
		}
		return a.Print(asJSON, result, result.Table())
	}
	settings.AddFlags(c, "DATABASE_URL", "SHARDS")
	f := c.Flags()
	f.StringVar(&config.Integrity, "program", "",
		"the program to measure (default: integrity, in the directory of this program)")
	f.BoolVar(&config.Quick, "quick", false, "one short round and no checkpoint cycle: about two minutes")
	f.Float64Var(&seconds, "seconds", 4, "length of each measurement")
	f.StringVar(&only, "only", "", "measure only the contenders whose names match this regular expression")
	f.StringVar(&config.Peers, "peers", "",
		"measure immudb, Tessera and a plain table beside the service: the directory of the peers' programs, "+
			"which make bench PEERS=1 builds and names")
	f.IntVar(&config.Rounds, "rounds", 3, "rounds, in each of which every contender has its turn")
	f.Int64Var(&config.Growth, "growth", 0,
		"also compare the cost of a registration, and its need of each table and index, at 50,000 records with that "+
			"at this number of records (without a number 5,000,000: about 25 GB of disk and half an hour)")
	f.Lookup("growth").NoOptDefVal = "5000000"
	f.DurationVar(&config.Soak, "duration", 0,
		"only registrations over HTTP, for this long (such as 5m): the last minute beside the first")
	f.IntVar(&config.Concurrency, "c", 256, "concurrent callers, with --duration")
	f.Int64Var(&config.Rebuild, "rebuild", 0,
		"only a rebuild of the projections of this number of records (without a number 1,000,000), "+
			"beside 200 registrations a second")
	f.Lookup("rebuild").NoOptDefVal = "1000000"
	f.BoolVar(&config.Flood, "flood", false,
		"only a tenant that registers 5 a second, alone and beside another that floods its shard")
	f.BoolVar(&config.Outbox, "outbox", false,
		"only an origin system's outbox of 20,000 declarations in SQLite and PostgreSQL, beside the batch endpoint")
	f.StringArrayVar(&config.Origins, "origin", nil,
		"with --outbox: also an outbox in the database at this address (such as mysql://…), which is left there")
	f.Int64Var(&config.Import, "import", 0,
		"only an import of this number of declarations (without a number 1,000,000), killed three times, "+
			"beside a tenant that registers 5 a second")
	f.Lookup("import").NoOptDefVal = "1000000"
	f.BoolVar(&config.Agent, "agent", false, "OpenSSH's ssh-agent keeps the service's signing key")
	f.StringVar(&config.Profile, "profile", "",
		"directory for CPU profiles of the first round of every contender, for go tool pprof")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(emptyServer())
	return c
}

// several reports whether more than one of the choices is made.
func several(choices ...bool) bool {
	return len(slices.DeleteFunc(choices, func(made bool) bool { return !made })) > 1
}

// start runs the benchmark in a temporary directory, and on an embedded PostgreSQL unless config has a URL.
func start(ctx context.Context, config Config) (result Result, err error) {
	if config.Program, err = os.Executable(); err != nil {
		return result, fmt.Errorf("the path of this program: %w", err)
	}
	if config.Integrity == "" {
		config.Integrity = filepath.Join(filepath.Dir(config.Program), "integrity")
	}
	config.Integrity = keyfiles.Absolute(config.Integrity)
	if config.Dir, err = os.MkdirTemp("", "integrity-bench-"); err != nil {
		return result, fmt.Errorf("a directory for the benchmark: %w", err)
	}
	defer func() { _ = os.RemoveAll(config.Dir) }()
	// If run as root, PostgreSQL runs as another user, who must be able to traverse the directory.
	if err := os.Chmod(config.Dir, 0o711); err != nil {
		return result, fmt.Errorf("a directory for the benchmark: %w", err)
	}
	if config.URL != "" {
		return Run(ctx, config)
	}
	data := filepath.Join(config.Dir, "data")
	config.Server, err = postgres.Start(ctx, postgres.Config{DataDir: data, Purpose: "benchmark"})
	if err != nil {
		return result, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, config.Server.Stop(stopping))
	}()
	return Run(ctx, config)
}

// emptyServer is the hidden subcommand that measures plain HTTP: a server with the service's router and limits that
// reads a request's body and answers {}.
func emptyServer() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: emptyCommand, Short: "Answer {} to every request", Hidden: true, Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			answer := func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte("{}")) // a client that has gone needs no answer
			}
			router := mux.NewRouter().SkipClean(true)
			router.HandleFunc("/empty", answer)
			router.HandleFunc("/readyz", answer)
			server := process.NewHTTPServer(router)
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			select {
			case err := <-served:
				return err
			case <-c.Context().Done():
				return server.Close()
			}
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on")
	return c
}
