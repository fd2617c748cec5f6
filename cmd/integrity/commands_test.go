package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/handlers/web"
)

// TestCommandsOfTheContract: the table of client operations lists every command that calls the API, and no other.
func TestCommandsOfTheContract(t *testing.T) {
	listed := []string{
		"origin-demo",             // an origin system, not an operation
		"version", "audit", "log", // for operators
	}
	for id, o := range web.ClientOperations() {
		for _, name := range o.Commands {
			listed = append(listed, name)
			c, left, err := (&app{&cli.App{}}).rootCommand().Find(strings.Fields(name))
			if err != nil || len(left) != 0 || c.Flags().Lookup("url") == nil && name != "monitor" {
				t.Errorf("%s: %q is no command that asks a service: %v", id, name, err)
			}
		}
	}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		name := strings.TrimPrefix(c.CommandPath(), "integrity ")
		if c.Flags().Lookup("url") != nil && !slices.Contains(listed, name) {
			t.Errorf("the command %s asks a service: say in web.ClientOperations for which operation", name)
		}
	}
	visit((&app{&cli.App{}}).rootCommand())
}
