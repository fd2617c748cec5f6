package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/bench"
	"integrityledger/cmd/postgres"
)

func (a *app) benchCommand() *cobra.Command {
	var quick, asJSON bool
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure registrations on this machine, against a PostgreSQL of its own",
		Long: "Starts a PostgreSQL with durable settings in a temporary directory, measures registrations of one busy organization in\n" +
			"process, a transaction each and in groups, verifies what was written, and prints the table. Only the ratio of one run\n" +
			"means something: absolute figures belong to the machine and the moment.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config := bench.Config{
				Duration: 4 * time.Second, Rounds: 3, Random: a.random, Now: a.now,
				Progress: func(line string) { _, _ = fmt.Fprintln(a.errs, line) },
			}
			if quick {
				config.Duration, config.Rounds = 2*time.Second, 1
			}
			result, err := a.bench(c.Context(), config)
			if err != nil {
				return err
			}
			return a.print(asJSON, result, benchTable(result))
		},
	}
	c.Flags().BoolVar(&quick, "quick", false, "one short round of each contender: under a minute")
	c.Flags().BoolVar(&asJSON, "json", false, "print the table as JSON")
	return c
}

func (a *app) bench(ctx context.Context, config bench.Config) (result bench.Result, err error) {
	dir, err := os.MkdirTemp("", "integrity-bench-")
	if err != nil {
		return result, fmt.Errorf("a directory for the benchmark: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// As root, PostgreSQL's own user must get through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return result, fmt.Errorf("a directory for the benchmark: %w", err)
	}
	server, err := postgres.Start(ctx, postgres.Config{DataDir: dir, Purpose: "integrity bench"})
	if err != nil {
		return result, err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }()
	config.URL = server.URL(postgres.Database)
	return bench.Run(ctx, config)
}

func benchTable(r bench.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d CPUs, PostgreSQL %s: fsync %s, synchronous_commit %s, full_page_writes %s\n\n", runtime.NumCPU(), r.Settings["server_version"],
		r.Settings["fsync"], r.Settings["synchronous_commit"], r.Settings["full_page_writes"])
	fmt.Fprintf(&b, "%-32s %12s %14s %12s %12s\n", "one organization, in process", "concurrency", "per second", "p50", "p99")
	for _, c := range r.Contenders {
		fmt.Fprintf(&b, "%-32s %12d %14.0f %12s %12s\n", c.Name, c.Concurrency, c.PerSecond, c.P50.Round(10*time.Microsecond), c.P99.Round(10*time.Microsecond))
	}
	fmt.Fprintf(&b, "\nratio %.1f : 1 (at least %.0f : 1 is wanted)\n", r.Ratio, r.Target)
	fmt.Fprintf(&b, "verified: %d registrations acknowledged, all there once, no hole in the log\n", r.Verified)
	return b.String()
}
