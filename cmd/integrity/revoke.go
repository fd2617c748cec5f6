package main

import (
	"encoding/json"

	"github.com/spf13/cobra"
)

func (a *app) revokeCommand() *cobra.Command {
	var flags clientFlags
	var reason string
	c := &cobra.Command{
		Use: "revoke PUBLIC_ID", Short: "Withdraw a record for good",
		Long: "Withdraws a record: copies of it compare as RECORD_REVOKED from then on. Its evidence stays and no lower version becomes\n" +
			"current again. The key needs integrity:revoke. PUBLIC_ID may also be the verification link.",
		Args: arguments(1, 1),
	}
	flags.add(c)
	c.Flags().StringVar(&reason, "reason", "", "why, at most 500 characters; kept for the organization's history only")
	c.RunE = func(c *cobra.Command, args []string) error {
		at, client, err := a.recordClient(args[0], flags)
		if err != nil {
			return err
		}
		document := map[string]string{}
		if reason != "" {
			document["reason"] = reason
		}
		var raw json.RawMessage
		if err := client.post(c.Context(), "/api/v1/integrity/records/"+at.publicID+"/revoke", document, &raw); err != nil {
			return refusal(err)
		}
		var record recordAnswer
		if err := json.Unmarshal(raw, &record); err != nil {
			return err
		}
		record.Replayed = false // withdrawing again is not registering again
		return a.print(flags.json, raw, record.text())
	}
	return c
}
