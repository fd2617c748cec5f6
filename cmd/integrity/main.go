// Command integrity is the whole of Integrity Ledger in one binary: the server, the operator's commands and the clients
// of its API. Each subcommand has a file of its own; this package wires and holds no rule of the ledger.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"integrityledger/cmd/integrity/cli"
)

type app struct{ *cli.App }

func main() {
	collectLess()
	a := &app{&cli.App{
		Out: os.Stdout, Errs: os.Stderr, Environ: os.Environ(),
		Now: time.Now,
	}}
	os.Exit(a.Run(context.Background(), a.rootCommand(), os.Args[1:]))
}

// collectLess lets garbage grow to three times what is in use, where the environment does not say otherwise: little is
// in use, so collecting at twice of it took a tenth of the processor under load.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}
