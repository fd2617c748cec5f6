// Command run starts one throwaway PostgreSQL for a whole test run:
//
//	run go test ./...
//
// With -citus as the first argument it starts a Citus cluster instead: a coordinator and two workers.
//
// It forwards signals to the command and exits with the command's exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"integrityledger/eventstore/pgtest"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		code = 2
	}
	os.Exit(code)
}

func run(command []string) (code int, err error) {
	citus := len(command) > 0 && command[0] == "-citus"
	if citus {
		command = command[1:]
	}
	if len(command) == 0 {
		return 0, errors.New("usage: run [-citus] COMMAND [ARGUMENT…]")
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	starting, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel()
		case <-started:
		}
	}()
	server, err := start(starting, citus)
	close(started)
	cancel()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop(context.Background())) }()

	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // running the given command is the purpose; signals are forwarded
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	variable := pgtest.Variable
	if citus {
		variable = pgtest.CitusVariable
	}
	cmd.Env = append(os.Environ(), variable+"="+server.URL())
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the command: %w", err)
	}
	finished := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				// A ^C has also reached the command (same process group). Sending it twice does no harm.
				_ = cmd.Process.Signal(s)
			case <-finished:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(finished)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return 1, nil
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	default:
		return 0, err
	}
}

// throwaway is a server, or the coordinator of a cluster, that runs during the command.
type throwaway interface {
	URL() string
	Stop(ctx context.Context) error
}

func start(ctx context.Context, citus bool) (throwaway, error) {
	if citus {
		return pgtest.StartCitus(ctx)
	}
	return pgtest.Start(ctx)
}
