// Package demo shows the service to a newcomer: what serve --demo makes and prints, and origin-demo, which plays an origin system.
package demo

import (
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

type app struct{ *cli.App }

// OriginCommand plays an origin system.
func OriginCommand(shared *cli.App) *cobra.Command { return (&app{shared}).originDemoCommand() }
