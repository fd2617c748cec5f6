package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/handlers"
)

// versionCommand prints what integrity --version prints, or all of it as JSON.
func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "version", Short: "Print the version and the commit of this program", Args: cli.Arguments(0, 0)}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(*cobra.Command, []string) error {
		b := handlers.ReadBuild()
		return a.Print(asJSON, b, fmt.Sprintln("integrity", b))
	}
	return c
}
