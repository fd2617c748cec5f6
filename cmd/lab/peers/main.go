// Command peers is the part of the benchmark that needs other projects' code: "peers tessera" serves a log of Tessera
// over HTTP, and "peers immudb" loads an immudb server through immudb's own Go client. cmd/lab/bench starts both. See
// its package comment for what they measure.
//
// The program is a module of its own. The workspace of the lab does not list it, so that neither the product nor the
// lab is built with these dependencies or their versions. immudb has the Business Source License: nothing here is
// released. "make bench PEERS=1" builds the program, and
//
//	cd cmd/lab/peers && GOWORK=off go test ./...
//
// runs its test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	dir := flags.String("dir", "", "an empty directory for data")
	age := flags.Duration("batch-age", time.Second, "tessera: how long an entry waits for more")
	server := flags.String("server", "", "immudb: the server's address")
	if len(args) == 0 {
		return errors.New("usage: peers tessera|immudb [flags]")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	var handler http.Handler
	var closer func(context.Context) error
	switch args[0] {
	case "tessera":
		handler, closer, err = newLog(ctx, *dir, *age)
	case "immudb":
		handler, closer, err = newGenerator(*dir, *server)
	default:
		err = fmt.Errorf("%q must be tessera or immudb", args[0])
	}
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(web.Close(), closer(ending))
	}
}

func ready(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
