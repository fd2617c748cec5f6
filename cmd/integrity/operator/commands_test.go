package operator

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
)

// TestManualDescribesEveryCommand: a command that help.txt lacks cannot be made; this finds what no command is called.
func TestManualDescribesEveryCommand(t *testing.T) {
	shared := &cli.App{Out: io.Discard, Errs: io.Discard}
	made := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		made[strings.TrimPrefix(c.CommandPath(), "integrity ")] = true
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	root := &cobra.Command{Use: "integrity"}
	root.AddCommand(append(Commands(shared), MigrateCommand(shared))...)
	walk(root)
	for name := range manual() {
		if !made[name] {
			t.Errorf("help.txt describes %q, which is no command", name)
		}
	}
}
