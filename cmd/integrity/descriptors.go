package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"integrityledger/eventstore/cluster"
)

const (
	// ownFiles are what the process has open besides connections: keys, uploads, log, listeners.
	ownFiles = 128
	// fewClients is how many clients a service should be able to hold at once: readers of the feed wait up to 25 s each.
	fewClients = 1024
)

// databaseConns is how many connections to the database a process of the service opens.
func databaseConns(shards int) int {
	return cluster.CommitConns(shards) + readConns + publicConns + scanConns + queueConns + logConns + proofConns + wakeConns + probeConns + watchConns
}

// clientsFor is how many connections of clients an open-file limit leaves room for.
func clientsFor(limit uint64, conns int) int {
	return int(min(limit, 1<<30)) - conns - ownFiles
}

// openFiles is this process's limit, which the Go runtime has raised as far as it may.
func openFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("ask for the limit of open files: %w", err)
	}
	return limit.Cur, nil
}

// raiseFiles is what an operator does about a low limit.
const raiseFiles = "raise it: LimitNOFILE=65536 in the unit, ulimits in a container, ulimit -n in a shell"

// files judges the limit of this shell; a running service may have been started with another.
func (d *doctor) files(shards int) {
	const check = "open files"
	limit, err := openFiles()
	if err != nil {
		d.warn(check, err.Error(), "look at ulimit -n")
		return
	}
	clients := clientsFor(limit, databaseConns(shards))
	found := fmt.Sprintf("%d may be open: room for %d connections of clients", limit, max(0, clients))
	switch {
	case clients < ownFiles:
		d.fail(check, found, raiseFiles)
	case clients < fewClients:
		d.warn(check, found, raiseFiles)
	default:
		d.ok(check, "%s", found)
	}
}

// warnOfFiles says at the start what would show as refused connections under load.
func (s *service) warnOfFiles() {
	limit, err := openFiles()
	if clients := clientsFor(limit, databaseConns(s.installed.Shards)); err == nil && clients < fewClients {
		s.log.Warn("few files may be open, so few clients can be connected at once; "+raiseFiles, "limit", limit, "clients", max(0, clients))
	}
}
