// Command integrity is the whole of Integrity Ledger in one binary: the server, the operator's commands and the clients
// of its API. Each subcommand has a file of its own; this package wires and holds no rule of the ledger.
package main

import (
	"context"
	"crypto/rand"
	"os"
	"time"
)

func main() {
	a := &app{
		out: os.Stdout, errs: os.Stderr, environ: os.Environ(),
		now: time.Now, random: rand.Reader,
	}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}
