// Package operator holds the commands of whoever runs the service: they use its database, its key files or its data
// directory, and no API.
package operator

import (
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

type app struct{ *cli.App }

// Commands are all of them, in the order in which --help shows them.
func Commands(shared *cli.App) []*cobra.Command {
	a := &app{shared}
	return []*cobra.Command{
		a.organizationCommand(),
		a.memberCommand(),
		a.keyCommand(),
		a.companyCommand(),
		a.keysCommand(),
		a.replayCommand(),
		a.auditCommand(),
		a.exportCommand(),
		a.rebuildCommand(),
		a.logCommand(),
		a.distributeCommand(),
		a.backupCommand(),
		a.restoreCommand(),
		a.doctorCommand(),
		a.clockCommand(),
	}
}

// MigrateCommand brings the schema to its newest form.
func MigrateCommand(a *cli.App) *cobra.Command { return (&app{a}).migrateCommand() }
