package clientcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/handlers/client"
)

func (a *app) changesCommand() *cobra.Command {
	var flags Flags
	var company string
	var after int64
	c := &cobra.Command{
		Use: "changes", Short: "Print the changes of a company",
		Long: "Prints every change of a company after a sequence, in order; --json prints one event a line as the service gives it. The\n" +
			"sequence of the last event is where to go on.",
		Args: cli.Arguments(0, 0),
	}
	flags.Add(c)
	c.Flags().StringVar(&company, "company", "", "reference of the company")
	c.Flags().Int64Var(&after, "after", 0, "begin after this sequence")
	cli.Require(c, "company")
	c.RunE = func(c *cobra.Command, _ []string) error {
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		return refusal(client.Follower{Client: service, Company: company, Cursor: after, Take: func(page client.Page) error {
			for _, e := range page.Events {
				if flags.JSON {
					err = cli.WriteJSON(a.Out, e.Raw, "")
				} else {
					_, err = fmt.Fprintf(a.Out, "%6d  %s  %-22s  %s  %s %s v%d  %s\n", e.Sequence, e.OccurredAt, e.Type, e.PublicID, e.Source, e.DocumentReference, e.Version, e.RecordStatus)
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
