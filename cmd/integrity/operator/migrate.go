package operator

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/ledger"
)

func (a *app) migrateCommand() *cobra.Command {
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
			fmt.Sprintf("the schema is the newest; the ledger of %s has %d shards\n", in.Issuer, in.Shards))
	})
}
