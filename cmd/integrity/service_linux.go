package main

import (
	"os"

	"github.com/spf13/cobra"

	"integrityledger/cmd/analyzer"
	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/operator"
)

// attachments reads the files attached to a PDF, which may be hostile, in a confined child.
var attachments clientcmd.Attachments = analyzer.Attachments

// serviceCommands returns the commands that exist where the service runs: on Linux. Elsewhere the program has the
// commands that use the API.
func (a *app) serviceCommands(root *cobra.Command) (server, operators, origins []*cobra.Command) {
	root.AddCommand(&cobra.Command{ // analyzer runs this program with this command as its sandboxed child
		Use: analyzer.Command, Hidden: true, Args: cli.Arguments(0, 0),
		Run: func(*cobra.Command, []string) { os.Exit(analyzer.Child()) },
	})
	witness := a.witnessCommand()
	witness.AddCommand(operator.WitnessPairCommand(a.App))
	return []*cobra.Command{a.serveCommand(), witness, operator.MigrateCommand(a.App)},
		operator.Commands(a.App), []*cobra.Command{demo.OriginCommand(a.App)}
}
