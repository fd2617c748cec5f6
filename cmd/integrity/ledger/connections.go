package ledger

import (
	"fmt"

	"golang.org/x/sys/unix"

	"integrityledger/eventstore/cluster"
)

const (
	// ownFiles are what the process has open besides connections: keys, uploads, log, listeners.
	OwnFiles = 128
	// fewClients is how many clients a service should be able to hold at once: readers of the feed wait up to 25 s each.
	FewClients = 1024
)

// DatabaseConns is how many connections to the database a process of the service opens.
func DatabaseConns(shards int) int {
	return cluster.CommitConns(shards) + ReadConns + PublicConns + ScanConns + QueueConns + StreamConns + LogConns + ProofConns + wakeConns + probeConns + watchConns
}

// ClientsFor is how many connections of clients an open-file limit leaves room for.
func ClientsFor(limit uint64, conns int) int {
	return int(min(limit, 1<<30)) - conns - OwnFiles
}

// OpenFiles is this process's limit, which the Go runtime has raised as far as it may.
func OpenFiles() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("ask for the limit of open files: %w", err)
	}
	return limit.Cur, nil
}

// RaiseFiles is what an operator does about a low limit.
const RaiseFiles = "raise it: LimitNOFILE=65536 in the unit, ulimits in a container, ulimit -n in a shell"

const (
	// wakeConns are those of eventstore.NotifyPool.
	wakeConns = 2
	// watchConns is that of those who look at the metrics.
	watchConns = 1
)

// Connections of one process; the embedded PostgreSQL has a hundred.
const (
	ReadConns   = 16
	PublicConns = 8
	ScanConns   = 2
	QueueConns  = 4
	StreamConns = 4 // that forward events
	LogConns    = 3 // that write the transparency tree
	ProofConns  = 4 // that read it
	probeConns  = 1 // that /readyz asks
)
