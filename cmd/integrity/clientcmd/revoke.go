package clientcmd

import (
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

func (a *app) revokeCommand() *cobra.Command {
	var flags Flags
	var reason string
	c := &cobra.Command{
		Use: "revoke PUBLIC_ID", Short: "Revoke a record for good",
		Long: "Revokes a record: copies of it compare as RECORD_REVOKED from then on. Its evidence stays and no lower version becomes\n" +
			"current again. The key needs integrity:revoke. PUBLIC_ID may also be the verification link.",
		Args: cli.Arguments(1, 1),
	}
	flags.Add(c)
	c.Flags().StringVar(&reason, "reason", "", "why, at most 500 characters; kept for the organization's history only")
	c.RunE = func(c *cobra.Command, args []string) error {
		at, service, err := a.recordClient(args[0], flags)
		if err != nil {
			return err
		}
		withdrawn, err := service.Revoke(c.Context(), at.publicID, reason)
		if err != nil {
			return written(err)
		}
		return a.Print(flags.JSON, withdrawn, recordText(withdrawn.Record, false))
	}
	return c
}
