package operator

import (
	"context"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/domain/say"
	"integrityledger/migrations"
)

// MigrateCommand migrates the database to the newest schema.
func MigrateCommand(shared *cli.App) *cobra.Command {
	a := &app{shared}
	v := a.verb("migrate", "DATABASE_URL", "DATA_DIR", "BASE_URL", "ISSUER", "SHARDS")
	return v.onDatabase(true, func(ctx context.Context, cfg *config.Config, url string) error {
		in, err := ledger.Ensure(ctx, a.App, url, *cfg)
		if err != nil {
			return err
		}
		return v.print(struct {
			Issuer    string `json:"issuer"`
			Shards    int    `json:"shards"`
			Epoch     int64  `json:"epoch"`
			CreatedAt string `json:"createdAt"`
		}{in.Issuer, in.Shards, in.Epoch, cli.TimeText(in.CreatedAt)},
			say.Sentencef("the schema is current; the ledger of %s has %d shards\n", in.Issuer, in.Shards))
	})
}

func (a *app) distributeCommand() *cobra.Command {
	v := a.verb("distribute", "DATABASE_URL", "DATA_DIR")
	dryRun := v.Flags().Bool("dry-run", false, "print what would be done, and change nothing")
	return v.onDatabase(false, func(ctx context.Context, _ *config.Config, url string) error {
		d, err := migrations.Distribute(ctx, url, *dryRun)
		if err != nil {
			return err
		}
		var lines text
		for _, s := range d.Steps {
			if *dryRun {
				lines.Sayf("would make: %s\n", s)
			} else {
				lines.Sayf("%s\n", s)
			}
		}
		switch {
		case len(d.Steps) == 0:
			lines.Sayf("nothing to do: the ledger is distributed over %d nodes of Citus %s\n", d.Nodes, d.Version)
		case !*dryRun:
			lines.Sayf("the ledger is distributed over %d nodes of Citus %s\n", d.Nodes, d.Version)
		}
		return v.print(struct {
			Citus string         `json:"citus"`
			Nodes int            `json:"nodes"`
			Steps []say.Sentence `json:"steps"`
		}{d.Version, d.Nodes, append([]say.Sentence{}, d.Steps...)}, lines)
	})
}
