// Command run starts one throwaway PostgreSQL for a whole test run:
//
//	run go test ./...
//
// It passes signals on and exits as the command does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"integrityledger/cmd/postgres/pgtest"
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
	if len(command) == 0 {
		return 0, errors.New("usage: run COMMAND [ARGUMENT…]")
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
	server, err := pgtest.Start(starting)
	close(started)
	cancel()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop(context.Background())) }()

	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // running what we are told is the purpose; signals are passed on
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), pgtest.Variable+"="+server.URL())
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the command: %w", err)
	}
	finished := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				// A ^C has reached the command too (same process group); twice does no harm.
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
