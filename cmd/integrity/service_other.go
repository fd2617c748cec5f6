//go:build !linux

package main

import "github.com/spf13/cobra"

func (*app) serviceCommands(*cobra.Command) (server, operators, origins []*cobra.Command) {
	return nil, nil, nil
}
