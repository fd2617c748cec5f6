package operator

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/ledger"
)

func (a *app) migrateCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the database to the newest schema and make the ledger in it",
		Long: "Brings the database to the newest schema, as the role of its URL, and makes the ledger where it is missing.\n" +
			"serve does the same when it starts.",
		Args: cli.Arguments(0, 0),
	}
	config.AddFlags(c, "DATABASE_URL", "DATA_DIR", "BASE_URL", "ISSUER", "SHARDS")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(a.App, c)
		if err != nil {
			return err
		}
		ctx := c.Context()
		log := slog.New(slog.NewTextHandler(a.Errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		return ledger.WithDatabase(ctx, a.App, cfg, log, c.CommandPath(), true, func(url string) error {
			in, err := ledger.Ensure(ctx, a.App, url, cfg)
			if err != nil {
				return err
			}
			return a.Print(asJSON, struct {
				Issuer    string `json:"issuer"`
				Shards    int    `json:"shards"`
				Epoch     int64  `json:"epoch"`
				CreatedAt string `json:"createdAt"`
			}{in.Issuer, in.Shards, in.Epoch, cli.TimeText(in.CreatedAt)},
				fmt.Sprintf("the schema is the newest; the ledger of %s has %d shards\n", in.Issuer, in.Shards))
		})
	}
	return c
}
