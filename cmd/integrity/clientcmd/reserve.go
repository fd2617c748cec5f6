package clientcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/handlers/wire"
)

func (a *app) reserveCommand() *cobra.Command {
	var flags Flags
	var d wire.VersionReference
	var quiet bool
	c := &cobra.Command{
		Use: "reserve", Short: "Reserve the verification link of a version before its file is final",
		Long: "Reserves the link of a version, to be put into the document before its bytes are final; then register the finished FILE\n" +
			"with the same --company, --source, --document and --version. A reservation is no evidence of anything and consumes\n" +
			"nothing. It is active for 7 days; the same command again renews it, and the link never changes.",
		Args: cli.Arguments(0, 0),
	}
	flags.Add(c)
	c.Flags().StringVar(&d.CompanyReference, "company", "", "reference of the company")
	c.Flags().StringVar(&d.Source, "source", "", "reference of the origin system")
	c.Flags().StringVar(&d.DocumentReference, "document", "", "reference of the document")
	c.Flags().Int32Var(&d.Version, "version", 0, "version of the document, from 1")
	c.Flags().BoolVar(&quiet, "quiet", false, "print only the verification link")
	c.MarkFlagsMutuallyExclusive("json", "quiet")
	cli.Require(c, "company", "source", "document", "version")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if d.Version < 1 {
			return errors.New("--version must be a whole number from 1")
		}
		service, err := Connect(a.App, flags)
		if err != nil {
			return err
		}
		r, err := service.Reserve(c.Context(), d)
		if err != nil {
			return written(err)
		}
		text := fmt.Sprintf("reservation   %s, until %s\npublicId      %s\nverification  %s\n", r.Status, r.ExpiresAt, r.PublicID, r.VerificationURL)
		if quiet {
			text = r.VerificationURL + "\n"
		}
		return a.Print(flags.JSON, r, text)
	}
	return c
}
