// Package clientcmd holds the commands of origin systems and people: they use the API, or nothing but files.
package clientcmd

import (
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

type app struct{ *cli.App }

// Commands are all of them, in the order in which --help shows them.
func Commands(shared *cli.App) []*cobra.Command {
	a := &app{shared}
	return []*cobra.Command{
		a.reserveCommand(),
		a.registerCommand(),
		a.compareCommand(),
		a.evidenceCommand(),
		a.verifyCommand(),
		a.monitorCommand(),
		a.revokeCommand(),
		a.changesCommand(),
		a.reconcileCommand(),
		a.manifestCommand(),
	}
}
