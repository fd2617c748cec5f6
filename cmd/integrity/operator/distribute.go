package operator

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/migrations"
)

func (a *app) distributeCommand() *cobra.Command {
	var dryRun, asJSON bool
	c := &cobra.Command{
		Use: "distribute", Short: "Spread the tables of a ledger over the nodes of a Citus cluster",
		Long: "Turns the tables of the ledger into tables that Citus distributes by the ledger's shards, so that every registration, look-up\n" +
			"and page is the work of one node. INTEGRITY_DATABASE_URL names the coordinator; the role that owns the tables must also be\n" +
			"allowed to change the role integrity_service.\n\n" +
			"It may be run again at any time and does what is still to do. It is one transaction: run it before the ledger is large, or with\n" +
			"the service stopped, because writers wait or are answered with 503 until it ends. citus.shard_count says into how many pieces\n" +
			"Citus cuts each table; the ledger needs at least as many shards (INTEGRITY_SHARDS) to use them.",
		Args: cli.Arguments(0, 0),
	}
	config.AddFlags(c, "DATABASE_URL", "DATA_DIR")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		log := slog.New(slog.NewTextHandler(a.Errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		return ledger.WithDatabase(c.Context(), a.App, cfg, log, c.CommandPath(), false, func(url string) error {
			return a.distribute(c.Context(), url, dryRun, asJSON)
		})
	}
	return c
}

func (a *app) distribute(ctx context.Context, url string, dryRun, asJSON bool) error {
	d, err := migrations.Distribute(ctx, url, dryRun)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, s := range d.Steps {
		if dryRun {
			text.WriteString("would make: ")
		}
		fmt.Fprintln(&text, s)
	}
	switch {
	case len(d.Steps) == 0:
		fmt.Fprintf(&text, "nothing to do: the ledger is distributed over %d nodes of Citus %s\n", d.Nodes, d.Version)
	case !dryRun:
		fmt.Fprintf(&text, "the ledger is distributed over %d nodes of Citus %s\n", d.Nodes, d.Version)
	}
	return a.Print(asJSON, struct {
		Citus string   `json:"citus"`
		Nodes int      `json:"nodes"`
		Steps []string `json:"steps"`
	}{d.Version, d.Nodes, append([]string{}, d.Steps...)}, text.String())
}
