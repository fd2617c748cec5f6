package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/handlers/client"
)

func (a *app) changesCommand() *cobra.Command {
	var flags clientFlags
	var company string
	var after int64
	c := &cobra.Command{
		Use: "changes", Short: "Print the changes of a company",
		Long: "Prints every change of a company after a sequence, in order; --json prints one event a line as the service gives it. The\n" +
			"sequence of the last event is where to go on.",
		Args: arguments(0, 0),
	}
	flags.add(c)
	c.Flags().StringVar(&company, "company", "", "reference of the company")
	c.Flags().Int64Var(&after, "after", 0, "begin after this sequence")
	require(c, "company")
	c.RunE = func(c *cobra.Command, _ []string) error {
		service, err := a.client(flags)
		if err != nil {
			return err
		}
		return refusal(client.Follower{Client: service, Company: company, Cursor: after, Take: func(page client.Page) error {
			for _, e := range page.Events {
				if flags.json {
					err = writeJSON(a.out, e.Raw, "")
				} else {
					_, err = fmt.Fprintf(a.out, "%6d  %s  %-22s  %s  %s %s v%d  %s\n", e.Sequence, e.OccurredAt, e.Type, e.PublicID, e.Source, e.DocumentReference, e.Version, e.RecordStatus)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}}.Run(c.Context()))
	}
	return c
}
